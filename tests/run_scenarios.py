"""Runs the tests of all fault scenarios, and prints one table of what they saw.

    python -m tests.run_scenarios [more words for pytest]

Exit code 1: a row does not hold. A row of which a test was left out says why.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from session.show.text import MISSING, columns
from tests.scenarios import SCENARIOS, Scenario

TESTS = Path(__file__).resolve().parent
SEEN_WIDTH, TEXT_WIDTH = 52, 44


@dataclass
class Seen:
    """What one test showed.

    Args:
        failure: last line of its error, empty if it passed.
        skipped: the reason for which it was not tried.
        texts: what it recorded as seen.
        recovery_seconds: component -> the time until it ran again [s].
    """

    failure: str = ""
    skipped: str = ""
    texts: list[str] = field(default_factory=list)
    recovery_seconds: dict[str, float] = field(default_factory=dict)


class Watch:
    """Collects what pytest reports.

    Attributes:
        seen: node id -> what the test showed.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        seen = self.seen.setdefault(report.nodeid, Seen())
        if report.failed:
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", report.when)
            seen.failure = f"{report.nodeid.partition('::')[2]}: {str(message).splitlines()[0]}"
        if report.skipped and isinstance(report.longrepr, tuple):
            seen.skipped = str(report.longrepr[2]).removeprefix("Skipped: ")
        if report.when == "teardown":
            properties = report.user_properties
            seen.texts = [str(value) for name, value in properties if name == "seen"]
            for name, value in properties:
                if name == "recovery_seconds" and isinstance(value, Mapping):
                    seen.recovery_seconds.update(value)


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        scenario: what was tried.
        verdict: holds, FAILED, or not tried.
        seen: what its tests showed, in words.
        recovery_seconds: the longest time of recovery [s], None without one.
    """

    scenario: Scenario
    verdict: str
    seen: str
    recovery_seconds: float | None


HOLDS, FAILED, UNTRIED, PARTLY = "holds", "FAILED", "not tried", "partly tried"


def judge(scenario: Scenario, seen: Mapping[str, Seen]) -> Row:
    """Makes the row of one scenario from what all tests showed."""
    found = {test: find(test, seen) for test in scenario.tests}
    all_of = [each for some in found.values() for each in some]
    tried = [each for each in all_of if not each.skipped]
    names = tuple(scenario.recovers.split())
    times = {
        name: seconds
        for each in tried
        for name, seconds in each.recovery_seconds.items()
        if names and name.startswith(names)
    }
    longest = max(times.values(), default=None)
    wrong = [f"{test} did not run" for test, some in found.items() if not some]
    wrong += [each.failure for each in all_of if each.failure]
    limit = scenario.within_seconds
    if limit is not None and tried and not wrong and (longest is None or longest >= limit):
        wrong.append(f"recovery took {longest} s, allowed are {limit:g} s")
    reasons = sorted({each.skipped for each in all_of if each.skipped})
    skipped = [f"{len(all_of) - len(tried)} not tried: {'; '.join(reasons)}"] if reasons else []
    passed = f"{len(tried)} test{'s' * (len(tried) != 1)} passed"
    texts = [text for each in tried for text in each.texts]
    verdict = FAILED if wrong else HOLDS if not reasons else PARTLY if tried else UNTRIED
    return Row(scenario, verdict, "; ".join(wrong or [*texts, passed, *skipped]), longest)


def find(test: str, seen: Mapping[str, Seen]) -> list[Seen]:
    """Returns what a test showed, with each of its parameters; of a file, all its tests."""
    name = f"tests/{test}"
    inside = (f"{name}[", f"{name}::")
    return [each for node, each in seen.items() if node == name or node.startswith(inside)]


def table(rows: Sequence[Row]) -> str:
    """Returns the table; long cells go over several lines."""
    lines = []
    for row in rows:
        scenario, seconds = row.scenario, row.recovery_seconds
        cells = [
            [str(scenario.number)],
            textwrap.wrap(scenario.injected, TEXT_WIDTH),
            textwrap.wrap(scenario.expected, TEXT_WIDTH),
            textwrap.wrap(f"{row.verdict}: {row.seen}", SEEN_WIDTH),
            [MISSING if seconds is None else f"{seconds:.2f} s"],
        ]
        for number in range(max(map(len, cells))):
            lines.append([each[number] if number < len(each) else "" for each in cells])
    return columns(["", "injected", "expected", "seen", "recovered after"], lines, right=(0, 4))


def main(argv: Sequence[str]) -> int:
    """Runs all; returns the exit code."""
    tests = dict.fromkeys(test for each in SCENARIOS for test in each.tests)
    # Whole runs first: with short tests at last all workers end at about the same time.
    in_order = sorted(tests, key=lambda test: not test.startswith(("runs/", "main/")))
    watch = Watch()
    code = pytest.main([*argv, *(str(TESTS / test) for test in in_order)], plugins=[watch])
    rows = [judge(each, watch.seen) for each in SCENARIOS]
    verdicts = [row.verdict for row in rows]
    counts = [(name, verdicts.count(name)) for name in (HOLDS, PARTLY, UNTRIED, FAILED)]
    sys.stdout.write(f"\n{table(rows)}\n\n")
    sys.stdout.write(", ".join(f"{number} {name}" for name, number in counts if number) + "\n")
    return int(FAILED in verdicts or code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
