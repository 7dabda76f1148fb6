"""Admission of clients: checks a hello, and welcomes its client or sends it away."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from session.config import Config
from session.process.clock import Clock
from session.stream.connection import Connection
from session.version import VERSION as RELEASE
from session.wire.access import TokenGate
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.spec import plain
from surreal_like.experiment.machine import find_available_bytes
from surreal_like.gateway.messages import VERSION, Hello, Refusal, short
from surreal_like.gateway.recorder import Rows
from surreal_like.gateway.refusal_log import ClientLog
from surreal_like.gateway.replies import send, send_busy, send_goodbye
from surreal_like.gateway.sessions import Busy, Member, Sessions

# What is left to the rest of the machine when a newcomer is let in.
_SPARE_BYTES = 256 << 20
# Odd, so that multiples of it are different modulo a power of two.
_SEED_STEP, _SEEDS = 0x9E3779B1, 1 << 30

Leave = Callable[[Member, str], None]


class Admission:
    """Decides which connections get a session, in a fixed order of checks.

    Args:
        sessions: all of this gateway.
        modes: of its sessions.
        gate: checks tokens; None: clients need none.
        log: of clients.
        clock: for sessions and tokens.
        rows: of its sessions.
        leave: ends a session, for a reason.

    Attributes:
        draining: True: newcomers are sent to another gateway.
        over: True: the run is over.
    """

    def __init__(
        self,
        sessions: Sessions,
        modes: Mapping[str, Any],
        *,
        gate: TokenGate | None,
        log: ClientLog,
        clock: Clock,
        rows: Rows,
        leave: Leave,
    ) -> None:
        self.draining = self.over = False
        self._sessions, self._modes = sessions, modes
        self._gate, self._log = gate, log
        self._clock = clock
        self._rows = rows
        self._leave = leave

    def admit(self, connection: Connection, message: object) -> tuple[Member, bool] | None:
        """Returns the session of a newcomer, and True if it goes on; None if it was sent away.

        Args:
            connection: of the newcomer.
            message: its first one.

        Raises:
            Refusal: it is no hello, or one with a wrong token, mode or number of environments.
        """
        if not isinstance(message, Hello):
            raise Refusal("wrong_state", "the first message of a connection is hello")
        mode = message.mode or next(iter(self._modes))
        # The token comes first: strangers learn nothing of this gateway.
        token = self._check_token(message, mode)
        if mode not in self._modes:
            known = ", ".join(self._modes)
            raise Refusal("not_supported", f"this gateway has no mode {mode}: {known}")
        num_envs = self._rows.num_envs
        if message.num_envs != num_envs:
            raise Refusal(
                "bad_hello",
                f"num_envs is {short(message.num_envs)}, this gateway has sessions of {num_envs}",
            )
        now = self._clock.now()
        member = self._sessions.find(message.resume)
        if member is not None and member.mode == mode:
            member.token = token
            before = self._sessions.resume(member, connection, now)
            if before is not None:
                before.owner = None
                before.close()
            return member, True
        if self.over:
            send_goodbye(connection, "finished")
            return None
        try:
            member = self._join(message, mode, connection, now)
        except Busy as busy:
            send_busy(connection, busy)
            return None
        member.token, member.host = token, connection.host
        self._log.joined(member.name, member.host)
        return member, False

    def _join(self, hello: Hello, mode: str, connection: Connection, now: float) -> Member:
        if self.draining:
            raise Busy("this gateway is ending")
        if find_available_bytes() < _SPARE_BYTES + self._rows.slot_bytes:
            raise Busy("this machine has too little memory left")
        displaced = self._sessions.displaced()
        if displaced is not None:
            self._leave(displaced, "displaced")
        return self._sessions.join(hello, mode, connection, now)

    def _check_token(self, hello: Hello, mode: str) -> str:
        """Returns the name of the client's token; empty if clients need none.

        Raises:
            Refusal: the token is wrong, in one text for all reasons.
        """
        if self._gate is None:
            return ""
        now, wall = self._clock.now(), self._clock.time()
        name = self._gate.find(hello.token, mode, now=now, wall=wall)
        if name is None:
            raise Refusal("bad_token", "this token is not valid here")
        return name

    def end_revoked(self) -> None:
        """Ends the sessions whose tokens are no longer valid."""
        if self._gate is None:
            return
        now, wall = self._clock.now(), self._clock.time()
        for member in self._sessions:
            if not self._gate.valid(member.token, now=now, wall=wall):
                self._leave(member, "revoked")


class Seeds:
    """Seeds of the episodes of clients, 31 bits; none is used twice.

    Args:
        seed: of the component; another one at each start.
        places: number of slots.
    """

    def __init__(self, seed: int, places: int) -> None:
        self._seed, self._places = seed, places
        self._given = [0] * places

    def next(self, member: Member) -> int:
        """Returns the seed of the next episode of a session's slot."""
        number = self._given[member.slot] * self._places + member.slot
        self._given[member.slot] += 1
        # The last bit keeps seeds of evaluations apart from all others, at any gateway.
        return (self._seed + number * _SEED_STEP) % _SEEDS * 2 + (member.mode == "evaluate")


def send_welcome(
    member: Member, connection: Connection, config: Config, present: Mapping[str, Any]
) -> None:
    """Sends the first answer of a connection.

    Args:
        member: the session.
        connection: its newest one.
        config: of the run.
        present: fields that are not in the config.
    """
    connection.owner = member
    connection.admit()
    session = {
        "session": member.number,
        "resume": member.resumes[-1],
        "seq": member.session.seq,
        "mode": member.mode,
    }
    gateway, env = config.session_config.gateway, config.env_config
    fields = {
        "num_envs": gateway.num_envs,
        "obs_spec": shown_spec(frame_spec(env.obs_spec, stack_size(env))),
        "action_spec": shown_spec(env.action_spec),
        "grace_seconds": gateway.grace_seconds,
        "idle_seconds": gateway.idle_seconds,
        "server": f"surreal_like {RELEASE}",
    }
    send(connection, {"kind": "welcome", "v": VERSION, **session, **fields, **present})


def shown_spec(spec: Mapping[str, Any]) -> Any:
    """Returns a spec as it is sent: infinite bounds are None."""
    return _finite(plain(spec))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
