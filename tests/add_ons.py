"""Leaves out what is about an add-on where the tree lacks it; the whole tree has all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from main.addons import MODULES
from tests.take_out import ADD_ONS

OUT = {
    name: paths
    for name, paths in ADD_ONS.items()
    if f"{paths[0]}/addon".replace("/", ".") not in MODULES
}


def needs(name: str) -> pytest.MarkDecorator:
    """Returns the mark of a test, or of a row of a table, that is about an add-on."""
    assert name in ADD_ONS
    return pytest.mark.skipif(name in OUT, reason=f"without {name}")


def skip_lacking(words: Iterable[str]) -> None:
    """Skips a test that types a command, or names a launcher, of an add-on that is lacking."""
    for name, paths in OUT.items():
        for word in words:
            if {f"main/cli/{word}.py", f"session/launchers/{word}"} & set(paths):
                pytest.skip(f"without {name}")
