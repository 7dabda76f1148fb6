"""Admission of clients: checks a hello, and welcomes its client or sends it away."""

from __future__ import annotations

from session.errors import ConfigError
from session.stream.connection import Connection
from session.version import VERSION as RELEASE
from session.wire.client_tokens import TokenGate
from surreal_like.experiment.machine import find_available_bytes
from surreal_like.gateway.gateway import Gateway
from surreal_like.gateway.messages import (
    VERSION,
    Hello,
    Incoming,
    encode_spec,
    send,
    send_busy,
    send_goodbye,
)
from surreal_like.gateway.payloads import Refusal, shorten
from surreal_like.gateway.sessions import Busy, Session

# Memory that is left to the rest of the machine when a client is admitted.
_SPARE_BYTES = 256 << 20


class Admission:
    """Decides which connections get a session, in a fixed order of checks.

    Args:
        gateway: Gateway of the sessions.
        max_message_bytes: Largest payload of a client.

    Raises:
        ConfigError: clients need tokens, and there is no folder that has them.
    """

    def __init__(self, gateway: Gateway, max_message_bytes: int) -> None:
        self._gateway, self._max_message_bytes = gateway, max_message_bytes
        self._gate: TokenGate | None = None
        if gateway.config.session_config.gateway.tokens:
            if gateway.folder is None:
                raise ConfigError(
                    "session_config.gateway.tokens: tokens are in the run folder: share it"
                )
            self._gate = TokenGate(gateway.folder.client_tokens)

    def greet(self, connection: Connection, message: Incoming) -> None:
        """Gives a connection its session, or sends it away.

        Args:
            connection: Connection without a session.
            message: First message of the connection.

        Raises:
            Refusal: it is no hello, or one with a wrong token, mode or number of environments.
        """
        if not isinstance(message, Hello):
            raise Refusal("wrong_state", "the first message of a connection is hello")
        gateway, modes = self._gateway, self._gateway.policies.modes
        mode = message.mode or next(iter(modes))
        # The token comes first: strangers learn nothing of this gateway.
        token = self._check_token(message, mode)
        if mode not in modes:
            known = ", ".join(modes)
            raise Refusal("not_supported", f"this gateway has no mode {mode}: {known}")
        num_envs = gateway.rows.num_envs
        if message.num_envs != num_envs:
            raise Refusal(
                "bad_hello",
                f"num_envs is {shorten(message.num_envs)}, this gateway has sessions of {num_envs}",
            )
        session = gateway.sessions.find(message.resume)
        if session is not None and session.mode == mode:
            session.token = token
            self._resume(session, connection)
        elif gateway.over:
            send_goodbye(connection, "finished")
        else:
            try:
                session = self._join(message, mode, connection)
            except Busy as busy:
                send_busy(connection, str(busy))
                return
            session.token = token
            gateway.log.on_joined(session.host, session.name)
            self._welcome(session, connection, resumed=False)

    def _resume(self, session: Session, connection: Connection) -> None:
        gateway = self._gateway
        before = gateway.sessions.resume(session, connection, gateway.clock.now())
        if before is not None:
            before.owner = None
            before.close()
        gateway.counters.resumed += 1
        self._welcome(session, connection, resumed=True)

    def _join(self, hello: Hello, mode: str, connection: Connection) -> Session:
        gateway = self._gateway
        if gateway.draining:
            raise Busy("this gateway is ending")
        if find_available_bytes() < _SPARE_BYTES + gateway.rows.slot_bytes:
            raise Busy("this machine has too little memory left")
        displaced = gateway.sessions.find_displaced()
        if displaced is not None:
            gateway.leave(displaced, "displaced")
        return gateway.sessions.join(hello, mode, connection, gateway.clock.now())

    def _welcome(self, session: Session, connection: Connection, *, resumed: bool) -> None:
        """Sends the first answer of a connection."""
        connection.owner = session
        connection.admit()
        gateway = self._gateway
        settings, rows = gateway.config.session_config.gateway, gateway.rows
        welcome = {
            "kind": "welcome",
            "v": VERSION,
            "session": session.number,
            "resume": session.resumes[-1],
            "resumed": resumed,
            "seq": session.seq,
            "mode": session.mode,
            "num_envs": rows.num_envs,
            "obs_spec": encode_spec(rows.frame_spec),
            "action_spec": encode_spec(gateway.config.env_config.action_spec),
            "seed": gateway.make_seed(session),
            "version": gateway.policies.version,
            "max_message_bytes": self._max_message_bytes,
            "grace_seconds": settings.grace_seconds,
            "idle_seconds": settings.idle_seconds,
            "server": f"surreal_like {RELEASE}",
        }
        send(connection, welcome)

    def _check_token(self, hello: Hello, mode: str) -> str:
        """Returns the name of the client's token; empty if clients need none.

        Raises:
            Refusal: the token is wrong, in one text for all reasons.
        """
        if self._gate is None:
            return ""
        clock = self._gateway.clock
        name = self._gate.find(hello.token, mode, now=clock.now(), wall=clock.time())
        if name is None:
            raise Refusal("bad_token", "this token is not valid here")
        return name

    def end_revoked(self) -> None:
        """Ends the sessions whose tokens are no longer valid."""
        if self._gate is None:
            return
        clock = self._gateway.clock
        now, wall = clock.now(), clock.time()
        for session in self._gateway.sessions:
            if not self._gate.is_valid(session.token, now=now, wall=wall):
                self._gateway.leave(session, "revoked")
