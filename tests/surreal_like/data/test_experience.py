"""A chunk as a message, and messages that are no chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from session.errors import DecodeError
from session.wire import Identity, Message
from surreal_like.data.experience import Chunk
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
    message = Message("chunk", {}, {"obs": np.zeros((2, 2))})
    message.sender = Identity("agent-2", 7, bytes(8))
    with pytest.raises(DecodeError, match="without a column 'step_type' of uint8"):
        Chunk.from_message(message)
