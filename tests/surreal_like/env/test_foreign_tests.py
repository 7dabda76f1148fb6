"""Tests of Gymnasium inside `surreal-like check`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal_like import check_env
from surreal_like.env.check_findings import Report
from tests.surreal_like.env.wrong_samples import MaskOfGym, NoOptions


def kinds(report: Report, kind: str) -> dict[str, str]:
    return {one.what: one.text for one in report.findings if one.kind == kind}


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
