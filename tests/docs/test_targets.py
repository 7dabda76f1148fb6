"""Requirements and what was reached: judged as now, and shown."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.docs.results import MACHINE, names_with, shown_result

# docs/generate.py has put the folder of benchmarks on the path.
targets = importlib.import_module("targets")


@pytest.mark.parametrize(
    ("values", "more", "kept"),
    [
        ([1.0, 2.0], False, True),
        ([1.0, 2.1], False, False),
        ([2.0, 3.0], True, True),
        ([1.9, 3.0], True, False),
    ],
)
def test_a_requirement_holds_if_every_number_is_within_its_bound(
    values: list[float], more: bool, kept: bool
) -> None:
    target = targets.Target("it", "row.it", "s", 2.0, more=more)
    assert targets.holds(target.judge({"row": {"it": values}})) is kept


def test_the_table_has_a_line_for_each_requirement() -> None:
    wanted = [
        targets.Target("start", "start", "s", 4.0, 2.5),
        targets.Target("score", "score", "x", 1.3, more=True),
    ]
    found = {"start": 4.321, "score": [1.4, 1.6, 1.5]}
    lines = [each.judge(found) for each in wanted]
    text = targets.targets_table({"machine": MACHINE, "load": 0.25, "targets": lines}).splitlines()
    assert text[2:] == [
        "| start | 4.32 s | ≤ 4 | ≤ 2.5 | **missed** |",
        "| score | 1.5 (1.4 to 1.6) x | ≥ 1.3 |  | holds |",
        "",
        "`python x`, today: P, 2 cores, 8.0 GiB. Python 3.11, torch 2, gymnasium 1. "
        "Load of the machine before it: 0.2.",
    ]


@pytest.mark.parametrize("name", names_with("targets"))
def test_what_was_kept_is_shown_and_judged_as_now(name: str) -> None:
    kept = shown_result(name)
    wanted = importlib.import_module(name).TARGETS
    assert json.loads(json.dumps(targets.judge_all(wanted, kept))) == kept["targets"]
