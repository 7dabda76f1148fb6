"""Values of types that no field expects, in each field of each message, before a welcome and after.

Each is refused in one line that names what is wrong; no defect of the gateway shows, and the lines
of log do not grow with the messages. Sequences of such messages change nothing of another client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from session.addons.gateway.client_tokens import write_token
from session.addons.gateway.protocols import Encoding
from session.folder import RunFolder
from session.wire import Message
from session.wire.frames import pack_frame
from surreal_like.addons.gateway.payloads import encode
from tests.addons.gateway.rig import Client, Stage, make_stage
from tests.addons.join.runs.guests import CLIENTS, Hostility

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


class Hostile:
    """A client with a token that connects again whenever its connection is closed."""

    names: tuple[str, ...] = ("theirs",)

    def __init__(self, stage: Stage, token: str) -> None:
        self._stage, self._token = stage, token
        self._client: Client | None = None
        self._incarnation = 0
        self.answers: dict[str, Message] = {}

    def send(self, endpoint: str, name: str, incarnation: int, message: Message) -> None:
        if self._client is None or incarnation != self._incarnation:
            self._incarnation = incarnation
            self._connect()
        assert self._client is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            fields = {**message.fields, "kind": message.kind}
            self._client.send_bytes(pack_frame(msgpack.packb(fields)))
        self.round()
        while (answer := self._client.receive()) is not None:
            self.answers[answer["kind"]] = Message(answer["kind"], answer)
        if self._client.closed:
            self.close()

    def _connect(self) -> None:
        self.close()
        known = self.answers.pop("welcome", None)
        resume = "" if known is None else known.fields["resume"]
        self._client = Client(self._stage)
        answer = self._client.hello(token=self._token, resume=resume)
        self.answers = {answer["kind"]: Message(answer["kind"], answer)}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._stage.clients.remove(self._client)
        self._client = None

    def round(self) -> None:
        self._stage.rig.step()


class HostileClient(Hostility):
    """Draws sequences of messages of a client with a token."""

    def __init__(self, client: Hostile, token: str, seed: int) -> None:
        examples = {
            (CLIENTS, kind): Message(kind, {name: GOOD[name] for name in names if name in GOOD})
            for kind, names in FIELDS.items()
        }
        examples[CLIENTS, "hello"].fields["token"] = token
        super().__init__(client, examples, seed, restarts=0.1, wrong=(0, 0, 0, 1, 2))
        self._kinds[CLIENTS] += ["reset", "step", "step", "step", "end"] * 2

    def _renew(self, message: Message, endpoint: str, name: str) -> Message:
        found = [each.fields["seq"] for each in self._guest.answers.values() if each.kind in SEQ]
        if "seq" in message.fields:
            message.fields["seq"] = max(found, default=0) + 1
        return message


# Answers with the number of the newest request.
SEQ = ("welcome", "action", "episode", "wait")
MINE = 7.25


@pytest.mark.parametrize("sequences", [150, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_sequences_of_a_client_with_a_token_change_nothing_of_another(
    sequences: int, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    tokens = {name: write_token(run.client_tokens, name) for name in ("theirs", "ours")}
    with make_stage(run=run, gateway={"tokens": True, "max_clients": 4}) as stage:
        honest = stage.client(token=tokens["ours"])
        client = Hostile(stage, tokens["theirs"])
        hostile = HostileClient(client, tokens["theirs"], seed=1)
        for number in range(sequences):
            hostile.sequence()
            kind = "end" if honest.seq % 10 == 9 else "step" if honest.seq % 10 else "reset"
            answer = honest.request(kind, observation=[MINE, float(number)])
            assert answer["kind"] == ("episode" if kind == "end" else "action"), answer
            if kind == "end":
                assert (answer["return"], answer["length"]) == (9.0, 9)
            assert 1 <= len(stage.sessions) <= 4
        client.close()
        stage.rig.pass_time(31.0)
        assert len(stage.sessions) == len(stage.listener) == 1
        account = stage.finish()
        chunks = stage.replay.chunks
        written = [each for each in stage.rig.records if "level" in each]
    assert not any("Traceback" in each["text"] for each in written)
    assert account["unacked"] == 0
    assert account["pushed"] == account["inserted"] == sum(chunk.size for chunk in chunks)
    obs = np.concatenate([chunk.columns["obs"].reshape(-1, 2) for chunk in chunks])
    reward = np.concatenate([chunk.columns["reward"].reshape(-1) for chunk in chunks])
    own = obs[:, 0] == MINE
    assert sorted(obs[own, 1]) == list(range(sequences))
    assert set(reward[own]) <= {0.0, 1.0}
    assert abs(reward).max() <= 1e6
