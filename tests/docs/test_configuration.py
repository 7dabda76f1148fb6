"""docs/configuration.md is what `docs/generate.py` makes now."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml

from docs.generate import PAGE, ROOT, Setting, configuration
from session.config import Key
from session.config.config import keys_of
from session.config.defaults import BASE_CONFIG
from session.config.key import FROM_1
from session.config.learner_defaults import SCHEDULE_KEYS
from session.config.placeholder import is_unresolved
from surreal_like.addons.tuning.tune_defaults import TUNE_CONFIG
from surreal_like.algorithm.catalog import list_algorithms
from surreal_like.experiment.resolve import defaults

AGAIN = "run: python docs/generate.py"


@pytest.fixture(scope="module")
def page() -> str:
    return configuration()


def leaves(config: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all settings with their defaults, a schedule as one."""
    for key, value in config.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, Mapping) and value and value.keys() != SCHEDULE_KEYS.keys():
            yield from leaves(value, inner)
        else:
            yield inner, value


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells behind each key of a part of the page; those of a section are none."""
    between = re.compile(r"(?<!\\)\|")
    lines = [between.split(line)[1:-1] for line in text.splitlines() if line.startswith("|`")]
    found = {cells[0].strip("`"): cells[1:] for cells in lines}
    assert len(found) == len(lines)
    return {key: cells for key, cells in found.items() if cells[0] != "section"}


def every_experiment(page: str) -> dict[str, list[str]]:
    return rows(
        page.partition("\n## Every experiment\n")[2].partition("\n## Several algorithms\n")[0]
    )


def of_algorithm(name: str, page: str) -> dict[str, tuple[str, str]]:
    """Return the default and the meaning of each setting, from all tables that an algorithm has."""
    several = page.partition("\n## Several algorithms\n")[2].partition("\n## Algorithm")[0]
    own = page.partition(f"\n## Algorithm `{name}`\n")[2].partition("\n## Algorithm")[0]
    groups = [part.partition("\n") for part in several.split("\n### ")]
    parts = [rows(text) for names, _, text in groups if f"`{name}`" in names]
    found: dict[str, tuple[str, str]] = {}
    for part in (every_experiment(page), *parts, rows(own)):
        for key, cells in part.items():
            # A row of two cells has only another default.
            found[key] = (cells[0], found[key][1]) if len(cells) == 1 else (cells[1], cells[2])
    return found


def test_the_page_is_up_to_date(page: str) -> None:
    assert PAGE.read_text() == page, AGAIN


def test_every_setting_has_a_row_and_a_meaning(page: str) -> None:
    found = every_experiment(page)
    assert set(found) == {path for path, _ in leaves(BASE_CONFIG)}
    assert all(cells[-1].endswith(".") for cells in found.values()), "every key has a sentence"


@pytest.mark.parametrize("name", list_algorithms())
def test_every_setting_of_an_algorithm_has_a_row_with_its_default(name: str, page: str) -> None:
    found = of_algorithm(name, page)
    every = dict(leaves(defaults(name).copy().extend(BASE_CONFIG, abstract=True)))
    # The networks of an algorithm have keys.
    assert set(found) == {*every, "learner_config.model"}
    assert all(meaning.endswith(".") for _, meaning in found.values())
    for path, value in every.items():
        required = is_unresolved(value)
        shown = "required" if required else "`None`" if value is None else f"`{json.dumps(value)}`"
        assert found[path][0] == shown, path


def test_schedules_have_the_same_keys_everywhere(page: str) -> None:
    shown = rows(page.partition("\n## Schedules\n")[2].partition("\n## Every experiment\n")[0])
    assert list(shown) == list(SCHEDULE_KEYS)
    for name in list_algorithms():
        keys = keys_of(defaults(name).copy().extend(BASE_CONFIG, abstract=True))
        for path in keys:
            if {f"{path}.{key}" for key in SCHEDULE_KEYS} <= keys.keys():
                each = [replace(keys[f"{path}.{key}"], default=None) for key in SCHEDULE_KEYS]
                assert each == [replace(key, default=None) for key in SCHEDULE_KEYS.values()], path


def test_choices_stand_in_their_row(page: str) -> None:
    found = every_experiment(page)
    for path, key in keys_of(BASE_CONFIG).items():
        if key.one_of and path in found:
            assert found[path][0] == ", ".join(f"`{choice}`" for choice in key.one_of)


def row(default: object, text: str, **facts: Any) -> str:
    return Setting("a.b", default, {"a.b": Key(default, text, **facts)}).row()


def test_unit_kind_and_default_of_a_row() -> None:
    wanted = "|`a.b`|number, seconds|`1.5`|Duration; 0: never.|"
    assert row(1.5, "Duration; 0: never.", unit="seconds") == wanted
    wanted = "|`a.b`|integer|required|Points [[x, y], ...] of &lt;n>.|"
    assert row("_int_", "Points [[x, y], ...] of <n>.") == wanted
    assert "|`x`, `y`|required|" in row("_enum[x, y]_", "A.")
    assert "|anything|`None`|" in row(None, "A.")
    assert "|integer, ≥ 1|`None`|" in row(None, "A.", optional="_int_", within=FROM_1)
    assert "|list, each ≥ 1|`[2]`|" in row([2], "A.", within=FROM_1)
    assert '|`x`, `y`|`"x"`|' in row("x", "A.", one_of=("x", "y"))


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
    assert "TD3 and DDPG send chunks of four steps, two at a time" in page
    assert "DQN sends 16 steps" in page
    for name in algorithms:
        known = defaults(name)
        assert known.learner_config.replay.samples_per_insert == samples
        session = known.session_config
        assert session.sender == {"flush_iteration": steps, "max_unacked_chunks": 2}
        assert session.get("agent", {}).get("fetch_parameter_mode") == fetch
