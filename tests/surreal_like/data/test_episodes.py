"""Counting episodes of N streams, against a count of one stream at a time."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.data.episodes import EpisodeCounter, mean_metrics
from surreal_like.errors import DataError

Bools = list[bool]


def naive(rewards: list[float], ends: Bools) -> tuple[list[tuple[float, int]], int]:
    """Episodes as (return, length), and environment steps, of one stream; a reset is a row."""
    episodes, total, length, steps, fresh = [], 0.0, 0, 0, False
    for reward, end in zip(rewards, ends, strict=True):
        if fresh:  # this row is FIRST
            total, length, fresh = 0.0, 0, False
            continue
        total, length, steps = total + reward, length + 1, steps + 1
        if end:
            episodes.append((total, length))
            fresh = True
    return episodes, steps


@given(st.integers(1, 4), st.lists(st.integers(0, 2**16), max_size=30))
def test_counts_are_those_of_each_stream_alone(streams: int, seeds: list[int]) -> None:
    rng = np.random.default_rng(seeds)
    rewards = rng.integers(-3, 4, (len(seeds), streams)).astype(np.float32)
    ends = rng.random((len(seeds), streams)) < 0.3
    counter = EpisodeCounter(streams)
    first = np.zeros(streams, np.bool_)
    seen: list[list[tuple[float, int]]] = [[] for _ in range(streams)]
    for reward, end in zip(rewards, ends, strict=True):
        last = end & ~first
        finished = counter.update(np.where(first, 0, reward), last)
        for stream, summary in zip(np.flatnonzero(last), finished, strict=True):
            seen[stream].append((summary["return"], summary["length"]))
        first = last
    expected = [naive(rewards[:, i].tolist(), ends[:, i].tolist()) for i in range(streams)]
    assert seen == [episodes for episodes, _ in expected]
    assert counter.env_steps == sum(steps for _, steps in expected)
    assert counter.episodes == sum(len(episodes) for episodes, _ in expected)


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(1, 12), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 2**16),
)
def test_many_steps_count_like_one_after_the_other(
    streams: int, parts: list[tuple[int, bool]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    counter, slow = EpisodeCounter(streams), EpisodeCounter(streams)
    first = np.zeros(streams, np.bool_)
    for count, together in parts:
        rewards = rng.integers(-3, 4, (count, streams)).astype(np.float32)
        last = np.zeros((count, streams), np.bool_)
        for step in range(count):
            rewards[step, first] = 0
            last[step] = first = (rng.random(streams) < 0.4) & ~first
        steps = list(zip(rewards, last, strict=True))
        expected = [each for step in steps for each in slow.update(*step)]
        if together:
            found = counter.update_many(rewards, last)
        else:
            found = [each for step in steps for each in counter.update(*step)]
        assert found == expected
        assert (counter.env_steps, counter.episodes) == (slow.env_steps, slow.episodes)


def one(counter: EpisodeCounter, *, last: bool, metrics: Any = None) -> Any:
    given = None if metrics is None else [metrics]
    return counter.update(np.ones(1, np.float32), np.array([last]), given)


@given(st.integers(1, 4), st.lists(st.integers(0, 2**16), max_size=40))
def test_a_game_of_several_lives_counts_once(streams: int, seeds: list[int]) -> None:
    rng = np.random.default_rng(seeds)
    rewards = rng.integers(-3, 4, (len(seeds), streams)).astype(np.float32)
    ends = rng.random((len(seeds), streams)) < 0.3
    lives = rng.random((len(seeds), streams)) < 0.6
    counter = EpisodeCounter(streams)
    first = np.zeros(streams, np.bool_)
    games: list[list[tuple[float, int]]] = [[] for _ in range(streams)]
    totals, lengths = np.zeros(streams), np.zeros(streams, int)
    over = np.zeros(streams, np.bool_)  # the next row is that of a new game
    for reward, end, life in zip(rewards, ends, lives, strict=True):
        last = end & ~first
        lost = last & life if (last & life).any() else None
        # The first row after a lost life may bring a reward, that of a new game does not.
        raw = np.where(over, 0, reward)
        finished = counter.update(raw, last, None, lost)
        totals, lengths = np.where(over, 0, totals) + raw, np.where(over, 0, lengths)
        lengths = lengths + ~first
        over = last & ~life
        for stream, summary in zip(np.flatnonzero(over), finished, strict=True):
            games[stream].append((totals[stream], lengths[stream]))
            assert (summary["return"], summary["length"]) == games[stream][-1]
        first = last
    assert counter.episodes == sum(map(len, games))


def test_a_reset_ends_the_game_too() -> None:
    counter, no = EpisodeCounter(1), np.zeros(1, np.bool_)
    reward = np.ones(1, np.float32)
    assert counter.update(reward, ~no, None, ~no) == []
    counter.reset()
    counter.update(reward, no)
    [summary] = counter.update(reward, ~no)
    assert (summary["return"], summary["length"]) == (2.0, 2)
    counter.update(0 * reward, no)
    [summary] = counter.update(reward, ~no)
    assert (summary["return"], summary["length"]) == (1.0, 1)


def test_small_rewards_do_not_vanish_in_a_long_episode() -> None:
    counter = EpisodeCounter(1)
    reward, none = np.full(1, 0.1, np.float32), np.zeros(1, np.bool_)
    for _ in range(20_000):
        counter.update(reward, none)
    [summary] = counter.update(reward, ~none)
    assert summary["return"] == pytest.approx(2000.1, abs=1e-3)


def test_newest_number_of_each_metric_counts_within_its_episode() -> None:
    counter = EpisodeCounter(1)
    assert one(counter, last=False, metrics={"my/score": 1, "lives": 3}) == []
    assert one(counter, last=False, metrics=None) == []
    [summary] = one(counter, last=True, metrics={"my/score": np.float32(2)})
    assert summary == {"return": 3.0, "length": 3, "metrics": {"my/score": 2.0, "lives": 3.0}}
    assert one(counter, last=False) == []
    [summary] = one(counter, last=True)
    assert summary["metrics"] == {}


def test_the_environments_own_dict_is_not_changed() -> None:
    counter, given_metrics = EpisodeCounter(1), {"a": 1}
    one(counter, last=False, metrics=given_metrics)
    one(counter, last=False, metrics={"a": 2})
    assert given_metrics == {"a": 1}


def test_reset_forgets_open_episodes() -> None:
    counter = EpisodeCounter(1)
    one(counter, last=False, metrics={"a": 1})
    counter.reset()
    [summary] = one(counter, last=True)
    assert summary == {"return": 1.0, "length": 1, "metrics": {}}
    assert counter.env_steps == 2


@pytest.mark.parametrize("metrics", [{"a": "3"}, {"a": None}, {3: 1.0}, {"a": [1, 2]}])
def test_metrics_that_are_no_numbers_are_named(metrics: dict[Any, Any]) -> None:
    with pytest.raises(DataError, match=r"info\['metrics'\]\[(3|'a')\] is "):
        one(EpisodeCounter(1), last=True, metrics=metrics)


def test_means_leave_nan_out() -> None:
    episodes = [{"metrics": {"a": 1.0}}, {"metrics": {"a": float("nan"), "b": float("nan")}}]
    assert mean_metrics([*episodes, {"metrics": {"a": 2.0}}]) == {"a": 1.5}
