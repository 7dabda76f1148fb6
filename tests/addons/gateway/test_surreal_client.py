"""The Python client: golden frames, and a real gateway through all that can happen to it."""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.addons.gateway.protocols import Encoding
from surreal_like.addons.gateway import payloads
from surreal_like.addons.gateway.clients import surreal_client
from surreal_like.addons.gateway.clients.surreal_client import (
    Finished,
    Refused,
    Session,
    Unavailable,
    connect,
    pack,
    unpack,
)
from surreal_like.addons.gateway.service import GatewayService
from tests.addons.gateway.rig import Stage, make_stage
from tests.addons.gateway.test_payloads import GOLDEN, payload, plain

FILE = Path(surreal_client.__file__)


# -- msgpack


@pytest.mark.parametrize("golden", GOLDEN, ids=[each["name"] for each in GOLDEN])
def test_golden_frames_are_read_and_written(golden: dict[str, Any]) -> None:
    if "JSON" in golden["name"]:
        return
    fields = unpack(payload(golden))
    assert plain(fields) == golden["json"]
    assert unpack(pack(fields)).keys() == fields.keys()
    assert plain(unpack(pack(fields))) == golden["json"]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=30,
)


@given(VALUES)
def test_msgpack_is_that_of_the_library(value: Any) -> None:
    import msgpack

    assert msgpack.unpackb(pack(value), strict_map_key=False) == value
    assert unpack(msgpack.packb(value)) == value


