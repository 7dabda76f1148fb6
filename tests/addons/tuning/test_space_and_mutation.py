"""The space of a tuning: golden values, a naive twin, and wrong entries."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.tuning.space_and_mutation import Space, uniforms

SPACE = {
    "a.lr": {"loguniform": [1e-5, 0.1]},
    "b.ent": {"uniform": [0, 0.02]},
    "c.n": {"randint": [1, 8]},
    "d.mini": {"ordered": [1, 2, 4, 8]},
    "e.rule": {"choice": ["adam", "rmsprop_tf"]},
}


def one(entry: Any) -> Any:
    return Space.of({"k": entry})


def values(settings: Any) -> Any:
    return list(settings.values())


@pytest.mark.parametrize(
    ("entropy", "first"),
    [
        ((0, 0, 0), 0.636962),
        ((0, 0, 1), 0.449239),
        ((0, 1, 0, 1), 0.496519),
        ((0, 1, 3, 2), 0.255716),
    ],
)
def test_first_uniform(entropy: Any, first: Any) -> None:
    assert next(uniforms(*entropy)) == pytest.approx(first, abs=1e-6)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"randint": [1, 8]}, [1, 3, 6, 8]),
        ({"uniform": [0, 1], "step": 0.05}, [0, 0.25, 0.7, 1]),
        ({"uniform": [0, 0.3], "step": 0.1}, [0, 0.1, 0.2, 0.3]),
        ({"lograndint": [1, 1000]}, [1, 5, 125, 1000]),
        ({"randint": [16, 256], "step": 16}, [16, 80, 192, 256]),
        ({"choice": ["a", "b", "c"]}, ["a", "a", "c", "c"]),
        ({"uniform": [2, 4]}, [2, 2.5, 3.4, pytest.approx(4, abs=1e-5)]),
    ],
)
def test_sample(entry: Any, expected: Any) -> None:
    draws = (0, 0.25, 0.7, 0.999999)
    assert [one(entry).sample(iter([draw]))["k"] for draw in draws] == expected


@pytest.mark.parametrize(
    ("entry", "value", "one_draw", "two", "expected"),
    [
        ({"uniform": [0, 0.02]}, 0.01, 0.9, 0.1, 0.012),
        ({"uniform": [0, 0.02]}, 0.018, 0.9, 0.1, 0.02),
        ({"uniform": [0, 0.02]}, 0, 0.9, 0.25, 0.005),
        ({"uniform": [0, 0.02]}, 0.01, 0.1, 0.75, 0.015),
        ({"loguniform": [1e-5, 0.1]}, 0.001, 0.3, 0.49, 0.0012),
        ({"loguniform": [1e-5, 0.1]}, 0.09, 0.3, 0.2, 0.1),
        ({"loguniform": [1e-5, 0.1]}, 1.1e-5, 0.3, 0.9, 1e-5),
        ({"randint": [1, 8]}, 1, 0.9, 0.1, 2),
        ({"randint": [1, 8]}, 1, 0.9, 0.9, 1),
        ({"randint": [1, 8]}, 4, 0.9, 0.1, 5),
        ({"randint": [1, 8]}, 4, 0.9, 0.9, 3),
        ({"randint": [1, 8]}, 8, 0.9, 0.9, 6),
        ({"randint": [1, 8]}, 5, 0.1, 0.99, 8),
        ({"randint": [-8, 8]}, -1, 0.9, 0.1, -2),
        ({"randint": [0, 8]}, 0, 0.9, 0.1, 1),
        ({"ordered": [1, 2, 4, 8]}, 4, 0.9, 0.49, 2),
        ({"ordered": [1, 2, 4, 8]}, 4, 0.9, 0.5, 8),
        ({"ordered": [1, 2, 4, 8]}, 8, 0.9, 0.9, 8),
        ({"ordered": [1, 2, 4, 8]}, 3, 0.9, 0.3, 2),
        ({"ordered": [1, 2, 4, 8]}, 2, 0.2, 0.8, 8),
        ({"choice": ["adam", "rmsprop_tf"]}, "adam", 0.9, 0.9, "adam"),
        ({"choice": ["adam", "rmsprop_tf"]}, "adam", 0.2, 0.9, "rmsprop_tf"),
        ({"randint": [16, 256], "step": 16}, 64, 0.9, 0.1, 80),
        ({"randint": [16, 256], "step": 16}, 16, 0.9, 0.1, 32),
        ({"uniform": [0, 1], "step": 0.05}, 0.05, 0.9, 0.9, 0),
    ],
)
def test_explore(entry: Any, value: Any, one_draw: Any, two: Any, expected: Any) -> None:
    explored = one(entry).explore({"k": value}, iter([one_draw, two]))["k"]
    assert explored == (expected if isinstance(expected, str) else pytest.approx(expected))
    assert "randint" not in entry or isinstance(explored, int)


def test_trials_of_a_seed() -> None:
    first, second = Space.of(SPACE).trials(2, seed=0)
    assert values(first) == [
        pytest.approx(0.00353059, rel=1e-5),
        0.00539573427527740_6,
        1,
        1,
        "rmsprop_tf",
    ]
    assert values(second) == [
        pytest.approx(0.000626549, rel=1e-5),
        pytest.approx(0.00782083, rel=1e-5),
        5,
        2,
        "adam",
    ]


@pytest.mark.parametrize(
    ("entropy", "expected"),
    [
        ((0, 1, 0, 1), [0.0008, 0.012, 8, 2, "adam"]),
        ((0, 1, 3, 1), [0.0008, 0.008, 5, 8, "rmsprop_tf"]),
        ((0, 1, 3, 2), [0.0008, 0.012, 3, 2, "rmsprop_tf"]),
    ],
)
def test_explore_of_several_keys(entropy: Any, expected: Any) -> None:
    draws = uniforms(*entropy)
    next(draws)
    settings = dict(zip(SPACE, [0.001, 0.01, 4, 4, "adam"], strict=True))
    found = values(Space.of(SPACE).explore(settings, draws))
    assert found == [pytest.approx(each) if isinstance(each, float) else each for each in expected]


@pytest.mark.parametrize(
    ("entry", "value", "reached"),
    [
        ({"ordered": [3, 4, 8, 10]}, 4, {3, 8}),
        ({"ordered": [3, 4, 8, 10]}, 3, {3, 4}),
        ({"ordered": [3, 4, 8, 10]}, 10, {8, 10}),
        ({"ordered": [3, 4, 8, 10]}, 7, {3, 4, 8, 10}),
        ({"randint": [1, 1000]}, 1, {1, 2}),
        ({"randint": [1, 1000]}, 4, {3, 5}),
        ({"randint": [1, 1000]}, 5, {4, 6}),
        ({"randint": [1, 1000]}, 10, {8, 12}),
        ({"randint": [1, 1000]}, 100, {80, 120}),
        ({"randint": [1, 1000]}, 1000, {800, 1000}),
    ],
)
def test_a_hundred_explores(entry: Any, value: Any, reached: Any) -> None:
    space = one(entry)
    found = {
        space.explore({"k": value}, uniforms(0, 1, 0, k), resample_probability=0)["k"]
        for k in range(1, 101)
    }
    assert found == reached


def test_grid_varies_its_last_key_fastest_and_is_not_mutated() -> None:
    space = Space.of({"b": {"grid": [1, 2]}, "a": {"grid": ["x", "y"]}, "c": {"uniform": [0, 1]}})
    assert space.points() == [
        {"a": "x", "b": 1},
        {"a": "x", "b": 2},
        {"a": "y", "b": 1},
        {"a": "y", "b": 2},
    ]
    trials = space.trials(2, seed=3)
    assert len(trials) == 8
    assert trials[5] == {**space.points()[1], **space.sample(uniforms(3, 0, 5))}
    assert space.mutable == ["c"]


def test_mutate_false_keeps_the_value_and_uses_no_draw() -> None:
    space = Space.of({"a": {"uniform": [0, 1], "mutate": False}, "b": {"uniform": [0, 1]}})
    draws = iter([0.1, 0.75, 0.5])
    assert space.explore({"a": 0.5, "b": 0.5}, draws) == {"a": 0.5, "b": 0.75}
    assert next(draws) == 0.5


def naive(low: Any, high: Any, step: Any, value: Any, factor: Any) -> Any:
    """Walks over all values; of two equally near ones that which is further from `low`."""
    grid = list(range(low, high + 1, step))
    nearest = low + step * math.floor((value * factor - low) / step + 0.5)
    if nearest == value:
        nearest += step if factor > 1 else -step
    return min(grid, key=lambda each: abs(each - nearest))


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 30), st.data())
def test_stepped_numbers_are_like_a_naive_twin(low: Any, step: Any, steps: Any, data: Any) -> None:
    high = low + step * steps
    value = data.draw(st.sampled_from(range(low, high + 1, step)))
    draw = data.draw(st.sampled_from([0.1, 0.9]))
    entry = {"randint": [low, high], "step": step}
    explored = one(entry).explore({"k": value}, iter([0.9, draw]))["k"]
    assert explored == naive(low, high, step, value, 1.2 if draw < 0.5 else 0.8)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"k": {"log_uniform": [1, 2]}}, "did you mean loguniform"),
        ({"k": {"lr": {"uniform": [0, 1]}}}, "write the whole dotted key"),
        ({"k": 3}, "expected one of grid"),
        ({"k": {}}, "exactly one"),
        ({"k": {"uniform": [0, 1], "choice": [1]}}, "exactly one"),
        ({"k": {"uniform": [0]}}, "expected two numbers"),
        ({"k": {"uniform": [0, True]}}, "expected two numbers"),
        ({"k": {"uniform": [0, math.nan]}}, "expected two numbers"),
        ({"k": {"uniform": [1, 1]}}, "low must be less than high"),
        ({"k": {"loguniform": [0, 1]}}, "low above 0"),
        ({"k": {"randint": [0.5, 2]}}, "whole numbers"),
        ({"k": {"choice": []}}, "expected a list"),
        ({"k": {"uniform": [0, 1], "step": 0}}, "above 0"),
        ({"k": {"choice": [1], "step": 1}}, "step belongs to"),
        ({"k": {"choice": [1], "mutate": 1}}, "true or false"),
        ({"k": {"choice": [1]}, "k.l": {"choice": [1]}}, "k contains k.l"),
        ({"session_config.folder": {"choice": ["a"]}}, "the tuning itself sets"),
        ({"session_config.stop.env_steps": {"choice": [1]}}, "the tuning itself sets"),
    ],
)
def test_wrong_entries(space: Any, message: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        Space.of(space)


SCHEDULE = {"kind": "constant", "by": "env_steps", "start": 1e-3, "end": 0.0, "steps": 1}
EXPERIMENT = Config(
    {
        "algorithm": "ppo",
        "learner_config": {
            "algo": {
                "gamma": 0.99,
                "epochs": 4,
                "rule": "adam",
                "learning_rate": {**SCHEDULE, "points": []},
            }
        },
    }
)
ALGO = "learner_config.algo"


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({f"{ALGO}.gama": {"uniform": [0.5, 1]}}, "did you mean learner_config.algo.gamma"),
        ({ALGO: {"choice": [1]}}, "is a section"),
        ({f"{ALGO}.gamma": {"uniform": [0.5, 1.5]}}, "expected 0 to 1"),
        ({f"{ALGO}.epochs": {"uniform": [1, 3]}}, "use randint"),
        ({f"{ALGO}.epochs": {"choice": [1, "two"]}}, "expected an integer"),
        ({f"{ALGO}.rule": {"uniform": [0, 1]}}, "expected a text"),
    ],
)
def test_keys_that_the_experiment_does_not_have(space: Any, message: Any) -> None:
    with pytest.raises(ConfigError, match=message):
        Space.of(space).check(EXPERIMENT)


def test_keys_that_the_experiment_has() -> None:
    Space.of(
        {
            f"{ALGO}.gamma": {"uniform": [0.5, 1]},
            f"{ALGO}.epochs": {"lograndint": [1, 8]},
            f"{ALGO}.rule": {"choice": ["adam"]},
            f"{ALGO}.learning_rate": {"loguniform": [1e-4, 1e-2]},
        }
    ).check(EXPERIMENT)
    Space.of({f"{ALGO}.learning_rate.start": {"randint": [1, 2]}}).check(EXPERIMENT)


def test_settings_that_lack_a_key_are_not_explored() -> None:
    space = Space.of({"a.b": {"uniform": [0, 1]}, "a.c": {"uniform": [0, 1]}})
    with pytest.raises(ConfigError, match=r"the settings .* lack a\.c"):
        space.explore({"a.b": 0.5}, uniforms(0))
