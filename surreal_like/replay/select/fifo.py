"""Selection of samples that are each given once, the oldest first, or again beside new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from session.errors import SurrealError
from surreal_like.data.timestep import Flags
from surreal_like.replay.select.age import AgeRule, Versions
from surreal_like.replay.select.selector import Sample, Selector
from surreal_like.replay.storage import Rows
from surreal_like.replay.unrolls import UnrollPlan


class _Group(NamedTuple):
    """Samples that came together, one of each stream of a chunk.

    Attributes:
        first: number of the first row; the others follow it.
        version: the oldest version that acted in them.
        steps: environment steps of which they are.
        place: rows that were inserted before them, since the start of the run.
    """

    first: int
    version: int
    steps: int = 0
    place: int = 0


class FIFOSelector(Selector):
    """Hands out each sample once, the oldest first; a share of each batch may be drawn again.

    All samples of a group are handed out together. Distinct groups are drawn again by an AgeRule
    from the newest ones that have been handed out. Until there are enough of these, batches hold
    new samples only.

    Args:
        plan: sizes of groups, batches, queue and ring; read anew each time.
        versions: the oldest version that acted in each sample, ``[B]``, by its row ``[B]``.
        newest_version: the newest version that is known.
        rule: weights by age of the groups that are drawn again.
        seed: seeds the generator.

    Attributes:
        replayed: number of samples that were drawn again, since the start.
        arriving: environment steps of the group that is added next, and rows before it.
        steps: environment steps of the new samples in the newest batch.
        places: rows that were inserted before each group of the newest batch.
    """

    def __init__(
        self,
        plan: UnrollPlan,
        *,
        versions: Callable[[Rows], Versions],
        newest_version: Callable[[], int],
        rule: AgeRule | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed=seed)
        self._plan, self._group = plan, plan.num_envs
        self._versions, self._newest_version = versions, newest_version
        self._rule = rule or AgeRule()
        self._groups: list[_Group] = []  # in order of their coming
        self._given = 0  # the first ones of these, which have been handed out
        self.replayed = self.steps = 0
        self.arriving, self.places = (0, 0), list[int]()
        self._newest = (0, 0)  # groups of the newest batch: new ones, drawn again

    def __len__(self) -> int:
        """Number of samples in the queue."""
        return (len(self._groups) - self._given) * self._group

    def list_rows(self) -> Rows:
        firsts = np.array([group.first for group in self._groups[self._given :]], np.int64)
        return (firsts[:, None] + np.arange(self._group)).reshape(-1)

    @property
    def waiting(self) -> int:
        """Number of groups in the queue."""
        return len(self._groups) - self._given

    @property
    def replayable(self) -> int:
        """Number of samples that may be drawn again."""
        return min(self._given, self._plan.ring) * self._group

    def needed(self) -> set[int]:
        """Returns the first rows of all groups that stay when another one comes."""
        return {group.first for group in self._keep() + self._groups[self._given + self._excess :]}

    @property
    def _excess(self) -> int:
        """Groups of the queue that make room for another one."""
        plan = self._plan
        return max(self.waiting - plan.queue + 1, 0) if plan.drops_oldest else 0

    def mark(self, first: int, ready: Flags) -> None:
        self.mark_earlier(first + np.flatnonzero(ready))

    def mark_earlier(self, numbers: Rows) -> None:
        """Adds the samples at these rows to the end of the queue."""
        # New unrolls lie where those did that are not kept.
        unkept = max(self._given - self._plan.ring, 0)
        del self._groups[:unkept]
        self._given -= unkept
        for group in numbers.reshape(-1, self._group):
            version = int(self._versions(group).min())
            self._groups.append(_Group(int(group[0]), version, *self.arriving))
            self.arriving = (0, 0)

    def unmark(self, numbers: Rows) -> int:
        """Removes samples, whole groups only; returns how many there were in the queue.

        Those that were handed out are not drawn again.
        """
        firsts = set(numbers.tolist())
        given = [each for each in self._groups[: self._given] if each.first not in firsts]
        self._groups[: self._given], self._given = given, len(given)
        return self._drop(lambda group: group.first in firsts)

    def evict(self, oldest: int) -> int:
        """Removes the oldest of the queue where they make room; no row is too old to be kept."""
        gone = self._excess
        del self._groups[self._given : self._given + gone]
        return gone * self._group

    def drop_older(self, version: int) -> int:
        """Drops samples that an older version acted in from the queue; returns how many."""
        # Agents may lag differently: the first in the queue need not have the oldest version.
        return self._drop(lambda group: group.version < version)

    def _drop(self, goes: Callable[[_Group], bool]) -> int:
        before, queue = len(self), self._groups[self._given :]
        if any(map(goes, queue)):
            self._groups[self._given :] = [group for group in queue if not goes(group)]
        return before - len(self)

    def fresh(self, batch_size: int) -> int:
        """Returns how many samples of a batch must come from the queue."""
        return batch_size - self._again(batch_size) * self._group

    def _again(self, batch_size: int) -> int:
        """Groups of a batch that are drawn again: the full share, or none if there are fewer."""
        wanted = batch_size // self._group * self._plan.again // self._plan.batch
        if not wanted:
            return 0
        kept, oldest = self._keep(), self._newest_version() - self._rule.max_versions
        if self._rule.max_versions:
            kept = [group for group in kept if group.version >= oldest]
        return wanted if len(kept) >= wanted else 0

    def _keep(self) -> list[_Group]:
        return self._groups[max(self._given - self._plan.ring, 0) : self._given]

    def sample(self, batch_size: int) -> Sample:
        """Takes the oldest samples off the queue, and draws the replayed ones.

        Raises:
            SurrealError: there are fewer, or ``batch_size`` is no whole number of groups.
        """
        again = self._again(batch_size)
        fresh, rest = divmod(batch_size, self._group)
        fresh -= again
        if rest or fresh > self.waiting:
            raise SurrealError(
                f"{batch_size} streams asked for, but there are {self.waiting} unrolls "
                f"of {self._group}: ask can_sample() first"
            )
        replayed = self._draw(again)
        taken = self._groups[self._given : self._given + fresh]
        self._given += fresh
        self.replayed += again * self._group
        self._newest, self.steps = (fresh, again), sum(group.steps for group in taken)
        self.places = [group.place for group in taken + replayed]
        firsts = np.array([group.first for group in taken + replayed], np.int64)
        numbers = (firsts[:, None] + np.arange(self._group)).reshape(-1)
        return Sample(numbers, {"replayed": np.arange(len(numbers)) >= fresh * self._group})

    def _draw(self, count: int) -> list[_Group]:
        """Draws distinct groups, one after the other, each by its weight among those left."""
        if not count:
            return []
        kept = self._keep()
        versions = np.array([group.version for group in kept], np.int64)
        weights = self._rule.log_weights(versions, self._newest_version())
        # The largest log weights with Gumbel noise are such a draw (Kool and others 2019,
        # "Stochastic beams and where to find them", section 2.3).
        keys = weights + self._generator.gumbel(size=len(weights))
        chosen = np.argpartition(-keys, count - 1)[:count]
        return [kept[place] for place in chosen]

    def undo_sample(self) -> None:
        """Puts the samples that were taken last back to the front of the queue."""
        fresh, again = self._newest
        self._given -= fresh
        self.replayed -= again * self._group
        self._newest = (0, 0)

    def statistics(self) -> dict[str, float]:
        """Samples that may be drawn again, and those that were."""
        return {"replayable": self.replayable, "replayed": self.replayed}

    def state(self) -> dict[str, Any]:
        """Rows and versions of all groups, the oldest first, and the generator."""
        groups = [list(group) for group in self._groups]
        return {**super().state(), "given": groups[: self._given], "queue": groups[self._given :]}

    def restore(self, state: Mapping[str, Any], oldest: int, ready: Flags) -> None:
        """Restores what :meth:`state` gave, as far as its rows are sampleable."""
        given, queue = (
            [_Group(*each) for each in state[name] if each[0] >= oldest and ready[each[0] - oldest]]
            for name in ("given", "queue")
        )
        self._groups, self._given = given + queue, len(given)
        self._generator.bit_generator.state = state["generator"]
