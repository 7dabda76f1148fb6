"""The help pages fit the terminals that people have."""

from __future__ import annotations

from main.cli.commands import overview

_COLUMNS = 80


def test_the_overview_fits_into_80_columns() -> None:
    assert [line for line in overview().splitlines() if len(line) > _COLUMNS] == []


def test_the_overview_names_the_version_option() -> None:
    assert "--version" in overview()
