"""Every name in the table for those who come from Surreal is there."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import session
import surreal_like
from session.config.defaults import BASE_CONFIG
from session.config.sections import SECTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from_surreal.md"


def names() -> list[str]:
    """What stands in the column of our names."""
    found: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 5 and cells[2] not in ("here", "---"):
            found += re.findall(r"`([^`]+)`", cells[2])
    return found


def find(path: str) -> Any:
    """What a dotted path names: a module, what is in it, and what is in that."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


@pytest.mark.parametrize("name", sorted(set(names())))
def test_our_name_is_there(name: str) -> None:
    if "/" in name:
        assert (ROOT / name).is_file()
        return
    if name.startswith(SECTIONS):
        section: Any = BASE_CONFIG
        for key in name.split("."):
            section = section[key]
        return
    assert find(name) is not None


def test_the_table_is_read() -> None:
    assert len(names()) > 50
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        find("surreal_like.Agent.no_such_method")


def test_names_had_from_the_top_are_the_objects_themselves() -> None:
    assert surreal_like.Config is session.Config
    assert surreal_like.ConfigError is session.ConfigError
    assert surreal_like.StringEnum is session.StringEnum
    for name in surreal_like.__all__:
        value = getattr(surreal_like, name)
        if isinstance(value, session.Config):
            assert value == getattr(session, name)
        else:
            # A package is named with its path.
            assert value.__name__.rpartition(".")[2] == name
    assert set(surreal_like.__all__) <= set(dir(surreal_like))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        surreal_like.__getattr__("Agnet")
