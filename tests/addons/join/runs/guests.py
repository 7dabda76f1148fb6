"""Machines and clients that attack a run or a tuning at every endpoint that lets them in.

A run is stepped in this thread over real TCP with CURVE keys. A guest holds the rights of a joined
machine; it sends sequences of messages that are drawn from examples, such as those that the run's
own agents send, with values that lie or do not fit.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import zmq

from session.config import Config
from session.folder import RunFolder
from session.launchers.launcher import free_ports
from session.process.context import Context
from session.process.service import Service
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.one_way_sockets import PushSocket
from session.wire.requests import DealerSocket
from session.wire.roles import GUEST, Grant
from session.wire.security import Security, allow, write_keys
from session.wire.socket_base import Socket
from surreal_like.addons.join.admission_server import TUNE_ENDPOINT
from surreal_like.addons.tuning.worker_connections import WORKERS
from tests.api.stage import Stage
from tests.runs.test_wrong_messages import ACCOUNT, RARE, WRONG, changed, paths

# Values of a type that are not true; those of some fields by their name.
EPISODE = {"return": 499.0, "length": 1, "metrics": {"return/train": 499.0}}
POLICIES = ("default", "default-5", "default-2000", "left", "left-5", "right", "other")
LIES: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, 5, 999, 1000, 10**4, 10**9, 2**44, 2**53),
    float: (0.0, 0.5, 1.0, 499.0, 1e12, 1e150, -1e150),
    bool: (True, False),
    str: ("agent-0", "agent-1000", "learner", "agent-1000:left", "return/train", ""),
    list: ([], [[0, 0]], [1, 2**40]),
    dict: ({}, {"wanted": 1e9, "run_over": 1.0, "env_steps_total": 1e12}),
    "policy": POLICIES,
    "finished": ([EPISODE] * 100, []),
}
# Messages that a calm run need not send.
OWN = {**RARE, "info": {"policy": "default", "account": {**ACCOUNT, "final": False}}}


# The endpoint of a gateway.
CLIENTS = "gateway"
# Endpoints that have no kinds of messages in common with others.
ALONE = (TUNE_ENDPOINT, WORKERS, CLIENTS)
Examples = dict[tuple[str, str], Message]


def keep_examples(monkeypatch: Any) -> Examples:
    """Returns what will hold the first message of each kind that comes to each endpoint."""
    found: Examples = {}
    decode = Socket._decode

    def spy(socket: Socket, frames: Any, *more: Any) -> Message | None:
        message = decode(socket, frames, *more)
        if message is not None and socket.binds:
            own = replace(message, frames=())
            found.setdefault((socket.endpoint, message.kind), copy.deepcopy(own))
        return message

    monkeypatch.setattr(Socket, "_decode", spy)
    return found


class Scene(Protocol):
    """What is attacked: a run, or a tuning."""

    folder: RunFolder
    book: AddressBook

    @property
    def fingerprint(self) -> bytes:
        """Stands in each message."""

    def until(self, condition: Callable[[], Any]) -> Any:
        """Goes on until something is so; returns what it is."""

    def round(self) -> None:
        """Goes on for one turn."""

    def _pause(self, sockets: Sequence[Socket], seconds: float) -> None:
        """Goes on while a guest waits."""


class Attacker(Protocol):
    """Sends messages under names of its own.

    Attributes:
        answers: newest answer of each kind.
    """

    names: tuple[str, ...]
    answers: dict[str, Message]

    def send(self, endpoint: str, name: str, incarnation: int, message: Message) -> None:
        """Sends one message of one of its processes."""

    def round(self) -> None:
        """Lets what is attacked go on for one turn."""


class GuestStage(Stage):
    """A run over TCP with keys."""

    def __init__(self, config: Config, path: Path) -> None:
        super().__init__(config, path)
        write_keys(self.folder.keys)
        self.book = AddressBook.tcp(free_ports([*self.topology.endpoints, "supervisor.control"]))
        self.folder.addresses.write_text(self.book.dump())
        self._contexts = [self.zmq]

    @property
    def fingerprint(self) -> bytes:
        return bytes.fromhex(self.config.fingerprint()[:16])

    def start(self, *names: str, build: Callable[[Context], Service] | None = None) -> None:
        """Starts components, each with a ZeroMQ context: libzmq checks keys for each of these."""
        for name in names:
            self.zmq = zmq.Context()
            self._contexts.append(self.zmq)
            super().start(name, build=build)

    def close(self) -> None:
        super().close()
        for each in self._contexts:
            each.destroy(0)


class Guest:
    """A machine that has joined, under some names of its own.

    Args:
        stage: the run, or the tuning.
        names: its names.
    """

    def __init__(self, stage: Scene, *names: str) -> None:
        self.stage, self.names = stage, names
        self.answers: dict[str, Message] = {}
        public, secret = zmq.curve_keypair()
        allow(stage.folder.keys, public.decode(), Grant(GUEST, names))
        server = (stage.folder.keys / "server.pub").read_bytes().strip()
        self._security = Security(None, server, b"", public, secret)
        self._zmq: zmq.Context[Any] = zmq.Context()
        self._wires: dict[tuple[str, int], Wire] = {}
        self._number: dict[tuple[str, int], int] = {}

    def peer(self, endpoint: str, name: str, incarnation: int) -> DealerSocket | PushSocket:
        """Returns the socket of one incarnation under one of its names to an endpoint."""
        key = (name, incarnation)
        if key not in self._wires:
            if len(self._wires) >= 4:
                self._wires.pop(next(iter(self._wires))).close(0)
            identity = Identity(name, incarnation, self.stage.fingerprint)
            self._wires[key] = Wire(
                self._zmq, self.stage.book, identity,
                pause=self.stage._pause, security=self._security,
            )  # fmt: skip
        wire = self._wires[key]
        if endpoint.endswith((".requests", ".workers", ".join")):
            return wire.dealer(endpoint)
        for socket in wire.sockets:
            if isinstance(socket, PushSocket) and socket.endpoint == endpoint:
                return socket
        return wire.push(endpoint)

    def send(self, endpoint: str, name: str, incarnation: int, message: Message) -> None:
        """Sends one message, while the run goes on."""
        peer = self.peer(endpoint, name, incarnation)
        fields = {key: value for key, value in message.fields.items() if key != "id"}
        if isinstance(peer, DealerSocket):
            self.stage.until(lambda: peer.send(message.kind, fields, message.arrays))
            while (answer := peer.receive()) is not None:
                self.answers[answer.kind] = answer
        else:
            whole = Message(message.kind, fields, message.arrays)
            self.stage.until(lambda: peer.send(whole))

    def round(self) -> None:
        self.stage.round()

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close(0)
        self._zmq.destroy(0)


class Hostility:
    """Draws sequences of messages of guests or clients, and sends them.

    Args:
        guest: the machine or client that sends.
        seed: seeds all draws.
        restarts: share of the sequences that a later incarnation begins.
        wrong: numbers of wrong or untrue values in a message, of which each is as likely.
    """

    def __init__(
        self,
        guest: Attacker,
        examples: Examples,
        seed: int,
        *,
        restarts: float = 0.3,
        wrong: Sequence[int] = (0, 1, 2, 4),
    ) -> None:
        self._restarts, self._wrong = restarts, wrong
        self._guest = guest
        self._rng = random.Random(seed)
        self._incarnations = dict.fromkeys(guest.names, 1)
        # Endpoint and sender -> number of the newest chunk.
        self._numbers: Counter[tuple[str, str, int]] = Counter()
        self._examples = dict(examples)
        for endpoint in {key[0] for key in examples if key[0] not in ALONE}:
            self._examples |= {(endpoint, kind): Message(kind, OWN[kind]) for kind in OWN}
        doors = [key for key in sorted(self._examples) if _admits(*key)]
        self._kinds = {end: [kind for at, kind in doors if at == end] for end, _ in doors}
        self._doors = sorted(self._kinds)
        self.sent = 0

    def sequence(self) -> None:
        """Sends up to six messages of one incarnation to one endpoint."""
        rng = self._rng
        endpoint = rng.choice(self._doors)
        name = rng.choice(self._guest.names)
        if rng.random() < self._restarts:
            self._incarnations[name] += rng.randrange(1, 3)
        for _ in range(rng.randrange(1, 7)):
            message = copy.deepcopy(self._examples[endpoint, rng.choice(self._kinds[endpoint])])
            message = self._spoil(self._renew(message, endpoint, name))
            self._guest.send(endpoint, name, self._incarnations[name], message)
            self.sent += 1
        self._guest.round()

    def _renew(self, message: Message, endpoint: str, name: str) -> Message:
        """Returns an example with the values that are right now."""
        incarnation = self._incarnations[name]
        if "seq" in message.fields:
            self._numbers[endpoint, name, incarnation] += 1
            number = self._numbers[endpoint, name, incarnation]
            message.fields.update(seq=number, rows=8 * number, acked=0, acked_rows=0)
        if message.kind == "hello":
            message.fields.update(name=name, incarnation=incarnation)
        return message

    def _spoil(self, message: Message) -> Message:
        """Returns the message of a guest, with some wrong or untrue values."""
        rng = self._rng
        for _ in range(rng.choice(self._wrong)):
            places = [at for at in paths(message.fields) if at[0] != "id"]
            if not places:
                break
            at = rng.choice(places)
            message = changed(message, at, copy.deepcopy(self._value(message.fields, at)))
        if message.arrays and rng.random() < 0.3:
            column = rng.choice(sorted(message.arrays))
            array = message.arrays[column].copy()
            if array.size:
                value = np.array(rng.choice((0, 1, 2, 200)))
                array.flat[rng.randrange(array.size)] = value.astype(array.dtype)
            message = Message(message.kind, message.fields, {**message.arrays, column: array})
        return message

    def _value(self, fields: Any, at: tuple[Any, ...]) -> Any:
        """Returns another value for a place of a message: mostly one that fits and is not true."""
        if self._rng.random() < 0.15:
            return self._rng.choice(WRONG)
        for key in at:
            fields = fields[key]
        return self._rng.choice(LIES.get(at[-1]) or LIES.get(type(fields)) or WRONG)


def _admits(endpoint: str, kind: str) -> bool:
    """Returns True if the rights of a guest include this kind of message."""
    if endpoint in (TUNE_ENDPOINT, CLIENTS):
        return True
    return Grant(GUEST, ("agent-1000",)).refusal(endpoint, kind, "agent-1000") is None
