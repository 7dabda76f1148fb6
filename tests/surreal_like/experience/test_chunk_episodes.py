"""Episodes counted once per chunk are those counted step by step, each in the chunk of its end."""

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.data.episodes import EpisodeCounter
from surreal_like.data.timestep import StepType
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_episodes import ChunkEpisodes

Array = npt.NDArray[Any]


def streams(seed: int, steps: int, num_envs: int) -> list[dict[str, Array]]:
    """Rows of steps; a row behind an end has no reward and is none."""
    rng = np.random.default_rng(seed)
    first, rows = np.zeros(num_envs, np.bool_), []
    for _ in range(steps):
        last = (rng.random(num_envs) < 0.3) & ~first
        by_time = rng.random(num_envs) < 0.5
        reward = np.where(first, 0, rng.integers(-3, 4, num_envs)).astype(np.float32)
        rows.append({"reward": reward, "terminated": last & ~by_time, "truncated": last & by_time})
        first = last
    return rows


def columns(rows: list[dict[str, Array]]) -> dict[str, Array]:
    last = [row["terminated"] | row["truncated"] for row in rows]
    step_type = np.where(last, int(StepType.LAST), int(StepType.MID)).astype(np.uint8)
    return {"reward": np.stack([row["reward"] for row in rows]), "step_type": step_type}


def one_by_one(rows: list[dict[str, Array]], num_envs: int) -> list[list[dict[str, Any]]]:
    counter = EpisodeCounter(num_envs)
    return [counter.update(row["reward"], row["terminated"] | row["truncated"]) for row in rows]


@given(
    seed=st.integers(0, 2**16),
    num_envs=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    asked=st.sets(st.integers(0, 30)),
    reported=st.sets(st.integers(0, 30)),
    overlap=st.integers(0, 1),
)
def test_each_chunk_gets_the_episodes_of_its_rows_despite_reports_in_between(
    seed: int,
    num_envs: int,
    lengths: list[int],
    asked: set[int],
    reported: set[int],
    overlap: int,
) -> None:
    rows = streams(seed, sum(lengths), num_envs)
    expected = one_by_one(rows, num_envs)
    episodes, at = ChunkEpisodes(num_envs), 0
    for length in lengths:
        for step in range(at, at + length):
            # An environment that tells more is counted at once.
            episodes.observe(
                rows[step], {"raw_reward": rows[step]["reward"]} if step in reported else {}
            )
            assert episodes.num_newest(rows[step]["terminated"] | rows[step]["truncated"]) == len(
                expected[step]
            )
            if step in asked:
                assert episodes.newest == expected[step]
            if episodes.waiting:
                episodes.write({})
        # With an overlap the chunk ends with a row that is not yet observed, and is of the next.
        chunk = Chunk(columns(rows[at : at + length] + rows[:overlap]), 1, [], overlap=overlap)
        assert episodes.take(chunk) == list(chain(*expected[at : at + length]))
        at += length
    assert list(episodes.recent) == list(chain(*expected))


def test_what_ended_at_a_row_that_is_not_written_waits_for_the_next_chunk() -> None:
    rows = [{name: value[:1] for name, value in row.items()} for row in streams(0, 1, 1)]
    rows[0] |= {"terminated": np.ones(1, np.bool_), "truncated": np.zeros(1, np.bool_)}
    episodes = ChunkEpisodes(1)
    episodes.observe(rows[0], {})
    episodes.count()
    assert episodes.waiting
    assert episodes.take(Chunk(columns(rows), 1, [0])) == []
    episodes.write({"epsilon": 0.5})
    [summary] = episodes.take(Chunk(columns(rows), 1, [0]))
    assert summary["metrics"] == {"epsilon": 0.5}
    assert episodes.newest == [summary | {"metrics": {}}]


def test_a_reset_forgets_open_episodes() -> None:
    episodes, no, yes = ChunkEpisodes(2), np.zeros(2, np.bool_), np.array([True, False])
    row = {"reward": np.ones(2, np.float32), "terminated": yes, "truncated": no}
    episodes.observe(row, {})
    assert len(episodes.newest) == 1
    episodes.reset()
    assert episodes.newest == []
    episodes.observe(row | {"terminated": ~no}, {})
    assert episodes.newest == [{"return": 1.0, "length": 1, "metrics": {}}] * 2
