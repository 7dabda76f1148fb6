"""What `surreal-like check`, `check_env` and a launch find wrong with an environment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from main.cli import main
from session.errors import ConfigError, UsageError
from surreal_like import check_env, make_policy, make_vector_env, train
from surreal_like.env.base import Step
from surreal_like.env.check import tried_specs
from surreal_like.env.findings import Report
from surreal_like.env.registry import make_env
from surreal_like.env.toy import Chain
from tests.surreal_like.env.samples import Spoiled

SPOILED = "tests.surreal_like.env.samples:Spoiled"


def checked(what: str) -> Report:
    return check_env({"env_name": SPOILED, "env_args": {"what": what}})


class Unseeded(gymnasium.Env[Any, Any]):
    """Draws from no generator that a seed reaches."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.random.default_rng().random(1), {}

    def step(self, action: Any) -> Any:
        return np.random.default_rng().random(1), 0.0, True, False, {}


def kinds(report: Report, kind: str) -> dict[str, str]:
    return {one.what: one.text for one in report.findings if one.kind == kind}


@pytest.mark.parametrize("env", ["toy:chain", Chain, {"env_name": "gym:CartPole-v1"}])
def test_a_good_environment(env: Any) -> None:
    report = check_env(env)
    assert report.ok
    assert set(kinds(report, "ok")) == {"specs", "steps", "step time", "seed", "copies"}
    assert not kinds(report, "advice")
    assert str(report).endswith("no mistakes")


WRONG = [
    ("constructor", "constructor", "no licence"),
    ("info", "reset()", "gave a dict, expected (observation, info)"),
    ("four", "step()", "gave 4 values"),
    ("raise", "step()", "KeyError('valve'), in Spoiled.step"),
    ("reward", "reward", "'much' given"),
    ("nan reward", "reward", "is nan"),
    ("nan", "obs/temps", "NaN at [1] of [3]"),
    ("bounds", "obs/temps", "7.0 at [1]"),
    ("shape", "obs/temps", "shape [2] given"),
    ("float", "obs/door", "0.5 does not fit into int8"),
    ("large", "obs/door", "300 does not fit into int8"),
    ("missing", "obs/door", "not given"),
    ("shared", "copies", "share state"),
]


@pytest.mark.parametrize(("what", "where", "said"), WRONG)
def test_what_is_wrong_is_named(what: str, where: str, said: str) -> None:
    report = checked(what)
    assert said in kinds(report, "error")[where]
    assert len(kinds(report, "error")) == 1
    assert str(report).endswith("1 mistake")
    assert max(map(len, str(report).splitlines())) < 80


@pytest.mark.parametrize(
    ("what", "where", "said"),
    [("float64", "obs/temps", "converted to float32"), ("random", "seed", "self.rng")],
)
def test_advice_is_no_mistake(what: str, where: str, said: str) -> None:
    report = checked(what)
    assert report.ok
    assert said in kinds(report, "advice")[where]


def test_a_slow_environment_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Chain.step

    def slow(env: Chain, action: int) -> Step:
        time.sleep(0.021)
        return step(env, action)

    monkeypatch.setattr(Chain, "step", slow)
    report = check_env("toy:chain", steps=5, seconds=0.01)
    assert "env_config.workers" in kinds(report, "advice")["step time"]


def test_the_specs_of_an_experiment_are_tried() -> None:
    assert tried_specs({"env_name": SPOILED})[0]["door"] == {"type": "int8", "dim": []}
    for what, _, _ in WRONG:
        if what not in ("constructor", "shared"):
            with pytest.raises(ConfigError, match=r"Spoiled.*surreal-like check"):
                tried_specs({"env_name": SPOILED, "env_args": {"what": what}})


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["check", "toy:chain", "--steps", "20"]) == 0
    assert "20 random steps" in capsys.readouterr().out
    file = tmp_path / "experiment.yaml"
    file.write_text(f"env_config: {{env_name: {SPOILED}}}\n")
    assert main(["check", str(file), "env_config.env_args.what=nan"]) == 2
    assert "WRONG" in capsys.readouterr().out
    assert main(["check", "toy:chian"]) == 2
    assert "did you mean toy:chain" in " ".join(capsys.readouterr().out.split())


def test_a_callable_is_built_for_each_copy() -> None:
    assert check_env(lambda: Spoiled("nan")).name == "<lambda>"


@pytest.mark.parametrize("build", [Chain, lambda: gymnasium.make("CartPole-v1")])
def test_an_object_is_checked_and_stays_open(
    build: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, closed = build(), []
    monkeypatch.setattr(type(env), "close", lambda self: closed.append(self))
    report = check_env(env, steps=30)
    assert report.ok
    assert type(env).__name__ == report.name
    assert set(kinds(report, "ok")) == {"specs", "steps", "step time"}
    assert "give the class" in kinds(report, "advice")["copies"]
    assert not closed


def test_mistakes_of_an_object_are_found() -> None:
    assert "'much' given" in kinds(check_env(Spoiled("reward")), "error")["reward"]


@pytest.mark.parametrize("given", [Chain, Chain()])
@pytest.mark.parametrize(
    "use",
    [
        lambda env: make_vector_env({"env_name": env}, num_envs=1, seed=0),
        lambda env: make_env({"env_name": env}),
        lambda env: check_env({"env_name": env}),
    ],
)
def test_an_object_in_the_place_of_a_name_is_refused_with_the_name(
    use: Callable[[Any], Any], given: Any
) -> None:
    with pytest.raises(UsageError, match=r"Chain, expected a text.*'surreal_like\.env\.toy:Chain'"):
        use(given)


@pytest.mark.parametrize("use", [make_policy, train])
def test_an_instance_in_the_place_of_a_class_is_refused_with_the_class(
    use: Callable[..., Any],
) -> None:
    with pytest.raises(UsageError, match=r"instance of Chain, .*give the class, env=Chain"):
        use(algorithm="dqn", env=Chain())


@pytest.mark.parametrize("given", [Chain, Chain(), 7, None])
def test_what_is_no_config_of_an_environment_is_named(given: Any) -> None:
    with pytest.raises(UsageError, match="is no env_config, expected a mapping"):
        make_vector_env(given, num_envs=1, seed=0)
    with pytest.raises(UsageError, match=r"env_name is a int, .*'gym:CartPole-v1'"):
        make_env({"env_name": 7})


def test_advice_for_gymnasium_names_its_own_generator() -> None:
    report = check_env(Unseeded)
    assert "from self.np_random" in kinds(report, "advice")["seed"]


def test_an_error_that_a_run_survives_is_a_note() -> None:
    raises = {"env_name": SPOILED, "env_args": {"what": "raise"}}
    assert "KeyError" in kinds(check_env(raises), "error")["step()"]
    report = check_env({**raises, "on_error": "restart"})
    assert "a run survives it" in kinds(report, "advice")["step()"]
    assert report.ok
