"""docs/configuration.md is what `docs/generate.py` makes now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from docs.generate import PAGE, Setting, configuration
from session.config import Key
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import FROM_1
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.experiment.resolve import defaults

AGAIN = "run: python docs/generate.py"


@pytest.fixture(scope="module")
def page() -> str:
    return configuration()


def leaves(config: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for key, value in config.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, inner)
        else:
            yield inner


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells behind each key of a part of the page."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {cells[0].strip().strip("`"): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_the_page_is_up_to_date(page: str) -> None:
    assert PAGE.read_text() == page, AGAIN


def test_every_setting_has_a_row_and_a_meaning(page: str) -> None:
    base = page.partition("\n## Algorithm")[0]
    found = rows(base)
    assert set(found) == set(leaves(BASE_CONFIG))
    assert all(cells[-1].endswith(".") for cells in found.values()), "every key has a sentence"


@pytest.mark.parametrize("name", list_algorithms())
def test_every_setting_of_an_algorithm_has_a_row(name: str, page: str) -> None:
    part = page.partition(f"\n## Algorithm `{name}`\n")[2].partition("\n## Algorithm")[0]
    assert set(rows(part)) == set(leaves(defaults(name)))
    assert all(cells[-1].endswith(".") for cells in rows(part).values())


def test_choices_stand_in_their_row(page: str) -> None:
    found = rows(page)
    for path, key in keys_of(BASE_CONFIG).items():
        if key.one_of:
            assert found[path][0] == ", ".join(f"`{choice}`" for choice in key.one_of)


def row(default: object, text: str, **facts: Any) -> str:
    return Setting("a.b", default, {"a.b": Key(default, text, **facts)}).row()


def test_unit_kind_and_default_of_a_row() -> None:
    wanted = "| `a.b` | number | `1.5` | seconds | Duration; 0: never. |"
    assert row(1.5, "Duration; 0: never.", unit="seconds") == wanted
    wanted = "| `a.b` | integer | required |  | Points [[x, y], ...] of &lt;n>. |"
    assert row("_int_", "Points [[x, y], ...] of <n>.") == wanted
    assert "| `x`, `y` | required |" in row("_enum[x, y]_", "A.")
    assert "| anything | `None` |" in row(None, "A.")
    assert "| integer, 1 or more | `None` |" in row(None, "A.", optional="_int_", within=FROM_1)
    assert "| list, each 1 or more | `[2]` |" in row([2], "A.", within=FROM_1)
    assert '| `x`, `y` | `"x"` |' in row("x", "A.", one_of=("x", "y"))


@pytest.mark.parametrize(
    ("algorithm", "unit"), [("ppo", "streams"), ("r2d2", "sequences"), ("a3c", "gradients")]
)
def test_batches_have_the_unit_of_their_algorithm(algorithm: str, unit: str) -> None:
    assert keys_of(defaults(algorithm))["learner_config.replay.batch_size"].unit == unit
