"""Chunks of streams whose rows come at different times; where they do not, those of RowWriter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from session.config.defaults import BASE_SESSION_CONFIG
from surreal_like.data.rows import Rows
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_writer import RowWriter
from surreal_like.experience.stream_buffer import FullStreams, StreamRows

SPECS: dict[str, Any] = {
    "obs_spec": {"type": "float32", "dim": [1]},
    "action_spec": {"type": "discrete", "dim": [3]},
}
FIRST, MID, LAST = 0, 1, 2


class Life:
    """Writes rows by a script: per step, stream -> kind of its row, or nothing."""

    def __init__(self, streams: int, *, length: int = 4, overlap: int = 0, **sender: Any) -> None:
        self.chunks: list[Chunk] = []
        settings = BASE_SESSION_CONFIG.sender | {"flush_iteration": length, **sender}
        self.given = {
            "settings": settings,
            "overlap": overlap,
            "send": self.chunks.append,
            **SPECS,
        }
        self.writer = RowWriter(streams, **self.given)
        self.now = 0.0

    def rows(self, kinds: dict[int, int], step: int) -> Rows:
        streams = np.array(list(kinds), np.int64)
        kind = np.array(list(kinds.values()))
        return Rows(
            streams=streams,
            obs=np.array([[10.0 * stream + step] for stream in streams], np.float32),
            reward=np.where(kind == FIRST, 0, streams + 1).astype(np.float32),
            terminated=kind == LAST,
            truncated=np.zeros(len(kind), np.bool_),
            first=kind == FIRST,
            steps=(kind != FIRST).astype(np.int64),
        )

    def observe(self, kinds: dict[int, int], step: int, episodes: int = 0) -> None:
        summaries = [{"return": 1.0, "length": 1, "metrics": {}}] * episodes
        self.writer.observe_some(self.rows(kinds, step), summaries)

    def act(self, kinds: dict[int, int], step: int, **extras: Any) -> None:
        actions = np.full(len(kinds), step % 3)
        self.writer.act(actions, extras, version=step + 1, now=self.now, metrics={})
        self.now += 1.0

    def play(self, *steps: dict[int, int]) -> None:
        for step, kinds in enumerate(steps):
            self.observe(kinds, step, list(kinds.values()).count(LAST))
            self.act(kinds, step)


def shown(chunk: Chunk) -> dict[str, Any]:
    columns = {name: column.tolist() for name, column in chunk.columns.items()}
    numbers = {name: getattr(chunk, name) for name in ("streams", "tail", "overlap", "env_steps")}
    return {**columns, **numbers}


def alike(streams: int, steps: int) -> list[dict[int, int]]:
    """Every stream has a row in each step; all episodes have three steps."""
    kinds = [FIRST, MID, MID, LAST]
    return [dict.fromkeys(range(streams), kinds[step % 4]) for step in range(steps)]


@pytest.mark.parametrize("overlap", [0, 1])
def test_streams_that_go_together_make_the_chunks_of_a_chunk_writer(overlap: int) -> None:
    chunks: list[Chunk] = []
    life = Life(2, length=3, overlap=overlap)
    script = alike(2, 11)
    life.play(*script)
    other = RowWriter(2, **{**life.given, "send": chunks.append})
    for step, kinds in enumerate(script):
        rows = life.rows(kinds, step)
        flags = rows.terminated, rows.truncated
        if step:
            other.observe(rows.obs, rows.reward, *flags, {})
        else:
            other.begin(rows.obs, {})
        other.act(np.full(2, step % 3), {}, version=step + 1, now=0.0, metrics={})
    assert len(chunks) == 3
    assert [shown(chunk) for chunk in life.chunks] == [shown(chunk) for chunk in chunks]


def test_a_stream_without_rows_cuts_nothing() -> None:
    life = Life(2, length=3)
    life.play({0: FIRST, 1: FIRST}, {0: MID}, {0: MID}, {1: MID}, {1: MID})
    assert [(chunk.streams, chunk.shape) for chunk in life.chunks] == [([0], (3, 1)), ([1], (3, 1))]
    assert life.chunks[1].columns["obs"].ravel().tolist() == [10, 13, 14]
    assert life.chunks[1].columns["version"].ravel().tolist() == [1, 4, 5]


def test_streams_that_are_full_at_the_same_time_leave_as_one_chunk() -> None:
    life = Life(3, length=2)
    life.play({0: FIRST, 2: FIRST}, {0: MID, 1: FIRST, 2: MID}, {1: MID})
    assert [chunk.streams for chunk in life.chunks] == [[0, 2], [1]]


def test_full_streams_wait_a_quarter_of_their_length_for_others() -> None:
    life = Life(3, length=8)
    life.play({0: FIRST}, *[{0: MID, 1: MID}] * 8)
    assert life.chunks == []
    life.observe({0: MID}, 9)
    life.act({0: MID}, 9)
    life.observe({0: MID}, 10)
    assert [chunk.streams for chunk in life.chunks] == [[0, 1]]
    assert life.chunks[0].columns["obs"].T.tolist() == [
        [[float(step) for step in range(8)], [10.0 + step for step in range(1, 9)]]
    ]


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_every_row_of_a_stream_leaves_once_and_in_order(overlap: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    life = Life(5, length=8, overlap=overlap)
    written: list[list[float]] = [[] for _ in range(5)]
    for step in range(200):
        kinds = {stream: MID for stream in range(5) if rng.random() < 0.6}
        if not kinds:
            continue
        life.observe(kinds, step)
        life.act(kinds, step)
        for stream in kinds:
            written[stream].append(10.0 * stream + step)
        if not overlap and rng.random() < 0.02:
            life.writer.flush({})
    life.writer.end({}, final=True)
    sent: list[list[float]] = [[] for _ in range(5)]
    for chunk in life.chunks:
        assert len(set(chunk.streams)) == len(chunk.streams)
        rows = chunk.columns["obs"][: chunk.length, :, 0]
        for place, stream in enumerate(chunk.streams):
            sent[stream] += rows[:, place].tolist()
    assert sent == written
    assert len(life.chunks) < sum(map(len, written)) / 8


def test_a_row_behind_an_unroll_begins_the_next_one() -> None:
    life = Life(1, length=2, overlap=1)
    life.play({0: FIRST}, {0: MID}, {0: MID}, {0: MID}, {0: MID})
    assert [chunk.columns["obs"].ravel().tolist() for chunk in life.chunks] == [
        [0, 1, 2],
        [2, 3, 4],
    ]
    assert [chunk.columns["action"].ravel().tolist() for chunk in life.chunks] == [
        [0, 1, 0],
        [2, 0, 0],
    ]
    assert [chunk.env_steps for chunk in life.chunks] == [1, 2]


@pytest.mark.parametrize("gap", [0, 3])
def test_an_end_on_the_last_row_of_an_unroll(gap: int) -> None:
    """The other agents go on for some steps before the next episode begins."""
    life = Life(2, length=2, overlap=1)
    waits = [{1: MID}] * gap
    life.play({0: FIRST, 1: FIRST}, {0: MID}, {0: LAST}, *waits, {0: FIRST}, {0: MID})
    own = [chunk for chunk in life.chunks if chunk.streams == [0]]
    assert [chunk.columns["step_type"].ravel().tolist() for chunk in own] == [
        [FIRST, MID, LAST],
        [LAST, FIRST, MID],
    ]
    assert [chunk.columns["discount"].ravel().tolist() for chunk in own] == [[1, 1, 0], [0, 1, 1]]
    assert [chunk.env_steps for chunk in own] == [1, 1]


def test_rows_that_have_waited_leave_in_short_chunks() -> None:
    life = Life(3, length=9, flush_time=2.0)
    life.play({0: FIRST, 1: FIRST}, {0: LAST, 2: FIRST})
    assert not life.writer.flush_due(1.9)
    assert life.writer.flush_due(2.0)
    life.writer.flush({})
    assert [(chunk.streams, chunk.length) for chunk in life.chunks] == [([1, 2], 1), ([0], 2)]
    assert not any(chunk.tail for chunk in life.chunks)
    assert life.writer.between_chunks
    assert not life.writer.flush_due(99.0)
    assert sum(len(chunk.finished) for chunk in life.chunks) == 1


def test_at_the_end_every_row_is_sent() -> None:
    life = Life(3, length=9)
    life.play({0: FIRST, 1: FIRST}, {0: MID})
    life.observe({0: LAST, 2: FIRST}, 2, episodes=1)
    life.writer.end({}, final=True)
    found = {tuple(chunk.streams): chunk for chunk in life.chunks}
    assert {key: chunk.length for key, chunk in found.items()} == {(1,): 1, (0,): 3}
    assert found[0,].columns["step_type"].ravel().tolist() == [FIRST, MID, LAST]
    assert all(chunk.tail for chunk in life.chunks)
    assert sum(len(chunk.finished) for chunk in life.chunks) == 1
    assert life.writer.between_chunks


def test_an_episode_that_ends_without_a_row_here_is_sent() -> None:
    life = Life(1, length=1, overlap=1)
    life.play({0: FIRST})
    life.writer.observe_some(None, [{"return": 3.0, "length": 2, "metrics": {}}])
    life.observe({0: MID}, 1)
    assert [each["return"] for each in life.chunks[0].finished] == [3.0]


def test_streams_get_new_numbers_after_the_end() -> None:
    life = Life(2, length=1)
    life.play({0: FIRST, 1: FIRST})
    life.writer.end({}, final=True)
    life.play({0: FIRST, 1: FIRST})
    assert [chunk.streams for chunk in life.chunks] == [[0, 1], [2, 3]]


def test_extras_are_columns() -> None:
    life = Life(2, length=2)
    for step, kinds in enumerate(({0: FIRST, 1: FIRST}, {1: MID}, {0: MID})):
        life.observe(kinds, step)
        values = np.array([[step, stream] for stream in kinds], np.float32)
        life.act(kinds, step, **{"extras/values": values})
    assert life.chunks[0].columns["extras/values"].tolist() == [[[0, 1]], [[1, 1]]]
    assert life.chunks[1].columns["extras/values"].tolist() == [[[0, 0]], [[2, 0]]]


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"extras/values": np.full((1, 2), np.nan, np.float32)}, "extras/values: NaN"),
        ({"extras/values": np.zeros((1, 3), np.float32)}, "extras/values: float32 .1, 3. given"),
        ({}, "extras/values: nothing given"),
        (
            {"extras/values": np.zeros((1, 2), np.float32), "extras/new": np.zeros(1)},
            "extras/new: given now, but not in the first row",
        ),
    ],
)
def test_a_wrong_row_is_refused(extras: dict[str, Any], message: str) -> None:
    life = Life(1, length=2)
    life.observe({0: FIRST}, 0)
    life.act({0: FIRST}, 0, **{"extras/values": np.zeros((1, 2), np.float32)})
    life.observe({0: MID}, 1)
    with pytest.raises(DataError, match=message):
        life.act({0: MID}, 1, **extras)


def test_unrolls_leave_in_groups_and_none_is_lost() -> None:
    full, number = FullStreams(3, 4, group=2), itertools.count()

    def part(*streams: int) -> StreamRows:
        rows = np.array([[float(next(number)) for _ in streams]])
        return StreamRows({"obs": rows}, {}, np.array(streams))

    found = [each for streams in ((0,), (1, 2), (0, 1), (2,)) for each in full.add(part(*streams))]
    assert not list(full.wait())
    assert not list(full.add(part(0)))
    found += full.take()
    assert [each.streams.tolist() for each in found] == [[0, 1], [2, 0], [1, 2], [0]]
    assert np.concatenate([each.columns["obs"][0] for each in found]).tolist() == list(range(7))


@pytest.mark.parametrize("absent", [False, True])
def test_streams_of_an_environment_that_part_leave_in_unrolls_of_all(absent: bool) -> None:
    """What is no whole group is marked, so that replay drops it as it drops short unrolls."""
    life, no = Life(3, length=4, overlap=1), np.zeros(3, np.bool_)
    life.writer.begin(np.zeros((3, 1), np.float32), {})
    before = no
    for step in range(1, 15):
        life.act(dict.fromkeys(range(3), MID), step)
        # Streams without a row have ended before.
        ends = np.array([False, step in (2, 3, 4), step in (8, 9)])
        gone = ends & before & absent
        info = {"absent_streams": gone} if gone.any() else {}
        obs, reward = np.full((3, 1), float(step), np.float32), np.where(before, 0.0, 1.0)
        before = ends if absent else no
        life.writer.observe(obs, reward.astype(np.float32), no, before, info)
    life.writer.end({}, final=True)
    whole = [chunk for chunk in life.chunks if not chunk.tail]
    assert {chunk.shape for chunk in whole} == {(5, 3)}
    assert len(whole) == 3
    rows = dict.fromkeys(range(3), 0)
    for chunk in life.chunks:
        for stream in chunk.streams:
            rows[stream] += chunk.length
    assert list(rows.values()) == ([15, 13, 14] if absent else [15, 15, 15])
