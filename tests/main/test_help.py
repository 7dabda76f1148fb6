"""The help pages fit the terminals that people have."""

from __future__ import annotations

from main.cli.commands import overview
from main.cli.listing import in_columns

_COLUMNS = 80


def test_the_overview_fits_into_80_columns() -> None:
    assert [line for line in overview().splitlines() if len(line) > _COLUMNS] == []


def test_the_overview_names_the_version_option() -> None:
    assert "--version" in overview()


def test_names_in_columns_are_read_downwards() -> None:
    assert in_columns(["a", "bb", "c", "d", "e"], 10) == "a    d\nbb   e\nc"
    assert in_columns(["a", "bb"], 0) == "a\nbb"
