"""Unrolls side by side, against a slow transcription."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.data.unroll import UnrollBuffer
from tests.surreal_like.replay.chunks import EPISODES, columns_of

GAMMA = 0.5


@pytest.mark.parametrize("text", [t for t in EPISODES.values() if len(t) > 2])
def test_every_row_by_hand(text: str) -> None:
    one = columns_of([text, text], rewards=range(len(text)))
    other = columns_of([text], first_id=100)
    batch = UnrollBuffer(GAMMA).lay([one, other])
    steps = len(text) - 1
    assert batch["obs/position"].shape == (steps + 1, 3, 2)
    assert batch["rewards"].shape == batch["mask"].shape == (steps, 3)
    streams = [(one, 0), (one, 1), (other, 0)]
    for stream, (columns, n) in enumerate(streams):
        for t in range(steps + 1):
            at = (t, stream)
            assert batch["first"][at] == (text[t] == "F")
            assert (batch["obs/image"][at] == columns["obs/image"][t, n]).all()
            if t == steps:
                continue
            following = text[t + 1]
            assert batch["actions"][at] == columns["action"][t, n]
            assert batch["extras/id"][at] == columns["extras/id"][t, n]
            assert batch["version"][at] == columns["version"][t, n]
            assert batch["rewards"][at] == columns["reward"][t + 1, n]
            assert batch["discounts"][at] == (0 if following == "T" else GAMMA)
            assert batch["dones"][at] == (following == "T")
            assert batch["mask"][at] == (text[t] not in "TU")


def test_memory_is_used_again() -> None:
    buffer = UnrollBuffer(GAMMA)
    first = buffer.lay([columns_of(["FMMM"])])
    second = buffer.lay([columns_of(["FMTF"], first_id=50)])
    assert np.shares_memory(first["obs/position"], second["obs/position"])
    wider = buffer.lay([columns_of(["FMTF", "MMMM"])])
    assert not np.shares_memory(first["obs/position"], wider["obs/position"])


def test_names_are_those_of_other_batches() -> None:
    batch: dict[str, Any] = UnrollBuffer(GAMMA).lay([columns_of(["FMMM"])])
    assert batch.keys() == {
        *("obs/image", "obs/position", "first", "actions", "extras/id", "version"),
        *("rewards", "discounts", "dones", "mask"),
    }
    dtypes = {name: batch[name].dtype for name in ("rewards", "discounts", "dones", "mask")}
    assert set(dtypes.values()) == {np.dtype(np.float32)}
