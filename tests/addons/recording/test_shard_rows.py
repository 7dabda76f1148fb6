"""Rows of a recorded shard come back as the shard had them when it drew a batch."""

from pathlib import Path

import numpy as np
import pytest

from surreal_like.addons.recording.flight import Taken
from surreal_like.addons.recording.reader import Shard
from surreal_like.addons.recording.shard_rows import Gone, ShardRows
from surreal_like.replay.kinds import UniformReplay
from tests.addons.recording.recorded import ACTION, OBS, Recorded, numbered, write_shard
from tests.surreal_like.replay.configs import configs


def open_rows(path: Path) -> ShardRows:
    settings = configs(
        algo={"n_step": 1, "gamma": 0.5},
        env={"obs_spec": OBS, "action_spec": ACTION},
        capacity=100,
        min_size=1,
    )
    table = UniformReplay(**settings)
    return ShardRows(Shard(path / "recording" / "replay-0"), table, settings["learner_config"])


def draw(rows: ShardRows, numbers: list[int], *, at: int, cuts: int = 0) -> list[float]:
    """Returns the ids of rows at a draw before row ``at``."""
    weights = np.ones(len(numbers), np.float32)
    indices, replayed = np.array(numbers), np.zeros(0, np.bool_)
    taken = Taken(0, 0, 0, 0, 1, at, cuts, 0, None, indices, weights, replayed)
    found: list[float] = rows.draw(taken)["obs/position"][:, 0].tolist()
    return found


def test_rows_that_came_late_are_replaced_by_those_after_a_roll_back(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    for sequence in (1, 2):
        shard.accept(numbered(sequence))
    shard.roll_back(3)
    for sequence in (3, 4):
        shard.accept(numbered(sequence))
    shard.recorder.close()
    rows = open_rows(tmp_path)
    assert draw(rows, [0, 3], at=6) == [1000, 2000]
    assert draw(rows, [0], at=3, cuts=1) == [1000]
    assert draw(rows, [0, 3], at=6, cuts=1) == [1000, 3000]
    assert draw(rows, [0, 3, 6], at=9, cuts=1) == [1000, 3000, 4000]


def test_a_shard_that_began_anew_from_a_snapshot_ends_what_can_be_repeated(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(1), numbered(2)])
    write_shard(tmp_path, [numbered(3)], inserted=3)
    rows = open_rows(tmp_path)
    assert draw(rows, [0, 3], at=6) == [1000, 2000]
    with pytest.raises(Gone, match=r"^replay-0 began anew at row 3, with rows of a snapshot$"):
        draw(rows, [0, 3], at=9)
