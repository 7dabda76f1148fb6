"""CHANGELOG.md has the present version first, and the same headings in each."""

from __future__ import annotations

import re
from pathlib import Path

from session.version import VERSION

TEXT = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = ["What you must do", "Places of modules", "Added", "Changed", "Fixed", "Security"]
VERSIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]


def test_it_begins_with_the_present_version() -> None:
    number, _, date = VERSIONS[0].splitlines()[0].partition(" ")
    assert number == VERSION.partition(".dev")[0]
    assert (
        date == "(unreleased)" if ".dev" in VERSION else re.fullmatch(r"\(\d{4}-\d\d-\d\d\)", date)
    )


def test_each_version_begins_with_what_you_must_do_and_has_kinds_of_changes_in_order() -> None:
    for version in VERSIONS:
        found = re.findall(r"^#+ (.*)$", version, re.MULTILINE)
        assert found[0] == KINDS[0], version[:20]
        assert found == [kind for kind in KINDS if kind in found]
