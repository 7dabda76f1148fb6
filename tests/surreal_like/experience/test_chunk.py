"""A chunk as a message, and messages that are no chunks."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from session.errors import DecodeError
from session.wire import Identity, Message
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk, check_episodes, postprocess_chunk
from tests.surreal_like.replay.chunks import columns_of


def unroll(**lead_in: Any) -> Chunk:
    given = {name.replace("_", "/"): lead for name, lead in lead_in.items()}
    return Chunk(columns_of(["FMMM", "MTFM"]), 3, [4, 5], overlap=1, rows=6, lead_in=given)


def received(chunk: Chunk) -> Chunk:
    message = chunk.to_message()
    message.sender = Identity("agent-2", 7, bytes(8))
    return Chunk.from_message(message)


def test_there_and_back() -> None:
    lead = {
        "obs_image": np.ones((2, 2, 2, 2), np.uint8),
        "obs_position": np.zeros((2, 2, 2), np.float32),
    }
    for chunk in (unroll(), unroll(**lead)):
        other = received(chunk)
        assert (other.sender, other.incarnation) == ("agent-2", 7)
        assert (other.sequence, other.streams, other.overlap, other.rows) == (3, [4, 5], 1, 6)
        assert (other.size, other.size_bytes) == (6, chunk.size_bytes)
        for mine, its in ((chunk.columns, other.columns), (chunk.lead_in, other.lead_in)):
            assert mine.keys() == its.keys()
            assert all(np.array_equal(mine[name], its[name]) for name in mine)
    assert chunk.size_bytes - unroll().size_bytes == 16 + 32


@pytest.mark.parametrize(
    "lead",
    [
        {"obs_image": np.ones((2, 2, 2, 2), np.uint8)},
        {
            "obs_image": np.ones((2, 2, 2, 2), np.uint8),
            "obs_position": np.zeros((3, 2, 2), np.float32),
        },
        {
            "obs_image": np.ones((2, 1, 2, 2), np.uint8),
            "obs_position": np.zeros((2, 1, 2), np.float32),
        },
        {
            "obs_image": np.ones((2, 2, 2, 2), np.int8),
            "obs_position": np.zeros((2, 2, 2), np.float32),
        },
        {"obs_image": np.array(1, np.uint8), "obs_position": np.array(1, np.float32)},
        {"action": np.ones((2, 2), np.int64)},
    ],
)
def test_lead_in_frames_that_fit_no_observation_are_refused(lead: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match=r"lead-in frames .* do not fit .*of 2 streams"):
        received(unroll(**lead))


def test_a_message_without_its_columns_is_refused() -> None:
    fields = dict(unroll().to_message().fields)
    message = Message("chunk", fields, {"obs": np.zeros((2, 2))})
    message.sender = Identity("agent-2", 7, bytes(8))
    with pytest.raises(DecodeError, match="without a column 'step_type' of uint8"):
        Chunk.from_message(message)


@pytest.mark.parametrize(
    ("arrays", "rows"),
    [
        ({"step_type": np.zeros((4, 2), np.int8)}, 6),
        ({"step_type": np.zeros(4, np.uint8), "obs": np.zeros((4, 2, 3), np.float32)}, 6),
        ({"step_type": np.zeros((4, 2, 3), np.uint8), "obs": np.zeros((9, 9), np.float32)}, 6),
        ({"reward": np.zeros((1, 2), np.float32)}, 0),
        ({"reward": np.zeros((10**9, 10**6, 0), np.float32)}, 0),
        ({"reward": np.zeros(8, np.float32)}, 0),
        ({"lead_in/obs": np.zeros((4, 2), np.float32)}, 0),
        ({}, 0),
    ],
)
def test_rows_that_cannot_be_read_are_counted_as_far_as_they_have_come(
    arrays: dict[str, Any], rows: int
) -> None:
    message = Message("chunk", dict(unroll().to_message().fields), arrays)
    message.sender = Identity("agent-2", 7, bytes(8))
    with pytest.raises(DecodeError, match="chunk"):
        Chunk.from_message(message)
    chunk = Chunk.unreadable(message)
    assert (chunk.size, chunk.rows, chunk.sequence) == (rows, 6, 3)
    assert (chunk.sender, chunk.incarnation) == ("agent-2", 7)


def test_a_chunk_of_no_stream_is_refused() -> None:
    columns = {name: column[:, :0] for name, column in unroll().columns.items()}
    chunk = Chunk(columns, 1, [], rows=0)
    with pytest.raises(DecodeError, match="of no stream"):
        received(chunk)


@pytest.mark.parametrize("wrong", [{"acked": 3}, {"env_steps": 601}])
def test_no_account_is_kept_of_a_sender_that_counts_wrongly(wrong: dict[str, int]) -> None:
    message = unroll().to_message()
    message.fields.update(wrong)
    message.sender = Identity("agent-2", 7, bytes(8))
    for read in (Chunk.from_message, Chunk.unreadable):
        with pytest.raises(DecodeError, match="counts wrongly"):
            read(message)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"metrics": {f"m{i}": 1.0 for i in range(1001)}}, "and 1001 numbers of its own"),
        ({"metrics": {"a" * 301: 1.0}}, "up to 301 characters"),
        ({"return": math.inf}, "with a return of inf"),
        ({"return": math.nan}, "with a return of nan"),
    ],
)
def test_a_summary_that_replay_would_not_accept_is_an_error_of_the_sender(
    changed: dict[str, Any], said: str
) -> None:
    summary = {"return": 1.0, "length": 3, "metrics": {f"m{i}": math.nan for i in range(1000)}}
    check_episodes([])
    check_episodes([summary, summary])
    with pytest.raises(DataError, match=said):
        check_episodes([summary, {**summary, **changed}])
    plain = [{"return": 1.0, "length": 3, "metrics": {}}] * 40
    check_episodes(plain)
    with pytest.raises(DataError, match=said):
        check_episodes([*plain, {**plain[0], **changed}])


def cut_chunk() -> Chunk:
    columns: dict[str, Any] = {
        **columns_of(["FMMMT", "FMMMU"]),
        "extras/values": np.ones((5, 2, 3), np.float32),
    }
    return Chunk(columns, 4, [0, 1], rows=40)


def with_columns(**changes: Any) -> Any:
    return lambda chunk: replace(chunk, columns={**chunk.columns, **changes})


def test_rewards_and_extras_may_be_replaced_and_added() -> None:
    chunk = cut_chunk()
    reward, mine = np.full((5, 2), 0.5, np.float32), np.zeros((5, 2), np.int64)
    reward[0] = 0.0
    changes = {"reward": reward, "extras/mine": mine, "extras/values": mine}
    after = postprocess_chunk(chunk, with_columns(**changes))
    assert {name: after.columns[name] for name in changes} == changes
    assert after.columns["action"] is chunk.columns["action"]
    assert (after.sequence, after.rows, after.streams) == (4, 40, [0, 1])
    # No action came before the first row of an episode.
    shifted = postprocess_chunk(chunk, with_columns(reward=reward + 1)).columns["reward"]
    assert shifted.tolist() == [[0.0, 0.0], *[[1.5, 1.5]] * 4]


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (lambda chunk: None, r"returned a NoneType, expected the chunk"),
        (with_columns(action=np.zeros((5, 2))), r"changed action; it may change reward"),
        (with_columns(step_type=np.zeros((5, 2), np.uint8)), "changed step_type"),
        (with_columns(mine=np.zeros((5, 2))), "gave a column 'mine': write extras/mine"),
        (with_columns(reward=np.zeros((5, 2))), r"reward is float64 \[5, 2\], expected float32"),
        (with_columns(reward=np.zeros((4, 2), np.float32)), r"reward is float32 \[4, 2\]"),
        (with_columns(reward=np.full((5, 2), np.inf, np.float32)), "reward holds a NaN or an inf"),
        (with_columns(**{"extras/a": np.zeros((2, 5))}), r"extras/a is float64 \[2, 5\]"),
        (with_columns(**{"extras/a": np.full((5, 2), "x")}), "extras/a is <U1"),
        (with_columns(**{"extras/a": np.full((5, 2), np.nan)}), "extras/a holds a NaN"),
        (with_columns(**{"extras/a": [1.0]}), "extras/a is a list, expected an array"),
        (lambda chunk: replace(chunk, columns={}), "left the column action out"),
    ],
)
def test_a_postprocess_that_does_more_is_refused(does: Any, message: str) -> None:
    with pytest.raises(DataError, match=r"^postprocess\(\).*" + message):
        postprocess_chunk(cut_chunk(), does)


def test_other_columns_cannot_be_changed_in_place() -> None:
    def change(chunk: Chunk) -> Chunk:
        chunk.columns["action"][:] = 7
        return chunk

    with pytest.raises(ValueError, match="read-only"):
        postprocess_chunk(cut_chunk(), change)
