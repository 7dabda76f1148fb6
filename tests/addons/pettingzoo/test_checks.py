"""Tests of PettingZoo inside `surreal-like check`."""

from __future__ import annotations

import sys
from typing import Any

import pettingzoo
import pytest
from gymnasium import spaces

from surreal_like import check_env
from tests.surreal_like.env.joint_samples import TwoLives
from tests.surreal_like.env.test_foreign_tests import kinds


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
    monkeypatch.delitem(sys.modules, "pettingzoo")
    assert not [one for one in check_env(Zoo).findings if one.what.endswith("_test")]


def test_a_failed_test_of_pettingzoo_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    report = check_env(Zoo)
    assert report.ok
    said = kinds(report, "advice")["parallel_api_test"]
    assert "action_space should return the exact same space object" in said
    said = kinds(check_env(Noisy, steps=20), "advice")["parallel_api_test"]
    assert "Agent was given info but was dead last turn" in said
    assert "Passed" not in capsys.readouterr().out
