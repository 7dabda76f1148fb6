"""Several learners that make one update together: rank 0 scatters batches, and adds up numbers.

Rank 0 is the learner of the run. It alone has replay, publishes, judges and saves. In a *turn* all
ranks pull the plan once: rank 0 takes a batch and sends a part of it to every rank, and all
exchanges (gradients, moments, means that something is decided by) are sums that rank 0 makes,
in the order of ranks, and sends to all. So ranks stay equal bit by bit, without a second learner:
operators ask :func:`surreal_like.data.group.group`.

Ranks come and go together: a rank that begins anew makes rank 0 begin anew, and the end of rank 0
all others; they go on from its newest checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from session.config import Config
from session.errors import FOLLOWS, ConfigError, RunError
from session.process.context import Context
from session.process.heartbeat import starting_seconds
from session.process.periodic import Every
from session.wire.codec import Message
from session.wire.one_way_sockets import Socket
from session.wire.requests import Request
from session.wire.schema import (
    Count,
    Flag,
    Incarnation,
    Kinds,
    MapOf,
    Name,
    Number,
    Optional,
    Row,
    Schema,
    Text,
)
from session.wire.socket_state import poll
from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.data.group import Group, Numbers, Take
from surreal_like.data.parameters import parameter_hash
from surreal_like.dataflow.items import axis_in, axis_of, columns_of, size_of
from surreal_like.learner.updates import choose_device
from surreal_like.network.flat import read_flat

if TYPE_CHECKING:
    from surreal_like.learner.learner import Learner
    from surreal_like.replay.replay import Replay

ENDPOINT = "learner.group"
_POLICIES = 1000
_DIGEST = 64
LOOK_SECONDS = 0.05
# A wait that takes longer is an event that says for whom.
_TELL_SECONDS = 5.0
# Time in which a turn may still end after a stop request.
_STOPPING_SECONDS = 2.0
_CHECK_SECONDS = 10.0

_TURN, _SUMS = {"turn": Count()}, {"sums": Count()}
REQUESTS: Kinds = {
    "join": Schema(),
    "ready": Schema({**_TURN, **_SUMS, "error": Text(), "digest": Text(_DIGEST)}),
    "sum": Schema({**_TURN, **_SUMS, "what": Text()}, arrays=None),
}
ANSWERS: Kinds = {
    # Policy -> number of its checkpoint.
    "begin": Schema({"checkpoints": MapOf(Name(), Count(), _POLICIES)}),
    "turn": Schema(
        {
            **_TURN,
            # Policy -> iteration, environment steps.
            "progress": MapOf(Name(), Row(Count(), Count()), _POLICIES),
            "check": Flag(),
        }
    ),
    "part": Schema(
        {
            **_TURN,
            "env_steps": Count(),
            "shard": Count(),
            "incarnation": Incarnation(),
            "last": Optional(Flag()),
            "returns": Optional(Row(Number(0.0), Number(), Number(0.0))),
        },
        arrays=None,
    ),
    "nothing": Schema({**_TURN, "env_steps": Count()}),
    "total": Schema({}, arrays=None),
    "abandoned": Schema({"reason": Text()}),
}


def digest_of(learners: Mapping[str, Learner]) -> str:
    """Returns the digest of the published parameters of all policies, which all ranks have alike.

    Args:
        learners: policy -> its learner.
    """
    each = [parameter_hash(read_flat(learner.module_dict())) for learner in learners.values()]
    return each[0] if len(each) == 1 else hashlib.sha256("".join(each).encode()).hexdigest()


class GroupLost(RunError):
    """The ranks do not work together any more: this process has to begin anew."""


class RankEnded(GroupLost):
    """Another rank has ended, whose end counts for the group."""

    exit_code = FOLLOWS


@dataclass(slots=True)
class _Rank:
    """Another rank as rank 0 sees it, with its requests that have no answer yet."""

    incarnation: int = 0
    joined: Request | None = None
    ready: Request | None = None
    asked: Request | None = None

    def outcome(self) -> Mapping[str, Any]:
        """Returns how its last turn ended."""
        assert self.ready is not None  # a turn begins when all are ready
        return self.ready.message.fields


class Leader(Group):
    """Rank 0 of a group.

    Args:
        context: context of the learner's process.
        size: number of ranks, 2 or more.
        digest: returns a digest of what all ranks must have alike, see :func:`digest_of`.
    """

    def __init__(self, context: Context, size: int, digest: Callable[[], str]) -> None:
        self.size = size
        self.begun = False
        self._context, self._digest = context, digest
        self._socket = context.wire.router(ENDPOINT, REQUESTS)
        self._ranks = {f"learner-{rank}": _Rank() for rank in range(1, size)}
        self._turn = self._sums = 0
        self._open = self._failed = self._checked = False
        self._check_due = Every(seconds=_CHECK_SECONDS, clock=context.clock.now)
        # The requests that parts are sent to in a turn.
        self._scattered: list[Request] = []
        self._limit = starting_seconds(context.config.session_config.heartbeat.timeout)

    @property
    def socket(self) -> Socket:
        """The socket of the other ranks' requests."""
        return self._socket

    def tick(self) -> bool:
        """Reads requests; returns True if all ranks wait for the beginning.

        Raises:
            RankEnded: a rank has begun anew.
        """
        self._read()
        return not self.begun and all(rank.joined is not None for rank in self._ranks.values())

    def begin(self, checkpoints: Mapping[str, int]) -> None:
        """Makes all ranks begin with these checkpoints: policy -> number."""
        self.begun = True
        for rank in self._ranks.values():
            assert rank.joined is not None  # asked by tick
            self._socket.reply(rank.joined, "begin", {"checkpoints": dict(checkpoints)})

    @property
    def missing(self) -> list[str]:
        """Names of the ranks that have not joined."""
        return [name for name, rank in self._ranks.items() if rank.joined is None]

    @contextmanager
    def turn(self, progress: Mapping[str, Sequence[int]]) -> Iterator[None]:
        """Makes all ranks pull the plan.

        Raises:
            GroupLost: a rank has ended, or differs.
        """
        self._wait(lambda rank: rank.ready is not None, "the next update")
        self._check_outcomes()
        self._turn, self._sums = self._turn + 1, 0
        self._checked = bool(self._check_due())
        every = {policy: list(each) for policy, each in progress.items()}
        fields = {"turn": self._turn, "progress": every, "check": self._checked}
        self._scattered = [rank.ready for rank in self._ranks.values() if rank.ready is not None]
        for rank, request in zip(self._ranks.values(), self._scattered, strict=True):
            self._socket.reply(request, "turn", fields)
            rank.ready = None
        self._open, self._failed = True, True
        try:
            yield
            self._failed = False
        finally:
            self._open = False
            self._abandon()

    def scatter(self, take: Take) -> tuple[Any, int]:
        item, env_steps = take()
        parts = _split(item, self.size) if isinstance(item, Batch) else []
        own = {"turn": self._turn, "env_steps": env_steps}
        for number, request in enumerate(self._scattered, 1):
            if parts:
                arrays = {n: x.cpu().numpy().copy() for n, x in columns_of(parts[number]).items()}
                self._socket.reply(request, "part", own | _origin(item.origin), arrays)
            else:
                self._socket.reply(request, "nothing", own)
        return (parts[0] if parts else item), env_steps

    def sum(self, numbers: Numbers, what: str) -> Numbers:
        if not self._open:
            raise RunError(f"the sum of {what} over several learners belongs into a plan")
        self._wait(lambda rank: rank.asked is not None or rank.ready is not None, what)
        total = numbers.copy()
        for name, rank in self._ranks.items():
            if rank.asked is None:
                error = rank.outcome()["error"] or f"has ended the turn without the sum of {what}"
                raise RunError(f"{name}: {error}")
            fields, given = rank.asked.message.fields, rank.asked.message.arrays["numbers"]
            if (fields["what"], given.dtype, given.shape) != (what, total.dtype, total.shape):
                raise RunError(
                    f"{name} adds {fields['what']}, {given.dtype} {list(given.shape)}, where the "
                    f"learner adds {what}, {total.dtype} {list(total.shape)}: the plan must make "
                    "the same exchanges on all ranks"
                )
            with np.errstate(over="ignore", invalid="ignore"):
                # What is not finite is for all ranks alike.
                total += given
        for rank in self._ranks.values():
            assert rank.asked is not None
            self._socket.reply(rank.asked, "total", {}, {"numbers": total})
            rank.asked = None
        self._sums += 1
        return total

    def _check_outcomes(self) -> None:
        """Raises GroupLost if ranks may differ after the last turn."""
        for name, rank in self._ranks.items():
            ended = rank.outcome()
            if not self._turn:
                continue
            if (ended["sums"], bool(ended["error"])) != (self._sums, self._failed):
                why = ended["error"] or f"it made {ended['sums']} exchanges, not {self._sums}"
                raise GroupLost(f"{name} has ended update {self._turn} otherwise: {why}")
            if self._checked and not self._failed and ended["digest"] != self._digest():
                raise GroupLost(
                    f"the parameters of {name} are not those of the learner: a plan changes them "
                    "only by operators, and optimizers of add_optimizer"
                )

    def _wait(self, there: Callable[[_Rank], bool], what: str) -> None:
        """Waits until that is true of all ranks, with heartbeats meanwhile."""
        context, reported = self._context, False
        began = context.clock.now()
        while True:
            self._read()
            missing = [name for name, rank in self._ranks.items() if not there(rank)]
            if not missing:
                return
            waited = context.clock.now() - began
            if waited > _TELL_SECONDS and not reported:
                reported = True
                context.event("group", f"waits for {', '.join(missing)}: {what}")
            if waited > self._limit:
                raise GroupLost(f"{', '.join(missing)} did not come in {waited:.0f} s: {what}")
            if context.stopping and waited > _STOPPING_SECONDS:
                raise RunError(f"the run ends, and {', '.join(missing)} did not come: {what}")
            context.pulse()
            poll([self._socket], LOOK_SECONDS)

    def _read(self) -> None:
        while (request := self._socket.receive()) is not None:
            sender, kind = request.message.sender, request.message.kind
            rank = self._ranks.get(sender.name)
            if rank is None:
                self._socket.refuse(request, f"{sender.name} is no rank of this group")
                continue
            if kind == "join":
                self._on_join(sender.name, rank, request)
            elif sender.incarnation != rank.incarnation:
                self._socket.refuse(request, "the group has begun anew")
            elif kind == "ready":
                rank.ready, rank.asked = request, None
            elif self._asks_now(request.message):
                rank.asked = request
            else:
                self._socket.reply(request, "abandoned", {"reason": "the learner has ended it"})

    def _asks_now(self, message: Message) -> bool:
        """Returns True for numbers to be added in this turn."""
        here = self._open and message.fields["turn"] == self._turn
        return here and "numbers" in message.arrays

    def _on_join(self, name: str, rank: _Rank, request: Request) -> None:
        incarnation = request.message.sender.incarnation
        if self.begun and incarnation > rank.incarnation:
            raise RankEnded(f"{name} has begun anew")
        if incarnation >= rank.incarnation:
            rank.incarnation, rank.joined = incarnation, request

    def _abandon(self) -> None:
        """Ends the exchanges that other ranks still wait for."""
        self._read()
        for rank in self._ranks.values():
            if rank.asked is not None:
                reason = {"reason": "the learner has ended the turn"}
                self._socket.reply(rank.asked, "abandoned", reason)
                rank.asked = None


