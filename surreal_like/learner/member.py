"""Service of a learner that is not rank 0 of its group: it learns from what rank 0 deals."""

from __future__ import annotations

from collections.abc import Mapping

from session.errors import FOLLOWS
from session.folder import RunFolder
from session.process.context import Context
from session.process.seeding import component_seed
from session.process.service import Service
from session.wire.sockets import Socket
from surreal_like.data.group import within
from surreal_like.data.policy_names import PolicyId
from surreal_like.learner.base import Learner
from surreal_like.learner.group import GroupLost, Member, RankEnded, digest_of
from surreal_like.learner.saver import read_content


class MemberService(Service):
    """Pulls the plans of all policies when rank 0 says so.

    Args:
        context: context of this process.
        learners: policy -> its learner.
        folder: the run folder, with the checkpoints of rank 0.
    """

    def __init__(
        self, context: Context, learners: Mapping[str, Learner], folder: RunFolder
    ) -> None:
        self._context, self._learners, self._folder = context, dict(learners), folder
        device = next(iter(self._learners.values())).device
        ranks = context.config.session_config.learner.num
        self._group = Member(context, context.component.index, ranks, device)
        self._turns = 0
        self._left = False
        for policy, learner in self._learners.items():
            seconds = learner.session_config.tensorplex.update_schedule
            client = context.metrics(f"{PolicyId(policy).client}-{context.component.index}")
            learner.report_by(context, client, seconds)

    def tick(self) -> bool:
        """Learns once if rank 0 has begun a turn."""
        try:
            return self._begin() or self._learn()
        except RankEnded as error:
            self._context.event("leaving", f"{error}; begins anew")
            self._left = True
            return False

    def _begin(self) -> bool:
        checkpoints = self._group.begin()
        if checkpoints is None:
            return False
        for policy, number in checkpoints.items():
            learner = self._learners[policy]
            place = self._folder.checkpoints / PolicyId(policy).checkpoints / str(number)
            self._context.busy(60.0, "reading a checkpoint")
            read_content(learner, place)
            # The noise of its rows is not that of other ranks.
            seed = component_seed(self._context.seed, policy, 1 + learner.iteration)
            learner.generator.manual_seed(seed)
        self._group.is_ready()
        return True

    def _learn(self) -> bool:
        turn = self._group.next_turn()
        if turn is None:
            return False
        learner, failed = self._learners[turn.policy], None
        learner.iteration, learner.env_steps = turn.iteration, turn.env_steps
        try:
            with within(self._group):
                learner.flow.pull()
        except GroupLost:
            raise
        except Exception as error:  # noqa: BLE001 - the author's code; rank 0 reports it
            failed = error
        learner.pop_updates()
        self._turns += 1
        self._group.end_turn(failed, self._digest)
        return True

    def _digest(self, policy: str) -> str:
        return digest_of(self._learners[policy].module_dict())

    def drain(self) -> None:
        """Ends between two turns."""
        self._left = True

    @property
    def done(self) -> bool:
        """True once it leaves."""
        return self._left

    @property
    def exit_code(self) -> int:
        """That of a process which begins anew with its group, unless the run is over."""
        asked = self._context.stopping or self._context.run_over
        return 0 if asked else FOLLOWS

    def wait_on(self) -> list[Socket]:
        """Returns the socket of rank 0's answers."""
        return [self._group.socket]

    def status(self) -> dict[str, float]:
        """Returns the number of turns."""
        return {"turns": float(self._turns)}
