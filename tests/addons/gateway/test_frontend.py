"""Wrong messages over real sockets: every row of the table of errors, and garbage."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from session.addons.gateway.protocols import Encoding
from session.wire.frames import pack_frame
from surreal_like.addons.gateway.messages import Request
from surreal_like.addons.gateway.payloads import encode
from surreal_like.addons.gateway.sessions import Session
from tests.addons.gateway.rig import Client, Stage


def before_welcome(stage: Stage, payload: bytes) -> dict[str, Any]:
    client = Client(stage)
    client.send_bytes(pack_frame(payload))
    answer = client.next()
    assert client.gone()
    return answer


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\xc0", "malformed"),
        (b"", "malformed"),
        (b'{"kind": "hello", "v": 0}', "bad_version"),
        (b'{"kind": "hello", "v": 1, "name": "a b"}', "bad_hello"),
        (b'{"kind": "hello", "v": 1, "num_envs": 2}', "bad_hello"),
        (b'{"kind": "step"}', "bad_seq"),
        (b'{"kind": "bye"}', "wrong_state"),
        (b'{"kind": "what"}', "unknown_kind"),
        (b"{}", "malformed"),
    ],
)
def test_before_the_welcome_every_error_is_fatal(stage: Stage, payload: bytes, code: str) -> None:
    answer = before_welcome(stage, payload)
    assert answer["kind"] == "error"
    assert answer["code"] == code
    assert answer["fatal"]


def test_errors_that_are_not_fatal_change_nothing(stage: Stage) -> None:
    client = stage.client()
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("wrong_state", {"kind": "step", "seq": 1, "reward": 1, "observation": [0, 0]}),
        ("bad_seq", {"kind": "reset", "seq": 2, "observation": [0, 0]}),
        ("bad_observation", {"kind": "reset", "seq": 1, "observation": [0]}),
        ("unknown_kind", {"kind": "?"}),
        ("bad_metric", {"kind": "metrics", "values": 1}),
        ("wrong_state", {"kind": "hello", "v": 1}),
    ]
    for code, fields in wrong:
        answer = client.ask(**fields)
        assert (answer["kind"], answer["code"], answer["fatal"]) == ("error", code, False)
    assert client.request("reset")["kind"] == "action"
    for code, change in (("bad_reward", {"reward": True}), ("bad_action", {"action": 3})):
        answer = client.ask(
            **{"kind": "step", "seq": 2, "reward": 1, "observation": [0, 0], **change}
        )
        assert answer["code"] == code
    assert client.request("step")["kind"] == "action"
    assert stage.finish()["pushed"] == 2


def test_a_request_before_the_answer_is_refused_as_overlap(stage: Stage) -> None:
    client = stage.client()
    request = {"reward": 1.0, "observation": [0.0, 0.0]}
    first, second = (
        pack_frame(encode({"kind": kind, "seq": seq, **request}, Encoding.msgpack))
        for kind, seq in (("reset", 1), ("step", 2))
    )
    client.send_bytes(first + second)
    answers = [client.next(), client.next()]
    assert sorted(each.get("code", "") for each in answers) == ["", "overlap"]


def test_twenty_errors_in_a_row_are_too_many(stage: Stage) -> None:
    client = stage.client()
    for _ in range(19):
        assert not client.ask(kind="?")["fatal"]
    client.request("reset")
    for _ in range(19):
        assert not client.ask(kind="?")["fatal"]
    # The last one is answered like all others, and then the session ends.
    assert client.ask(kind="?")["code"] == "unknown_kind"
    answer = client.next()
    assert answer["code"] == "too_many_errors"
    assert answer["fatal"]
    assert client.gone()


def test_before_the_welcome_a_message_that_is_announced_too_large_is_refused_at_once(
    stage: Stage,
) -> None:
    client = Client(stage)
    client.send_bytes(struct.pack("<I", 12 << 10))
    answer = client.next()
    assert (answer["code"], answer["fatal"]) == ("oversize", True)
    assert "the limit is 8192" in answer["message"]
    assert client.gone()
    # It is the limit of strangers only.
    other = stage.client()
    other.request("reset")
    assert other.request("step", unknown=["x" * 3000] * 4)["kind"] == "action"


def test_a_message_that_is_too_large_ends_the_connection_and_not_the_session(
    stage: Stage,
) -> None:
    client = Client(stage)
    resume = client.hello()["resume"]
    client.send_bytes(struct.pack("<I", 1 << 20))
    answer = client.next()
    assert (answer["code"], answer["fatal"]) == ("oversize", True)
    assert "the limit is 65616" in answer["message"]
    assert client.gone()
    assert Client(stage).hello(resume=resume)["resumed"]


def test_a_defect_ends_one_connection_and_no_other_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, other = stage.client(), stage.client()
    healthy.request("reset")
    receive = stage.gateway.receive

    def broken(session: Session, request: Request, now: float) -> None:
        receive(session, request, now if session.number == 1 else 1 // 0)

    monkeypatch.setattr(stage.gateway, "receive", broken)
    answer = other.request("reset")
    assert (answer["code"], answer["fatal"]) == ("internal", True)
    assert other.gone()
    assert healthy.request("step")["kind"] == "action"

    def logged() -> bool:
        return any("ZeroDivisionError" in each.get("text", "") for each in stage.rig.records)

    stage.rig.until(logged)


def test_the_other_encoding_is_malformed(stage: Stage) -> None:
    client = stage.client(encoding=Encoding.json)
    client.encoding = Encoding.msgpack
    assert client.ask(kind="ping")["code"] == "malformed"
    assert client.gone()


def test_connections_that_say_nothing_keep_no_client_of_their_address_out(stage: Stage) -> None:
    silent = [Client(stage) for _ in range(16)]
    stage.rig.until(lambda: len(stage.listener) == 16)
    assert Client(stage).hello()["kind"] == "welcome"
    assert silent[0].gone()
    assert silent[1].hello()["kind"] == "welcome"


def corrupted(data: bytes, rng: np.random.Generator) -> bytes:
    """A message with some bytes changed, left out or repeated."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(changed) + 1))
        part = rng.bytes(int(rng.integers(0, 9)))
        changed[at : at + int(rng.integers(0, 5))] = part
    return bytes(changed)


