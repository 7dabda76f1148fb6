"""Operators of `learner_config.parts`."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from session.errors import ConfigError
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.algorithm.dqn import DQN, DQNLearner
from surreal_like.algorithm.ppo import PPO
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Operator, experience
from surreal_like.learner.learner import Learner
from tests.surreal_like.algorithm import transitions, unrolls

HERE = "tests.surreal_like.dataflow.test_parts"
DOUBLED = {"part": f"{HERE}:doubled"}


def doubled(learner: Learner, *, factor: float = 2.0) -> Operator:
    """A part of one's own: it multiplies rewards."""

    def multiply(batch: Batch) -> Batch:
        batch["rewards"] = batch.rewards * factor
        return batch

    return Operator(f"doubled({factor:g})", multiply)


def skipping(learner: Learner, share: float) -> Operator:
    def skip(batch: Batch) -> Batch:
        learner.add_metrics({"skipped": share})
        return batch

    return Operator("skipping", skip)


def raw(learner: Learner) -> str:
    return "no operator"


def unbuilt(
    algorithm: type[Algorithm], *parts: Any, learner: type[Learner] | None = None, **changed: Any
) -> Any:
    """A learner whose plan is not built yet."""
    torch.manual_seed(0)
    if algorithm is DQN:
        changed = {"n_step": 1, **changed}
    configs = unrolls.configs(algorithm, learner={"parts": list(parts)}, **changed)
    return (learner or algorithm.learner)(**configs)


def make(algorithm: type[Algorithm], *parts: Any, **changed: Any) -> Any:
    learner = unbuilt(algorithm, *parts, **changed)
    learner.flow.counts()
    return learner


def rows(seed: int = 0) -> Batch:
    batch = transitions.make_transitions(seed)
    batch["actions"] = torch.randint(0, 3, batch.rewards.shape)
    return batch


def test_parts_stand_behind_the_source_in_order() -> None:
    own = {"part": f"{HERE}:doubled", "args": {"factor": 3.0}}
    other = {"part": f"{HERE}:skipping", "args": {"share": 0.0}}
    learner = make(PPO, own, other)
    assert learner.flow.describe().startswith(
        "rollouts -> doubled(3) -> skipping -> compute_advantages"
    )
    assert make(DQN, own).flow.describe().startswith("replay -> doubled(3) -> train_one_step")
    assert make(PPO).flow.describe().startswith("rollouts -> compute_advantages")


def test_a_bad_part_makes_a_bad_update_and_a_good_one_hides_none() -> None:
    bad, good = ({"part": f"{HERE}:skipping", "args": {"share": x}} for x in (1.0, 0.0))
    assert make(DQN, bad).learn(rows())["skipped"] == 1
    assert make(DQN, good).learn(rows())["skipped"] == 0
    batch = rows()
    batch.rewards[0] = math.nan
    assert make(DQN, good).learn(batch)["skipped"] == 1


def test_a_batch_that_a_script_learns_from_is_changed_once() -> None:
    """The source that is built first has the parts, also where a class calls its inherited plan."""

    class Own(DQNLearner):
        def learn(self, batch: Batch) -> Any:
            return super().learn(batch)

    learner = unbuilt(DQN, DOUBLED, learner=Own)
    batch = rows()
    before = batch.rewards.clone()
    learner.feed(batch, learner.flow)
    assert torch.equal(batch.rewards, 2 * before)
    learner = unbuilt(DQN, DOUBLED)
    assert "doubled(2)" in experience(learner).describe()
    assert "doubled" not in learner.flow.describe()


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("doubled", "has 'doubled', expected {part: NAME"),
        ({"args": {}}, "expected {part: NAME"),
        ({"part": "doubled", "arg": {}}, "expected {part: NAME"),
        ({"part": "doubled", "args": [1]}, "expected {part: NAME"),
        ({"part": 3}, "expected {part: NAME"),
        ({"part": "normalise_rewards"}, "no part 'normalise_rewards': did you mean normalize_rew"),
        ({"part": "no.such:part"}, "'no.such:part' cannot be imported: No module named 'no'"),
        ({"part": f"{HERE}:nothing"}, "test_parts has no 'nothing'"),
        ({"part": f"{HERE}:DOUBLED"}, "DOUBLED' is a dict, expected a class or function"),
        ({"part": f"{HERE}:raw"}, "gives a str, expected an Operator"),
        ({**DOUBLED, "args": {"fctor": 1}}, "'fctor'; it takes factor"),
    ],
)
def test_a_wrong_part_is_refused(part: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(PPO, part)


def test_a_part_that_stands_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="doubled twice"):
        make(PPO, DOUBLED, DOUBLED)
