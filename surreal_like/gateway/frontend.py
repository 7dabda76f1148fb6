"""Port of a gateway: admits clients, receives their messages, answers what is wrong with them."""

from __future__ import annotations

from session.errors import ConfigError, OversizeError
from session.stream.connection import Connection, Event
from session.stream.listener import Listener
from session.stream.protocols import ProtocolSettings
from session.stream.tls import make_server_context
from session.version import VERSION as RELEASE
from session.wire.client_access import TokenGate
from session.wire.endpoint import expand
from surreal_like.data.bounds import reward_bounds
from surreal_like.experiment.machine import find_available_bytes
from surreal_like.gateway.gateway import Gateway
from surreal_like.gateway.messages import (
    VERSION,
    Bye,
    Hello,
    Incoming,
    Metrics,
    Ping,
    Protocol,
    Request,
    encode_spec,
    send,
    send_busy,
    send_goodbye,
    send_refusal,
)
from surreal_like.gateway.page import read_pages
from surreal_like.gateway.payloads import Refusal, decode, shorten
from surreal_like.gateway.sessions import Busy, Session

_FAILURES = 20

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


class Frontend:
    """The connections of the clients of one port.

    Args:
        gateway: Gateway of their sessions.
        port: Port for clients; 0: any free one.

    Attributes:
        listener: Listener of the port.
    """

    def __init__(self, gateway: Gateway, port: int) -> None:
        config, rows = gateway.config, gateway.rows
        self._gateway, self._now = gateway, gateway.clock.now
        env = config.env_config
        rewards = reward_bounds(env) if rows.learned else None
        self._protocol = Protocol(rows.frame_spec, env.action_spec, rows.num_envs, rewards)
        limit_bytes = self._protocol.max_message_bytes
        self._admission = Admission(gateway, limit_bytes)
        self.listener = make_listener(gateway, port, limit_bytes)

    def receive(self) -> bool:
        """Handles what has arrived; returns True if there was anything."""
        events = self.listener.poll()
        now = self._now()
        for event in events:
            self._handle(event, now)
        return bool(events)

    def do_chores(self) -> None:
        """Does what is due by time, for all sessions."""
        self._gateway.do_chores()
        self._admission.end_revoked()

    def close(self) -> None:
        """Closes the port and all connections."""
        self.listener.close()

    def _handle(self, event: Event, now: float) -> None:
        connection, payload, fault = event
        session: Session | None = connection.owner
        if payload is None and fault is None:
            self._lose(session, connection)
            return
        if connection.closed:
            return
        try:
            if payload is None:
                code = "oversize" if isinstance(fault, OversizeError) else "malformed"
                raise Refusal(code, str(fault))
            fields, connection.encoding = decode(payload, connection.encoding)
            message = self._protocol.parse(fields)
            if session is None:
                self._admission.greet(connection, message)
            elif type(message) is Request:
                self._gateway.receive(session, message, now)
            else:
                self._receive(session, message, now)
        except Refusal as refusal:
            self._refuse(connection, session, refusal)
        except Exception as error:  # noqa: BLE001 - a defect here must not end the other sessions
            self._gateway.log.on_defect(error)
            text = "a defect of the gateway, whose log has the details"
            self._refuse(connection, session, Refusal("internal", text))

    def _receive(self, session: Session, message: Incoming, now: float) -> None:
        """Handles a message that has no number."""
        gateway = self._gateway
        if isinstance(message, Bye):
            gateway.leave(session, "bye")
        elif isinstance(message, Ping):
            session.on_message(now)
            session.send({"kind": "pong", "t": message.token})
        elif isinstance(message, Metrics):
            session.on_message(now)
            if not gateway.curves.add(session, message):
                text = f"numbers of {session.name} are shown as client/other: too many names"
                gateway.log.on_refused(session.host, f"curves: {text}")
            session.failures = 0
        else:
            raise Refusal("wrong_state", "this connection has a session already")

    def _refuse(self, connection: Connection, session: Session | None, refusal: Refusal) -> None:
        self._gateway.counters.refused += 1
        self._gateway.log.on_refused(connection.host, f"{refusal.code}: {refusal.text}")
        if session is not None:
            session.failures += 1
            if session.failures >= _FAILURES and not refusal.fatal:
                send(connection, refusal.to_message())
                refusal = Refusal("too_many_errors", f"{_FAILURES} errors in a row: {refusal.text}")
        if refusal.fatal or session is None:
            send_refusal(connection, refusal)
            self._lose(session, connection)
        else:
            send(connection, refusal.to_message())

    def _lose(self, session: Session | None, connection: Connection) -> None:
        if session is not None and session.connection is connection:
            session.lose(self._now())


def make_listener(gateway: Gateway, port: int, limit_bytes: int) -> Listener:
    """Binds the port of a gateway.

    Args:
        gateway: Gateway whose settings are used.
        port: Port to bind; 0: any free one.
        limit_bytes: Largest payload.

    Raises:
        ConfigError: it cannot be bound.
    """
    session = gateway.config.session_config
    settings = session.gateway
    host, tls = expand(settings.host), settings.tls
    return Listener(
        host,
        port,
        protocols=ProtocolSettings(
            limit_bytes=limit_bytes,
            host=host,
            hosts=tuple(settings.hosts),
            origins=tuple(settings.origins),
            pages=read_pages() if settings.page else {},
            healthy=lambda: gateway.open,
        ),
        clock=gateway.clock,
        on_refused=gateway.log.on_refused,
        tls=None if tls.cert is None else make_server_context(tls.cert, tls.key),
    )
