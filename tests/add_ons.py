"""Leaves out what is about an add-on where the tree lacks it; the whole tree has all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from session.addons import add_ons, collect, load
from tests.take_out import ROOT, TAKEN_OUT

_FILE = ROOT / TAKEN_OUT
# Name of an add-on that was taken out -> its words on command lines.
OUT: dict[str, list[str]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}


def needs(name: str) -> pytest.MarkDecorator:
    """Returns the mark of a test, or of a row of a table, that is about an add-on."""
    return pytest.mark.skipif(name not in add_ons(), reason=f"without {name}")


def load_replays() -> list[Any]:
    """Returns the kinds of replay of the add-ons of this tree."""
    return [load(place) for place in collect("replays").values()]


def skip_lacking(words: Iterable[str]) -> None:
    """Skips a test that types a command, or names a launcher, of an add-on that is lacking."""
    typed = set(words)
    for name, own in OUT.items():
        if typed & {*own}:
            pytest.skip(f"without {name}")
