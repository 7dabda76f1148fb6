"""What `surreal-like check`, `check_env` and a launch find wrong with an environment."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from main.cli import main
from session.errors import ConfigError, UsageError
from surreal_like import check_env, make_policy, make_vector_env, train
from surreal_like.env.check import tried_specs
from surreal_like.env.check_findings import Report
from surreal_like.env.environment import Step
from surreal_like.env.registry import make_env
from surreal_like.env.toy import Chain, MultiCartPole
from tests.surreal_like.env import wrong_samples as wrong
from tests.surreal_like.env.joint_samples import BookedInTurns, TwoLives
from tests.surreal_like.env.samples import Spoiled

SPOILED = "tests.surreal_like.env.samples:Spoiled"


def kinds(report: Report, kind: str) -> dict[str, str]:
    return {one.what: one.text for one in report.findings if one.kind == kind}


COMPARED = {"specs", "steps", "step time", "seed", "copies"}


@pytest.mark.parametrize(
    ("env", "more"),
    [
        ("toy:chain", ()),
        (Chain, ()),
        ({"env_name": "gym:CartPole-v1"}, ("check_env",)),
        ("gymvec:CartPole-v1", ()),
        ("toy:multi_cartpole", ("agents",)),
        (MultiCartPole, ("agents",)),
        (TwoLives, ("agents",)),
        (wrong.MaskedLives, ("agents",)),
        (wrong.MaskOfGym, ()),
    ],
)
def test_a_good_environment(env: Any, more: tuple[str, ...]) -> None:
    report = check_env(env)
    assert report.ok, report
    assert set(kinds(report, "ok")) == COMPARED | {*more}
    assert not kinds(report, "advice")
    assert str(report).endswith("no mistakes")


def of(kind: Any, what: str) -> Any:
    return {"env_name": f"{kind.__module__}:{kind.__name__}", "env_args": {"what": what}}


# Environment, subject of the finding, a part of its text. Each row is one mistake.
WRONG: list[tuple[Any, str, str]] = [
    (of(Spoiled, "constructor"), "constructor", "no licence"),
    (of(Spoiled, "info"), "reset()", "gave a dict, expected (observation, info)"),
    (of(Spoiled, "four"), "step()", "gave 4 values"),
    (of(Spoiled, "raise"), "step()", "KeyError('valve'), in Spoiled.step"),
    (of(Spoiled, "raise"), "step()", "; after 2 steps"),
    (of(Spoiled, "reward"), "reward", "'much' given"),
    (of(Spoiled, "nan reward"), "reward", "is nan"),
    (of(Spoiled, "nan"), "obs/temps", "NaN at [1] of [3]"),
    (of(Spoiled, "bounds"), "obs/temps", "7.0 at [1]"),
    (of(Spoiled, "shape"), "obs/temps", "shape [2] given"),
    (of(Spoiled, "float"), "obs/door", "0.5 does not fit into int8"),
    (of(Spoiled, "large"), "obs/door", "300 does not fit into int8"),
    (of(Spoiled, "missing"), "obs/door", "not given"),
    (of(Spoiled, "shared"), "copies", "share state"),
    (wrong.Keyed, "obs", "7 cannot be a key"),
    # Environments of Gymnasium: the field is named, not the adapter.
    (of(wrong.OfGym, "far"), "obs", "7.0 at [0] of [3], expected at most 1.0"),
    (of(wrong.OfGym, "short"), "obs", "shape [2] given"),
    (of(wrong.OfGym, "text"), "step()", "reward: '1' given, expected a number"),
    (of(wrong.OfGym, "none"), "step()", "reward: None given, expected a number"),
    (of(wrong.OfGym, "two"), "step()", "reward: array([1., 2.]) given, expected a number"),
    (of(wrong.OfGym, "flag"), "terminated", "<U2 given"),
    (of(wrong.OfGym, "nothing"), "step()", "gave a NoneType, expected (observation, reward"),
    (of(wrong.OfGym, "four"), "step()", "gave 4 values"),
    (of(wrong.OfGym, "list"), "metrics", "info['metrics'] is [1], expected a flat dict"),
    (of(wrong.OfGym, "array"), "metrics", "expected a flat dict"),
    (of(wrong.OfGym, "word"), "metrics", "info['metrics']['far'] is '7'"),
    (of(wrong.OfGym, "exit"), "step()", "SystemExit('the licence is missing'), in OfGym.step"),
    (of(wrong.OfGym, "close"), "close()", "the door is stuck"),
    (wrong.Exits, "constructor", "SystemExit(3), in Exits.__init__"),
    (wrong.OldReset, "reset()", "reset() of OldReset does not take seed"),
    (wrong.Slashed, "constructor", "'arm/left' cannot name a part of an observation: rename it"),
    (of(wrong.MaskOfGym, "zeros"), "obs/action_mask", "[0, 0] in observation 1 leaves no legal"),
    (of(wrong.MaskOfGym, "size"), "specs", "action_mask of shape [3], expected [2]"),
    (of(wrong.MaskOfGym, "word"), "reset()", "obs/action_mask: <U2 given"),
    (wrong.FarBatch, "obs", "7.0 at [0] of [3], expected at most 1.0"),
    # Several agents: the agent is named.
    (wrong.Vanishes, "step()", "agent a_1: it is not in `agents` any more"),
    (wrong.ComesBack, "step()", "agent a_1: it has come back after its end"),
    (wrong.Unseen, "step()", "agent a_1: the environment gave no observation of it"),
    (wrong.Unflagged, "step()", "agent a_1: it acted, but step() gave no termination"),
    (wrong.UnflaggedInTurns, "step()", "agent b: `terminations` or `truncations` lacks it"),
    (wrong.ComesBackInTurns, "step()", "agent a: it has come back after its end"),
    (wrong.Unnamed, "specs", "it has no `possible_agents`"),
    (wrong.Stranger, "specs", "agent a_1: it is in `agents`, but not in `possible_agents`"),
    (wrong.Blurred, "a_0 obs", "NaN"),
    (wrong.Far, "a_1 obs", "2.0 at [0] of [1], expected at most 1.0"),
    (wrong.Rich, "a_1 reward", "is inf"),
    (wrong.Unpaid, "step()", "reward of agent a_1: 'much' given, expected a number"),
    (wrong.Unpaid, "step()", "; after 0 steps"),
    (wrong.Failing, "step()", "KeyError('valve'), in Failing.step"),
    (wrong.Quits, "step()", "SystemExit(0), in Quits.step"),
    (wrong.Locked, "close()", "the door is stuck"),
    (wrong.Stuck, "a_0 obs/action_mask", "[0, 0, 0] in observation 3 leaves no legal action"),
    (wrong.LeftMask, "step()", "agent a_1: info has no action_mask"),
    (wrong.WideMask, "a_0 obs/action_mask", "shape [4] given"),
    (wrong.Shared, "copies", "share state"),
]


@pytest.mark.parametrize(("env", "where", "said"), WRONG)
def test_what_is_wrong_is_named(env: Any, where: str, said: str) -> None:
    report = check_env(env)
    assert said in kinds(report, "error")[where], report
    assert len({what.split()[-1] for what in kinds(report, "error")}) == 1, report
    assert "(surreal_like/" not in str(report)
    assert "mistake" in str(report).splitlines()[-1]
    assert max(map(len, str(report).splitlines())) < 90


@pytest.mark.parametrize(
    ("env", "where", "said"),
    [
        (of(Spoiled, "float64"), "obs/temps", "converted to float32"),
        (of(Spoiled, "random"), "seed", "self.rng"),
        (wrong.UnseededLives, "seed", "the seed that reset() gets"),
        (wrong.Joins, "absent", "a_2 had no observation"),
        (TwoLives(), "copies", "not compared"),
        (partial(BookedInTurns, "rewards"), "rewards", "agent a: what last() gives"),
        ({**of(Spoiled, "raise"), "on_error": "restart"}, "step()", "a run survives it"),
    ],
)
def test_advice_is_no_mistake(env: Any, where: str, said: str) -> None:
    report = check_env(env)
    assert report.ok, report
    assert said in kinds(report, "advice")[where]


def test_specs_that_differ_come_with_what_to_paste() -> None:
    report = check_env(wrong.Pair)
    assert report.ok
    said = kinds(report, "advice")["policies"]
    assert "policies: {speaker: {}, listener: {}}" in said
    mapping = "{speaker_0: speaker, listener_0: listener, listener_1: listener}"
    assert f"env_config.policy_mapping: {mapping}" in said
    assert {"speaker_0", "listener_0, listener_1"} < set(kinds(report, "ok"))


def test_a_limit_ends_episodes() -> None:
    config = {"env_name": "toy:multi_cartpole", "limit_episode_length": 5}
    assert "300 random joint steps, 60 episodes ended" in str(check_env(config))


def test_a_slow_environment_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Chain.step

    def slow(env: Chain, action: int) -> Step:
        time.sleep(0.021)
        return step(env, action)

    monkeypatch.setattr(Chain, "step", slow)
    report = check_env("toy:chain", steps=5, seconds=0.01)
    assert "env_config.vector" in kinds(report, "advice")["step time"]


@pytest.mark.slow
def test_a_long_evaluation_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Chain.step

    def slow(env: Chain, action: int) -> Step:
        time.sleep(0.01)
        return step(env, action)

    monkeypatch.setattr(Chain, "step", slow)
    limited = {"env_name": "toy:chain", "env_args": {"length": 99}, "limit_episode_length": 5}
    for config, steps, episodes, said in (
        (limited, 10, 1200, "1200 episodes of 5 steps take 1 minute: lower session_config.stop"),
        (limited, 3, 4000, "4000 episodes of at least 3 steps take at least 2 minutes"),
        (limited, 10, 100, None),
        ({**limited, "vector": "process"}, 10, 4000, None),
    ):
        report = check_env(config, steps=steps, eval_episodes=episodes)
        found = kinds(report, "advice").get("evaluation")
        assert said in found if said and found else found is said


def test_the_length_of_an_evaluation_is_that_of_the_settings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal_like.env.check._LONG_EVALUATION_SECONDS", 0.0)
    for words, said in (
        ((), "100 episodes of"),
        (("session_config.stop.eval_episodes=7",), " 7 episodes of"),
        (("session_config.evaluator.num=0",), "no mistakes"),
    ):
        assert main(["check", "toy:chain", "--steps=20", *words]) == 0
        out = capsys.readouterr().out
        assert said in out
        assert ("evaluation" in out) == ("episodes of" in said)


# A run takes what lies outside of a space, as before, and sees neither copies nor an end.
TRIED = [
    (env, said)
    for env, where, said in WRONG
    if isinstance(env, dict)
    and env["env_args"]["what"] != "far"
    and where not in ("constructor", "specs", "copies", "close()")
]


@pytest.mark.parametrize(("env", "said"), TRIED)
def test_a_launch_names_the_same(env: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=r"environment tests.*`surreal-like check`") as caught:
        tried_specs(env)
    assert said in str(caught.value)
    # The cause says whether only a package is missing here.
    assert isinstance(caught.value.__cause__, KeyError) or "KeyError" not in said


def test_the_specs_of_an_experiment_are_tried() -> None:
    assert tried_specs({"env_name": SPOILED})[0]["door"] == {"type": "int8", "dim": []}
    assert tried_specs(of(wrong.OfGym, "far"))[0] == {"type": "float32", "dim": [3]}


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
    assert main(["check", "toy:multi_cartpole", "env_config.env_args.agents=3"]) == 0
    assert "cart_0, cart_1, cart_2, which act all at once" in capsys.readouterr().out
    assert main(["check", f"{wrong.__name__}:Vanishes"]) == 2
    assert "WRONG  step()" in capsys.readouterr().out


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
