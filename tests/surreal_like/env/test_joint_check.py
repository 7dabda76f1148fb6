"""Findings of `surreal-like check` and `check_env` about environments of several agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

from main.cli import main
from surreal_like import check_env
from surreal_like.env.findings import Report
from surreal_like.env.toy import MultiCartPole
from tests.surreal_like.env.joint_samples import Script, TwoLives

GOOD = {"agents", "specs", "steps", "step time", "seed", "copies"}


def kinds(report: Report, kind: str) -> dict[str, str]:
    return {one.what: one.text for one in report.findings if one.kind == kind}


class Joins(Script):
    """The second agent joins late, a third never."""

    def __init__(self) -> None:
        super().__init__({"a_0": (0, 5), "a_1": (2, 4), "a_2": (9, 10)})


class Vanishes(TwoLives):
    """The second agent is gone without a flag."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        self.agents = self.agents[:1]
        return result


class ComesBack(TwoLives):
    """The second agent is there again after its end."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        if self.now == 4:
            self.agents = ["a_0", "a_1"]
            result[0]["a_1"] = self._obs()
        return result


class Unseen(TwoLives):
    """The second agent lives without an observation."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[0].pop("a_1", None)
        return result


class Unflagged(TwoLives):
    """The step leaves out the flags of the second agent."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[2].pop("a_1", None)
        return result


class Unnamed(TwoLives):
    """The environment names no agents."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = []


class Stranger(TwoLives):
    """An agent joins that was not named."""

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["a_0"]


class Broken(TwoLives):
    """An observation of the second agent is no number."""

    def _obs(self) -> Any:
        return np.array([np.nan if self.now == 2 else self.now], np.float32)


class Rich(TwoLives):
    """A reward is infinite."""

    def step(self, actions: dict[str, Any]) -> Any:
        result = super().step(actions)
        result[1]["a_1"] = np.inf
        return result


class Pair(TwoLives):
    """The agents have different actions."""

    def __init__(self) -> None:
        Script.__init__(self, {"speaker_0": (0, 3), "listener_0": (0, 3), "listener_1": (0, 3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2 if agent.startswith("speaker") else 3)


class Masked(TwoLives):
    """Only the last action is legal, after the fourth step none."""

    stuck = False

    def _mask(self) -> Any:
        return np.array([0, 0, not (self.stuck and self.now > 1)], np.int8)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        observations, infos = super().reset(seed)
        return observations, {name: {"action_mask": self._mask()} for name in infos}

    def step(self, actions: dict[str, Any]) -> Any:
        if set(actions.values()) != {2}:
            raise ValueError("an illegal action")
        *result, infos = super().step(actions)
        return *result, {name: {"action_mask": self._mask()} for name in infos}


class Stuck(Masked):
    """No action is legal after two steps."""

    stuck = True


class Unseeded(TwoLives):
    """Draws from no generator that a seed reaches."""

    def _obs(self) -> Any:
        return np.random.default_rng().random(1).astype(np.float32)


class Shared(TwoLives):
    """Copies share the step."""

    shared = [0.0]  # noqa: RUF012

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.shared[0] = 0.0
        return super().reset(seed)

    def _obs(self) -> Any:
        self.shared[0] += 1
        return np.array(self.shared, np.float32)


@pytest.mark.parametrize("env", ["toy:multi_cartpole", MultiCartPole, TwoLives, Masked])
def test_a_good_environment(env: Any) -> None:
    report = check_env(env)
    assert report.ok, report
    assert set(kinds(report, "ok")) == GOOD
    assert not kinds(report, "advice")


WRONG: list[tuple[type[Script], str, str]] = [
    (Vanishes, "step()", "agent a_1: it is not in `agents` any more"),
    (ComesBack, "step()", "agent a_1: it has come back after its end"),
    (Unseen, "step()", "agent a_1: the environment gave no observation of it"),
    (Unflagged, "step()", "agent a_1: it acted, but step() gave no termination"),
    (Unnamed, "agents", "it has no `possible_agents`"),
    (Stranger, "reset()", "agent a_1: it is not in `possible_agents`"),
    (Broken, "a_0 obs", "NaN"),
    (Rich, "a_1 reward", "is inf"),
    (Stuck, "agent a_0", "its action_mask is all zeros"),
    (Shared, "copies", "share state"),
]


@pytest.mark.parametrize(("env", "where", "said"), WRONG)
def test_a_mistake_is_named_with_its_agent(env: type[Script], where: str, said: str) -> None:
    report = check_env(env)
    assert said in kinds(report, "error")[where], report


def test_specs_that_differ_come_with_what_to_paste() -> None:
    report = check_env(Pair)
    assert report.ok
    said = kinds(report, "advice")["policies"]
    assert "policies: {speaker: {}, listener: {}}" in said
    mapping = "{speaker_0: speaker, listener_0: listener, listener_1: listener}"
    assert f"env_config.policy_mapping: {mapping}" in said
    assert {"speaker_0", "listener_0, listener_1"} < set(kinds(report, "ok"))


def test_what_runs_but_should_be_known_is_a_note() -> None:
    assert "a_2 had no observation" in kinds(check_env(Joins), "advice")["absent"]
    assert "the seed that reset() gets" in kinds(check_env(Unseeded), "advice")["seed"]
    assert "not compared" in kinds(check_env(TwoLives()), "advice")["copies"]


def test_a_limit_ends_episodes() -> None:
    config = {"env_name": "toy:multi_cartpole", "limit_episode_length": 5}
    assert "300 random joint steps, 60 episodes ended" in str(check_env(config))


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
    assert set(kinds(report, "ok")) == GOOD | {"parallel_api_test", "seed_test"}
    report = check_env({"env_name": "pettingzoo:classic/rps_v2", "multi_agent_api": "aec"})
    assert {"api_test", "seed_test"} < {one.what for one in report.findings}
    assert report.ok


def test_without_pettingzoo_its_tests_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.env.pettingzoo_tests.is_installed", lambda package: False)
    assert {one.what for one in check_env(Zoo).findings} == GOOD


def test_a_failed_test_of_pettingzoo_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    report = check_env(Zoo)
    assert report.ok
    said = kinds(report, "advice")["parallel_api_test"]
    assert "action_space should return the exact same space object" in said
    said = kinds(check_env(Noisy, steps=20), "advice")["parallel_api_test"]
    assert "Agent was given info but was dead last turn" in said
    assert "Passed" not in capsys.readouterr().out


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "toy:multi_cartpole", "env_config.env_args.agents=3"]) == 0
    said = capsys.readouterr().out
    assert "cart_0, cart_1, cart_2, which act all at once" in said
    assert main(["check", f"{__name__}:Vanishes"]) == 2
    assert "WRONG  step()" in capsys.readouterr().out
