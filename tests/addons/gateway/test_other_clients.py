"""Clients in JavaScript and C++: golden frames, CartPole, and a real gateway.

Each language has a player (`clients/player.*`) with the same programs and the same output.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gymnasium
import msgpack
import numpy as np
import pytest

from session.addons.gateway.protocols import Encoding
from session.folder import RunFolder
from session.launchers.launcher import free_ports
from session.wire.frames import pack_frame
from surreal_like.addons.gateway import clients
from surreal_like.addons.gateway.payloads import DTYPES, decode, encode
from tests.addons.gateway.rig import Stage, make_stage
from tests.addons.gateway.test_payloads import GOLDEN, payload
from tests.addons.gateway.test_surreal_client import CERTIFICATE, cut_connections

PLAYERS = Path(__file__).parent / "clients"
CLIENTS = Path(clients.__file__).parent


class Player:
    """A program of a player, which the rig lets run.

    Args:
        command: of the player.
        stage: of the gateway; None: the program needs none.
        words: name of the program and its arguments.
    """

    def __init__(self, command: list[str], stage: Stage | None, *words: str) -> None:
        self._stage = stage
        self._process = subprocess.Popen(
            [*command, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self.lines: list[str] = []
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, kept))
            for stream, kept in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self._errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, kept: list[str]) -> None:
        with stream:
            for line in stream:
                kept.append(line.rstrip("\n"))

    @property
    def waits(self) -> list[str]:
        """Lines about a gateway that it could not reach, and tries again."""
        return [line for line in self._errors if "; trying again for " in line]

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def result(self, seconds: float = 20.0) -> list[str]:
        """Waits until the program has ended; returns its lines."""
        if self._stage is not None:
            self._stage.rig.until(lambda: self._process.poll() is not None, seconds=seconds)
        self._close()
        assert [line for line in self._errors if line not in self.waits] == []
        assert self._process.returncode == 0, self.lines
        return self.lines

    def _close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(100)
        for reader in self._readers:
            reader.join()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._close()


# Warnings are errors, and so is every access outside of an object.
COMPILE = (
    *(
        "g++",
        "-std=c++17",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wshadow",
        "-Wpedantic",
    ),
    *("-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
JAVASCRIPT = pytest.param("javascript", marks=pytest.mark.node)
CPP = pytest.param("cpp", marks=[pytest.mark.gxx, pytest.mark.slow, pytest.mark.timeout(300)])


@pytest.fixture(params=[JAVASCRIPT, CPP], scope="module")
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Starts the player of a language."""
    if request.param == "javascript":
        return ["node", str(PLAYERS / "player.mjs")]
    program = str(tmp_path_factory.mktemp("cpp") / "player")
    source = str(PLAYERS / "player.cpp")
    done = subprocess.run(
        [*COMPILE, "-I", str(CLIENTS), "-o", program, source], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [program]


Play = Callable[..., Player]


@pytest.fixture
def play(command: list[str]) -> Iterator[Play]:
    players: list[Player] = []

    def start(stage: Stage | None, *words: str) -> Player:
        players.append(Player(command, stage, *words))
        return players[-1]

    yield start
    for player in players:
        player.kill()


def on(stage: Stage, name: str, *words: str) -> tuple[str, ...]:
    return (name, f"127.0.0.1:{stage.port}", *words)


# -- msgpack


def decoded(play: Play, payloads: list[bytes]) -> list[tuple[str, str]]:
    """What the player's decoder finds, as it packs and as it shows it."""
    player = play(None, "decode")
    for each in payloads:
        player.say(each.hex())
    return [(found[0], found[1]) for line in player.result() if (found := line.split(" ", 1))]


def test_golden_frames_are_read_and_written(play: Play) -> None:
    golden = [each for each in GOLDEN if "JSON" not in each["name"]]
    found = decoded(play, [payload(each) for each in golden])
    for each, (packed, shown) in zip(golden, found, strict=True):
        assert json.loads(shown) == each["json"], each["name"]
        assert unpacked(bytes.fromhex(packed)) == unpacked(payload(each)), each["name"]


def unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


def test_every_size_and_number(play: Play) -> None:
    sizes = (0, 15, 16, 31, 32, 255, 256, 65535, 65536)
    values: list[Any] = [each for size in sizes for each in ("ä" * size, [None] * size)]
    values += [{str(i): i for i in range(size)} for size in sizes[:-1]]
    values += [b"a" * size for size in sizes]
    for exponent in (5, 7, 8, 15, 16, 31, 32, 52):
        values += [sign * 2**exponent + more for sign in (1, -1) for more in (-1, 0, 1)]
    values += [2**63, 2**64 - 1, -(2**63), 0.5, -0.0, 1e300, True, False, None, float("inf")]
    found = decoded(play, [msgpack.packb(value) for value in values])
    for value, (packed, _) in zip(values, found, strict=True):
        assert unpacked(bytes.fromhex(packed)) == value


@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (2, 0), (20, 30)])
def test_arrays_travel_both_ways(play: Play, shape: tuple[int, ...]) -> None:
    arrays = [np.arange(np.prod(shape)).reshape(shape).astype(name) for name in DTYPES]
    payloads = [encode({"a": each}, Encoding.msgpack) for each in arrays]
    for array, (packed, shown) in zip(arrays, decoded(play, payloads), strict=True):
        back = decode(bytes.fromhex(packed), None)[0]["a"]
        assert (back.dtype, back.shape) == (array.dtype, shape)
        assert (back == array).all()
        form = json.loads(shown)["a"]
        assert (form["dtype"], form["shape"]) == (array.dtype.name, list(shape))
        assert base64.b64decode(form["data"]) == array.tobytes()


