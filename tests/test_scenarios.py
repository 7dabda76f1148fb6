"""The table of fault scenarios: whole, with tests that exist, and judged as it says."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.run_scenarios import Seen, judge, table
from tests.scenarios import SCENARIOS, Scenario

TESTS = Path(__file__).resolve().parent
ROW = Scenario(1, "a kill", "it goes on", ("a.py::test_a", "b.py"), "agent", 3.0)
GOOD = {
    "tests/a.py::test_a[x]": Seen(recovery_seconds={"agent-0": 0.5, "learner": 9.0}),
    "tests/b.py::test_b": Seen(texts=["5 rows"]),
}


def test_there_are_27_rows_with_text_everywhere() -> None:
    assert [each.number for each in SCENARIOS] == [*range(1, 28)]
    assert all(each.injected and each.expected and each.tests for each in SCENARIOS)
    assert [each for each in SCENARIOS if each.within_seconds and not each.recovers] == []


@pytest.mark.parametrize("test", sorted({test for each in SCENARIOS for test in each.tests}))
def test_every_test_of_a_scenario_exists(test: str) -> None:
    path, _, name = test.partition("::")
    functions = ast.parse((TESTS / path).read_text()).body
    assert not name or name in [
        each.name for each in functions if isinstance(each, ast.FunctionDef)
    ]


def test_a_row_holds_with_what_was_seen_and_the_longest_recovery() -> None:
    row = judge(ROW, GOOD)
    assert (row.verdict, row.seen) == ("holds", "5 rows; 2 tests passed")
    assert row.recovery_seconds == 0.5
    assert "0.50 s" in table([row])


@pytest.mark.parametrize(
    ("change", "verdict", "seen"),
    [
        ({"tests/a.py::test_a[x]": Seen("test_a[x]: it died")}, "FAILED", "test_a[x]: it died"),
        (
            {"tests/a.py::test_a[x]": Seen(recovery_seconds={"agent-0": 3.5})},
            "FAILED",
            "recovery took 3.5 s, allowed are 3 s",
        ),
        ({"tests/a.py::test_a[x]": Seen()}, "FAILED", "recovery took None s, allowed are 3 s"),
        (
            {"tests/b.py::test_b": Seen(skipped="root: not root")},
            "partly tried",
            "1 test passed; 1 not tried: root: not root",
        ),
        (
            {node: Seen(skipped="root: not root") for node in GOOD},
            "not tried",
            "0 tests passed; 2 not tried: root: not root",
        ),
    ],
)
def test_what_does_not_hold_and_what_was_not_tried_is_said(
    change: dict[str, Seen], verdict: str, seen: str
) -> None:
    row = judge(ROW, {**GOOD, **change})
    assert (row.verdict, row.seen) == (verdict, seen)


def test_a_test_that_did_not_run_is_no_success() -> None:
    row = judge(ROW, {"tests/a.py::test_a[x]": GOOD["tests/a.py::test_a[x]"]})
    assert (row.verdict, row.seen) == ("FAILED", "b.py did not run")
