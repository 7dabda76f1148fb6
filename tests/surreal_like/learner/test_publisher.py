"""Publications: versions rise, late subscribers and lost messages are served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from session.process.clock import CountedClock
from session.wire import AddressBook, Identity, Wire
from session.wire.one_way_sockets import SubscriberSocket
from session.wire.socket_state import poll
from surreal_like.data.parameters import Parameters, make_manifest
from surreal_like.learner.publisher import Publisher

ENDPOINT = "learner.parameters"
MANIFEST = make_manifest([("w", "float32", (3,))])


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    context: zmq.Context[Any] = zmq.Context()
    made = Wire(context, AddressBook.ipc([ENDPOINT], tmp_path), Identity("learner", 5))
    yield made
    made.close(0)
    context.destroy(0)


def flat() -> Any:
    return np.arange(3, dtype=np.float32).view(np.uint8)


def padded() -> Any:
    return np.concatenate([flat(), np.zeros(4, np.uint8)])


def published(publisher: Publisher, socket: SubscriberSocket, clock: CountedClock) -> Parameters:
    for _ in range(2000):
        clock.advance()
        publisher.tick()
        message = socket.receive()
        if message is not None:
            return Parameters.from_message(message)
        poll([socket], 0.001)
    raise AssertionError("nothing came")


def test_versions_go_on_above_the_largest_ever_published(wire: Wire) -> None:
    publisher = Publisher(wire.publisher(ENDPOINT), CountedClock(), incarnation=5, version=41)
    publisher.publish(padded(), MANIFEST, iteration=7, env_steps=100)
    assert publisher.newest is not None
    assert publisher.newest.order == (5, 42)


def test_a_late_subscriber_gets_the_newest_at_once(wire: Wire) -> None:
    clock = CountedClock()
    publisher = Publisher(wire.publisher(ENDPOINT), clock, incarnation=5, version=0)
    publisher.publish(padded(), MANIFEST, iteration=7, env_steps=100, message="hi")
    newest = published(publisher, wire.subscriber(ENDPOINT), clock)
    assert (newest.version, newest.iteration) == (1, 7)
    assert newest.info["message"] == "hi"
    assert newest.info["env_steps"] == 100
    assert newest.info["final"] is False
    assert newest.flat[:12].view(np.float32).tolist() == [0, 1, 2]
    assert clock.now() < 1.0


def test_the_newest_is_repeated_when_it_has_been_quiet(wire: Wire) -> None:
    clock = CountedClock()
    publisher = Publisher(wire.publisher(ENDPOINT), clock, incarnation=5, version=0)
    publisher.publish(padded(), MANIFEST, iteration=1, env_steps=0)
    socket = wire.subscriber(ENDPOINT)
    first = published(publisher, socket, clock)
    begun = clock.now()
    second = published(publisher, socket, clock)
    assert second.order == first.order
    assert clock.now() - begun >= 0.9
