"""The learners of all policies of a process, as its coordinator sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.errors import RunError
from session.process.clock import Clock
from session.wire.one_way_sockets import Socket
from surreal_like.coordinator.best_evaluation import is_better, score_of_policy
from surreal_like.data.group import group
from surreal_like.data.sender import Sender
from surreal_like.dataflow.flow import NOT_READY, PASSED, STALLED, Flow
from surreal_like.learner.group_leader import GroupLost, digest_of
from surreal_like.learner.joint import for_policies
from surreal_like.learner.learner import Learner
from surreal_like.learner.worker import Learned, LearnerWorker, Update


class Learners:
    """Learns all policies by one plan.

    The first policy owns the run: its iteration and its version are those of the run.

    Args:
        workers: policy -> its worker.
        clock: clock of the process.
        joint: True if the environment has several agents.
    """

    def __init__(
        self, workers: Mapping[str, LearnerWorker], clock: Clock, *, joint: bool = False
    ) -> None:
        self._workers, self._clock, self._joint = dict(workers), clock, joint
        self._all = list(self._workers.values())
        self.owner = self._all[0]
        self._flow: Flow | None = None
        # Added to the steps of all shards: those of a donor, or of a run that did not count them.
        self._more_steps = 0
        # Shard -> its newest counts, and the same by accounts.
        self._named: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    @property
    def learner(self) -> Learner:
        """The present learner of the first policy."""
        return self.owner.learner

    def by_policy(self) -> dict[str, Learner]:
        """Returns the present learner of each policy by name."""
        return {policy: worker.learner for policy, worker in self._workers.items()}

    def digest(self) -> str:
        """Returns the digest of the present parameters, for a group of learners."""
        return digest_of(self.by_policy())

    def load(self, config: Config) -> Mapping[str, Any]:
        """Takes over a donor's checkpoint, see :meth:`LearnerWorker.load`."""
        state = self.owner.load(config)
        self._flow = None
        return state

    # -- the run ----------------------------------------------------------------------------------

    def restore(self) -> Mapping[str, Any] | None:
        """Restores the newest checkpoint of each; returns the state of the first policy's."""
        states = [worker.restore() for worker in self._all]
        return states[0]

    def connect(self, version: int) -> None:
        """Connects all; no version is published that is not above this one."""
        for worker in self._all:
            worker.connect(version)

    def close(self) -> None:
        """Ends what is written of all."""
        for worker in self._all:
            worker.close()

    # -- environment steps ------------------------------------------------------------------------

    @property
    def learned_steps(self) -> int:
        """Environment steps of the rows that all policies have learned from."""
        return self._more_steps + sum(worker.replay.learned_steps for worker in self._all)

    def save_learned(self) -> dict[str, Any]:
        """Returns the parts of :attr:`learned_steps`, for a file."""
        shards: dict[str, Any] = {}
        for worker in self._all:
            shards |= worker.replay.save_learned()
        return {"shards": shards, "more": self._more_steps}

    def restore_learned(self, learned: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`save_learned`, once all are connected."""
        self._more_steps = learned["more"]
        for worker in self._all:
            worker.replay.restore_learned(learned["shards"])
        self.set_learned_steps(self.learned_steps)

    def set_learned_steps(self, steps: int) -> None:
        """Sets the environment steps from which the present parameters have learned."""
        self._more_steps += steps - self.learned_steps
        for worker in self._all:
            worker.learner.env_steps = steps
            worker.learner.link.count_steps = lambda: self.learned_steps

    # -- publishing -------------------------------------------------------------------------------

    def set_task(self, task: Mapping[str, Any]) -> None:
        """Sets the task, its ``number`` and ``settings``, that comes with the next parameters.

        Number 0 is none: nothing is sent of it.
        """
        if not task["number"]:
            return
        sent = {name: task[name] for name in ("number", "settings")}
        for worker in self._all:
            worker.learner.link.publisher.task = sent

    def publish(self, reason: str) -> None:
        """Publishes the current weights of all."""
        for worker in self._all:
            worker.publish(reason)

    def publish_end(self, reason: str, *, resumable: bool, final_seconds: float) -> None:
        """Publishes the last weights of all.

        Args:
            reason: reason of the end.
            resumable: True if the run goes on later: machines that have joined wait.
            final_seconds: time that evaluators have to play them; 0: they are not played.
        """
        for worker in self._all:
            publisher = worker.learner.link.publisher
            publisher.resumable, publisher.final_seconds = resumable, final_seconds
            worker.publish(reason, final=True)

    @property
    def published(self) -> tuple[int, int]:
        """Order of the newest publication of the first policy: incarnation, version."""
        newest = self.learner.link.publisher.newest
        return (0, 0) if newest is None else newest.order

    def digests(self) -> dict[str, str]:
        """Returns the SHA-256 of the present weights of each policy."""
        return {policy: worker.saver.digest() for policy, worker in self._workers.items()}

    @property
    def save_due(self) -> bool:
        """True if the next checkpoint of one is due."""
        return any(worker.saver.due() for worker in self._all)

    def save(self, run_id: str, state: Mapping[str, Any]) -> Path | None:
        """Saves all; returns the path of the first policy's, None if the disk failed."""
        paths = [worker.save(run_id, state) for worker in self._all]
        return paths[0] if all(paths) else None

    def save_best(
        self, flats: Mapping[str, npt.NDArray[np.uint8]], score: Mapping[str, Any]
    ) -> None:
        """Stores the parameters of an evaluation, of each policy for which it is the best.

        Args:
            flats: parameters of each policy, by the names of :attr:`flat_bytes`.
            score: the evaluation; a policy goes by the mean return of its own agents.
        """
        for policy, worker in self._workers.items():
            flat, own = flats.get(self._array(policy)), score_of_policy(score, policy)
            best = worker.saver.best_return
            better = is_better(own["mean_return"], best, newest=self._joint)
            if flat is not None and better:
                worker.save_best(flat, own)

    def _array(self, policy: str) -> str:
        return "flat" if self._workers[policy] is self.owner else f"flat/{policy}"

    @property
    def best_return(self) -> float | None:
        """Return of the best stored parameters; None without any, and with several agents.

        There a joint return says nothing about a policy: in a game of two it is always 0.
        """
        return None if self._joint else self.owner.saver.best_return

    @property
    def flat_bytes(self) -> dict[str, int]:
        """Array of an evaluation -> size of the parameters of a policy, in bytes."""
        return {self._array(policy): each.flat_bytes for policy, each in self._workers.items()}

    # -- learning ---------------------------------------------------------------------------------

    @property
    def flow(self) -> Flow:
        """The plan of all policies."""
        if self._flow is None:
            self._flow = for_policies(self.by_policy())
        return self._flow

    def learn(self) -> Learned:
        """Pulls the plan once.

        Raises:
            BadUpdates: too many non-finite updates in a row; a restart returns to a checkpoint.
            GroupLost: another rank has ended.
        """
        now, together = self._clock.now(), group()
        waiting = sum(worker.learner.link.waiting for worker in self._all)
        if together.size > 1 and not waiting:
            # No rank waits for a batch within a turn.
            return Learned(False, now)
        flow, item = self.flow, PASSED
        failure: Exception | None = None
        error: Exception | None = None
        try:
            with together.turn(self._progress() if together.size > 1 else {}):
                item = flow.pull()
        except StopIteration:
            return Learned(False, now, waiting, error=RunError("the execution plan has ended"))
        except GroupLost:
            raise
        except Exception as raised:  # noqa: BLE001 - the author's code, and some rows of a replay
            failure = raised
        if failure is not None:
            # The batch that was taken last is the one that the author's code failed on.
            error = max(self._all, key=lambda each: each.learner.link.taken).fail(failure)
        if item is STALLED:
            error = flow.standstill()
        updates: list[Update] = []
        for worker in self._all:
            counted, wrong = worker.count(now)
            updates += counted if len(self._all) == 1 else map(_label, counted)
            error = error or wrong
        ahead = [worker.learner.link.ahead for worker in self._all]
        waits = [each.pop_waited() for each in ahead if each is not None]
        copying = sum(waits) if waits else None
        return Learned(item is not NOT_READY, now, waiting, updates, error, copying)

    def _progress(self) -> dict[str, Sequence[int]]:
        return {name: (each.iteration, each.env_steps) for name, each in self.by_policy().items()}

    def tick_replay(self, *, ask: bool) -> bool:
        """Keeps requests in flight; returns True after a reply.

        Raises:
            RunError: replay refuses every request; the message gives the reason.
        """
        ticks = [worker.learner.link.tick_replay(worker.learner, ask=ask) for worker in self._all]
        return any(ticks)

    def tick_publishers(self) -> bool:
        """Makes postponed publications; returns True if one was made."""
        made = [worker.learner.link.tick_publisher(worker.learner) for worker in self._all]
        return any(made)

    def sockets(self) -> list[Socket]:
        """Returns the sockets by which batches come."""
        return [socket for worker in self._all for socket in worker.replay.sockets()]

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat: sums, and the owner's iteration."""
        total: dict[str, float] = {}
        for worker in self._all:
            for name, number in worker.status().items():
                total[name] = total.get(name, 0.0) + number
        return total | {"iteration": self.owner.status()["iteration"]}

    def plan_counts(self) -> dict[str, Any]:
        """Returns the counts of the plan since the learners were built."""
        taken = sum(part.rows for part in self.flow.parts() if part.outside is not None)
        total: dict[str, Any] = {"rows_taken": taken, "operators": self.flow.counts()}
        for worker in self._all:
            total = add_numbers(total, worker.row_counts())
        return total

    # -- replay -----------------------------------------------------------------------------------

    @property
    def shards(self) -> int:
        """Number of replay shards of all policies."""
        return sum(worker.learner.learner_config.replay.replay_shards for worker in self._all)

    @property
    def lacks_shard(self) -> bool:
        """True while the connection to a shard is lost."""
        return any(worker.replay.lacks_shard for worker in self._all)

    def counts(self) -> dict[str, Mapping[str, Any]]:
        """Returns the counts of each replay shard, with senders by the names of their accounts."""
        return {
            shard: self._rename(shard, counts, policy)
            for policy, worker in self._workers.items()
            for shard, counts in worker.replay.counts().items()
        }

    def _rename(self, shard: str, counts: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
        """Returns the counts of a shard by accounts; makes them only of counts that are new."""
        before, named = self._named.get(shard, (None, counts))
        if before is not counts:
            every = counts["senders"].items()
            senders = {Sender.parse(key)._replace(policy=policy).key: rows for key, rows in every}
            named = {**counts, "senders": senders}
            self._named[shard] = (counts, named)
        return named

    def pop_finished(self) -> list[dict[str, Any]]:
        """Returns summaries of the episodes that ended since the last call."""
        return [each for worker in self._all for each in worker.replay.pop_finished()]

    def ask_counts(self) -> None:
        """Asks all shards for their counts."""
        for worker in self._all:
            worker.replay.ask_counts()

    def drain(self) -> None:
        """Asks all shards to accept everything that is still sent."""
        for worker in self._all:
            worker.replay.drain()

    def roll_back(self) -> None:
        """Makes all shards remove the rows that came after the restored checkpoints."""
        for worker in self._all:
            worker.roll_back()

    @property
    def rolls_back(self) -> bool:
        """True until all shards have done so."""
        return any(worker.replay.rolls_back for worker in self._all)

    @property
    def refusal(self) -> str:
        """Reason for which a shard refuses requests; empty without one."""
        return next(filter(None, (each.replay.refusals.reason for each in self._all)), "")


def add_numbers(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sums of numbers of the same names in two nested mappings."""
    return {
        name: add_numbers(one.get(name, {}), other.get(name, {}))
        if isinstance(value, Mapping)
        else one.get(name, 0) + other.get(name, 0)
        for name, value in {**one, **other}.items()
    }


def _label(update: Update) -> Update:
    """Names the metrics of an update by its policy."""
    metrics = {f"{update.policy}/{name}": value for name, value in update.metrics.items()}
    return replace(update, metrics=metrics)
