"""Every field of every kind of message, wrong in every way: no service ends, each still answers.

All parts of a run are stepped in one thread. Examples of messages are those that the parts send to
each other; the doors, their kinds and so the cases are read from the sockets, so a new kind of
message is covered without a change here.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pytest

from session.wire import Identity, Message, Wire
from session.wire.one_way_sockets import PushSocket
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.socket_base import Socket
from tests.api.stage import Stage, experiment

WRONG: list[Any] = [
    None, True, -1, 2**62, 2**63, 2**64 - 1, 1e24, 1e300, math.nan, math.inf, -math.inf, 0.5,
    "", "x", "x" * 70_000, b"", b"x" * 100, [], [[]], [1] * 2_000, {}, {"a": 1}, {1: None},
    -(2**63), [math.nan], {"a": {"b": [{}]}}, {b"": {}}, {0.5: [1]}, [[[[[[]]]]]],
    msgpack.ExtType(1, b"\x01\x00"), msgpack.ExtType(5, b""), [msgpack.ExtType(1, b"")],
    {"a": msgpack.ExtType(1, b"\x01")}, msgpack.Timestamp(1, 2), [msgpack.Timestamp(0)],
]  # fmt: skip
# What cannot be sent without ending or holding the run; sent wrong, never as it should be.
COMMANDS = ("stop", "pause", "drain", "resume")
STRANGER = "agent-77"
PARTS = ("loggerplex", "tensorplex", "ps", "replay-0", "learner", "eval-0", "agent-0")


class Case(NamedTuple):
    """A message, and whether it is wrong for sure."""

    message: Message
    wrong: bool


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in plain data; of a list only its first and last entry."""
    if at:
        yield at
    if isinstance(value, dict):
        for key in list(value)[:30]:
            yield from paths(value[key], (*at, key))
    elif isinstance(value, list):
        for index in {0, len(value) - 1} if value else ():
            yield from paths(value[index], (*at, index))


