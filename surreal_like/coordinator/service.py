"""Service of the learner process: a worker that learns, and the coordinator of the run."""

from __future__ import annotations

from collections.abc import Mapping

from session.errors import FOLLOWS, RunError
from session.folder import RunFolder
from session.process.context import Context
from session.process.service import Service
from session.wire.one_way_sockets import Socket
from surreal_like.coordinator.coordinator import RunCoordinator
from surreal_like.coordinator.learners import Learners
from surreal_like.coordinator.stop_rule import ASKED, Verdict
from surreal_like.data.group import within
from surreal_like.data.policy_names import agents_of
from surreal_like.learner.bad_updates import BadUpdates
from surreal_like.learner.group_leader import Leader, RankEnded
from surreal_like.learner.learner import Learner
from surreal_like.learner.worker import LearnerWorker


class LearnerService(Service):
    """Runs the two parts of the learner's process in turn.

    Args:
        context: context of this process.
        learners: policy -> its learner, not yet connected.
        folder: the run folder.

    Attributes:
        coordinator: owns the run.
    """

    def __init__(
        self, context: Context, learners: Mapping[str, Learner], folder: RunFolder
    ) -> None:
        self._context = context
        self._left, self._exit_code = False, 0
        workers = {
            policy: LearnerWorker(context, learner, folder, policy)
            for policy, learner in learners.items()
        }
        joint = bool(agents_of(context.config))
        self._learners = Learners(workers, context.clock, joint=joint)
        restored = self._learners.restore()
        self.coordinator = RunCoordinator(context, folder, self._learners, restored)
        self._learners.connect(self.coordinator.restored_version)
        ranks = context.config.session_config.learner.num
        self._group = Leader(context, ranks, self._learners.digest) if ranks > 1 else None
        self.coordinator.start()

    def tick(self) -> bool:
        """Learns from one batch if available, and does the work that is due."""
        if self._group is None:
            return self._tick()
        try:
            if self._group.tick():
                self._begin(self._group)
            with within(self._group):
                return self._tick()
        except RankEnded as error:
            self._context.event("leaving", f"{error}; begins anew")
            self._left, self._exit_code = True, FOLLOWS
            return False

    def _begin(self, ranks: Leader) -> None:
        """Makes all ranks begin with the present state."""
        if self.coordinator.save() is not None:
            numbers = {name: each.iteration for name, each in self._learners.by_policy().items()}
            ranks.begin(numbers)

    @property
    def _may_learn(self) -> bool:
        complete = self._group is None or self._group.begun
        return self.coordinator.learns and complete

    def _tick(self) -> bool:
        coordinator = self.coordinator
        busy = coordinator.tick_control()
        busy |= self._tick_replay(ask=coordinator.learns)
        if self._learners.tick_publishers():
            coordinator.on_publication()
        coordinator.monitor.tick()
        if coordinator.ending:
            coordinator.tick_end()
            return busy
        if self._may_learn:
            busy |= self._learn()
        coordinator.tick()
        if self._learners.save_due:
            coordinator.save()
        return busy

    def _learn(self) -> bool:
        """Learns once; returns True if there was a batch.

        Raises:
            BadUpdates: the next process goes on from the newest checkpoint.
        """
        try:
            learned = self._learners.learn()
        except BadUpdates as error:
            self.coordinator.go_back(error)
            return True
        self.coordinator.on_learned(learned)
        return learned.had_batch

    def _tick_replay(self, *, ask: bool) -> bool:
        try:
            return self._learners.tick_replay(ask=ask)
        except RunError as error:
            self.coordinator.fail(error)
            return False

    def drain(self) -> None:
        """Leaves the run to the next process, or ends it as interrupted."""
        if self._context.leaves:
            self._leave()
        else:
            self.coordinator.end(Verdict("interrupted", None, ASKED))

    def _leave(self) -> None:
        """Saves the state for the next process; a shutdown that has begun is completed first."""
        if self.coordinator.verdict is None:
            self._context.event("leaving", "saved, to be started again")
            self.coordinator.save()
            self.coordinator.report()
            self._left = True

    @property
    def done(self) -> bool:
        """True once the result is written, or the process leaves without one."""
        return self.coordinator.done or self._left

    @property
    def exit_code(self) -> int:
        """That of a process which begins anew with its group, once it has left for that."""
        return self._exit_code

    def wait_on(self) -> list[Socket]:
        """Returns the sockets of batches, control, parameter server and other ranks."""
        ranks = [] if self._group is None else [self._group.socket]
        return [*self._learners.sockets(), *self.coordinator.sockets(), *ranks]

    @property
    def doing(self) -> str:
        """Present wait of the learner; empty: none."""
        if self._group is not None and not self._group.begun:
            return f"waits for {', '.join(self._group.missing)}"
        return self.coordinator.doing

    def status(self) -> dict[str, float]:
        return {**self._learners.status(), **self.coordinator.status()}

    def close(self) -> None:
        """Writes the last lines of progress."""
        self.coordinator.close()
        self._learners.close()
