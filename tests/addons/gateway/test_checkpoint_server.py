"""Clients that act with a checkpoint: the same answers as of the loaded policy, and newer ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.checkpoint import save_one
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from surreal_like import load_policy, train
from surreal_like.addons.gateway.checkpoint_server import Server
from surreal_like.experiment.checkpoints import checkpoints_named
from surreal_like.experiment.find import find_run
from tests.addons.gateway.rig import Client, Scene
from tests.clock import HandClock
from tests.polling import until

pytestmark = pytest.mark.usefixtures("quick")

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
    "impala": (
        "toy:target",
        2,
        {
            "learner_config.model.memory": "gru",
            "learner_config.model.memory_inputs": ["action", "reward"],
            "learner_config.replay.batch_size": 2,
        },
    ),
}


def play(folder: Path, algorithm: str, env: str, overrides: dict[str, Any]) -> Path:
    """Runs a small experiment to its end; returns its folder."""
    train(
        algorithm=algorithm,
        env=env,
        overrides=SMALL | overrides,
        launcher="serial",
        folder=folder,
    )
    return folder


@pytest.fixture(scope="module", params=list(RUNS))
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run that has ended."""
    env, _, overrides = RUNS[request.param]
    folder = tmp_path_factory.mktemp("served") / "run"
    return play(folder, request.param, env, overrides)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunFolder:
    """A copy of it, which a test may change."""
    return RunFolder(shutil.copytree(trained, tmp_path / "run"))


class Served(Scene):
    """A server in the thread of its clients, and the lines that it shows."""

    def __init__(self, run: RunFolder, *words: Any, **options: Any) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.server = Server(run, *words, say=self.lines.append, **options)

    @property
    def port(self) -> int:
        return self.server.frontend.listener.port

    def until(self, condition: Callable[[], object]) -> None:
        until(condition, step=self.server.tick)


@contextmanager
def serving(run: RunFolder, *words: Any, **options: Any) -> Iterator[Served]:
    served = Served(run, *words, **options)
    try:
        yield served
    finally:
        served.server.close()
        served.close()


def place(run: RunFolder, number: int) -> Any:
    """One of eight observations that fit the run."""
    (size,) = run.read_config().env_config.obs_spec.dim
    return np.eye(8, dtype=np.float32)[number, :size] + np.float32(0.1 * number)


def test_an_answer_is_that_of_the_loaded_policy(run: RunFolder) -> None:
    policy = load_policy(run.path, "latest")
    with serving(run, "latest") as served:
        one, other = served.client(), served.client()
        assert served.lines[0].startswith("checkpoint ")
        assert served.lines[1] == f"clients connect to 127.0.0.1:{served.port}"
        for _ in range(2):
            state: Any = None
            # Another session must not change the memory of this one.
            other.request("reset", observation=place(run, 7))
            for step in range(6):
                reward = 0.3 * step
                expected, state = policy(place(run, step), state, reward=reward)
                fields = {"reward": reward} if step else {}
                answer = one.request(
                    "step" if step else "reset", observation=place(run, step), **fields
                )
                np.testing.assert_allclose(answer["action"], expected, atol=1e-6)
                other.request("step", observation=place(run, step), reward=0.0)
            episode = one.request("end", observation=place(run, 0), reward=2.0)
            assert (episode["return"], episode["length"]) == (pytest.approx(6.5), 6)


@pytest.mark.slow
def test_a_client_sends_no_state(tmp_path: Path) -> None:
    env = "tests.surreal_like.env.joint_samples:Stated"
    folder = play(tmp_path / "run", "ppo", env, {"env_config.observe_state": True})
    policy, obs = load_policy(folder, "latest"), {"observation": np.ones(1, np.float32)}
    with serving(RunFolder(folder), "latest") as served:
        answer = served.client().request("reset", observation=obs)
        assert answer["action"] == policy(obs)[0]


def test_the_only_policy_that_learned_is_served() -> None:
    policy = load_policy("trained:tictactoe_league")
    board = {"observation": np.zeros((3, 3, 2), np.int8), "action_mask": np.ones(9, np.int8)}
    with serving(find_run("trained:tictactoe_league"), "best") as served:
        assert served.lines[0] == "checkpoint best of trained:tictactoe_league"
        answer = served.client().request("reset", observation=board)
        assert answer["action"] == policy(board)[0]


def test_several_policies_are_not_served() -> None:
    words = r"run trained:multi_cartpole_ppo has several policies that learn \(left, right\): serve"
    with pytest.raises(UsageError, match=words):
        Server(find_run("trained:multi_cartpole_ppo"))


def test_only_the_mode_act_is_there(run: RunFolder) -> None:
    with serving(run, "latest") as served:
        assert served.client().request("reset", observation=place(run, 0))["version"] > 0
        for mode in ("train", "evaluate"):
            answer = Client(served).hello(mode=mode)
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


def test_a_newer_checkpoint_is_followed_and_a_broken_one_is_skipped(run: RunFolder) -> None:
    add_best(run, 1000)
    clock = HandClock()
    with serving(run, follow=True, clock=clock) as served:
        client = served.client()

        def look() -> str:
            clock.seconds += 1.1
            served.server.tick()
            return served.lines[-1]

        def version() -> int:
            answer = client.request("step", observation=place(run, 0), reward=1.0)
            assert answer["kind"] == "action"
            return int(answer["version"])

        assert client.request("reset", observation=place(run, 0))["version"] == 1000
        add_best(run, 1001)
        assert look() == "checkpoint best: version 1001, 10010 iterations"
        assert version() == 1001
        parameters = add_best(run, 1002) / "params.safetensors"
        parameters.write_bytes(parameters.read_bytes()[:-4])
        assert look().startswith("warning: a newer checkpoint is left out: ")
        said = len(served.lines)
        look()
        assert (len(served.lines), version()) == (said, 1001)
        add_best(run, 1003)
        look()
        assert version() == 1003


def test_without_follow_the_checkpoint_stays(run: RunFolder) -> None:
    add_best(run, 1000)
    clock = HandClock()
    with serving(run, clock=clock) as served:
        client = served.client()
        add_best(run, 1001)
        clock.seconds += 5.0
        served.server.tick()
        assert client.request("reset", observation=place(run, 0))["version"] == 1000


def test_at_the_end_the_clients_are_sent_away(run: RunFolder) -> None:
    served = Served(run, "latest")
    client = served.client()
    client.request("reset", observation=place(run, 0))
    served.server.close()
    goodbye = until(client.receive)
    served.close()
    assert goodbye == {
        "kind": "goodbye",
        "reason": "stopped",
        "reconnect": False,
        "retry_after_seconds": 0.0,
    }


def test_settings_of_the_port_are_checked(run: RunFolder) -> None:
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


def test_a_full_server_is_busy(run: RunFolder) -> None:
    settings = ["session_config.gateway.max_clients=1"]
    with serving(run, "latest", settings=settings) as served:
        served.client()
        assert Client(served).hello()["kind"] == "busy"
