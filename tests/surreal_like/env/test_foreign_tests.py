"""Tests of Gymnasium and of PettingZoo inside `surreal-like check`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

from surreal_like import check_env
from surreal_like.env.findings import Report
from tests.surreal_like.env.joint_samples import TwoLives
from tests.surreal_like.env.wrong_samples import MaskOfGym, NoOptions


def kinds(report: Report, kind: str) -> dict[str, str]:
    return {one.what: one.text for one in report.findings if one.kind == kind}


class Zoo(TwoLives, pettingzoo.ParallelEnv):  # type: ignore[misc]
    """An environment of PettingZoo that gives each time another space."""


class Noisy(TwoLives, pettingzoo.ParallelEnv):  # type: ignore[misc]
    """An environment of PettingZoo that prints, and has other keys than it should."""

    def step(self, actions: dict[str, Any]) -> Any:
        print("a step")  # noqa: T201
        *result, infos = super().step(actions)
        return *result, {**infos, "common": {}}

    def action_space(self, agent: str) -> Any:
        return SPACE


SPACE: Any = spaces.Discrete(3)


def test_tests_of_pettingzoo_are_run() -> None:
    report = check_env("pettingzoo:classic/rps_v2")
    assert {"parallel_api_test", "seed_test"} < set(kinds(report, "ok"))
    report = check_env({"env_name": "pettingzoo:classic/rps_v2", "multi_agent_api": "aec"})
    assert {"api_test", "seed_test"} < {one.what for one in report.findings}
    assert report.ok


def test_without_pettingzoo_its_tests_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.env.foreign_tests.is_installed", lambda package: False)
    assert not [one for one in check_env(Zoo).findings if one.what.endswith("_test")]


def test_a_failed_test_of_pettingzoo_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    report = check_env(Zoo)
    assert report.ok
    said = kinds(report, "advice")["parallel_api_test"]
    assert "action_space should return the exact same space object" in said
    said = kinds(check_env(Noisy, steps=20), "advice")["parallel_api_test"]
    assert "Agent was given info but was dead last turn" in said
    assert "Passed" not in capsys.readouterr().out


class Unseeded(gymnasium.Env[Any, Any]):
    """Draws from no generator that a seed reaches."""

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.random.default_rng().random(1), {}

    def step(self, action: Any) -> Any:
        return np.random.default_rng().random(1), 0.0, True, False, {}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (Unseeded, "Expects the random number generator to have been generated given a seed"),
        (NoOptions, "does not provide an `options`"),
    ],
)
def test_a_failed_test_of_gymnasium_is_a_note(env: Any, said: str) -> None:
    report = check_env(env, steps=20)
    assert report.ok
    assert said in kinds(report, "advice")["check_env"]


def test_the_test_of_gymnasium_is_run_where_it_fits() -> None:
    """A bound of 2 is no note, and of masks the test knows nothing."""
    report = check_env("gym:Pendulum-v1", steps=20)
    assert kinds(report, "ok")["check_env"] == "Gymnasium's checker found nothing"
    assert "check_env" not in {one.what for one in check_env(MaskOfGym, steps=20).findings}


def test_the_test_of_gymnasium_is_left_out_where_steps_are_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("surreal_like.env.check._SLOW_SECONDS", 0.0)
    findings = check_env("gym:CartPole-v1", steps=20).findings
    assert "check_env" not in {one.what for one in findings}


def test_advice_for_gymnasium_names_its_own_generator() -> None:
    assert "from self.np_random" in kinds(check_env(Unseeded), "advice")["seed"]