def test_any_bytes_are_a_value_or_an_error(play: Play) -> None:
    random = np.random.default_rng(0)
    payloads = [random.bytes(int(random.integers(1, 40))) for _ in range(2000)]
    for each in GOLDEN:
        for _ in range(100):
            broken = bytearray(payload(each))
            broken[random.integers(len(broken))] = random.integers(256)
            payloads.append(bytes(broken))
    payloads += [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"]
    payloads += [b"\xc9\xff\xff\xff\xff\x01", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
    # An array with 2^64 numbers of no bytes, and one without axes.
    payloads += [b"\xc7\x12\x01\x01\x04" + b"\xff" * 16, b"\xd4\x01\x01"]
    found = decoded(play, payloads)
    assert len(found) == len(payloads)
    assert sum(packed == "error" for packed, _ in found) > 500


# -- CartPole


def test_cartpole_is_that_of_gymnasium(play: Play) -> None:
    env: Any = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=3)
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=200)
    lines = play(
        None, "cartpole", ",".join(map(repr, env.state.tolist())), "".join(map(str, actions))
    ).result()
    for action, line in zip(actions, lines, strict=True):
        # It goes on behind the end of its episode.
        env.steps_beyond_terminated = None
        _, _, terminated, _, _ = env.step(int(action))
        found = np.array(line.split(), np.float64)
        np.testing.assert_allclose(found[:4], env.state, rtol=0, atol=1e-6)
        assert found[4:].tolist() == [terminated, 0.0]
    env.close()


def test_cartpole_ends_after_500_steps(play: Play) -> None:
    # From one side of the cart's track: alternating pushes let the pole stand for a while.
    lines = play(None, "cartpole", "0,0,0,0", "01" * 250).result()
    assert [line.split()[-1] for line in lines] == ["0"] * 499 + ["1"]


# -- a real gateway


def test_episodes_end_by_termination_and_by_truncation(play: Play, stage: Stage) -> None:
    lines = play(stage, *on(stage, "ends")).result()
    assert lines == ["float32 2 discrete", "episode 3 3", "episode 2 2", "episode 1 1"]
    stage.rig.until(lambda: stage.rig.scalars("gateway/0").get("client/robot/speed") == 2.5)
    account = stage.finish()
    assert stage.replay.column("discount")[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 0]
    assert account["env_steps"] == 6
    finished = [each for chunk in stage.replay.chunks for each in chunk.finished]
    assert finished[-1]["metrics"] == {"speed": 2.5}
    assert "robot" in stage.rig.events("client_joined")[0]
    assert ": bye," in stage.rig.events("client_left")[0]


@pytest.mark.parametrize("after", [1, 2, 5, 13])
def test_a_cut_connection_is_resumed(play: Play, stage: Stage, after: int) -> None:
    cut_connections(stage, after=after)
    assert play(stage, *on(stage, "many", "3", "4")).result() == ["episode 4 4"] * 3
    account = stage.finish()
    assert (account["env_steps"], account["episodes"]) == (12, 3)
    assert account["pushed"] == account["inserted"] == 15
    assert stage.gateway.counters.resumed == 1


def interrupted(play: Play, stage: Stage, program: str) -> Player:
    """A player whose session has ended at the gateway in the middle of its first episode."""
    player = play(stage, *on(stage, program))
    stage.rig.until(lambda: player.lines)
    (member,) = stage.sessions
    stage.gateway.leave(member, "lost", reconnect=True)
    player.say("")
    return player


def test_a_session_that_is_gone_goes_on(play: Play, stage: Stage) -> None:
    assert interrupted(play, stage, "halfway").result() == ["waiting", "episode 3 3"]
    account = stage.finish()
    types = stage.replay.column("step_type")[:, 0].tolist()
    assert (types.count(0), types.count(2)) == (2, 2)
    assert (account["env_steps"], account["episodes"]) == (4, 1)


def test_an_end_that_was_lost_is_counted_by_the_client(play: Play, stage: Stage) -> None:
    lines = interrupted(play, stage, "interrupted").result()
    assert lines == ["waiting", "episode 5 2", "episode 2 2"]
    assert stage.finish()["episodes"] == 1


def test_an_episode_goes_on_over_a_restart_of_the_gateway(play: Play) -> None:
    port = free_ports(["gateway"], "127.0.0.1")["gateway"]
    with make_stage(gateway={"port": port}) as stage:
        player = play(stage, *on(stage, "halfway"))
        stage.rig.until(lambda: player.lines)
        stage.frame.kill()
        stage.start(incarnation=6)
        player.say("")
        assert player.result() == ["waiting", "episode 3 3"]
        assert stage.finish()["episodes"] == 1


