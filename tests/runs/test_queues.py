"""The benchmark of FIFO batches: all sides move the same unrolls, each once and in order."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.command import ROOT

Load = Callable[[str], Any]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Imports a script of the benchmarks."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    importlib.import_module("contenders")
    return importlib.import_module


def test_peers_send_the_unrolls_that_our_senders_make(load: Load, tmp_path: Path) -> None:
    queues = load("queues")
    found = load("steps").load_unrolls(queues.write_unrolls(tmp_path))
    made = load("rows").make_chunks("small", queues.STEPS + 1, queues.NUM_ENVS)
    assert len(found) == len(made) > queues.UNROLLS
    for ours, theirs in zip(made, found, strict=True):
        assert list(ours) == list(theirs)
        for name, column in ours.items():
            assert column.dtype == theirs[name].dtype
            np.testing.assert_array_equal(column, theirs[name])


@pytest.mark.parametrize(
    ("places", "wrong"),
    [
        ([[0, 1], [2, 0], [1, 2]], None),
        ([[0, 1], [0, 1]], 2),  # a batch twice
        ([[0, 2], [0, 1]], 1),  # one is missing
        ([[1, 0], [2, 0]], 0),  # another order
    ],
)
def test_an_unroll_at_another_place_is_an_error(
    load: Load, places: list[list[int]], wrong: int | None
) -> None:
    made = [{"obs": np.full((2, 1, 4), value, np.float32)} for value in range(3)]
    check = load("steps").check_order
    marks = [np.array(batch, np.float32) for batch in places]
    if wrong is None:
        check(marks, made)
    else:
        with pytest.raises(RuntimeError, match=f"unroll {wrong} is not the one"):
            check(marks, made)


def test_a_peer_that_does_not_start_is_named(load: Load, tmp_path: Path) -> None:
    given = load("setting").Given(1, 0.01, tmp_path, pythons={"id-echo": "python"})

    def fail(python: str) -> None:
        raise load("worker").WorkerFailed(f"{python} has ended with 1")

    start = load("replay").start
    assert start(given, "id-echo", fail) is None
    assert start(given, "reverb", fail) is None
    assert given.left_out == {"id-echo": "python has ended with 1"}


@pytest.mark.slow
def test_our_queue_is_measured_without_peers(load: Load, tmp_path: Path) -> None:
    given = load("setting").Given(1, 0.01, tmp_path)
    with ExitStack() as stack:
        found = load("queues").measure_queues(given, stack, None, None)
    assert {side["value"]["min"] > 0 for side in found["sides"].values()} == {True}
    assert [line["side"] for line in found["lines"]] == list(found["sides"])
    assert [line["ratios"] for line in found["lines"]] == [{}, {}]
