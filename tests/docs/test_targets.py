"""Requirements and what was reached: judged as now, and shown."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.docs.results import names_with, shown_result

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


@pytest.mark.parametrize("name", names_with("targets"))
def test_what_was_kept_is_shown_and_judged_as_now(name: str) -> None:
    kept = shown_result(name)
    wanted = importlib.import_module(name).TARGETS
    assert json.loads(json.dumps(targets.judge_all(wanted, kept))) == kept["targets"]
