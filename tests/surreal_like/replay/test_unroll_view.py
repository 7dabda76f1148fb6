"""Unrolls gathered from stored rows, against a slow transcription."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.unrolls import BlockStorage
from surreal_like.replay.view.unroll import Stacker, UnrollView
from tests.surreal_like.replay.chunks import EPISODES, chunk_of, columns_of

GAMMA = 0.5
DTYPES = dict.fromkeys(("rewards", "discounts", "dones", "mask"), np.float32)


def stored(*unrolls: Any) -> tuple[ColumnStorage, np.ndarray[Any, Any]]:
    streams, starts = unrolls[0], []
    storage = BlockStorage(len(streams) * len(streams[0]), needed=lambda: range(1000))
    for sequence, texts in enumerate(unrolls, 1):
        chunk = chunk_of(*texts, sequence=sequence, first_id=100 * sequence)
        chunk.overlap = 1
        starts.append(storage.insert(chunk)[0])
    return storage, np.concatenate(starts)


@pytest.mark.parametrize("text", [t for t in EPISODES.values() if len(t) > 2])
def test_every_row_by_hand(text: str) -> None:
    unrolls = ([text, text], [text, text])
    storage, starts = stored(*unrolls)
    steps = len(text) - 1
    view = UnrollView(steps, 2, GAMMA)
    batch = view.gather(storage, starts[:3])
    assert batch["obs/position"].shape == (steps + 1, 3, 2)
    for name, dtype in DTYPES.items():
        assert batch[name].shape == (steps, 3)
        assert batch[name].dtype == dtype
    for stream, (number, n) in enumerate([(1, 0), (1, 1), (2, 0)]):
        columns = columns_of([text, text], first_id=100 * number)
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
    assert set(batch) == {
        *("obs/image", "obs/position", "first", "actions", "extras/id", "version"),
        *DTYPES,
    }


@pytest.mark.parametrize("frames", [1, 3])
def test_windows_and_first_rows_of_full_blocks(frames: int) -> None:
    view = UnrollView(3, 2, GAMMA, frame_stack=frames)
    lead = 2 * (frames - 1)
    needed: set[int] = set()
    storage, starts = BlockStorage(lead + 8, lead, needed=lambda: needed), []
    for sequence in range(1, 4):
        chunk = chunk_of("FMMM", "MTFM", sequence=sequence)
        chunk.overlap = 1
        observed = ("obs/image", "obs/position") if frames > 1 else ()
        chunk.lead_in = {name: chunk.columns[name][: frames - 1] for name in observed}
        chunk.columns["version"][:] = np.array([[4, 5], [4, 3], [6, 6], [7, 7]]) + sequence
        starts.append(storage.insert(chunk)[0])
        needed.add(lead)
    ready = np.flatnonzero(view.ready_rows(storage))
    numbers = np.concatenate([starts[0], starts[2]])
    assert ready.tolist() == numbers.tolist()  # the second unroll has made room
    rows = storage.number(view.window(storage, numbers)[frames - 1 :])
    assert rows.tolist() == (numbers + 2 * np.arange(4)[:, None]).tolist()
    assert view.versions(storage, numbers).tolist() == [5, 4, 7, 6]
    assert view.ready_rows(ColumnStorage(4)).shape == (0,)


def test_memory_of_stacks_is_used_again() -> None:
    stack = Stacker()
    first = np.array([[True, False], [False, True]])

    def sent(rows: int) -> dict[str, Any]:
        frames = np.arange(rows * 2).reshape(rows, 2)
        return {"obs": frames, "obs_like": frames, "first": first}

    (one,) = stack(sent(4), 1)
    assert one["obs"].tolist() == [[[4, 4, 4], [1, 3, 5]], [[4, 4, 6], [7, 7, 7]]]
    (other,) = stack(sent(4), 1)
    assert np.shares_memory(one["obs"], other["obs"])
    (wider,) = stack(sent(5), 1)
    assert not np.shares_memory(one["obs"], wider["obs"])
    assert wider["obs_like"].shape == (5, 2)
    (single,) = stack(sent(2), 1)
    assert single["obs"].shape == (2, 2)
