"""Values of types that no field expects, in each field of each message, before a welcome and after.

Each is refused in one line that names what is wrong; no defect of the gateway shows, and the lines
of log do not grow with the messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest

from session.stream.protocols import Encoding
from session.wire.frames import pack_frame
from surreal_like.gateway.payloads import encode
from tests.surreal_like.gateway.rig import Client, Stage, make_stage

FIELDS = {
    "hello": ("v", "token", "mode", "name", "num_envs", "client", "resume"),
    "reset": ("seq", "observation"),
    "step": ("seq", "reward", "observation", "action", "metrics"),
    "end": ("seq", "reward", "observation", "action", "truncated", "metrics"),
    "metrics": ("values",),
    "ping": ("t",),
    "bye": ("kind",),
}
GOOD = {"v": 1, "seq": 1, "observation": [0.0, 1.0], "reward": 1.0, "values": {"a": 1}, "t": 1}
HUGE = [0, 2**32 - 1, 2**32 - 1, 2**32 - 1]
ARRAYS = (
    np.zeros(4, np.float32),
    np.zeros((3, 0), np.int64),
    np.zeros((), np.bool_),
    np.full((2, 2), np.nan, np.float64),
)
ANY: tuple[Any, ...] = (
    *(None, True, -1, 0.5, 2**63, -(2**63), float("nan"), float("-inf"), 1e308, "", "x", [], {}),
    *([[]], [[0.0, 1.0]], [True, None], {"a": {"b": {"c": 1}}}, "y" * 3000, [1] * 2000),
)
IN_JSON: tuple[Any, ...] = (
    *(10**30, -(10**400), [10**40], {"a": 10**40}),
    *({"dtype": "float32", "shape": HUGE, "data": ""}, {"dtype": [], "shape": {}, "data": 1}),
    {"dtype": "float64", "shape": [0] * 9, "data": ""},
)
IN_MSGPACK: tuple[Any, ...] = (
    *ARRAYS,
    *([array] for array in ARRAYS),
    *({"values": array} for array in ARRAYS),
    *(b"", b"\xff" * 40, msgpack.ExtType(2, b"12"), msgpack.ExtType(1, b"")),
    *(msgpack.Timestamp(1, 2), [msgpack.Timestamp(1, 2)], 2**64 - 1),
    msgpack.ExtType(1, bytes([1, 4]) + b"".join(each.to_bytes(4, "little") for each in HUGE)),
)  # fmt: skip
VALUES = {Encoding.msgpack: (*ANY, *IN_MSGPACK), Encoding.json: (*ANY, *IN_JSON)}


def packed(fields: dict[str, Any], encoding: Encoding) -> bytes:
    """The payload of a message, whatever is in it."""
    if encoding is Encoding.json:
        return json.dumps(fields).encode()
    return encode(fields, encoding)


def messages(kind: str, encoding: Encoding) -> Iterator[bytes]:
    """A message of a kind with each of its fields, and then its kind, wrong in every way."""
    good = {"kind": kind, **{name: GOOD[name] for name in FIELDS[kind] if name in GOOD}}
    for name in dict.fromkeys((*FIELDS[kind], "kind", "unknown")):
        for value in VALUES[encoding]:
            yield packed({**good, name: value}, encoding)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with make_stage(gateway={"max_clients": 2}) as made:
        yield made


def answers(client: Client, *, welcomed: bool) -> list[dict[str, Any]]:
    """All answers to what was sent; in a session those until a pong, or the end of it."""
    found: list[dict[str, Any]] = []
    if welcomed:
        client.send(kind="ping", t="last")

    def complete() -> bool:
        while (message := client.receive()) is not None:
            found.append(message)
        last = found and (not welcomed or found[-1].get("t") == "last")
        return bool(last) or client.closed

    client.stage.until(complete)
    return found


def end(client: Client, found: list[dict[str, Any]]) -> None:
    """Ends a session, if there is one, and the connection."""
    if not client.closed and not any(each.get("fatal") for each in found):
        client.send(kind="bye")
        assert client.gone()
    client.close()
    client.stage.clients.remove(client)


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("welcomed", [False, True], ids=["before the welcome", "in a session"])
def test_no_type_of_value_shows_a_defect(
    stage: Stage, kind: str, encoding: Encoding, *, welcomed: bool
) -> None:
    client: Client | None = None
    sent = 0
    lines = len(stage.rig.records)
    for payload in messages(kind, encoding):
        if client is None:
            client = Client(stage, encoding)
            if welcomed:
                assert client.hello()["kind"] == "welcome"
        client.send_bytes(pack_frame(payload))
        sent += 1
        found = answers(client, welcomed=welcomed)
        codes = {each.get("code") for each in found}
        assert "internal" not in codes, payload[:200]
        if not welcomed or client.closed or any(each.get("fatal") for each in found):
            end(client, found)
            client = None
    if client is not None:
        end(client, [])
    assert sent > 50
    written = [each for each in stage.rig.records[lines:] if "level" in each]
    # One for each code of a refusal, and those of the sessions.
    assert len(written) < 140
    assert not any("Traceback" in each["text"] for each in written)