@pytest.mark.parametrize("size", [0, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_sizes_of_all_heads(size: int) -> None:
    values: list[Any] = [
        "a" * size,
        b"a" * size,
        [None] * size,
        {str(i): None for i in range(size)},
    ]
    for value in values:
        assert unpack(pack(value)) == value


@pytest.mark.parametrize("name", [*payloads.DTYPES])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (2, 0), (20, 30)])
def test_arrays_travel_both_ways(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(name)
    found = payloads.decode(pack({"a": array}), None)[0]["a"]
    back = unpack(payloads.encode({"a": array}, Encoding.msgpack))["a"]
    for each in (found, back):
        assert each.dtype == array.dtype
        assert each.shape == shape
        assert (each == array).all()


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_ValueError(data: bytes) -> None:
    try:
        unpack(data)
    except (ValueError, TypeError):
        pass


def test_what_cannot_be_sent_is_named() -> None:
    for value in (object(), np.zeros(2, np.complex64)):
        with pytest.raises(TypeError, match="cannot be sent"):
            pack(value)


# -- a real gateway


class Playing(threading.Thread):
    """A client's program in a thread of its own; its error is raised by `result`."""

    def __init__(self, stage: Stage, program: Callable[[str], Any]) -> None:
        super().__init__()
        self._stage, self._program = stage, program
        self._address = f"127.0.0.1:{stage.port}"
        self._error: BaseException | None = None
        self._value: Any = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._program(self._address)
        except BaseException as error:  # noqa: BLE001 - raised again in the test
            self._error = error

    def result(self) -> Any:
        self._stage.rig.until(lambda: not self.is_alive(), seconds=20.0)
        self.join()
        if self._error is not None:
            raise self._error
        return self._value


def episode(session: Session, steps: int, **end: Any) -> Any:
    session.reset([0.0, 0.0])
    for step in range(1, steps):
        session.step(1.0, np.array([0.0, step], np.float32))
    return session.end(1.0, **end)


def test_episodes_end_by_termination_and_by_truncation(stage: Stage) -> None:
    def program(address: str) -> Any:
        with connect(address, name="robot") as session:
            assert session.observation_spec == {"type": "float32", "dim": [2]}
            assert session.action_spec == {"type": "discrete", "dim": [3]}
            first = session.seed
            assert session.version == 0
            results = [
                episode(session, 3),
                episode(session, 2, observation=[0.0, 9.0], truncated=True),
                episode(session, 1, observation=[0.0, 9.0], metrics={"speed": 2.5}),
            ]
            assert session.seed != first
            assert session.version == 1
            return results

    results = Playing(stage, program).result()
    assert [(each.total, each.length) for each in results] == [(3.0, 3), (2.0, 2), (1.0, 1)]
    account = stage.finish()
    assert stage.replay.column("discount")[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 0]
    assert account["env_steps"] == 6
    finished = [each for chunk in stage.replay.chunks for each in chunk.finished]
    assert finished[-1]["metrics"] == {"speed": 2.5}
    stage.rig.until(lambda: stage.rig.events("client_joined"))
    assert "robot" in stage.rig.events("client_joined")[0]


def test_actions_are_numbers_or_arrays() -> None:
    spec = {"type": "discrete", "dim": [3]}
    with make_stage(env={"action_spec": spec}) as stage:
        assert type(Playing(stage, lambda a: one_action(a)).result()) is int


def one_action(address: str) -> Any:
    with connect(address) as session:
        return session.reset([0.0, 0.0])


def cut_connections(stage: Stage, *, after: int) -> None:
    """Makes the gateway lose every connection after so many messages, as a broken network does."""
    frontend, handled = stage.service._frontend, 0
    handle = frontend._handle

    def note(event: Any, now: float) -> None:
        nonlocal handled
        handle(event, now)
        handled += event.payload is not None
        if event.payload is not None and handled == after:
            for connection in list(stage.listener._connections.values()):
                stage.listener.lose(connection)

    frontend._handle = note  # type: ignore[method-assign]


@pytest.mark.parametrize("after", [1, 2, 3, 5, 8, 13])
def test_a_cut_connection_is_resumed_and_nothing_counts_twice(stage: Stage, after: int) -> None:
    def program(address: str) -> Any:
        with connect(address) as session:
            return [episode(session, 4) for _ in range(3)]

    cut_connections(stage, after=after)
    playing = Playing(stage, program)
    results = playing.result()
    assert [(each.total, each.length) for each in results] == [(4.0, 4)] * 3
    account = stage.finish()
    assert (account["env_steps"], account["episodes"]) == (12, 3)
    assert account["pushed"] == account["inserted"] == 15
    assert stage.gateway.counters.resumed == 1


def test_a_session_that_is_gone_goes_on_from_the_present_observation(stage: Stage) -> None:
    playing: list[int] = []

    def program(address: str) -> Any:
        with connect(address) as session:
            session.reset([0.0, 0.0])
            for step in range(1, 8):
                session.step(1.0, [0.0, float(step)])
                playing.append(step)
            return session.end(1.0)

    client = Playing(stage, program)
    stage.rig.until(lambda: len(playing) >= 3)
    (member,) = stage.sessions
    stage.gateway.leave(member, "lost", reconnect=True)
    result = client.result()
    assert result.length < 8
    account = stage.finish()
    types = stage.replay.column("step_type")[:, 0].tolist()
    assert types.count(0) == 2
    assert types.count(2) == 2
    assert account["env_steps"] == 7
    assert account["episodes"] == 1


def test_an_end_that_was_lost_with_its_session_is_counted_by_the_client(stage: Stage) -> None:
    at_end = threading.Event()
    goes_on = threading.Event()

    def program(address: str) -> Any:
        with connect(address) as session:
            session.reset([0.0, 0.0])
            session.step(2.0, [0.0, 1.0])
            at_end.set()
            goes_on.wait(10.0)
            return session.end(3.0), session.reset([0.0, 0.0])

    client = Playing(stage, program)
    stage.rig.until(at_end.is_set)
    (member,) = stage.sessions
    stage.gateway.leave(member, "lost", reconnect=True)
    goes_on.set()
    result, action = client.result()
    assert (result.total, result.length) == (5.0, 2)
    assert action in (0, 1, 2)


def test_the_end_of_the_run_ends_the_loop(stage: Stage) -> None:
    played = []

    def program(address: str) -> Any:
        with connect(address) as session:
            for each in session.episodes():
                played.append(each.seed)
                episode(session, 3)
        return "ended"

    client = Playing(stage, program)
    stage.rig.until(lambda: len(played) > 3)
    stage.learner.publish(final=True)
    assert client.result() == "ended"
    assert len(set(played)) == len(played)


def test_a_goodbye_is_read_though_nothing_can_be_sent_any_more(stage: Stage) -> None:
    reached, allowed = threading.Event(), threading.Event()

    def program(address: str) -> Any:
        session = connect(address, patience_seconds=0.1)
        session.reset([0.0, 0.0])
        reached.set()
        assert allowed.wait(20.0)
        # The first message to a closed port is answered by a reset, and the second one fails.
        session.metrics(speed=1.0)
        with pytest.raises(Finished, match="finished"):
            session.step(1.0, [0.0, 1.0])

    client = Playing(stage, program)
    stage.rig.until(reached.is_set)
    stage.finish()
    stage.listener.close()
    allowed.set()
    client.join(20.0)
    client.result()


def test_a_run_that_is_over_is_reported_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the gateway may be gone before this client connects.
    monkeypatch.setattr(GatewayService, "done", False)
    stage.learner.publish(final=True)
    stage.rig.until(lambda: stage.service._leaving.begun)
    with pytest.raises(Finished, match="finished"):
        Playing(stage, lambda address: connect(address)).result()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "a b"}, "bad_hello"),
        ({"mode": "learn"}, "bad_hello"),
        ({"num_envs": 2}, "bad_hello"),
    ],
)
def test_a_refusal_has_its_code(stage: Stage, options: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as caught:
        Playing(stage, lambda address: connect(address, **options)).result()
    assert caught.value.code == code


def test_a_refused_request_may_be_corrected(stage: Stage) -> None:
    def program(address: str) -> Any:
        with connect(address) as session:
            codes = []
            for wrong in ([0.0], [0.0, float("nan")]):
                try:
                    session.reset(wrong)
                except Refused as refused:
                    codes.append(refused.code)
            return codes, session.reset([0.0, 0.0])

    codes, action = Playing(stage, program).result()
    assert codes == ["bad_observation"] * 2
    assert action in (0, 1, 2)


def test_a_busy_gateway_is_asked_again(stage: Stage) -> None:
    others = [stage.client() for _ in range(4)]
    waiting = Playing(stage, one_action)
    stage.rig.until(lambda: len(stage.listener) >= 5)
    others[0].ask(kind="bye")
    assert waiting.result() in (0, 1, 2)


def test_a_gateway_that_is_not_there_is_given_up(stage: Stage) -> None:
    with pytest.raises(Unavailable, match="refused"):
        connect("127.0.0.1:1", patience_seconds=0.1)


@pytest.mark.parametrize(
    "address", ["", "7100", ":7100", "a:b", "tls://7100", "a:0", "a:65536", "a:9999999", "a:²"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        connect(address)


def test_the_round_trip_is_reported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surreal_client, "_REPORT_STEPS", 5)

    def program(address: str) -> Any:
        with connect(address) as session:
            episode(session, 6)
            return session.latencies

    latencies = Playing(stage, program).result()
    assert all(each > 0 for each in latencies)
    curves = {f"client/place-0/latency_{share}_seconds" for share in ("p50", "p99")}
    stage.rig.until(lambda: curves <= stage.rig.scalars("gateway/0").keys())


def test_run_drives_an_environment_of_gymnasium(stage: Stage) -> None:
    class Short:
        """Ends after three steps."""

        def reset(self, seed: int) -> Any:
            self.left = 3
            return np.zeros(2, np.float32), {}

        def step(self, action: int) -> Any:
            self.left -= 1
            return np.zeros(2, np.float32), 1.0, not self.left, not self.left, {}

    played = Playing(stage, lambda a: surreal_client.run(Short(), a, episodes=4)).result()
    assert played == 4
    assert stage.finish()["episodes"] == 4
    # A termination counts, also where a time limit comes at the same step.
    assert stage.replay.column("discount")[:, 0].tolist() == [1, 1, 1, 0] * 4


def test_the_episodic_client_plays(stage: Stage) -> None:
    def program(address: str) -> Any:
        client = surreal_client.EpisodicClient(address, name="old")
        with pytest.raises(surreal_client.Failure, match="not connected"):
            client.send(1.0, [0.0, 0.0])
        actions = [client.init([0.0, 0.0]), client.send(1.0, [0.0, 1.0])]
        scores = [client.reset(2.0)]
        actions += [client.send(None, [0.0, 0.0]), client.send(5.0, [0.0, 1.0])]
        scores.append(client.reset(-1.0))
        client.metrics().scalar("speed", 2.5)
        client.disconnect()
        client.disconnect()
        return actions, scores

    actions, scores = Playing(stage, program).result()
    assert all(action in (0, 1, 2) for action in actions)
    assert scores == [3.0, 4.0]
    assert stage.finish()["episodes"] == 2
    assert stage.replay.column("discount")[:, 0].tolist() == [1, 1, 0] * 2
    stage.rig.until(lambda: stage.rig.scalars("gateway/0").get("client/old/speed") == 2.5)


def test_the_file_needs_nothing_but_python(stage: Stage) -> None:
    code = (
        "import sys, json; sys.modules['numpy'] = None\n"
        f"sys.path.insert(0, {str(FILE.parent)!r})\n"
        "import surreal_client\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'surreal_like']\n"
        f"with surreal_client.connect('127.0.0.1:{stage.port}') as session:\n"
        "    action = session.reset([0.0, 0.0])\n"
        "    session.step(1, [0.0, 1.0])\n"
        "    print(json.dumps([action, session.end(1.0)]))\n"
        "print(surreal_client.unpack(bytes.fromhex("
        "'c71001' '0202' '0200000003000000' '010203040506')))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    stage.rig.until(lambda: child.poll() is not None)
    first, second = child.communicate()[0].splitlines()
    action, result = json.loads(first)
    assert action in (0, 1, 2)
    assert result == [2.0, 2]
    assert second == "[[1, 2, 3], [4, 5, 6]]"


# -- TLS

# Self-signed, for 127.0.0.1 and localhost; its key is in the same file.
CERTIFICATE = Path(__file__).with_name("certificate.pem")
_PEM = re.search(r"-----BEGIN CERT.*", CERTIFICATE.read_text(), re.DOTALL)
assert _PEM is not None
FINGERPRINT = hashlib.sha256(ssl.PEM_cert_to_DER_cert(_PEM[0])).hexdigest()


@pytest.fixture
def tls_stage() -> Iterator[Stage]:
    tls = {"cert": str(CERTIFICATE), "key": str(CERTIFICATE)}
    with make_stage(gateway={"tls": tls}) as made:
        yield made


@pytest.mark.parametrize("write", [str.lower, lambda text: ":".join(chunks(text.upper()))])
def test_a_pinned_certificate_is_accepted(tls_stage: Stage, write: Callable[[str], str]) -> None:
    def program(address: str) -> Any:
        with connect(f"tls://{address}", fingerprint=write(FINGERPRINT)) as session:
            return episode(session, 3)

    assert Playing(tls_stage, program).result().total == 3.0


def chunks(text: str) -> list[str]:
    return [text[i : i + 2] for i in range(0, len(text), 2)]


def test_another_certificate_is_refused(tls_stage: Stage) -> None:
    def program(address: str) -> Any:
        return connect(f"tls://{address}", fingerprint="00" * 32)

    with pytest.raises(Refused, match=f"the server has the fingerprint {FINGERPRINT}"):
        Playing(tls_stage, program).result()


def test_without_its_fingerprint_a_self_signed_certificate_is_refused_at_once(
    tls_stage: Stage,
) -> None:
    def program(address: str) -> Any:
        # Longer than the test may take.
        return connect(f"tls://{address}", patience_seconds=1000.0)

    with pytest.raises(
        Refused, match=r"self[- ]signed.*: no authority.*give fingerprint="
    ) as caught:
        Playing(tls_stage, program).result()
    assert caught.value.code == "certificate"
