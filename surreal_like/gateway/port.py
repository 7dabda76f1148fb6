"""The process of sessions, its port, its page, and the check of clients' tokens, from settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from session.config import Config
from session.errors import ConfigError
from session.folder import RunFolder
from session.process.clock import Clock
from session.stream.listener import Listener, StreamLimits
from session.stream.protocols import ProtocolSettings
from session.stream.tls import server_context
from session.wire.access import TokenGate
from session.wire.endpoint import expanded
from surreal_like.gateway.page import read_pages


class EventLog(Protocol):
    """Gets the events and warnings of sessions."""

    def event(self, kind: str, detail: str = "") -> None:
        """Records an event."""

    def warning(self, msg: object, /) -> None:
        """Records a warning."""


class Host(Protocol):
    """Process of a frontend; a :class:`~session.process.context.Context` is one."""

    @property
    def config(self) -> Config:
        """Config of the run."""

    @property
    def folder(self) -> RunFolder | None:
        """Folder of the run, which has the tokens."""

    @property
    def clock(self) -> Clock:
        """Clock for all times."""

    @property
    def log(self) -> EventLog:
        """Log for sessions."""

    @property
    def seed(self) -> int:
        """Seed from which those of episodes follow."""


def make_gate(config: Config, folder: RunFolder | None) -> TokenGate | None:
    """Returns the check of tokens; None if clients need none.

    Raises:
        ConfigError: there is no folder that has them.
    """
    if not config.session_config.gateway.tokens:
        return None
    if folder is None:
        raise ConfigError("session_config.gateway.tokens: tokens are in the run folder: share it")
    return TokenGate(folder.client_tokens)


def make_listener(
    config: Config,
    port: int,
    *,
    limit_bytes: int,
    healthy: Callable[[], bool],
    on_refused: Callable[[str, str], object],
    clock: Clock,
) -> Listener:
    """Binds the port of a gateway.

    Args:
        config: of the run.
        port: to bind; 0: any free one.
        limit_bytes: of a message.
        healthy: returns True while newcomers are accepted.
        on_refused: of :class:`~session.stream.listener.Listener`.
        clock: for deadlines.

    Raises:
        ConfigError: it cannot be bound.
    """
    session = config.session_config
    gateway = session.gateway
    host = expanded(gateway.host)
    protocols = ProtocolSettings(
        limit_bytes=limit_bytes,
        host=host,
        hosts=tuple(gateway.hosts),
        origins=tuple(gateway.origins),
        pages=read_pages() if gateway.page else {},
        healthy=healthy,
    )
    limits = StreamLimits(greeting_seconds=session.security.handshake_seconds)
    cert, key = gateway.tls.cert, gateway.tls.key
    tls = None if cert is None else server_context(cert, key)
    return Listener(
        host,
        port,
        protocols=protocols,
        clock=clock,
        limits=limits,
        on_refused=on_refused,
        tls=tls,
    )


def page_address(config: Config, port: int) -> str:
    """Returns the address of the page of a gateway, for a browser on this machine."""
    gateway = config.session_config.gateway
    host = expanded(gateway.host)
    host = f"[{host}]" if ":" in host else host
    return f"http{'' if gateway.tls.cert is None else 's'}://{host}:{port}/"
