"""docs/configuration.md and README's picture are what `docs/generate.py` makes now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from docs.generate import PAGE, README, Setting, Source, configuration, readme
from session.config.defaults import BASE_CONFIG, CHOICES
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


def test_the_picture_is_up_to_date() -> None:
    text = README.read_text()
    assert "<!-- generated: docs/generate.py -->\n```mermaid\n" in text
    assert readme(text) == text, AGAIN


def test_every_setting_has_a_row_and_a_meaning(page: str) -> None:
    base = page.partition("\n## Algorithm")[0]
    found = rows(base)
    assert set(found) == set(leaves(BASE_CONFIG))
    assert all(cells[-1].endswith(".") for cells in found.values()), "every key has a sentence"


@pytest.mark.parametrize("name", list_algorithms())
def test_every_setting_of_an_algorithm_has_a_row(name: str, page: str) -> None:
    part = page.partition(f"\n## Algorithm `{name}`\n")[2].partition("\n## Algorithm")[0]
    known = rows(page.partition("\n## Algorithm")[0])
    own = set(leaves(defaults(name)))
    missing = own - set(rows(part))
    # Which Replay it takes stands in the base's table too, with another default.
    assert missing <= {"learner_config.replay.type"} & set(known)
    assert all(cells[-1].endswith(".") for cells in rows(part).values())


def test_choices_stand_in_their_row(page: str) -> None:
    found = rows(page)
    for key, choices in CHOICES.items():
        assert found[key][0] == ", ".join(f"`{choice}`" for choice in choices)


def test_unit_kind_and_default_of_a_row() -> None:
    row = Setting("a.b", 1.5, "How long [seconds]; 0: never.").row()
    assert row == "| `a.b` | number | `1.5` | seconds | How long; 0: never. |"
    row = Setting("a.b", "_int_", "Points [[x, y], ...] of <n>.").row()
    assert row == "| `a.b` | integer | required |  | Points [[x, y], ...] of &lt;n>. |"
    assert "| `x`, `y` | required |" in Setting("a.b", "_enum[x, y]_", "A.").row()
    assert "| anything | `None` |" in Setting("a.b", None, "A.").row()


def test_a_dict_of_another_module_is_found() -> None:
    source = Source("surreal_like.algorithm.dqn")
    comments = dict(source.comments(source.returned("default_config")))
    assert comments["algo.epsilon.steps"]
    assert comments["algo.target.mode"].startswith("hard")


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(LookupError, match="nothing called NOTHING"):
        Source("session.config.defaults").assigned("NOTHING")
    with pytest.raises(LookupError, match="no function nothing"):
        Source("session.config.defaults").returned("nothing")
