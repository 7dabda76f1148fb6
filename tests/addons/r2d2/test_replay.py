"""Sequences of episodes: golden windows, a slow twin, coverage, and the table of them."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import ConfigError
from surreal_like.addons.r2d2.replay import SequenceReplay, SequenceView
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.ppo import PPO
from surreal_like.data.batch import make_batch
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.storage import ColumnStorage
from tests.examples import examples
from tests.surreal_like.replay.chunks import Sender, chunk_of, counting
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_n_step_view import Table
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Row, Twin

TYPE = "SequenceReplay"


class Sequences(Table):
    """A storage with a view of sequences, and the rows that start one."""

    def __init__(self, length: int, capacity: int = 1000, frames: int = 1, **how: Any) -> None:
        super().__init__(1, capacity=capacity)
        self.view: Any = SequenceView(length, 0.9, frame_stack=frames, **how)


# Start; rows, mask, place of the first row; of an episode of 7 steps, length 3, burn-in 2.
GOLDEN = [
    (0, [0, 0, 0, 1, 2, 3], [0, 0, 1, 1, 1], 2),
    (3, [1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 1], None),
    (6, [4, 5, 6, 7, 7, 7], [0, 0, 1, 0, 0], None),
]


def test_golden_windows() -> None:
    """S1, S2, S3: starts, rows, mask, and where the state is zeroed."""
    table = Sequences(3, burn_in=2, period=3)
    assert table.insert(chunk_of("FMMMMMMT")) == [start for start, *_ in GOLDEN]
    for start, rows, mask, first in GOLDEN:
        batch = table.gather([start])
        assert batch["obs/position"][:, 0, 0].tolist() == rows
        assert batch["mask"][:, 0].tolist() == mask
        assert np.flatnonzero(batch["first"][:, 0]).tolist() == ([] if first is None else [first])
    assert table.gather([6])["dones"][2, 0] == 1.0
    assert table.gather([6])["discounts"][2, 0] == 0.0
    assert table.gather([3])["discounts"][2, 0] == np.float32(0.9)
    window = table.view.window(table.storage, np.array([0, 6]))
    assert window.T.tolist() == [GOLDEN[0][1], GOLDEN[2][1]]


def test_windows_need_no_view_that_has_seen_the_rows() -> None:
    storage, view = ColumnStorage(100), SequenceView(3, 0.9, burn_in=2, period=3)
    for sequence, expected in ((1, [0, 0, 0, 1, 2, 2]), (2, [0, 0, 0, 1, 2, 3])):
        letters = "FMM" if sequence == 1 else "MT"
        storage.insert(chunk_of(letters, sequence=sequence))
        assert view.window(storage, np.array([0])).T.tolist() == [expected]


def test_steps_are_counted_anew_at_a_first_row() -> None:
    table = Sequences(2, period=2)
    table.insert(chunk_of("FMM"))
    table.insert(chunk_of("FMTFM", sequence=2))
    assert table.view._step[:8].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]


def episode_of(row: Row) -> tuple[list[Row], bool]:
    """The rows of an episode up to this one, as far as they came; whether its FIRST is one."""
    rows = [row]
    while rows[0].values["step_type"] != 0:
        before = rows[0].before
        if before is None or before.is_last:
            return rows, False
        rows.insert(0, before)
    return rows, True


def sequence(row: Row, oldest: int, length: int, burn_in: int, period: int) -> list[Row] | None:
    """The rows that a sequence sees, padded; None if none starts here, or one is missing."""
    past, whole = episode_of(row)
    if row.is_last or (len(past) - 1) % period:
        return None
    lead = past[-burn_in - 1 :]
    if (len(lead) <= burn_in and not whole) or lead[0].number < oldest:
        return None
    rows = [lead[0]] * (burn_in + 1 - len(lead)) + lead
    for _ in range(length):
        last = rows[-1]
        if not last.is_last and last.after is None:
            return None
        rows.append(last if last.is_last or last.after is None else last.after)
    return rows


@settings(max_examples=examples(15))
@given(
    seed=st.integers(0, 2**32),
    operations=OPERATIONS,
    how=st.sampled_from([(3, 2, 3), (4, 0, 2), (1, 1, 1), (5, 3, 2), (2, 0, 1)]),
)
def test_view_equals_its_twin(
    seed: int, operations: list[tuple[int, str, int]], how: tuple[int, int, int]
) -> None:
    """S1, S2: against a walk along links, with cuts, evictions and a restore."""
    length, burn_in, period = how
    twin, traffic = Twin(50), Traffic(seed)
    table = Sequences(length, 50, burn_in=burn_in, period=period)
    for sender, what, steps in operations:
        if what == "evict":
            table.evict(table.storage.oldest + 3 * steps)
            twin.evict(table.storage.oldest)
        for chunk in traffic.arrivals(sender, what, steps):
            known = twin.next_number
            twin.insert(chunk)
            table.insert(chunk)
            for row in twin.rows:  # a row whose predecessor has gone begins an episode anew
                new = row.number >= known and row.before is not None
                if new and row.before is not None and row.before.number < table.storage.oldest:
                    row.before = None
        oldest = table.storage.oldest
        found = {row.number: sequence(row, oldest, *how) for row in twin.rows}
        expected = {number: rows for number, rows in found.items() if rows}
        assert table.ready() == sorted(expected)
        table.view.restore(table.view.state(), table.storage)
        ready = oldest + np.flatnonzero(table.view.ready_rows(table.storage))
        assert ready.tolist() == sorted(expected)
        if not expected:
            continue
        batch = table.gather(list(expected))
        for b, rows in enumerate(expected.values()):
            ids = [row.values["action"] for row in rows]
            assert batch["obs/position"][:, b, 0].tolist() == ids
            assert batch["actions"][:, b].tolist() == ids[:-1]
            mask = [t >= burn_in and not row.is_last for t, row in enumerate(rows[:-1])]
            assert batch["mask"][:, b].tolist() == mask
            real = [row is not after for row, after in itertools.pairwise(rows)]
            first = [row.values["step_type"] == 0 for row in rows]
            first = [f and (t >= burn_in or real[t]) for t, f in enumerate(first)]
            assert batch["first"][:, b].tolist() == first
            rewards = [row.values["reward"] for row in rows[1:]]
            assert batch["rewards"][:, b].tolist() == rewards


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), length=st.integers(1, 9), data=st.data())
def test_every_transition_is_learned_from(seed: int, length: int, data: st.DataObject) -> None:
    """S3: by one sequence at least, by floor or ceil of length / period in the middle."""
    period = data.draw(st.integers(1, length))
    burn_in = data.draw(st.integers(0, 4))
    table = Sequences(length, 3000, burn_in=burn_in, period=period)
    sender = Sender("a", 3, Random(seed), counting())
    for _ in range(12):
        table.insert(sender.cut(9))
    table.insert(last_chunk(sender))
    ready = table.ready()
    seen: dict[int, int] = {}
    batch = table.gather(ready)
    learned = batch["mask"] == 1.0
    for action in batch["actions"][learned].tolist():
        seen[action] = seen.get(action, 0) + 1
    types = np.concatenate(table.storage.read("step_type"))
    actions = np.concatenate(table.storage.read("action"))
    steps = table.view._step[: len(types)]
    for kind, action, step in zip(types.tolist(), actions.tolist(), steps.tolist(), strict=True):
        if kind == 2:
            assert action not in seen
            continue
        assert seen[action] >= 1
        if step >= length:
            assert seen[action] in (length // period, -(-length // period))


def last_chunk(sender: Sender) -> Chunk:
    """A chunk in which all episodes end."""
    texts = ["FT" if ended else "MT" for ended in sender._ended]
    ids = [next(sender._ids) for _ in range(2 * len(texts))]
    return chunk_of(*texts, sequence=sender._sequence + 1, sender="a", first_id=ids[0])


def test_frames_before_the_burn_in_are_there() -> None:
    table = Sequences(2, frames=3, burn_in=1, period=1)
    table.insert(chunk_of("FMMMMMMT"))
    batch = table.gather([0, 4])
    assert batch["obs/position"][..., 0].T.tolist() == [[0, 0, 0, 0, 1, 2], [1, 2, 3, 4, 5, 6]]
    assert batch["mask"].shape == (3, 2)
    assert batch["first"].T.tolist() == [[False, True, False, False], [False] * 4]


# -- the table -------------------------------------------------------------------------------------


def table(**replay: Any) -> SequenceReplay:
    sequence_ = {"length": 3, "burn_in": 2, "period": 3, **replay.pop("sequence", {})}
    return SequenceReplay(**configs(sequence=sequence_, **{"min_size": 1, **replay}))


def test_a_batch_has_weights_and_takes_priorities() -> None:
    """S2: weights and indices are those of sequences."""
    made = table(priority={"alpha": 1.0})
    made.insert(chunk_of("FMMMMMMT", "FMMMMMMT"))
    assert made.statistics()["sampleable"] == 6
    columns = made.sample_columns(5)
    batch = make_batch(next(iter(made.collate(made.learner_config)(columns, 1))))
    assert batch.weights.shape == batch.indices.shape == (5,)
    assert batch.mask.shape == (5, 5)
    assert batch.obs["position"].shape == (6, 5, 2)
    made.update_priorities(np.array([0, 1, 6, 7, 12, 13]), np.array([0, 0, 9, 0, 0, 0]))
    assert (made.sample_columns(200)["indices"] == 6).mean() > 0.99
    assert made.rows_in(5) == 200 * 3
    assert made.batches_at_once(8) == 1


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="period is 4, but length is 3"):
        table(sequence={"period": 4})
    with pytest.raises(ConfigError, match="min_size is 50 sequences, but 100 rows of capacity"):
        table(capacity=100, min_size=50)
    for algorithm, wanted in ((DQN, "single rows"), (PPO, "whole unrolls")):
        with pytest.raises(ConfigError, match=f"{wanted}.* which gives sequences of episodes"):
            algorithm.check_replay({"replay": {"type": TYPE}})
    chunk = chunk_of("FMM")
    chunk.overlap = 1
    with pytest.raises(DataError, match="an unroll"):
        table().insert(chunk)
