"""Programs of engines: their output, their own words at a failure, and a deadline."""

from __future__ import annotations

import pytest

from session.addons.engines.engine_program import call_program
from session.errors import UsageError


def test_a_program_reads_a_text_and_returns_one() -> None:
    assert call_program(["tr", "a-z", "A-Z"], str, given="text\n") == "TEXT\n"


@pytest.mark.parametrize("line", ["echo wrong >&2; exit 3", "echo wrong; exit 3"])
def test_a_failure_has_its_own_words(line: str) -> None:
    with pytest.raises(UsageError, match=r"^it says: wrong$"):
        call_program(["/bin/sh", "-c", line], lambda said: f"it says: {said.strip()}")


def test_a_program_that_does_not_answer_has_a_deadline() -> None:
    with pytest.raises(UsageError, match=r"^sleep did not end within 0\.1 s$"):
        call_program(["/bin/sleep", "60"], str, timeout_seconds=0.1)