def test_the_end_of_the_run_ends_the_loop(play: Play, stage: Stage) -> None:
    player = play(stage, *on(stage, "loop"))
    stage.rig.until(lambda: len(player.lines) > 3)
    stage.learner.publish(final=True)
    *episodes, last = player.result()
    assert set(episodes) == {"episode 3 3"}
    assert last == f"played {len(episodes)}"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("name", "a b"), "bad_hello"),
        (("mode", "learn"), "bad_hello"),
        (("numEnvs", "2"), "bad_hello"),
    ],
)
def test_a_refusal_has_its_code(
    play: Play, stage: Stage, words: tuple[str, ...], code: str
) -> None:
    (line,) = play(stage, *on(stage, "refused", *words)).result()
    assert line.startswith(f"Refused {code} {code}: ")


def test_a_wrong_token_is_refused_with_its_code(play: Play, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    with make_stage(run=run, gateway={"tokens": True}) as stage:
        wrong = play(stage, *on(stage, "refused", "token", "sg1-no")).result()
        assert wrong == ["Refused bad_token bad_token: this token is not valid here"]


def test_a_certificate_that_no_authority_knows_is_refused_at_once() -> None:
    tls = {"cert": str(CERTIFICATE), "key": str(CERTIFICATE)}
    with make_stage(gateway={"tls": tls}) as stage:
        command = ["node", str(PLAYERS / "player.mjs")]
        player = Player(command, stage, "refused", f"tls://127.0.0.1:{stage.port}")
        try:
            (line,) = player.result()
        finally:
            player.kill()
    assert line.startswith("Refused certificate certificate: self")
    assert "give fingerprint" in line


def test_a_run_that_is_over_and_a_gateway_that_is_not_there(
    play: Play, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would end before the player has started.
    monkeypatch.setattr(stage.service._leaving, "tick", lambda: None)
    stage.learner.publish(final=True)
    stage.rig.until(lambda: stage.service._leaving.begun)
    assert play(stage, *on(stage, "refused")).result() == ["Finished  finished"]
    player = play(None, "refused", "127.0.0.1:1")
    (line,) = player.result()
    assert line.startswith("Unavailable  127.0.0.1:1: ")
    (waits,) = player.waits
    assert waits.startswith("127.0.0.1:1: ")


@pytest.mark.parametrize(
    "address", ["", "7100", ":7100", "a:b", "http://a:1", "a:1/x", "a:0", "a:65536", "a:9999999"]
)
def test_an_address_that_is_none(play: Play, address: str) -> None:
    (line,) = play(None, "refused", address).result()
    assert line.startswith("InvalidAddress ")
    assert "expected host:port" in line


def test_a_refused_request_may_be_corrected(play: Play, stage: Stage) -> None:
    lines = play(stage, *on(stage, "corrected")).result()
    assert lines == ["bad_observation", "bad_observation", "episode 1 1"]


def test_the_round_trip_is_reported(play: Play, stage: Stage) -> None:
    play(stage, *on(stage, "latency")).result()
    stage.finish()
    seen = stage.rig.scalars("gateway/0")
    names = [name for name in seen if "latency_p50_seconds" in name and "client/" in name]
    assert names
    assert all(seen[name] > 0 for name in names)


# -- a hostile gateway


class Hostile(threading.Thread):
    """Gives each connection the next of its texts, then closes it; starts anew behind the last."""

    def __init__(self, texts: list[bytes]) -> None:
        super().__init__()
        self._texts, self._over = texts, False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._where = self._socket.getsockname()
        self.address = f"127.0.0.1:{self._where[1]}"

    def run(self) -> None:
        for text in itertools.cycle(self._texts):
            connection, _ = self._socket.accept()
            with connection, suppress(OSError):
                if self._over:
                    return
                connection.recv(1 << 16)
                connection.sendall(text)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass

    def __enter__(self) -> Hostile:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = True
        socket.create_connection(self._where).close()
        self.join()
        self._socket.close()


def broken(count: int) -> Iterator[bytes]:
    """Some frames with a changed byte, after a welcome or instead of it."""
    random = np.random.default_rng(0)
    frames = [bytes.fromhex(each["hex"]) for each in GOLDEN if each["from"] == "gateway"]
    welcome = next(each for each in frames if b"welcome" in each)
    action = pack_frame(encode({"kind": "action", "seq": 1, "action": 1}, Encoding.msgpack))
    for index in range(count):
        text = bytearray(frames[random.integers(len(frames))])
        text[random.integers(len(text))] = random.integers(256)
        yield (b"", welcome, welcome + action)[index % 3] + text


@pytest.mark.slow
def test_a_hostile_gateway_gets_an_error(play: Play) -> None:
    with Hostile([b"\xff" * 8, b"\x10\x00\x00\x00short", b"", *broken(300)]) as hostile:
        lines = play(None, "endure", hostile.address, "100").result()
    assert len([line for line in lines if not line.startswith("episode")]) == 100
    assert any("announces 4294967295 bytes" in line for line in lines)
    assert any("no message" in line for line in lines)
