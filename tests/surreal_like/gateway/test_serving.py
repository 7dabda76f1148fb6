"""Clients that act with a checkpoint: the same answers as of the loaded policy, and newer ones."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.checkpoint import save_one
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.stream.protocols import Encoding
from session.wire.frames import FrameReader, pack_frame
from surreal_like import load_policy, train
from surreal_like.experiment.checkpoints import checkpoints_named
from surreal_like.experiment.resolve import resolve
from surreal_like.gateway.payloads import decode, encode
from surreal_like.gateway.serving import Server
from tests.clock import HandClock
from tests.polling import until

SMALL: dict[str, Any] = {
    "env_config.num_envs": 2,
    "session_config.gateway.port": 0,
    "session_config.stop": {"env_steps": 200, "eval_episodes": 2},
}
# With continuous actions each change of the memory is seen.
RUNS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "dqn": (
        "toy:chain",
        8,
        {"learner_config.replay.min_size": 64, "learner_config.model.hidden_sizes": [16]},
    ),
    "ppo": ("toy:target", 2, {"learner_config.model.memory": "lstm"}),
}


@pytest.fixture(scope="module", params=list(RUNS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that has ended."""
    folder = tmp_path_factory.mktemp("served") / "run"
    env, _, overrides = RUNS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("surreal_like.run.start.resolve_elsewhere", resolve)
        train(
            algorithm=request.param,
            env=env,
            overrides=SMALL | overrides,
            launcher="serial",
            folder=folder,
        )
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunFolder:
    """A copy of it, which a test may change."""
    return RunFolder(shutil.copytree(trained, tmp_path / "run"))


