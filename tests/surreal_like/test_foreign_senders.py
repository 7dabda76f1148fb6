"""Whatever names and incarnations others send under, what a service keeps of them is bounded."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

import main.ps
from session.config import Config
from session.loggerplex.log_server import Loggerplex
from session.process.context import Context
from session.tensorplex.metrics_server import Tensorplex
from session.wire import Identity, Message
from session.wire.requests import Request
from session.wire.schema import SENDERS_LIMIT
from tests.session.tensorplex.rig import Rig
from tests.surreal_like.agent.rig import make_rig
from tests.surreal_like.ps.test_parameter_server import ACCOUNT
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.test_batch_server import Bench, config

LIMIT = 40
LIMITS = (
    "surreal_like.replay.chunk_accounts.SENDERS_LIMIT",
    "surreal_like.ps.parameter_server.SENDERS_LIMIT",
    "surreal_like.ps.parameter_server._PATIENT_PEERS",
    "surreal_like.replay.receiver._KEEP_FINISHED",
    "surreal_like.replay.batch_server._PARKED_REQUESTS",
    "session.line_limit.SENDERS",
    "session.loggerplex.telemetry_server._SENDERS",
    "session.loggerplex.log_server._LOGS",
    "session.tensorplex.metrics_server._CLIENTS",
)
# Number of a message -> name and incarnation under which it comes.
SENDERS: dict[str, Callable[[int], tuple[str, int]]] = {
    "incarnations of one name": lambda number: ("agent-7", 100 + number),
    "names": lambda number: (f"agent-{1000 + number}", 1),
    "both": lambda number: (f"agent-{1000 + number // 3}", 100 + number),
}
Send = Callable[[Identity], object]
# What all components share, and what does not grow.
_NOT_WALKED = (Config, Context, np.ndarray, types.ModuleType, type, zmq.Socket, zmq.Context)


def entries(thing: Any) -> int:
    """Entries of all containers that can be reached from an object of this project."""
    seen: dict[int, Any] = {}

    def count(each: Any) -> int:
        if id(each) in seen or isinstance(each, _NOT_WALKED):
            return 0
        seen[id(each)] = each
        if isinstance(each, Mapping):
            return len(each) + sum(map(count, [*each.keys(), *each.values()]))
        if isinstance(each, list | tuple | set | frozenset | deque):
            return len(each) + sum(map(count, each))
        if type(each).__module__.partition(".")[0] not in ("session", "surreal_like"):
            return 0
        slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
        values = [getattr(each, name, None) for name in slots]
        return sum(map(count, [*values, *getattr(each, "__dict__", {}).values()]))

    return count(thing)


def _replay(stack: ExitStack, folder: Path) -> Bench:
    context: zmq.Context[Any] = zmq.Context()
    stack.callback(context.destroy, 0)
    bench = stack.enter_context(closing(Bench(context, folder, config())))
    bench.until(lambda: bench.service)
    return bench


def _chunks(stack: ExitStack, folder: Path) -> tuple[Any, Send]:
    bench = _replay(stack, folder)

    def send(sender: Identity) -> None:
        message = chunk_of("FMT").to_message()
        message.sender = sender
        bench.service._intake._take(message)
        bench.service._intake.acks.send()

    return [bench.service, bench.service._context.wire], send


def _goodbyes(stack: ExitStack, folder: Path) -> tuple[Any, Send]:
    bench = _replay(stack, folder)
    fields = {"seq": 1, "rows": 5, "env_steps": 0, "episodes": 0}

    def send(sender: Identity) -> None:
        bench.service._intake._take(Message("goodbye", fields, sender=sender))

    return [bench.service, bench.service._context.wire], send


def _parameter_server(stack: ExitStack, folder: Path) -> Any:
    rig = stack.enter_context(make_rig())
    frame = rig.start("ps", main.ps.build)
    rig.until(lambda: frame._service)
    return frame._service


def _requests(stack: ExitStack, folder: Path) -> tuple[Any, Send]:
    service = _parameter_server(stack, folder)

    def send(sender: Identity) -> None:
        peer = f"{sender.name}/{sender.incarnation}".encode()
        for kind in ("fetch", "leave"):
            fields = {"id": 1, "policy": "default", "have": [0, 0], "account": ACCOUNT}
            fields["patient"] = True
            service._answer(Request(peer, Message(kind, fields, sender=sender)))

    return [service, service._context.wire], send


def _hellos_of_others(stack: ExitStack, folder: Path) -> tuple[Any, Send]:
    service = _parameter_server(stack, folder)

    def send(sender: Identity) -> None:
        fields = {"id": 1, "protocol": 0, "fingerprint": "x", "spec_hash": "x", "fresh": True}
        fields |= {"name": sender.name, "incarnation": sender.incarnation}
        service._answer(Request(b"x", Message("hello", fields, sender=sender)))

    return [service, service._context.wire], send


def _records(kind: str, build: Any, record: Mapping[str, Any]) -> Any:
    def make(stack: ExitStack, folder: Path) -> tuple[Any, Send]:
        rig = Rig(folder)
        stack.callback(rig.close)
        server = stack.enter_context(closing(build(rig.context(kind))))

        def send(sender: Identity) -> None:
            own = {key: value.format(sender=sender.name) for key, value in record.items()}
            for given in (own, {}):
                fields = {"records": [{"time": 1.0, **given}], "dropped": 3}
                server._store_message(Message(kind, fields, sender=sender))
            # Lines wait for earlier ones for a moment.
            rig.clock.seconds += 1.0
            server.tick()

        return [server, server._context.wire], send

    return make


_LINE = {"level": "info", "component": "{sender}", "text": "y"}
_METRIC = {"kind": "text", "id": "agent/{sender}", "tag": "t", "text": "y"}
SERVICES: dict[str, Callable[[ExitStack, Path], tuple[Any, Send]]] = {
    "chunks": _chunks,
    "goodbyes": _goodbyes,
    "fetches and leave messages": _requests,
    "hellos of another run": _hellos_of_others,
    "logs": _records("loggerplex", Loggerplex, _LINE),
    "metrics": _records("tensorplex", Tensorplex, _METRIC),
}


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("service", SERVICES)
def test_memory_does_not_grow_with_foreign_names_and_incarnations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str, senders: str
) -> None:
    for name in LIMITS:
        monkeypatch.setattr(name, LIMIT)
    with ExitStack() as stack:
        kept, send = SERVICES[service](stack, tmp_path)
        counts = []
        for number in range(16 * LIMIT):
            send(Identity(*SENDERS[senders](number), bytes(8)))
            if number + 1 in (LIMIT, 8 * LIMIT, 16 * LIMIT):
                counts.append(entries(kept))
    assert counts[1] == counts[2]


def test_so_many_sender_incarnations_are_kept_account_of() -> None:
    # A header of 8 MiB holds a line of each.
    assert SENDERS_LIMIT == 10_000