def test_garbage_at_all_doors_hurts_no_other_session(stage: Stage) -> None:
    """A short hunt; longer ones change the seed and the number of rounds."""
    rng = np.random.default_rng(7)
    healthy = stage.client()
    healthy.request("reset")
    fields = {"observation": [0.0, 1.0], "reward": 1.0}
    messages = [
        pack_frame(
            encode({"kind": kind, "v": 1, "seq": 1, **fields, "values": {"a": 1}}, Encoding.msgpack)
        )
        for kind in ("hello", "reset", "step", "end", "metrics", "ping", "bye")
    ]
    texts = [pack_frame(b'{"kind": "hello", "v": 1}'), pack_frame(b'{"kind": "reset", "seq": 1}')]
    upgrade = (
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Protocol: surreal.v1.json\r\n\r\n"
    )
    for number in range(60):
        stranger = Client(stage)
        start = [messages[0], texts[0], upgrade][number % 3]
        try:
            stranger.send_bytes(start if rng.random() < 0.7 else corrupted(start, rng))
            for _ in range(5):
                message = [*messages, *texts][rng.integers(0, 9)]
                stranger.send_bytes(corrupted(message, rng))
                stage.rig.step()
        except (BrokenPipeError, ConnectionResetError):
            pass
        stranger.close()
        assert healthy.request("step")["kind"] == "action"
    healthy.request("end")
    stage.rig.pass_time(31.0)
    assert len(stage.sessions) == 1
    assert len(stage.listener) == 1
    account = stage.finish()
    assert account["unacked"] == 0
    assert account["pushed"] == account["inserted"]


def test_values_that_would_spoil_learning_are_refused_counted_and_named_once(stage: Stage) -> None:
    client = stage.client()
    client.request("reset")
    client.seq = 1
    for _ in range(3):
        answer = client.request("step", reward=3e38)
        assert answer["code"] == "bad_reward"
        assert "from -1e+06 to 1e+06" in answer["message"]
        client.seq = 1
    assert client.request("step", reward=1e6)["kind"] == "action"
    assert stage.service._totals()["refused"] == 3
    stage.rig.until(lambda: stage.rig.events("client_refused"))
    assert len(stage.rig.events("client_refused")) == 1
