"""Replay of whole unrolls: each is learned from once, oldest first, or again beside new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import SurrealError
from session.nest import Array
from surreal_like.data.batch import Collate, Columns
from surreal_like.data.frames import stack_size
from surreal_like.data.unroll import UnrollBuffer
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.age_selector import AgeRule
from surreal_like.replay.base import Replay
from surreal_like.replay.column_spec import Manifest, check_chunk, check_lead_in, manifest_of
from surreal_like.replay.storage import LINK_BYTES
from surreal_like.replay.unroll_plan import plan_unrolls
from surreal_like.replay.unroll_queue import Unroll, UnrollQueue, pack, unpack
from surreal_like.replay.unroll_ring import UnrollRing
from surreal_like.transform.reward import make_reward_transform

_REPLAYED = "replayed"


class FIFOReplay(Replay):
    """A queue of whole unrolls for on-policy learners, and a ring of those already learned from.

    An unroll has ``session_config.sender.flush_iteration`` steps (T) of all streams of one agent
    and is passed on as received, without a copy. ``learner_config.replay.batch_size`` counts
    streams, ``capacity`` rows. A full queue makes agents wait, or drops its oldest unrolls where
    ``when_full`` is ``drop_oldest``; unrolls that were acted with parameters more than
    ``evict_rule.max_version_lag`` versions old are never learned from. Lost unrolls are counted.

    ``replay_proportion`` of the streams of each batch are drawn from the ring, which keeps the
    newest ``replay_capacity`` rows that have been learned from; until the ring has enough of them,
    batches hold new unrolls only. ``max_version_lag`` does not apply to replayed unrolls, which are
    old by intention; ``age`` bounds them. ``replayed``, bool ``[B]`` in each batch, flags their
    streams. They count as ``replayed``, not as ``sampled`` once more.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or there is no room for one.
    """

    overlap = 1
    consumes = True

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        replay = learner_config["replay"]
        self._plan = plan_unrolls(learner_config, env_config, session_config)
        self._max_lag: int = replay["evict_rule"]["max_version_lag"]
        self._lead = stack_size(env_config) - 1
        self._manifest: Manifest | None = None
        self._queue = UnrollQueue(
            self._plan.queue, drops_oldest=replay["when_full"] == "drop_oldest"
        )
        self._ring = UnrollRing(
            self._plan.ring, AgeRule.of(replay), seed=settings.default_seed(session_config)
        )
        self._unroll_bytes = 0
        # In unrolls, since the start.
        self._inserted = self._sampled = self._replayed = self._evicted = 0
        self._newest_fresh: list[Unroll] = []
        self._newest_again = 0

    def check_start(self, row_bytes: int) -> None:
        """Raises ConfigError if there is no room for a batch of such rows, or no message for it."""
        plan, row_bytes = self._plan, row_bytes - LINK_BYTES
        unroll_rows = (plan.steps + 1) * plan.num_envs
        plan.within_bytes(unroll_rows * row_bytes)
        settings.require_messages(
            self.env_config,
            self.session_config,
            row_bytes=row_bytes,
            rows=plan.batch * unroll_rows,
        )

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses the last rows of an agent that ends: they are no whole unroll."""
        return "short unroll" if chunk.tail or not chunk.overlap else None

    def insert(self, experience: Chunk) -> None:
        """Inserts an unroll, without a copy.

        Raises:
            DataError: it is not as long or wide as the others, or has other columns.
            ConfigError: unrolls of so many bytes must deadlock.
        """
        chunk, plan = experience, self._plan
        shape = check_chunk(chunk, self._manifest)
        if shape != (plan.steps + 1, plan.num_envs):
            raise DataError(
                f"unroll of {shape[0] - 1} steps x {shape[1]} streams, expected "
                f"{plan.steps} x {plan.num_envs}"
            )
        check_lead_in(chunk, self._lead)
        if self._manifest is None:
            self._open(chunk)
        self._evicted += self._queue.push(Unroll.of(chunk))
        self._inserted += 1
        newest = int(chunk.columns["version"].max())
        self.newest_version = max(self.newest_version, newest)

    def _open(self, chunk: Chunk) -> None:
        """Applies ``max_bytes`` by the size of the first unroll: all are equally large."""
        self._plan = self._plan.within_bytes(chunk.size_bytes)
        self._queue.places = self._plan.queue
        self._ring.bound(self._plan.ring)
        self._unroll_bytes = chunk.size_bytes
        self._manifest = manifest_of(chunk.columns, axes=2)

    def evict(self) -> int:
        """Removes unrolls that are too old to be learned from; returns how many rows these were."""
        if not self._max_lag:
            return 0
        gone = self._queue.drop_older(self.newest_version - self._max_lag)
        self._evicted += gone
        return gone * self._plan.rows

    def sample(self, batch_size: int) -> list[Unroll]:
        """Pops the oldest unrolls from the queue, and draws the replayed ones from the ring.

        Args:
            batch_size: number of streams of both.

        Raises:
            SurrealError: there are fewer, or ``batch_size`` is no whole number of unrolls.
        """
        again = self._again(batch_size)
        fresh, rest = divmod(batch_size, self._plan.num_envs)
        fresh -= again
        if rest or fresh > len(self._queue):
            raise SurrealError(
                f"{batch_size} streams asked for, but there are {len(self._queue)} unrolls "
                f"of {self._plan.num_envs}: ask can_sample() first"
            )
        replayed = self._ring.draw(again, self.newest_version)
        taken = self._queue.pop(fresh)
        self._ring.add(taken)
        self._sampled += fresh
        self._replayed += again
        self._newest_fresh, self._newest_again = taken, again
        return taken + replayed

    def undo_sample(self) -> None:
        """Puts the unrolls of the newest batch back to the front of the queue."""
        fresh = self._newest_fresh
        self._queue.put_back(fresh)
        self._ring.undo_sample(len(fresh))
        self._sampled -= len(fresh)
        self._replayed -= self._newest_again
        self._newest_fresh, self._newest_again = [], 0

    def _again(self, batch_size: int) -> int:
        """Number of replayed unrolls in a batch: the full share, or none if the ring has fewer."""
        plan = self._plan
        count = batch_size // plan.num_envs
        wanted = count * plan.again // plan.batch
        if not wanted or self._ring.drawable(self.newest_version) < wanted:
            return 0
        return wanted

    def aggregate_batch(self, sample: Sequence[Unroll]) -> dict[str, Array]:
        """The unrolls side by side; see :meth:`UnrollBuffer.lay`, and ``replayed`` bool ``[B]``."""
        buffer = _make_buffer(self.learner_config)
        return _lay(buffer, [unroll.chunk.arrays for unroll in sample], _flags(sample))

    def sample_columns(self, batch_size: int) -> dict[str, Array]:
        """Returns the unrolls as they are; the learner lays them side by side."""
        sample = self.sample(batch_size)
        columns = {
            f"{number}/{name}": column
            for number, unroll in enumerate(sample)
            for name, column in unroll.chunk.arrays.items()
        }
        return {**columns, _REPLAYED: _flags(sample)}

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns a function that lays the unrolls side by side, one batch at a time."""
        buffer = _make_buffer(learner_config)

        def lay(columns: Mapping[str, Array], batches: int) -> Iterator[Columns]:
            unrolls: dict[str, Columns] = {}
            for path, column in columns.items():
                number, slash, name = path.partition("/")
                if slash:
                    unrolls.setdefault(number, {})[name] = column
            each = list(unrolls.values())
            width = len(each) // batches
            for first in range(0, len(each), width):
                part = slice(first, first + width)
                yield _lay(buffer, each[part], columns[_REPLAYED][part])

        return lay

    def rows_in(self, batch_size: int) -> int:
        """Rows of the batch just sampled that are sampled for the first time."""
        return len(self._newest_fresh) * self._plan.rows

    def batches_at_once(self, asked: int) -> int:
        """One, because batches that wait in the learner grow older."""
        return 1

    def start_sample_condition(self) -> bool:
        """True if there is an unroll."""
        return bool(len(self._queue))

    def can_insert(self) -> bool:
        """True if there is room for another unroll."""
        return self._queue.can_push()

    def can_sample(self, batch_size: int) -> bool:
        """True if there are unrolls of so many streams that are young enough."""
        self.evict()
        fresh = batch_size - self._again(batch_size) * self._plan.num_envs
        return fresh <= len(self._queue) * self._plan.num_envs

    def needed_rows(self, batch_size: int) -> int:
        """Rows of the unrolls of a batch that must be new."""
        fresh = batch_size // self._plan.num_envs - self._again(batch_size)
        return fresh * self._plan.rows

    def reseed(self, seed: int) -> None:
        """Draws replayed unrolls with another seed from now on."""
        self._ring.reseed(seed)

    def statistics(self) -> dict[str, float]:
        """Rows: in the queue, in the ring, and since the start; bytes of both.

        ``inserted = size + sampled + evicted``.
        """
        rows = self._plan.rows
        return {
            "size": len(self._queue) * rows,
            "sampleable": len(self._queue) * rows,
            "replayable": len(self._ring) * rows,
            "inserted": self._inserted * rows,
            "sampled": self._sampled * rows,
            "replayed": self._replayed * rows,
            "evicted": self._evicted * rows,
            "size_bytes": (len(self._queue) + len(self._ring)) * self._unroll_bytes,
        }

    def state(self) -> dict[str, Any]:
        """Everything that is kept, copied."""
        return {
            "queue": pack(self._queue),
            "ring": self._ring.state(),
            "counts": [self._inserted, self._sampled, self._evicted],
            "newest_version": self.newest_version,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave; a shorter queue accepts nothing until it has room.

        Unrolls that are longer or wider than those that come now are left out.

        Raises:
            ConfigError: unrolls of so many bytes must deadlock.
        """
        queue, again = unpack(state["queue"]), unpack(state["ring"]["unrolls"])
        self.newest_version = state["newest_version"]
        first = next(iter(queue + again), None)
        if first is None or first.chunk.shape != (self._plan.steps + 1, self._plan.num_envs):
            return
        self._open(first.chunk)
        self._queue.restore(queue)
        self._ring.restore(again, state["ring"]["generator"])
        # Replayed unrolls are counted by the process that gave them out.
        self._inserted, self._sampled, self._evicted = state["counts"]


def _make_buffer(learner_config: Mapping[str, Any]) -> UnrollBuffer:
    algo = learner_config["algo"]
    return UnrollBuffer(algo["gamma"], transform=make_reward_transform(algo))


def _flags(unrolls: Sequence[Unroll]) -> npt.NDArray[np.bool_]:
    return np.array([unroll.replayed for unroll in unrolls], np.bool_)


def _lay(
    buffer: UnrollBuffer, unrolls: Sequence[Mapping[str, Array]], replayed: npt.NDArray[np.bool_]
) -> dict[str, Array]:
    widths = [unroll["step_type"].shape[1] for unroll in unrolls]
    return {**buffer.lay(unrolls), _REPLAYED: np.repeat(replayed, widths)}