def changed(message: Message, at: tuple[Any, ...], value: Any) -> Message:
    """The message with another value at one place; the value ``...`` leaves it out."""
    fields = copy.deepcopy(message.fields)
    holder: Any = fields
    for key in at[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[at[-1]]
    else:
        holder[at[-1]] = value
    return Message(message.kind, fields, message.arrays)


def with_arrays(message: Message) -> Iterator[Message]:
    """The message with its arrays wrong: one missing, of another dtype, shape, or unknown."""
    arrays = dict(message.arrays)
    for name, array in arrays.items():
        others = {key: each for key, each in arrays.items() if key != name}
        yield Message(message.kind, message.fields, others)
        for wrong in (array.astype(np.complex64).view(np.float32), array[None], array[:0]):
            yield Message(message.kind, message.fields, {**others, name: wrong})
    yield Message(message.kind, message.fields, {**arrays, "unknown": np.zeros(3)})


def cases(schema: Any, message: Message) -> Iterator[Case]:
    """The message, wrong in every way."""
    for at in paths(message.fields):
        if at[0] != "id":
            for value in (..., *WRONG):
                case = changed(message, at, value)
                yield Case(case, schema.complaint(case) is not None)
    for case in with_arrays(message):
        yield Case(case, schema.complaint(case) is not None)
    yield Case(changed(message, ("unknown",), 1), True)


class Theatre(Stage):
    """A whole run on one stage, which keeps an example of each message that was taken."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = experiment(
            "learner_config.replay.type=PrioritizedReplay",
            "session_config.evaluator.num=1",
        )
        monkeypatch.setattr("surreal_like.experience.chunk_sender.TRACE_EVERY", 1)
        super().__init__(config, path)
        self.examples: dict[tuple[str, bool, str], Message] = {}
        self.made: list[Wire] = []
        decode = Socket._decode

        def spy(socket: Socket, frames: Any, *more: Any) -> Message | None:
            message = decode(socket, frames, *more)
            if message is not None:
                key = (socket.endpoint, socket.binds, message.kind)
                self.examples.setdefault(key, copy.deepcopy(replace(message, frames=())))
            return message

        monkeypatch.setattr(Socket, "_decode", spy)
        self.start(*PARTS)
        learner = self.service("learner")
        self.until(lambda: learner.coordinator.record.judge.last is not None)
        for plex in ("tensorplex", "loggerplex"):
            records = self.service(plex)._records
            self.until(lambda records=records: records.counters.received)  # type: ignore[misc]

    def receivers(self) -> list[Socket]:
        """All sockets of the run that receive messages."""
        every = [socket for frame in self.frames.values() for socket in frame.context.wire.sockets]
        return [socket for socket in every if hasattr(socket, "receive")]

    def peer(self, door: Socket, name: str, **changes: Any) -> DealerSocket | PushSocket:
        """A socket that speaks to a door under a name."""
        fingerprint = bytes.fromhex(self.config.fingerprint()[:16])
        identity = Identity(name, 1, fingerprint)._replace(**changes)
        wire = Wire(self.zmq, self.book, identity, pause=self._pause)
        self.made.append(wire)
        if isinstance(door, RouterSocket):
            return wire.dealer(door.endpoint)
        return wire.push(door.endpoint)

    def send(self, peer: DealerSocket | PushSocket, message: Message) -> None:
        """Sends one message, while the others go on."""
        fields = {key: value for key, value in message.fields.items() if key != "id"}
        if isinstance(peer, DealerSocket):
            self.until(lambda: peer.send(message.kind, fields, message.arrays))
            while peer.receive() is not None:
                pass
        else:
            whole = Message(message.kind, fields, message.arrays)
            self.until(lambda: peer.send(whole))

    def close(self) -> None:
        for wire in self.made:
            wire.close(0)
        super().close()


@pytest.fixture
def theatre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Theatre]:
    made = Theatre(tmp_path / "run", monkeypatch)
    yield made
    made.close()


ACCOUNT = dict.fromkeys(("pushed", "inserted", "dropped", "unacked", "env_steps", "episodes"), 1)
# Messages that a run of some seconds need not see.
RARE: dict[str, dict[str, Any]] = {
    "leave": {"policy": "default", "account": {**ACCOUNT, "final": True}},
    "goodbye": {"seq": 1, "rows": 0, "env_steps": 0, "episodes": 0, "filled": 0.5},
    "fetch": {"policy": "default", "have": [0, 0], "account": {**ACCOUNT, "final": False}},
    "stop": {"reason": "enough", "interrupted": False},
    "sample": {
        "batch_size": 4, "batches": 1, "version": 1, "env_steps": 1, "iteration": 1,
        "least": 1.0, "slab": [1, 1, b"x" * 16, 4096, 4096],
    },
}  # fmt: skip
RARE["fence"], RARE["roll_back"] = {"names": ["agent-1000"]}, {"end": 5}
RARE["info"] = {"policy": "default"}
RARE["loggerplex"] = {
    "records": [{"time": 1.0, "level": "info", "component": STRANGER, "text": "fine"}],
    "dropped": 0,
}
EMPTY = ("status", "counts", "drain", "pause", "resume", "accounts", "save")


def example(theatre: Theatre, door: Socket, kind: str) -> Message:
    """A good message of a kind; a kind of which there is none has no case yet."""
    taken = theatre.examples.get((door.endpoint, door.binds, kind))
    if kind in RARE or taken is None:
        assert kind in RARE or kind in EMPTY, f"give an example of '{kind}' to {door.endpoint}"
        return Message(kind, RARE.get(kind, {}))
    fields = {**taken.fields, "name": STRANGER} if kind == "hello" else taken.fields
    return Message(kind, fields, taken.arrays)


def state(theatre: Theatre) -> int:
    """Entries that services keep by what messages say."""
    ps, replay = theatre.service("ps"), theatre.service("replay-0")
    tables = [
        ps._membership._entries, ps._accounts, replay._intake.ledger._accounts,
        theatre.service("tensorplex")._table._rows, theatre.service("loggerplex")._files,
        theatre.service("learner").coordinator.record.accounts.senders,
    ]  # fmt: skip
    wires = [frame.context.wire._complaints for frame in theatre.frames.values()]
    return sum(map(len, (*tables, *wires)))


def doors(theatre: Theatre) -> list[Socket]:
    """The sockets to which others send."""
    return [each for each in theatre.receivers() if each.binds]


def play(theatre: Theatre, door: Socket, messages: list[Case], name: str, **changes: Any) -> None:
    """Sends all, and looks whether what is wrong was refused."""
    peer = theatre.peer(door, name, **changes)
    before, seen = door.counters.rejected, door.counters.received
    for case in messages:
        theatre.send(peer, case.message)
    wrong = sum(case.wrong for case in messages)

    def handled() -> bool:
        if isinstance(peer, DealerSocket):
            peer.receive()
        new = door.counters.rejected - before + door.counters.received - seen
        return new >= len(messages)

    theatre.until(handled)
    assert door.counters.rejected - before >= wrong, door.endpoint
    assert all(frame.state == "running" for frame in theatre.frames.values())


def test_every_socket_of_a_run_has_schemas(theatre: Theatre) -> None:
    without = [each.endpoint for each in theatre.receivers() if each.kinds is None]
    assert without == []
    assert {each.endpoint for each in doors(theatre)} >= {
        "ps.requests", "learner.control", "replay-0.experience", "replay-0.batches",
        "replay-0.priorities", "tensorplex.records", "tensorplex.requests", "loggerplex.records",
    }  # fmt: skip


def test_no_wrong_field_ends_a_service(theatre: Theatre, capsys: Any) -> None:
    count = 0
    for door in doors(theatre):
        assert door.kinds is not None
        for kind, schema in door.kinds.items():
            good = example(theatre, door, kind)
            assert schema.complaint(good) is None, schema.complaint(good)
            sent = [*cases(schema, good)]
            if kind in COMMANDS or door.endpoint == "replay-0.batches":
                # As they should be they would end or hold the run.
                sent = [case for case in sent if case.wrong]
            count += len(sent)
            play(theatre, door, sent, STRANGER)
    complained = [frame.context.wire._complaints for frame in theatre.frames.values()]
    kinds = sum(len(door.kinds or ()) for door in doors(theatre))
    # Once per sender and kind; records have kinds of their own.
    assert sum(len(each) for each in complained) <= 2 * kinds + 10
    with capsys.disabled():
        print(f" {count} wrong messages", end="")  # noqa: T201


def test_answers_are_checked_in_the_same_way(theatre: Theatre) -> None:
    for socket in theatre.receivers():
        if socket.binds or socket.kinds is None:
            continue
        for kind, schema in socket.kinds.items():
            taken = theatre.examples.get((socket.endpoint, socket.binds, kind))
            if taken is None:
                continue
            assert schema.complaint(taken) is None
            made = [*cases(schema, taken)]
            assert sum(case.wrong for case in made) >= len(made) * 0.5, kind


@pytest.mark.slow
def test_other_runs_and_random_names_leave_nothing(theatre: Theatre) -> None:
    for door in doors(theatre):
        assert door.kinds is not None
        kinds = [kind for kind in door.kinds if kind != "hello" and kind not in COMMANDS]
        sent = [Case(example(theatre, door, kind), True) for kind in kinds]
        play(theatre, door, sent, "agent-0", fingerprint=b"another")
        play(theatre, door, sent, "random-name")
        before = state(theatre)
        for number in range(20):
            play(theatre, door, sent, f"random-{number}")
        assert state(theatre) <= before + 2
