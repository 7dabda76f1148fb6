"""Training iterations: the state machine, and tables that collect and train in turns."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from session.config import Config
from session.errors import ConfigError
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay
from surreal_like.replay.limiter import Turns, split_evenly
from surreal_like.replay.select.selector import UniformSelector
from surreal_like.replay.table import Table
from tests.add_ons import load_replays
from tests.surreal_like.replay.chunks import Sender, chunk_of, counting
from tests.surreal_like.replay.configs import configs

WHOLE: dict[str, Any] = {"whole_replay_buffer_training": True}
CLEAR: dict[str, Any] = {**WHOLE, "clear_replay_buffer": True}
KINDS = [UniformReplay, PrioritizedReplay, *(each for each in load_replays() if each.iterates)]


@pytest.mark.parametrize(
    ("rows", "batch_size", "sizes"),
    [(264, 32, [33] * 8), (100, 32, [34, 33, 33]), (20, 32, [20]), (64, 32, [32, 32]), (0, 32, [])],
)
def test_sizes_of_a_pass_are_the_golden_ones(rows: int, batch_size: int, sizes: list[int]) -> None:
    """I2."""
    assert split_evenly(rows, batch_size) == sizes


def test_rows_go_in_or_batches_go_out() -> None:
    """I1: until enough rows came, the first time some more; while it trains none come."""
    turns, selector = Turns(10, first=5, updates=3), UniformSelector(100)
    selector.mark(0, np.ones(15, np.bool_))
    turns.insert(14, 14)
    assert turns.can_insert()
    assert not turns.can_sample()
    turns.insert(1, 1)
    for number in range(3):
        assert not turns.can_insert()
        assert turns.can_sample()
        assert len(turns.draw(selector, 4).numbers) == 4
        assert turns.over is (number == 2)
    turns.end_training()
    turns.insert(9, 9)
    assert turns.can_insert()
    turns.insert(1, 1)
    assert (turns.can_insert(), turns.can_sample(), turns.number) == (False, True, 1)


def test_it_goes_on_collecting_until_something_can_be_sampled() -> None:
    turns = Turns(2)
    turns.insert(0, 4)
    assert turns.can_insert()
    assert not turns.can_sample()


def make(
    kind: type[Table] = UniformReplay, *, frames: int = 1, capacity: int = 100, **iteration: Any
) -> Any:
    """Two environments of one agent in chunks of 4 steps; 8 steps of each per iteration."""
    how: dict[str, Any] = {"unroll_length": 8, **iteration}
    sequence = {"length": 3, "burn_in": 2, "period": 2}
    session = {"agent": {"num": 1}, "sender": {"flush_iteration": 4}}
    options = {"capacity": capacity, "batch_size": 5, "iteration": how, "sequence": sequence}
    given = configs(algo={"n_step": 3}, session=session, min_size=1, **options)
    given["env_config"]["frame_stack"] = frames
    return kind(**given)


def trained(replay: Any) -> list[list[int]]:
    """The first rows of all batches of one training, by the ids of their rows."""
    batches, number = [], replay.limiter.number
    while replay.limiter.number == number:
        assert replay.can_sample(5)
        columns = replay.sample_columns(5)
        burn_in, _ = replay.steps_of_sample(replay.learner_config)
        ids = columns["actions"]
        batches.append((ids[burn_in] if burn_in else ids).tolist())
        assert replay.rows_in(5) == len(batches[-1]) * replay.view.rows_each
        assert not replay.can_insert() or replay.limiter.number > number
    return batches


def collect(replay: Any, sender: Sender) -> int:
    """Inserts while that is allowed; returns the number of chunks."""
    chunks = 0
    while replay.can_insert():
        assert not replay.can_sample(5)
        replay.insert(sender.cut(4))
        chunks += 1
    return chunks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("passes", [1, 2])
def test_a_pass_has_each_row_once(kind: type[Table], passes: int) -> None:
    """I2: in another order each time."""
    replay = make(kind, num_updates_per_train_iter=passes, **WHOLE)
    sender = Sender("a", 2, Random(1), counting())
    for number in range(3):
        assert collect(replay, sender) == 2
        sampleable = len(replay.selector)
        batches = trained(replay)
        assert replay.limiter.number == number + 1
        assert [len(each) for each in batches] == split_evenly(sampleable, 5) * passes
        seen = [action for batch in batches for action in batch]
        assert set(Counter(seen).values()) == {passes}
        assert len(set(seen)) == sampleable == len(replay.selector)
        assert seen[:sampleable] != sorted(seen[:sampleable])
        if passes == 2:
            assert seen[:sampleable] != seen[sampleable:]


@pytest.mark.parametrize("kind", KINDS)
def test_without_whole_passes_the_selector_draws(kind: type[Table]) -> None:
    replay = make(kind, num_updates_per_train_iter=4)
    sender = Sender("a", 2, Random(2), counting())
    for _ in range(2):
        collect(replay, sender)
        assert [len(batch) for batch in trained(replay)] == [5] * 4


def test_the_first_training_may_come_later() -> None:
    replay = make(initial_collect_steps=20)
    sender = Sender("a", 2, Random(2), counting())
    assert collect(replay, sender) == 5
    trained(replay)
    assert collect(replay, sender) == 2


@pytest.mark.parametrize(
    ("iteration", "synchronous", "chunks"), [(0, True, 5), (7, True, 2), (7, False, 5)]
)
def test_a_run_that_has_learned_before_waits_for_no_additional_rows(
    iteration: int, synchronous: bool, chunks: int
) -> None:
    """Synchronous agents of such a run do not send them, for a replay that is new in it."""
    replay = make(initial_collect_steps=20)
    replay.learner_config.algo.synchronous = synchronous
    replay.on_learner(version=1, least_mass=math.inf, iteration=iteration)
    assert collect(replay, Sender("a", 2, Random(2), counting())) == chunks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("restarts", [0.0, 0.1])
def test_after_clearing_each_row_is_learned_from_in_one_iteration(
    kind: type[Table], frames: int, restarts: float
) -> None:
    """I3: with terminations, truncations and cuts; a twin without iterations says which."""
    replay = make(kind, frames=frames, **CLEAR)
    twin = make(kind, frames=frames, capacity=10_000, unroll_length=0)
    random = Random(3)
    sender, seen = Sender("a", 2, random, counting()), Counter[int]()
    for number in range(50):
        while replay.can_insert():
            if random.random() < restarts:
                sender.restart()
            chunk = sender.cut(4)
            replay.insert(chunk)
            twin.insert(chunk)
        seen.update(action for batch in trained(replay) for action in batch)
        completed = twin.view.gather(twin.storage, twin.selector.list_rows())["actions"]
        ids = completed if completed.ndim == 1 else completed[2]
        assert set(seen) == set(ids.tolist()), number
        assert len(replay.selector) == 0
        # Rows of streams that were cut wait until the ring is full.
        assert restarts or len(replay.storage) < 30
    assert set(seen.values()) == {1}
    assert len(seen) > 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_keeps_the_turn(kind: type[Table]) -> None:
    replay, other = (make(kind, **CLEAR, unroll_length=16) for _ in range(2))
    sender = Sender("a", 2, Random(4), counting())
    collect(replay, sender)
    trained(replay)
    collect(replay, sender)
    replay.sample_columns(5)
    other.restore(replay.state())
    assert not other.can_insert()
    first = trained(replay)
    assert trained(other) == first
    other.restore(replay.state())
    assert len(other.selector) == len(replay.selector) == 0
    assert (other.limiter.number, other.can_insert()) == (2, True)


def test_one_batch_goes_out_at_once() -> None:
    assert make().batches_at_once(8) == 1
    assert make(unroll_length=0).batches_at_once(8) == 8


def changed(given: dict[str, Config], **settings: Any) -> dict[str, Config]:
    for path, value in settings.items():
        section, *keys, last = path.split("__")
        at = given[section]
        for key in keys:
            at = at[key]
        at[last] = value
    return given


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learner_config__replay__replay_shards": 2}, "iterations need one shard"),
        ({"learner_config__replay__samples_per_insert": 4.0}, "set samples_per_insert to 0"),
        ({"session_config__sender__flush_iteration": 5}, "is 8, but .*flush_iteration is 5"),
        ({"learner_config__replay__iteration__clear_replay_buffer": True}, "set both to true"),
        ({"session_config__agent__num": 0}, "agent.num is 0"),
        ({"learner_config__replay__capacity": 21}, r"8 x 2 .* \+ 6 rows .* = 22 rows are more"),
        ({"learner_config__replay__age__max_versions": 3}, "replay.age has a rule"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    given = {
        name: getattr(make(), name) for name in ("learner_config", "env_config", "session_config")
    }
    with pytest.raises(ConfigError, match=words):
        UniformReplay(**changed(given, **settings))


def test_a_queue_of_unrolls_has_no_iterations() -> None:
    """I5."""
    with pytest.raises(ConfigError, match="FIFOReplay has no iterations"):
        FIFOReplay(**configs(iteration={"unroll_length": 8}))


def test_a_priority_survives_until_the_row_goes() -> None:
    replay = make(PrioritizedReplay, num_updates_per_train_iter=50)
    replay.insert(chunk_of("FMMM", "FMMM"))
    replay.insert(chunk_of("MMMT", "MMMT", sequence=2, first_id=8))
    replay.update_priorities(np.arange(16), np.where(np.arange(16) == 3, 1e9, 0))
    numbers = np.concatenate([replay.sample_columns(5)["indices"] for _ in range(40)])
    assert (numbers == 3).mean() > 0.9
