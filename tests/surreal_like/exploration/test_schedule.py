"""Schedules stand still beyond their ends and never run backwards."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from session.config import Config
from session.errors import ConfigError
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.exploration.schedule import SCHEDULE_CONFIG, make_schedule
from surreal_like.learner.optimizer import Optimizer
from surreal_like.network.torso import TORSO_CONFIG
from tests.add_ons import needs
from tests.surreal_like.algorithm.unrolls import ACTIONS, configs

BOUNDED = {"type": "continuous", "dim": [2], "low": [-1.0, -1.0], "high": [1.0, 1.0]}
VALUES = st.floats(1e-3, 10.0)
STEPS = st.floats(-1e6, 1e6)


@dataclass
class Counters:
    env_steps: int
    iteration: int


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (0.3, {0: 0.3, 1000: 0.3}),
        (2, {0: 2.0}),
        ({"kind": "constant", "start": 0.4}, {-1: 0.4, 0: 0.4, 10**9: 0.4}),
        ({"start": 1.0, "end": 0.2, "steps": 100}, {-5: 1.0, 0: 1.0, 50: 0.6, 100: 0.2, 101: 0.2}),
        ({"start": 0.2, "end": 1.0, "steps": 100}, {0: 0.2, 25: 0.4, 100: 1.0, 10**9: 1.0}),
        (
            {"kind": "exponential", "start": 1.0, "end": 0.01, "steps": 100},
            {-5: 1.0, 0: 1.0, 50: 0.1, 100: 0.01, 10**9: 0.01},
        ),
        (
            {"kind": "piecewise", "points": [[10, 1.0], [20, 0.5], [40, 0.1]]},
            {0: 1.0, 10: 1.0, 15: 0.75, 20: 0.5, 30: 0.3, 40: 0.1, 99: 0.1},
        ),
    ],
)
def test_values(config: Any, expected: dict[int, float]) -> None:
    schedule = make_schedule(config)
    for step, value in expected.items():
        assert schedule.value(step) == pytest.approx(value)


@given(st.sampled_from(["linear", "exponential"]), VALUES, VALUES, st.floats(1, 1e5), STEPS, STEPS)
def test_a_schedule_moves_one_way_only_and_stays_between_its_ends(
    kind: str, start: float, end: float, steps: float, early: float, late: float
) -> None:
    schedule = make_schedule({"kind": kind, "start": start, "end": end, "steps": steps})
    early, late = sorted((early, late))
    before, after = schedule.value(early), schedule.value(late)
    slack = 1e-9 * max(start, end)
    assert min(start, end) - slack <= before <= max(start, end) + slack
    assert (after - before) * (end - start) >= -slack


def test_it_counts_environment_steps_or_updates_of_the_run() -> None:
    counters = Counters(env_steps=50, iteration=10)
    config = {"start": 0.0, "end": 100.0, "steps": 100}
    assert make_schedule(config).at(counters) == 50.0
    assert make_schedule({**config, "by": "iterations"}).at(counters) == 10.0


def test_kind_alone_can_be_changed() -> None:
    assert make_schedule({"kind": "constant", "start": 0.5, "end": 0.1, "steps": 5}).value(5) == 0.5


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kind": "cosine"}, r"algo\.epsilon\.kind is 'cosine', expected one of constant, linear"),
        ({"by": "hours"}, r"algo\.epsilon\.by is 'hours', expected one of env_steps, iterations"),
        ({"steps": 0}, r"algo\.epsilon\.steps is 0, expected more than 0"),
        ({"kind": "exponential", "end": 0.0}, r"from 1\.0 to 0\.0: an exponential never reaches 0"),
        ({"kind": "exponential", "end": -0.1}, "never reaches 0"),
        ({"kind": "piecewise"}, r"points is \[\], expected"),
        ({"kind": "piecewise", "points": [[5, 1.0], [5, 0.0]]}, "steps rising"),
        ({"kind": "piecewise", "points": [[5, 1.0], [4, 0.0]]}, "steps rising"),
        ({"kind": "piecewise", "points": [5, 4]}, "expected"),
        ({"kind": "piecewise", "points": [["now", 4]]}, "expected"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_key(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_schedule(config, "algo.epsilon")


def test_what_is_spelled_out_is_what_the_defaults_have() -> None:
    """The keys by which it is known are written in two packages."""
    base = {"rate": dict(SCHEDULE_CONFIG), "model": dict(TORSO_CONFIG)}
    config = Config({"rate": 2.0, "model": "a:B"}).extend(base, strict=True)
    assert (config.rate.kind, config.rate.start, config.model.torso) == ("constant", 2.0, "a:B")


WRONG = [-0.1, float("inf"), float("nan"), {"kind": "piecewise", "points": [[0, 0.1], [9, -0.1]]}]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("name", "key"),
    [
        *((name, "learning_rate") for name in list_algorithms()),
        *((name, "critic_learning_rate") for name in ("sac", "td3", "ddpg")),
        *((name, "entropy") for name in ("ppo", "impala")),
        pytest.param("a3c", "entropy", marks=needs("gradients")),
        ("dqn", "epsilon"),
        pytest.param("r2d2", "epsilon", marks=needs("r2d2")),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused(name: str, key: str, wrong: Any) -> None:
    """Also where no file is checked: the parts of an algorithm are made of configs."""
    algorithm = find_algorithm(name)
    space = ACTIONS["discrete"] if "discrete" in algorithm.actions else BOUNDED
    made = configs(algorithm, space, **{key: wrong})
    owner: Any = algorithm.learner
    if key == "epsilon":
        owner = partial(algorithm.agent, agent_id=0, agent_mode="training")
    with pytest.raises(ConfigError, match=f"{key} has the value .*, expected a finite number"):
        owner(**made)


def test_an_epsilon_above_1_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"epsilon has the value 7, .* from 0 on up to 1"):
        DQN.agent(**configs(DQN, epsilon=7.0), agent_id=0, agent_mode="training")


@pytest.mark.parametrize("wrong", [-1e-3, float("nan")])
def test_an_optimizer_of_ones_own_climbs_no_loss(wrong: float) -> None:
    with pytest.raises(ConfigError, match="learning_rate has the value"):
        Optimizer(torch.nn.Linear(1, 1), learning_rate=wrong)
