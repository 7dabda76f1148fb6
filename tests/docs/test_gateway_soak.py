"""The table of the gateway's soak: thirds of the minutes, and that it is shown once it is kept."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from docs import generate
from docs.generate import with_tables
from tests.docs.results import MACHINE, names_with, shown_result

# docs/generate.py has put the folder of benchmarks on the path.
gateway_soak = importlib.import_module("gateway_soak")


def row(minutes: float, value: float) -> dict[str, float]:
    return {"minutes": minutes, "sessions": 256 + 480 * minutes, **dict.fromkeys(FLAT, value)}


FLAT = tuple(gateway_soak.FLAT)
VERSIONS = {"torch": "2+cpu", "numpy": "1", "pyzmq": "3"}


def test_the_last_third_is_compared_with_the_first() -> None:
    values = (10.0, 20.0, 30.0, 99.0, 1.0, 30.0, 31.0, 50.0)
    found = {
        "machine": {**MACHINE, "versions": VERSIONS},
        "load": 0.25,
        "clients": 256,
        "gateway_soak": [row(at, value) for at, value in enumerate(values, 1)],
    }
    lines = gateway_soak.soak_table(found).splitlines()
    # Two minutes of eight are a third.
    assert lines[2] == ("| memory of the gateway [MiB] | 15 (10 to 20) | 40.5 (31 to 50) | 2.700 |")
    assert len(lines) == 2 + len(FLAT) + 2
    assert lines[-1] == (
        "256 clients, 4,096 sessions in 8 minutes. `python x`, today: P, 2 cores, 8.0 GiB. "
        "Python 3.11, numpy 1, pyzmq 3, torch 2. Load of the machine before it: 0.2."
    )


def test_a_table_without_a_recording_has_no_numbers(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "RESULTS", tmp_path)
    mark = "<!-- generated: benchmarks/results/x.json -->\n"
    page = f"a\n{mark}old\n<!-- end -->\nb\n"
    shown = with_tables(page)
    assert shown == f"a\n{mark}\nNot recorded yet.\n\n<!-- end -->\nb\n"
    assert with_tables(shown) == shown


@pytest.mark.parametrize("name", names_with("gateway_soak"))
def test_what_was_kept_is_long_enough_and_shown(name: str) -> None:
    kept = shown_result(name)
    seen = kept["gateway_soak"]
    assert kept["clients"] == 256
    assert seen[-1]["minutes"] >= 20
    begun = [each["sessions"] for each in seen]
    assert begun == sorted(set(begun))
