"""The weight of an entropy with a target: golden numbers, bounds, saved state, plans."""

import copy
import math
from typing import Any

import pytest

from session.errors import ConfigError
from surreal_like.algorithm.impala import Impala, ImpalaLearner
from surreal_like.algorithm.ppo import PPO, PPOLearner
from surreal_like.learner.target import EntropyWeight
from tests.surreal_like.algorithm.unrolls import DISCRETE, configs, constant, make_batch


def test_it_follows_the_entropy() -> None:
    weight = EntropyWeight(0.01, value=0.5, learning_rate=0.1)
    found = []
    for entropy in (0.3, 0.9, 0.5, 0.1):
        weight.adapt(entropy)
        found.append(weight.value)
    assert found == pytest.approx([0.010202, 0.009802, 0.009802, 0.010202], abs=5e-7)


@pytest.mark.parametrize(("entropy", "end"), [(-1e9, 0.5), (1e9, 1e-3)])
def test_it_stays_within_bounds(entropy: float, end: float) -> None:
    weight = EntropyWeight(0.0, value=0.5, learning_rate=0.1, low=1e-3, high=0.5)
    assert weight.value == 1e-3
    weight.adapt(entropy)
    assert weight.value == pytest.approx(end)


@pytest.mark.parametrize("entropy", [math.nan, math.inf])
def test_an_entropy_that_is_not_finite_changes_nothing(entropy: float) -> None:
    weight = EntropyWeight(0.01, value=0.5)
    weight.adapt(entropy)
    assert weight.value == 0.01


LEARNERS: list[tuple[Any, Any]] = [(PPOLearner, PPO), (ImpalaLearner, Impala)]


@pytest.mark.parametrize(("learner", "algorithm"), LEARNERS)
def test_a_learner_adapts_it_after_each_batch_and_saves_it(learner: Any, algorithm: Any) -> None:
    target = {"value": 0.2, "learning_rate": 0.1}
    options = configs(algorithm, entropy=constant(0.01), entropy_target=target)
    made, again = learner(**options), learner(**options)
    metrics = made.learn(make_batch(DISCRETE))
    weight = made.entropy.value
    # Actions are almost uniform: more entropy than wanted.
    moved = math.log(0.01) + 0.1 * (0.2 - float(metrics["entropy"]))
    assert weight == pytest.approx(math.exp(moved), rel=1e-2)
    assert weight < 0.0095
    assert made.learn(make_batch(DISCRETE))["entropy_weight"] == weight
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(made.saveables()[name].state_dict()))
    assert again.entropy.value == made.entropy.value


@pytest.mark.parametrize(("learner", "algorithm"), LEARNERS)
def test_without_a_value_the_schedule_stays(learner: Any, algorithm: Any) -> None:
    made = learner(**configs(algorithm, entropy=constant(0.01)))
    assert "entropy_weight" not in made.saveables()
    assert "update_entropy" not in made.flow.describe()


def test_a_schedule_that_changes_is_refused() -> None:
    falling = {"kind": "linear", "start": 0.1, "end": 0.0, "steps": 10}
    options = configs(PPO, entropy=falling, entropy_target={"value": 0.5})
    with pytest.raises(ConfigError, match=r"entropy_target.value is 0.5, but .* set its kind to"):
        PPOLearner(**options)


def test_a_least_weight_of_0_is_refused() -> None:
    """The logarithm of a weight of 0 would end the learner."""
    with pytest.raises(ConfigError, match=r"low 0.0 and high 1.0, expected 0 < low <= high"):
        EntropyWeight(0.0, value=0.5, low=0.0)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    options = configs(PPO, entropy_target={"value": 0.5, "low": 0.5, "high": 0.1})
    with pytest.raises(ConfigError, match=r"low 0.5 and high 0.1, expected 0 < low <= high"):
        PPOLearner(**options)