class Caller:
    """A client in the same thread as its server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.socket = socket.create_connection(("127.0.0.1", server.frontend.listener.port))
        self.socket.setblocking(False)
        self.reader = FrameReader(1 << 20)
        self.seq = 0

    def send(self, **fields: Any) -> None:
        self.socket.sendall(pack_frame(encode(fields, Encoding.msgpack)))

    def next(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def arrived() -> bool:
            self.server.tick()
            found.extend(self.received())
            return bool(found)

        until(arrived)
        return found[0]

    def received(self) -> Iterator[dict[str, Any]]:
        try:
            self.reader.feed(self.socket.recv(1 << 16))
        except BlockingIOError:
            return
        while (payload := self.reader.next()) is not None:
            yield dict(decode(payload, None)[0])

    def ask(self, **fields: Any) -> dict[str, Any]:
        self.send(**fields)
        return self.next()

    def request(self, kind: str, observation: Any, **fields: Any) -> dict[str, Any]:
        self.seq += 1
        return self.ask(kind=kind, seq=self.seq, observation=observation, **fields)


@contextmanager
def serving(run: RunFolder, *words: Any, **options: Any) -> Iterator[tuple[Server, list[str]]]:
    lines: list[str] = []
    server = Server(run, *words, say=lines.append, **options)
    try:
        yield server, lines
    finally:
        server.close()


@contextmanager
def caller(server: Server, **hello: Any) -> Iterator[Caller]:
    client = Caller(server)
    try:
        assert client.ask(kind="hello", v=1, **hello)["kind"] == "welcome"
        yield client
    finally:
        client.socket.close()


def place(run: RunFolder, number: int) -> Any:
    """One of eight observations that fit the run."""
    (size,) = run.read_config().env_config.obs_spec.dim
    return np.eye(8, dtype=np.float32)[number, :size] + np.float32(0.1 * number)


def test_V3_an_answer_is_that_of_the_loaded_policy(run: RunFolder) -> None:
    policy = load_policy(run.path, "latest")
    with serving(run, "latest") as (server, lines), caller(server) as one, caller(server) as other:
        assert lines[0].startswith("checkpoint ")
        assert lines[1] == f"clients connect to 127.0.0.1:{server.frontend.listener.port}"
        for _ in range(2):
            state: Any = None
            # Another session must not change the memory of this one.
            other.request("reset", place(run, 7))
            for step in range(6):
                expected, state = policy(place(run, step), state)
                fields = {"reward": 0.0} if step else {}
                answer = one.request("step" if step else "reset", place(run, step), **fields)
                np.testing.assert_allclose(answer["action"], expected, atol=1e-6)
                other.request("step", place(run, step), reward=0.0)
            episode = one.request("end", place(run, 0), reward=2.0)
            assert (episode["return"], episode["length"]) == (2.0, 6)


def test_V2_only_the_mode_act_is_there(run: RunFolder) -> None:
    with serving(run, "latest") as (server, _):
        with caller(server) as client:
            assert client.request("reset", place(run, 0))["version"] > 0
        for mode in ("train", "evaluate"):
            client = Caller(server)
            answer = client.ask(kind="hello", v=1, mode=mode)
            client.socket.close()
            assert (answer["code"], answer["fatal"]) == ("not_supported", True)


def add_best(run: RunFolder, version: int) -> Path:
    """Another best checkpoint, with the parameters of the newest one."""
    (source, *_) = checkpoints_named(run, "latest")
    state = {"iteration": 10 * version, "version": version, "env_steps": 5}
    best = run.checkpoints / "best"

    def write(new: Path) -> None:
        shutil.copyfile(source / "params.safetensors", new / "params.safetensors")

    save_one(best, state, write, keep=2)
    return best


def test_V2_a_newer_checkpoint_is_followed_and_a_broken_one_is_skipped(run: RunFolder) -> None:
    add_best(run, 1000)
    clock = HandClock()
    with (
        serving(run, follow=True, clock=clock) as (server, lines),
        caller(server) as client,
    ):

        def look() -> str:
            clock.seconds += 1.1
            server.tick()
            return lines[-1]

        def version() -> int:
            answer = client.request("step", place(run, 0), reward=1.0)
            assert answer["kind"] == "action"
            return int(answer["version"])

        assert client.request("reset", place(run, 0))["version"] == 1000
        add_best(run, 1001)
        assert look() == "checkpoint best: version 1001, 10010 iterations"
        assert version() == 1001
        parameters = add_best(run, 1002) / "params.safetensors"
        parameters.write_bytes(parameters.read_bytes()[:-4])
        assert look().startswith("warning: a newer checkpoint is left out: ")
        said = len(lines)
        look()
        assert (len(lines), version()) == (said, 1001)
        add_best(run, 1003)
        look()
        assert version() == 1003


def test_V2_without_follow_the_checkpoint_stays(run: RunFolder) -> None:
    add_best(run, 1000)
    clock = HandClock()
    with serving(run, clock=clock) as (server, _), caller(server) as client:
        add_best(run, 1001)
        clock.seconds += 5.0
        server.tick()
        assert client.request("reset", place(run, 0))["version"] == 1000


def test_V2_at_the_end_the_clients_are_sent_away(run: RunFolder) -> None:
    server = Server(run, "latest", say=str)
    with caller(server) as client:
        client.request("reset", place(run, 0))
        server.close()
        goodbye = until(lambda: next(client.received(), None))
    assert goodbye == {
        "kind": "goodbye",
        "reason": "stopped",
        "reconnect": False,
        "retry_after_seconds": 0.0,
    }


def test_V2_settings_of_the_port_are_checked(run: RunFolder) -> None:
    for words, error in (
        (["session_config.gateway.host=0.0.0.0"], "which other machines can reach"),
        (["session_config.gateway.prt=1"], "did you mean"),
        (["session_config.seed=1"], "settings of session_config.gateway only"),
        (["session_config.gateway.max_clients=0"], "max_clients"),
    ):
        with pytest.raises(ConfigError, match=error):
            Server(run, "latest", settings=words, say=str)
    with pytest.raises(UsageError, match="has no checkpoint '7'"):
        Server(run, "7", say=str)


def test_V2_a_full_server_is_busy(run: RunFolder) -> None:
    settings = ["session_config.gateway.max_clients=1"]
    with serving(run, "latest", settings=settings) as (server, _), caller(server):
        newcomer = Caller(server)
        answer = newcomer.ask(kind="hello", v=1)
        newcomer.socket.close()
        assert answer["kind"] == "busy"