def of_rank(config: Config, rank: int) -> Config:
    """Returns the config of a policy as a rank has it: with a CUDA device of its own."""
    learner_config = config.learner_config
    if (
        config.session_config.learner.num > 1
        and choose_device(learner_config.device).type == "cuda"
    ):
        learner_config.device = f"cuda:{rank}"
    return config


def check_group(
    learner: type[Learner], learner_config: Config, kind: type[Replay], ranks: int
) -> None:
    """Raises ConfigError if so many learners cannot make one update together.

    Args:
        learner: class of the learners.
        learner_config: that of the experiment.
        kind: class of the replay.
        ranks: ``session_config.learner.num``.
    """
    if ranks == 1:
        return
    where, size = f"session_config.learner.num is {ranks}", learner_config.replay.batch_size
    if kind.gives() == "gradients":
        raise ConfigError(
            f"{where}, but learner_config.gradients_at is agent: agents compute the gradients "
            "then; add agents, or set num to 1"
        )
    if learner.learns_itself():
        raise ConfigError(
            f"{where}, but {learner.__name__} has a learn() of its own, which changes parameters "
            "without the other learners: give it a loss() or an execution_plan(), or set num to 1"
        )
    if size % ranks:
        less, more = size - size % ranks, size - size % ranks + ranks
        raise ConfigError(
            f"{where}, and learner_config.replay.batch_size is {size}, which {ranks} learners "
            f"cannot share equally: set it to {f'{less} or ' if less else ''}{more}"
        )


def _split(batch: Batch, size: int) -> list[Batch]:
    """Returns the parts of a batch for each rank: rows, or streams of unrolls, in order."""
    axis = axis_of(batch)
    cut_ones = {
        name: column.tensor_split(size, axis_in(column, axis))
        for name, column in columns_of(batch).items()
    }
    parts = [make_batch({name: c[i] for name, c in cut_ones.items()}) for i in range(size)]
    parts[0].origin, parts[0].whole = batch.origin, size_of(batch)
    return parts


def _origin(origin: Sampled) -> dict[str, Any]:
    """Returns the fields that describe the origin of a batch to other ranks."""
    fields: dict[str, Any] = {"shard": origin.shard, "incarnation": origin.incarnation}
    if origin.last is not None:
        fields["last"] = origin.last
    if origin.returns is not None:
        fields["returns"] = list(origin.returns)
    return fields
