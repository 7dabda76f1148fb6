"""Port of a gateway: receives the messages of clients, and answers what is wrong with them."""

from __future__ import annotations

from session.addons.gateway.connection import Connection, Event
from session.addons.gateway.listener import Listener
from session.addons.gateway.protocols import ProtocolSettings
from session.addons.gateway.tls import make_server_context
from session.errors import OversizeError
from session.wire.endpoint import expand
from surreal_like.addons.gateway.admission import Admission
from surreal_like.addons.gateway.gateway import Gateway
from surreal_like.addons.gateway.messages import (
    Bye,
    Incoming,
    Metrics,
    Ping,
    Protocol,
    Request,
    send,
    send_refusal,
)
from surreal_like.addons.gateway.page import read_pages
from surreal_like.addons.gateway.payloads import Refusal, decode
from surreal_like.addons.gateway.sessions import Session
from surreal_like.data.bounds import reward_bounds

_FAILURES = 20


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
