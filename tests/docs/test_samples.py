"""The table of environment steps to the goal, beside a peer that is stopped by the same rule."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np
import pytest

from docs.generate import ROOT
from tests.docs.results import names_with, shown_result

# docs/generate.py has put the folder of benchmarks on the path; scripts of peers lie below it.
samples = importlib.import_module("samples")
ROW = samples.ROWS[0]


def ran(*steps: int | None) -> list[dict[str, Any]]:
    return [{"seed": seed, "solved_env_steps": each} for seed, each in enumerate(steps)]


@pytest.mark.parametrize(
    ("ours", "peers", "ratio", "passed"),
    [
        ((100, 120, 200), (100, 96, 300), 1.2, True),
        ((100, 130, 200), (100, 96, 300), 1.3, False),
        ((100, 120, None), (100, 100, 100), 1.1, False),
        ((100, 120, 200), (None, None, None), None, True),
    ],
)
def test_medians_are_compared_and_ours_has_to_get_there(
    ours: tuple[int | None, ...], peers: tuple[int | None, ...], ratio: float | None, passed: bool
) -> None:
    found = samples.judged(ROW, ran(*ours), ran(*peers))
    assert found["passed"] is passed
    assert found["ratio"] == (ratio if ratio is None else pytest.approx(ratio))


def test_a_script_is_looked_at_after_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "peers")
    criterion = importlib.import_module("criterion").Criterion(1, 0.0, every_steps=100)
    played: list[int] = []

    def fall(obs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        played.append(len(obs))
        return np.zeros(len(obs), np.int64)

    asked = []
    for steps in (0, 99, 100, 199, 205):
        before = len(played)
        assert not criterion.look(fall, steps)
        asked.append(len(played) > before)
    assert asked == [False, False, True, False, True]
    assert "stable_baselines3" not in sys.modules


@pytest.mark.parametrize("name", names_with("samples"))
def test_what_was_kept_is_shown_and_judged_as_now(name: str) -> None:
    rows = {row.name: row for row in samples.ROWS}
    for kept in shown_result(name)["samples"]:
        found = samples.judged(rows[kept["name"]], kept["ours"]["runs"], kept["peer"]["runs"])
        assert json.loads(json.dumps(found)) == kept
