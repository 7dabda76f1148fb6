"""docs/configuration.md is what `docs/generate.py` makes now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from docs.generate import PAGE, ROOT, Setting, configuration
from session.config import Key
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import FROM_1
from surreal_like.addons.tuning.tune_defaults import TUNE_CONFIG
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


def shown_defaults(page: str) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and defaults of the tables of a page that are not generated."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    tables = r"^\| `([\w.]+)\.` key \| default \|.*\n\|-.*\n((?:\|.*\n)+)"
    for section, table in re.findall(tables, text, re.MULTILINE):
        for line in table.splitlines():
            keys, values = (cell.strip() for cell in line.split("|")[1:3])
            names = re.findall(r"`(\w+)`", keys)
            each = values.split(", ") if len(names) > 1 else [values]
            for name, value in zip(names, each, strict=True):
                yield f"{section}.{name}", yaml.safe_load(value.strip("`"))


def test_defaults_in_the_tables_of_tunings_are_those_of_the_code() -> None:
    shown = dict(shown_defaults("tune"))
    assert len(shown) > 25
    for key, value in shown.items():
        known: Any = TUNE_CONFIG
        for name in key.split("."):
            known = known[name]
        if value == "none":
            assert known is None or set(known.values()) == {None}, key
        elif value == "must be given":
            assert known == 0, key
        else:
            assert value == known, key


@pytest.mark.parametrize(
    ("algorithms", "samples", "steps", "fetch", "sentence"),
    [
        (("dqn",), 32, 16, None, "The defaults are {samples:g} for DQN and 128"),
        (("sac", "td3", "ddpg"), 128, 4, "step:4", "DQN and {samples:g} for SAC, TD3 and DDPG;"),
    ],
)
def test_defaults_that_sentences_name(
    algorithms: tuple[str, ...], samples: int, steps: int, fetch: str | None, sentence: str
) -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    assert sentence.format(samples=samples) in text
    page = (ROOT / "docs" / "algorithms.md").read_text()
    assert "TD3 and DDPG send chunks of four steps, two at\n  a time" in page
    assert "DQN sends 16 steps" in page
    for name in algorithms:
        known = defaults(name)
        assert known.learner_config.replay.samples_per_insert == samples
        session = known.session_config
        assert session.sender == {"flush_iteration": steps, "max_unacked_chunks": 2}
        assert session.get("agent", {}).get("fetch_parameter_mode") == fetch
