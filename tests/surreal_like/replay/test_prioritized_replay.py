"""Prioritized replay: the uniform one with another selector."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import ConfigError
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.batch_requests import WeightedRoundRobin
from surreal_like.replay.kinds import PrioritizedReplay
from tests.examples import examples
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Twin


def make(**replay: Any) -> PrioritizedReplay:
    options = {"capacity": 64, "min_size": 1, "batch_size": 4} | replay
    return PrioritizedReplay(**configs(algo={"n_step": 2, "gamma": 0.5}, **options))


def test_a_row_with_a_high_priority_comes_more_often() -> None:
    replay = make(priority={"alpha": 1.0, "beta": {"start": 1.0}, "epsilon": 1e-6})
    replay.insert(chunk_of("FMMMMM"))
    replay.update_priorities(np.arange(4), np.array([8, 1, 1, 1], np.float32))
    sample = replay.sample(4000)
    first = sample.numbers == 0
    assert 0.68 < first.mean() < 0.77  # 8 of 11
    batch = replay.aggregate_batch(sample)
    assert np.allclose(batch["weights"][first], 1 / 8)
    assert np.allclose(batch["weights"][~first], 1)
    # Made up for by the weights, every row counts alike.
    assert batch["weights"][first].sum() == pytest.approx(4000 / 11, rel=0.1)


def test_statistics_report_mass_and_what_came_too_late() -> None:
    replay = make(capacity=8)
    replay.insert(chunk_of("FMMMMM"))
    replay.insert(chunk_of("FMMMMM", sequence=2, first_id=6))
    replay.update_priorities(np.array([0, 4, 11]), np.array([3, 1, 9], np.float32))
    numbers = replay.statistics()
    assert numbers["priorities_ignored"] == 2  # 0 has gone, and what follows 11 has not come
    assert numbers["priority_mass"] == numbers["sampleable"]


def test_weights_make_up_for_more_and_more_as_the_learner_goes_on() -> None:
    beta = {"kind": "linear", "by": "iterations", "start": 0.5, "end": 1.0, "steps": 100}
    replay = make(priority={"alpha": 1.0, "beta": beta, "epsilon": 1e-6})
    replay.insert(chunk_of("FMMMMM"))
    replay.update_priorities(np.arange(4), np.array([16, 1, 1, 1], np.float32))
    weights = []
    for replay.iteration in (0, 50, 100, 1000):
        sample = replay.sample(100)
        weights.append(float(sample.columns["weights"][sample.numbers == 0][0]))
        numbers = replay.statistics()
        assert numbers["priority_least"] == 1.0
        assert numbers["priority_beta"] == min(1.0, 0.5 + replay.iteration / 200)
    assert weights == pytest.approx([16**-0.5, 16**-0.75, 1 / 16, 1 / 16])


def test_beta_goes_by_env_steps_too_and_stays_within_its_range() -> None:
    points = {"kind": "piecewise", "by": "env_steps", "points": [[0, 0.0], [10, 1.0]]}
    replay = make(priority={"alpha": 1.0, "beta": points, "epsilon": 1e-6})
    replay.insert(chunk_of("FMMM"))
    replay.iteration, replay.env_steps = 1000, 5
    replay.sample(1)
    assert replay.statistics()["priority_beta"] == 0.5
    beyond = points | {"points": [[0, 0.5], [10, 1.5]]}
    with pytest.raises(ConfigError, match=r"priority\.beta reaches 1\.5, expected 0 to 1"):
        make(priority={"alpha": 1.0, "beta": beyond, "epsilon": 1e-6})


def test_age_is_not_for_priorities() -> None:
    with pytest.raises(ConfigError, match="age is for UniformReplay: PrioritizedReplay draws by"):
        make(age={"max_versions": 3, "half_life_versions": 0.0})


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 2**32), operations=OPERATIONS)
def test_only_sampleable_rows_have_mass(seed: int, operations: list[tuple[int, str, int]]) -> None:
    replay, twin, traffic = make(capacity=60), Twin(60), Traffic(seed)
    generator = np.random.default_rng(seed)
    for index, what, steps in operations:
        for chunk in traffic.arrivals(index, what, steps):
            replay.insert(chunk)
            twin.insert(chunk)
        known = np.arange(twin.next_number)
        replay.update_priorities(known, generator.random(len(known)).astype(np.float32))
        ready = twin.ready(2)
        assert replay.statistics()["sampleable"] == len(ready)
        if ready:
            assert set(replay.sample(50).numbers.tolist()) <= set(ready)


class OneTable:
    """The twin of several shards: all their sampleable rows in one dictionary."""

    def __init__(self) -> None:
        self.masses: dict[tuple[int, int], float] = {}

    def shares(self) -> dict[tuple[int, int], float]:
        total = sum(self.masses.values())
        return {row: mass / total for row, mass in self.masses.items()}


@pytest.mark.parametrize("seed", range(4))
def test_shards_together_draw_and_weigh_as_one_table_would(seed: int) -> None:
    random = np.random.default_rng(seed)
    priority = {"alpha": 1.0, "beta": {"start": 0.7}, "epsilon": 1e-6}
    shards = [make(capacity=16, priority=priority) for _ in range(3)]
    twin, turns = OneTable(), WeightedRoundRobin(3)
    for index, rows in enumerate((16, 9, 5)):
        shards[index].reseed(seed + index)
        shards[index].insert(chunk_of("F" + "M" * (rows - 1)))
        fresh = random.uniform(0.2, 4.0, rows - 2).astype(np.float32)
        shards[index].update_priorities(np.arange(rows - 2), fresh)
        twin.masses |= {(index, row): float(mass) for row, mass in enumerate(fresh)}
    # The episode goes on: four rows go, and four have their two successors now.
    highest = max(mass for (shard, _), mass in twin.masses.items() if shard == 0)
    shards[0].insert(chunk_of("MMMM", sequence=2))
    for row in range(4):
        del twin.masses[0, row]
    twin.masses |= {(0, row): highest for row in range(14, 18)}
    for index, shard in enumerate(shards):
        others = [each for each in shards if each is not shard]
        shard.on_learner(
            version=0, least_mass=min(each.statistics()["priority_least"] for each in others)
        )
        assert shard.mass == pytest.approx(
            sum(mass for (where, _), mass in twin.masses.items() if where == index), rel=1e-5
        )
    seen: Counter[tuple[int, int]] = Counter()
    shares = twin.shares()
    for _ in range(600):
        chosen = turns.choose([shard.mass for shard in shards])
        assert chosen is not None
        sample = shards[chosen].sample(64)
        seen.update((chosen, int(row)) for row in sample.numbers)
        for row, weight in zip(sample.numbers, sample.columns["weights"], strict=True):
            expected = (shares[chosen, int(row)] / min(shares.values())) ** -0.7
            assert weight == pytest.approx(expected, rel=1e-4)
    assert seen.keys() == shares.keys()
    statistic = sum(
        (seen[row] - 600 * 64 * share) ** 2 / (600 * 64 * share) for row, share in shares.items()
    )
    # The mean is one less than the rows, the variance twice that: five deviations.
    freedom = len(shares) - 1
    assert statistic < freedom + 5 * (2 * freedom) ** 0.5


TAKEN = [1.0, 0.5, 2.0, 0.0, 0.3, 0.0]
GREEDY = [1.2, 0.9, 2.5, 0.4, 0.8, 7.0]
TERMINATION = [1.9116, 1.0732, 0.09, 0.1, 0.7]
TRUNCATION = [1.9116, 1.0732, 5.013, 5.57, 7.0]


def acted(*texts: str, first: int = 0, **changed: Any) -> Chunk:
    """Rows of two streams with the values that an agent had, from row ``first`` on."""
    rows = slice(first, first + len(texts[0]))
    chunk = chunk_of(*texts, rewards=[0.0, 1.0, 0.0, 2.0, -1.0, 1.0][rows], **changed)
    columns = dict(chunk.columns)
    for name, numbers in (("taken", TAKEN), ("greedy", GREEDY)):
        column = np.array(numbers, np.float32)[rows, None]
        columns[f"extras/q_{name}"] = np.repeat(column, len(texts), 1)
    chunk.columns = columns
    return chunk


def acting(**changed: Any) -> PrioritizedReplay:
    priority = {"alpha": 1.0, "initial": "acting", "epsilon": 1e-6}
    options: dict[str, Any] = {"capacity": 64, "min_size": 1, "priority": priority}
    return PrioritizedReplay(**configs(algo={"n_step": 3, "gamma": 0.9}, **options | changed))


@pytest.mark.parametrize("cut", [6, 4, 2, 1])
def test_first_priorities_are_the_errors_of_the_acting_values(cut: int) -> None:
    """P1: of n-step transitions, in whatever chunks their rows come."""
    replay = acting()
    texts = ("FMMMMT", "FMMMMU")
    for number, first in enumerate(range(0, 6, cut)):
        part = [text[first : first + cut] for text in texts]
        replay.insert(acted(*part, first=first, sequence=number + 1))
    masses = replay.state()["selector"]["masses"].reshape(6, 2)
    assert masses[:5, 0].tolist() == pytest.approx(TERMINATION, rel=1e-5)
    assert masses[:5, 1].tolist() == pytest.approx(TRUNCATION, rel=1e-5)
    assert masses[5].tolist() == [0.0, 0.0]
    replay.update_priorities(np.array([0]), np.array([3.0], np.float32))
    assert replay.state()["selector"]["masses"][0] == 3.0


def test_rewards_beyond_all_numbers_give_a_finite_priority() -> None:
    replay = acting()
    chunk = acted("FMMMMT")
    chunk.columns["reward"][1:] = 3e38
    with np.errstate(over="ignore"):
        replay.insert(chunk)
    assert np.isfinite(replay.mass)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (None, "'extras/q_greedy' is missing"),
        (np.zeros((6, 1)), r"is float64 \[6, 1\], not float32 \[6, 1\]"),
        (np.zeros((6, 1, 2), np.float32), r"is float32 \[6, 1, 2\], not"),
        (np.full((6, 1), np.nan, np.float32), "has a value that is not finite"),
    ],
)
def test_chunks_without_values_are_refused(column: Any, words: str) -> None:
    replay, chunk = acting(), acted("FMMMMT")
    chunk.columns = {
        name: column if name == "extras/q_greedy" else each
        for name, each in chunk.columns.items()
        if name != "extras/q_greedy" or column is not None
    }
    with pytest.raises(DataError, match=words):
        replay.insert(chunk)
    assert len(replay.storage) == 0
    make().insert(chunk)
