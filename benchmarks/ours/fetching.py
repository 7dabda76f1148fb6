"""Both sides of the parameters, and a bare round trip to compare. Rounds of :mod:`worker`.

python fetching.py RUN_FOLDER agent-0        asks for parameters
python fetching.py RUN_FOLDER learner [small|half]  publishes a network
python fetching.py router ADDRESS            answers bare round trips
python fetching.py dealer ADDRESS            asks for them
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import torch  # noqa: E402
import zmq  # noqa: E402
from machine import spread  # noqa: E402
from networks import make_network, make_small_network  # noqa: E402
from services import play  # noqa: E402
from torch import nn  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.process.context import Context  # noqa: E402
from session.wire.socket_state import poll  # noqa: E402
from surreal_like.data.parameters import Parameters  # noqa: E402
from surreal_like.learner.publisher import Publisher  # noqa: E402
from surreal_like.network.flat import (  # noqa: E402
    load_flat,
    manifest_of,
    named_tensors,
    read_flat,
    weights_of,
)
from surreal_like.ps.parameter_client import ParameterClient  # noqa: E402
from surreal_like.ps.schemas import ANSWERS  # noqa: E402

_WAIT_SECONDS = 1.0
_PAUSE_SECONDS = 0.001
ASKED_BYTES, ANSWERED_BYTES = 90, 220


class Fetching:
    """Requests of an agent's process.

    Args:
        context: the agent's.
    """

    def __init__(self, context: Context) -> None:
        self._client = ParameterClient(context.wire.dealer("ps.requests", ANSWERS), context.clock)
        self._network = make_network()

    def polls(self, *, count: int) -> Answer:
        """Asks again and again for what has not changed; median of one round trip."""
        return _median(self._fetch, count)

    def follow(self, *, version: int) -> Answer:
        """Asks until that version is in use; when it was."""
        while self._client.have[1] < version:
            parameters = self._fetch()
            if parameters is None:
                time.sleep(_PAUSE_SECONDS)
                continue
            load_flat(self._network, parameters.flat)
        return {"loaded": time.monotonic()}

    def _fetch(self) -> Parameters | None:
        client = self._client
        client.ask()
        found = None
        while client.waiting:
            poll([client.socket], _WAIT_SECONDS)
            found = client.receive()
        return found


class Publishing:
    """Publications of a learner's process.

    Args:
        context: the learner's.
        network: what is published.
        half: True sends it as float16.
    """

    def __init__(self, context: Context, network: nn.Module, *, half: bool = False) -> None:
        socket = context.wire.publisher("learner.parameters")
        self._publisher = Publisher(
            socket, context.clock, incarnation=context.incarnation, version=0, half=half
        )
        self._network = network
        self._manifest = manifest_of(named_tensors(self._network))

    def publish(self) -> Answer:
        """One publication; when it began, on the clock that all processes here share."""
        began = time.monotonic()
        flat = read_flat(self._network)
        weights = weights_of(self._network)
        self._publisher.publish(flat, self._manifest, iteration=1, env_steps=1, weights=weights)
        return {
            "version": self._publisher.version,
            "began": began,
            "seconds": time.monotonic() - began,
            "size_bytes": flat.nbytes,
        }

    def repeat(self) -> Answer:
        """Sends the newest again to new subscribers."""
        self._publisher.tick()
        return {}


def answer_bare(address: str) -> None:
    """Answers every request with as many bytes as ours has."""
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(address)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    answer = b"a" * ANSWERED_BYTES
    while True:
        poller.poll()
        peer, _ = socket.recv_multipart()
        socket.send_multipart([peer, answer])


class Bare:
    """Asks as bare pyzmq does.

    Args:
        address: of the server.
    """

    def __init__(self, address: str) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def polls(self, *, count: int) -> Answer:
        """Median of one round trip."""
        return _median(self._ask, count)

    def _ask(self) -> None:
        self._socket.send_multipart([b"q" * ASKED_BYTES])
        self._poller.poll()
        self._socket.recv_multipart()


def _median(ask: Callable[[], object], count: int) -> Answer:
    """Median of the seconds of a round trip; those that brought parameters do not count."""
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        if ask() is None:
            seconds.append(time.perf_counter() - begin)
    return {"seconds": spread(seconds)["median"]}


if __name__ == "__main__":
    if sys.argv[1] == "router":
        answer_bare(sys.argv[2])
    elif sys.argv[1] == "dealer":
        serve({"polls": Bare(sys.argv[2]).polls})
    else:
        torch.set_num_threads(1)
        with play(sys.argv[1], sys.argv[2]) as contexts:
            if sys.argv[2] == "learner":
                network = make_small_network() if "small" in sys.argv else make_network()
                publishing = Publishing(contexts[0], network, half="half" in sys.argv)
                serve({"publish": publishing.publish, "repeat": publishing.repeat})
            else:
                fetching = Fetching(contexts[0])
                serve({"polls": fetching.polls, "follow": fetching.follow})
