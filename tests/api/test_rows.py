"""Every row of the checklist has a test that bears its name."""

import ast
import re
from pathlib import Path

import pytest

ROWS = {
    "G": range(1, 7),
    "A": range(1, 27),
    "L": range(1, 16),
    "R": range(1, 17),
    "E": range(1, 18),
    "S": range(1, 6),
    "O": range(1, 20),
}


def rows_with_tests() -> set[str]:
    found = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                match = re.match(r"test_([A-Z]\d+)_", node.name)
                found |= {match[1]} if match else set()
    return found


@pytest.mark.parametrize("letter", ROWS)
def test_every_row_is_tested(letter: str) -> None:
    wanted = {f"{letter}{number}" for number in ROWS[letter]}
    assert wanted == {row for row in rows_with_tests() if row[0] == letter}
