"""Batched environments: where they come from, and what is refused in one line."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from main.cli import main
from session.errors import ConfigError, UsageError
from surreal_like import check_env, evaluate, load_policy, train
from surreal_like.addons.analysis.play import play
from surreal_like.env.batched import BatchedVector, FirstStream, as_numpy
from surreal_like.env.environment import VectorEnv
from surreal_like.env.registry import derive_specs, make_env
from surreal_like.env.vector import make_vector_env
from surreal_like.errors import DataError
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.add_ons import needs
from tests.contracts.env import EnvContract, VectorEnvContract
from tests.surreal_like.env.batched_samples import Fixed, Many, Own
from tests.surreal_like.env.gym_samples import NativeCounter, register_counters

SAMPLES = "tests.surreal_like.env.batched_samples"
MANY = {"env_name": f"{SAMPLES}:Many"}
SPECS = {"type": "float32", "dim": [2]}, {"type": "discrete", "dim": [3]}


class TestMany(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env(MANY, num_envs=num_envs, seed=seed)


class TestOwn(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env({"env_name": f"{SAMPLES}:Own"}, num_envs=num_envs, seed=seed)


class TestGymVec(VectorEnvContract):
    def make(self, num_envs: int, seed: int) -> VectorEnv:
        return make_vector_env({"env_name": "gymvec:CartPole-v1"}, num_envs=num_envs, seed=seed)


class TestFirstStream(EnvContract):
    def make(self) -> FirstStream:
        env = make_env({"env_name": "gymvec:CartPole-v1"})
        assert isinstance(env, FirstStream)
        return env


class TestFirstStreamThatResetsInItsStep(EnvContract):
    def make(self) -> FirstStream:
        env = make_env({**MANY, "env_args": {"mode": "SameStep"}})
        assert isinstance(env, FirstStream)
        return env


@pytest.mark.parametrize("name", [f"{SAMPLES}:Many", f"{SAMPLES}:Own", f"{SAMPLES}:make_many"])
def test_specs_come_from_the_environment(name: str) -> None:
    assert derive_specs({"env_name": name}) == SPECS
    stacked = derive_specs({"env_name": name, "frame_stack": 3})[0]
    assert stacked == {"type": "float32", "dim": [3, 2]}
    assert check_env(name).ok


def test_the_horizon_is_an_argument_of_the_constructor() -> None:
    config = {"env_name": f"{SAMPLES}:Short", "limit_episode_length": 2}
    with contextlib.closing(make_vector_env(config, num_envs=2, seed=0)) as env:
        env.reset()
        assert [bool(env.step(np.zeros(2, np.int64))[3].all()) for _ in range(2)] == [False, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"vector": "process"},
            "vector is process, but .*Many is a batched.*: leave it out",
            marks=needs("workers"),
        ),
        ({"vector": "sync"}, "vector is sync, but .*: leave it out"),
        ({"wrappers": [f"{SAMPLES}:Ones"]}, "wrappers is .*: change what it gives"),
        ({"action_repeat": 2}, "action_repeat is 2, but .*: repeat in its step"),
        ({"obs_keys": ["a"]}, "obs_keys is .*: leave the other parts out"),
        ({"metric_keys": ["a"]}, "metric_keys is .*: info_keys makes columns"),
        ({"limit_episode_length": 9}, "limit_episode_length is 9, .*argument max_episode_steps"),
        ({"env_name": f"{SAMPLES}:Fixed"}, "has num_envs 3, but 2 copies are needed here"),
        ({"on_error": "restart"}, "env_config.on_error is restart, but .*batched environment"),
        ({"env_name": "gymvec:Acrobot-v1"}, "no vector entry point: write gym:Acrobot-v1"),
        (
            {"env_name": "gymvec:CartPole-v1", "env_args": {"moon": 1}},
            "does not take {'moon': 1} and max_episode_steps 500: write gym:CartPole-v1",
        ),
        ({"env_name": "gymvec:CartPol-v1"}, "no gym:CartPol-v1; did you mean gym:CartPole-v"),
    ],
)
def test_what_only_single_environments_have_is_refused(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make_vector_env({**MANY, **change}, num_envs=2, seed=0)
    assert "\n" not in str(caught.value)


def resolve_it(algorithm: str, env: str, *overrides: str) -> None:
    short = "session_config.stop={iterations: 1, eval_episodes: 20}"
    user = read_experiment(None, (short, *overrides), algorithm=algorithm, env_name=env)
    resolve(user)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["env_config.num_envs=4"], "env_config.num_envs makes 4 copies, but .*Fixed has 3"),
        (
            ["env_config.num_envs=3", "learner_config.replay.batch_size=6"],
            "evaluator.num_envs makes 20 copies, but .*Fixed has 3.*num_envs to 3",
        ),
    ],
)
def test_a_number_of_its_own_must_be_that_of_the_config(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_it("ppo", f"{SAMPLES}:Fixed", *settings)


def test_gradients_at_agents_need_streams_in_step() -> None:
    with pytest.raises(ConfigError, match=r"gradients_at is agent, but .*Many resets within"):
        resolve_it("a3c", f"{SAMPLES}:Many", "env_config.env_args.mode=SameStep")


@needs("curriculum")
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_curriculum_needs_resets_with_options(mode: str) -> None:
    curriculum = "env_config.curriculum=tests.addons.curriculum.functions:by_steps"
    with pytest.raises(ConfigError, match=r"curriculum: .*Many begins episodes by itself"):
        resolve_it("ppo", f"{SAMPLES}:Many", f"env_config.env_args.mode={mode}", curriculum)


class Wrong(Many):
    """Gives something wrong, by name."""

    what = ""

    def step(self, actions: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(actions)
        if self.what == "four":
            return obs, reward, terminated, info
        if self.what == "rewards":
            reward = reward[:, None]
        if self.what == "shape":
            obs = obs[:1]
        if self.what == "nan":
            obs = obs * np.nan
        if self.what == "clock":
            info["clock"] = info["clock"][:1]
        if self.what == "final":
            info.pop("final_obs")
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("four", r"step\(\) gave 4 values .*expected \(observations"),
        ("rewards", r"reward: shape \[2, 1\] given, expected \[2\]: one for each stream"),
        ("shape", r"obs: shape \[1, 2\] given, expected \[2, 2\]: the streams, then"),
        ("nan", "obs: NaN at"),
        ("clock", r"info\['clock'\]: shape \[1\] given, expected \[2\], one for each"),
        ("final", "info has no final_obs, but episodes have ended"),
    ],
)
def test_wrong_values_are_named(what: str, message: str) -> None:
    wrong = Wrong(2, "SameStep")
    wrong.what = what
    env = BatchedVector(wrong, info_keys=("clock",))
    env.reset()
    with pytest.raises(DataError, match=message):
        env.step(np.full(2, 2))


def findings(env: Any, kind: str) -> dict[str, str]:
    return {each.what: each.text for each in check_env(env, steps=50).findings if each.kind == kind}


def test_a_check_plays_all_copies_with_actions_of_their_own() -> None:
    env = {"env_name": f"{SAMPLES}:Many", "env_args": {"num_envs": 3, "mode": "Disabled"}}
    said = findings(env, "ok")["steps"]
    assert said.startswith("150 random steps of 3 copies, ")
    assert int(said.split()[6]) > 30


class Uneven(Many):
    """Its last copy leaves the bounds in an episode; it notes how many actions of a step differ."""

    most = 0

    def step(self, actions: Any) -> Any:
        Uneven.most = max(Uneven.most, len({*actions.tolist()}))
        obs, *others = super().step(actions)
        obs = obs.copy()
        if not self.over[-1]:
            obs[-1] = -2.0
        return (obs, *others)


def test_a_check_looks_at_all_copies() -> None:
    env: Any = {"env_name": f"{__name__}:Uneven", "obs_spec": {**SPECS[0], "low": -1.0}}
    for mode in ("Disabled", "SameStep", "NextStep"):
        Uneven.most = 0
        given = {**env, "env_args": {"num_envs": 4, "mode": mode}}
        assert findings(given, "error").keys() == {"obs"}
        assert Uneven.most > 1


class Forgets(Many):
    """Resets all copies, and gives the first observations as the last ones."""

    def __init__(self, num_envs: int, mode: str = "Disabled") -> None:
        super().__init__(num_envs, mode)

    def begin(self, where: Any) -> None:
        super().begin(np.ones_like(where) if self.mode is AutoresetMode.DISABLED else where)

    def step(self, actions: Any) -> Any:
        *values, info = super().step(actions)
        if self.mode is AutoresetMode.SAME_STEP:
            info["final_obs"] = self.state.copy()
        return (*values, info)


def test_a_check_finds_resets_of_copies_that_are_not_in_the_mask() -> None:
    assert "copies that are not in the mask" in findings(Forgets, "error")["reset_mask"]
    disabled = {"env_name": f"{SAMPLES}:Many", "env_args": {"mode": "Disabled"}}
    assert not findings(disabled, "error")


def test_a_check_doubts_last_observations_that_are_first_ones() -> None:
    advice = findings(lambda num_envs: Forgets(num_envs, "SameStep"), "advice")
    assert "equals the first observation of the next episode in all" in advice["final_obs"]
    assert not findings({**MANY, "env_args": {"mode": "SameStep"}}, "advice")


def test_classes_and_objects_are_checked_as_by_their_name() -> None:
    by_name = findings(f"{SAMPLES}:Many", "ok")
    assert findings(Many, "ok") | {"step time": by_name["step time"]} == by_name
    assert "of 3 copies" in findings(Fixed(), "ok")["steps"]


def test_a_check_of_an_experiment_says_what_train_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fixed.yaml"
    file.write_text(f"algorithm: ppo\nenv_config: {{env_name: {SAMPLES}:Fixed, num_envs: 4}}\n")
    assert main(["check", str(file), "--steps", "20"]) == 2
    assert "env_config.num_envs makes 4 copies" in " ".join(capsys.readouterr().out.split())


@needs("curriculum")
def test_a_check_says_that_episodes_get_no_task(capsys: pytest.CaptureFixture[str]) -> None:
    curriculum = "env_config.curriculum=tests.addons.curriculum.functions:by_steps"
    assert main(["check", f"{SAMPLES}:Many", curriculum, "--steps", "20"]) == 2
    assert "begins episodes by itself" in " ".join(capsys.readouterr().out.split())


def test_an_environment_says_how_it_resets() -> None:
    silent = NativeCounter()
    silent.metadata = {}
    with pytest.raises(ConfigError, match=r"autoreset_mode'\] of NativeCounter is None"):
        BatchedVector(silent)


def test_registered_vector_code_may_reset_in_its_step() -> None:
    register_counters()
    config = {"env_name": "gym:SampleCounter-v0", "env_args": {"mode": "Disabled"}}
    with contextlib.closing(make_vector_env(config, num_envs=2, seed=0)) as env:
        assert isinstance(env, BatchedVector)
        assert env.resets_in_step


def test_what_lies_on_the_cpu_is_not_copied() -> None:
    torch = pytest.importorskip("torch")
    for tensor in (torch.zeros(3, requires_grad=True), torch.ones(2, dtype=torch.bool)):
        array = as_numpy(tensor)
        assert isinstance(array, np.ndarray)
        assert array.ctypes.data == tensor.data_ptr()
    numbers = [1.0, 2.0]
    assert as_numpy(numbers) is numbers


def test_an_own_batch_has_a_seeded_generator() -> None:
    one, other = Own(2), Own(2)
    one.seed(3)
    other.seed(3)
    assert one.rng.random() == other.rng.random()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_it_trains_and_is_evaluated(algorithm: str, mode: str, tmp_path: Any) -> None:
    settings = {
        "env_config.env_args.mode": mode,
        "env_config.frame_stack": 2,
        "env_config.info_keys": ["clock"],
        "session_config.stop": {"iterations": 5, "eval_episodes": 6, "eval_return": 1000.0},
    }
    run = train(
        algorithm=algorithm,
        env=f"{SAMPLES}:Many",
        overrides=settings,
        launcher="serial",
        folder=tmp_path / "run",
    )
    assert run.result["iterations"] == 5
    assert evaluate(run.folder, episodes=7)["episodes"] == 7
    policy = load_policy(run.folder)
    assert policy(np.zeros((3, 2, 2), np.float32))[0].shape == (3,)


@pytest.mark.slow
def test_it_is_played_where_it_draws(tmp_path: Any) -> None:
    stop = {"session_config.stop": {"iterations": 2, "eval_episodes": 2}}
    for name in ("Short", "Many"):
        folder = tmp_path / name
        train(
            algorithm="ppo",
            env=f"{SAMPLES}:{name}",
            overrides=stop,
            launcher="serial",
            folder=folder,
        )
    played = play(tmp_path / "Short", video=tmp_path / "short.gif", episodes=2)
    assert played["frames"] == sum(played["lengths"]) + 2
    with pytest.raises(UsageError, match="has no pictures to show: its render modes are none"):
        play(tmp_path / "Many", video=tmp_path / "many.gif")
