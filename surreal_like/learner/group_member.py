"""A learner that is not rank 0 of its group: it learns from what rank 0 sends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from session.errors import FOLLOWS, RunError, describe
from session.folder import RunFolder
from session.process.context import BUSY_SECONDS, Context
from session.process.seeding import component_seed
from session.process.service import Service
from session.wire import Message
from session.wire.one_way_sockets import Socket
from session.wire.requests import Call
from session.wire.schema import cut
from session.wire.socket_state import poll
from surreal_like.data.batch import Sampled, make_batch
from surreal_like.data.group import Group, Numbers, Take, within
from surreal_like.data.policy_names import PolicyId
from surreal_like.dataflow.flow import NOT_READY, Flow
from surreal_like.learner.device_prefetch import DeviceTransfer
from surreal_like.learner.group_leader import (
    ANSWERS,
    ENDPOINT,
    LOOK_SECONDS,
    GroupLost,
    RankEnded,
    digest_of,
)
from surreal_like.learner.joint import for_policies
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import read_content


class Member(Group):
    """Another rank than 0.

    Args:
        context: context of its process.
        rank: number of this rank.
        size: number of ranks.
        device: device of the tensors of batches.
    """

    def __init__(self, context: Context, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size = rank, size
        self._context = context
        self._socket = context.wire.dealer(ENDPOINT, ANSWERS)
        self._feed = DeviceTransfer(device)
        self._join: Call | None = Call(lambda: Message("join", {}), forget=True)
        # Lost connections when this rank began; None before.
        self._losses: int | None = None
        self._turn = self._sums = 0

    @property
    def socket(self) -> Socket:
        """The socket of rank 0's answers."""
        return self._socket

    def begin(self) -> Mapping[str, int] | None:
        """Returns the checkpoints to begin with, policy -> number; None until rank 0 begins."""
        if self._join is None:
            return None
        answer = self._socket.ask(self._join, self._context.clock.now())
        if answer is None:
            return None
        self._join = None
        self._refuse(answer)
        # From now on a lost connection means that rank 0 has ended.
        self._losses = self._socket.losses()
        checkpoints: Mapping[str, int] = answer.fields["checkpoints"]
        return checkpoints

    def report_ready(self, *, error: str = "", digest: str = "") -> None:
        """Reports to rank 0 that this rank waits for a turn.

        Args:
            error: error of the turn before; empty: there was none.
            digest: :func:`digest_of` all parameters; empty unless rank 0 asked.
        """
        fields = {"turn": self._turn, "sums": self._sums, "error": error, "digest": digest}
        self._send("ready", fields, {})

    def learn(self, flow: Flow, learners: Mapping[str, Learner]) -> bool:
        """Pulls the plan if rank 0 has begun a turn; returns False if it has not.

        Args:
            flow: the plan.
            learners: policy -> its learner.

        Raises:
            RankEnded: rank 0 has ended.
        """
        if self._losses is None:
            return False
        self._look()
        message = self._socket.receive()
        if message is None:
            return False
        self._refuse(message)
        # What is left of a turn that an error has ended here.
        if message.kind != "turn":
            return True
        fields, error = message.fields, ""
        self._turn, self._sums = fields["turn"], 0
        for policy, (iteration, env_steps) in fields["progress"].items():
            learners[policy].iteration, learners[policy].env_steps = iteration, env_steps
        try:
            with within(self):
                flow.pull()
        except GroupLost:
            raise
        except Exception as failure:  # noqa: BLE001 - the author's code; rank 0 reports it
            error = cut(describe(failure))
        for learner in learners.values():
            learner.pop_updates()
        digest = digest_of(learners) if fields["check"] else ""
        self.report_ready(error=error, digest=digest)
        return True

    def scatter(self, take: Take) -> tuple[Any, int]:
        message = self._receive("part", "nothing")
        fields = message.fields
        if message.kind == "nothing":
            return NOT_READY, fields["env_steps"]
        batch = make_batch(self._feed(message.arrays))
        stated = (fields.get("last"), fields.get("returns"))
        batch.origin = Sampled({}, fields["shard"], fields["incarnation"], {}, *stated)
        return batch, fields["env_steps"]

    def sum(self, numbers: Numbers, what: str) -> Numbers:
        fields = {"turn": self._turn, "sums": self._sums, "what": what}
        self._send("sum", fields, {"numbers": numbers})
        message = self._receive("total", "abandoned")
        if message.kind == "abandoned":
            raise RunError(f"{what}: {message.fields['reason']}")
        self._sums += 1
        return message.arrays["numbers"]

    def _send(self, kind: str, fields: dict[str, Any], arrays: Mapping[str, Numbers]) -> None:
        while self._socket.send(kind, fields, arrays) is None:
            self._pause()

    def _receive(self, *kinds: str) -> Message:
        """Waits for an answer in the present turn."""
        while True:
            message = self._socket.receive()
            if message is None:
                self._pause()
                continue
            self._refuse(message)
            if message.kind in kinds and message.fields.get("turn") in (None, self._turn):
                return message

    def _pause(self) -> None:
        self._look()
        if self._context.stopping:
            raise RankEnded("asked to end within an update")
        self._context.pulse()
        poll([self._socket], LOOK_SECONDS)

    def _look(self) -> None:
        if self._socket.losses() != self._losses:
            raise RankEnded("the learner has ended")

    def _refuse(self, message: Message) -> None:
        if message.kind == "refused":
            raise RankEnded(str(message.fields["reason"]))


class MemberService(Service):
    """Pulls the plan of all policies when rank 0 says so.

    Args:
        context: context of this process.
        learners: policy -> its learner.
        folder: the run folder, with the checkpoints of rank 0.
    """

    def __init__(
        self, context: Context, learners: Mapping[str, Learner], folder: RunFolder
    ) -> None:
        self._context, self._learners, self._folder = context, dict(learners), folder
        self._flow = for_policies(learners)
        device = next(iter(self._learners.values())).device
        ranks = context.config.session_config.learner.num
        self._group = Member(context, context.component.index, ranks, device)
        self._left = False
        for policy, learner in self._learners.items():
            seconds = learner.session_config.tensorplex.update_schedule
            client = context.metrics(f"{PolicyId(policy).client}-{context.component.index}")
            learner.report_by(context, client, seconds)

    def tick(self) -> bool:
        """Learns once if rank 0 has begun a turn."""
        try:
            return self._begin() or self._group.learn(self._flow, self._learners)
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
            self._context.busy(BUSY_SECONDS, "reading a checkpoint")
            read_content(learner, place)
            # The noise of its rows is not that of other ranks.
            seed = component_seed(self._context.seed, policy, 1 + learner.iteration)
            learner.generator.manual_seed(seed)
        self._group.report_ready()
        return True

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
