"""A gateway over real sockets, with a learner and a replay that the test plays, and its clients."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import main.ps
from session.addons.gateway.connection import Connection
from session.addons.gateway.listener import Listener
from session.addons.gateway.protocols import Encoding
from session.config import Config
from session.config.defaults import BASE_SESSION_CONFIG
from session.process.context import Context
from session.wire.frames import FrameReader, pack_frame
from surreal_like.addons.gateway.gateway import Gateway
from surreal_like.addons.gateway.messages import Hello
from surreal_like.addons.gateway.payloads import decode, encode
from surreal_like.addons.gateway.service import GatewayService
from surreal_like.addons.gateway.sessions import Session, Sessions
from surreal_like.addons.gateway.slots import Slot
from surreal_like.agent.loop import make_agent
from tests.surreal_like.agent.rig import LearnerPeer, LineAgent, ReplayPeer, Rig, make_rig


def build(context: Context) -> GatewayService:
    return GatewayService(context, lambda mode: make_agent(context, LineAgent, mode, 0))


def make_line(host: str = "10.0.0.1") -> Connection:
    """Returns a connection of a client that gets no message."""
    line = SimpleNamespace(host=host, encoding=None, send=lambda payload: None)
    return cast("Connection", line)


LINE = make_line()


def make_session(
    number: int = 1, mode: str = "train", connection: Connection | None = LINE, **fields: Any
) -> Session:
    """Returns a session without rows; its place has its number."""
    slot = cast("Slot", None)
    return Session(number, number, mode, f"client-{number}", slot, connection, **fields)


def make_sessions(places: int = 2, **settings: float) -> Sessions:
    """Returns an empty gateway's sessions, with secrets that can be guessed."""
    numbers = itertools.count()
    given = BASE_SESSION_CONFIG.gateway.copy()
    given.update(max_clients=places, **settings)
    return Sessions(
        given, lambda place, mode: cast("Slot", None), lambda size: f"secret{next(numbers)}"
    )


def join(sessions: Sessions, now: float = 0.0, name: str = "") -> Session:
    """Returns another session of mode ``train``."""
    return sessions.join(Hello(1, "", "", name, 1, "", ""), "train", LINE, now)


class Scene:
    """A server, and the clients that the test plays; they are closed at the end."""

    def __init__(self) -> None:
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        raise NotImplementedError

    def until(self, condition: Callable[[], object]) -> None:
        """Lets the server work until something holds."""
        raise NotImplementedError

    def client(self, *, encoding: Encoding = Encoding.msgpack, **fields: Any) -> Client:
        """A client after its welcome."""
        made = Client(self, encoding)
        assert made.hello(**fields)["kind"] == "welcome"
        return made

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Client:
    """A client that is played by hand, one message after the other."""

    def __init__(self, stage: Scene, encoding: Encoding = Encoding.msgpack) -> None:
        self.stage, self.encoding = stage, encoding
        self.socket = socket.create_connection(("127.0.0.1", stage.port))
        self.socket.setblocking(False)
        self.reader = FrameReader(1 << 20)
        self.closed = False
        self.seq = 0
        stage.clients.append(self)

    def send(self, **fields: Any) -> None:
        self.send_bytes(pack_frame(encode(fields, self.encoding)))

    def send_bytes(self, data: bytes) -> None:
        self.socket.setblocking(True)
        self.socket.sendall(data)
        self.socket.setblocking(False)

    def receive(self) -> dict[str, Any] | None:
        """The next message, if there is one."""
        try:
            data = self.socket.recv(1 << 16)
            self.closed = not data
            self.reader.feed(data)
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.closed = True
        payload = self.reader.next()
        return None if payload is None else dict(decode(payload, None)[0])

    def next(self) -> dict[str, Any]:
        """Waits for the next message."""
        found: list[dict[str, Any]] = []

        def arrived() -> bool:
            message = self.receive()
            if message is not None:
                found.append(message)
            assert found or not self.closed, "the connection was closed"
            return bool(found)

        self.stage.until(arrived)
        return found[0]

    def ask(self, **fields: Any) -> dict[str, Any]:
        self.send(**fields)
        return self.next()

    def hello(self, **fields: Any) -> dict[str, Any]:
        return self.ask(kind="hello", v=1, **fields)

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Sends the next request, and waits for its answer."""
        self.seq += 1
        fields.setdefault("observation", [0.0, float(self.seq)])
        if kind != "reset":
            fields.setdefault("reward", 1.0)
        return self.ask(kind=kind, seq=self.seq, **fields)

    def gone(self) -> bool:
        """True once the gateway has closed the connection."""
        self.stage.until(lambda: self.receive() is None and self.closed)
        return True

    def close(self) -> None:
        self.socket.close()


class Stage(Scene):
    """The rig with a gateway in it.

    Attributes:
        learner, replay: Peers that the test plays.
    """

    def __init__(self, rig: Rig, *, publish: bool = True) -> None:
        super().__init__()
        self.rig = rig
        self.until = rig.until  # type: ignore[method-assign]
        rig.start("ps", main.ps.build)
        self.learner, self.replay = LearnerPeer(rig), ReplayPeer(rig)
        self.start()
        if publish:
            self.learner.publish()

    def start(self, incarnation: int = 5) -> None:
        self.frame = self.rig.start("gateway-0", build, incarnation=incarnation)
        self.rig.until(lambda: self.frame._service is not None)

    @property
    def service(self) -> GatewayService:
        assert isinstance(self.frame._service, GatewayService)
        return self.frame._service

    @property
    def seen_first(self) -> list[list[bool]]:
        """The flags of each batch that the agent has seen."""
        agent = self.service._sending.agent
        assert isinstance(agent, LineAgent)
        return agent.seen_first

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def gateway(self) -> Gateway:
        return self.service._gateway

    @property
    def listener(self) -> Listener:
        return self.service._frontend.listener

    @property
    def sessions(self) -> Sessions:
        return self.gateway.sessions

    def finish(self) -> dict[str, Any]:
        """Ends the run; returns the account of the gateway."""
        self.learner.publish(final=True)
        self.rig.until(lambda: self.frame.finished or self.service._leaving.over, seconds=20.0)
        account: dict[str, Any] = self.service._sending.sender.account()
        return account


@contextmanager
def make_stage(
    *,
    publish: bool = True,
    learner: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Iterator[Stage]:
    """A stage with one gateway and no agents.

    ``learner`` is what differs in ``learner_config``, ``changes`` in ``session_config.gateway``.
    """
    gateway = {"num": 1, "port": 0, "max_clients": 4, **changes.pop("gateway", {})}
    with make_rig(agent={"num": 0}, gateway=gateway, env=env, **changes) as rig:
        rig.config.learner_config = Config(learner or {}).extend(rig.config.learner_config)
        stage = Stage(rig, publish=publish)
        try:
            yield stage
        finally:
            stage.close()
