"""Every name of ours in the tables for those who come from other libraries exists."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

import session
import surreal_like
from main.cli.commands import all_commands
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import SECTIONS
from surreal_like.addons.tuning.space_and_mutation import LISTS, NUMBERS
from surreal_like.addons.tuning.tune_defaults import TUNE_CONFIG
from surreal_like.experiment.resolve import defaults
from tests.docs.test_metrics import expand

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (
    *("RLlib", "Ray Tune", "stable-baselines3", "CleanRL", "TorchRL", "Sample Factory"),
    *("PufferLib", "Tianshou", "Surreal", "ALF", "RELAAX"),
)

# Values, and parts of texts that stand beside the name they belong to.
PLAIN = {'info["metrics"]', "learn/...", "progress.jsonl", "checkpoints/best", "result.json"}
PLAIN |= {*LISTS, *NUMBERS, "step", "space", "fifo", "asha", "median", "pbt", "tpe"}
PLAIN |= {"start", "end", "steps", "points", "sync", "process"}


def text(path: str) -> str:
    return (ROOT / path).read_text()


def tables(library: str) -> list[list[str]]:
    """Return the cells of each row of a library, without the head and the names of groups."""
    section = text("docs/coming_from.md").split(f"\n## {library}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and "---" not in line]
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    rows = [row for row in rows if not row[0].startswith("**")]
    assert rows[0][:2] == [library, "surreal_like"]
    return rows[1:]


def names(library: str) -> set[str]:
    """Return what stands as code in the column of our names."""
    return {name for row in tables(library) for name in re.findall(r"`([^`]+)`", row[1])}


def find(path: str) -> Any:
    """Return what a dotted path names: a module, what is in it, and what is in that."""
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


@cache
def settings() -> frozenset[str]:
    """Return all settings, of which some belong to one algorithm, with their sections."""
    every = {"tune": TUNE_CONFIG["tune"]}
    found = set(dotted(every))
    for algorithm in ("dqn", "ppo"):
        known = Config(defaults(algorithm)).extend(BASE_CONFIG, abstract=True)
        found |= set(dotted(known.to_dict()))
    return frozenset(found)


def dotted(config: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted keys of nested mappings."""
    for key, value in config.items():
        yield above + key
        if isinstance(value, Mapping):
            yield from dotted(value, f"{above}{key}.")


def is_there(name: str) -> bool:
    """Whether a setting, a file, an option, a command, a metric or something to import exists."""
    sections = (*SECTIONS, "tune")
    if name in BASE_CONFIG:
        return True
    if name.partition(".")[0] in sections and "." in name:
        return name in settings()
    if name.startswith("surreal-like "):
        return name.split()[1] in [each.name for each in all_commands()]
    if name.startswith("--"):
        commands = ("cli/train", "cli/arguments", "addons/tuning/tune")
        return any(f'"{name}"' in text(f"main/{each}.py") for each in commands)
    if name.startswith(("surreal_like.", "session.", "main.")):
        return find(name) is not None
    metrics = re.findall(r"`([^`\n]+)`", text("docs/metrics.md"))
    return name in PLAIN or name in chain(*map(expand, metrics)) or (ROOT / name).is_file()


@pytest.mark.parametrize("library", LIBRARIES)
def test_our_names_are_there(library: str) -> None:
    found = names(library)
    assert len(found) > 12
    assert not [name for name in sorted(found) if not is_there(name)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_row_says_what_it_is_here(library: str) -> None:
    assert all(len(row) in (2, 3) and row[1] for row in tables(library))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_row_without_a_counterpart_says_why(library: str) -> None:
    assert all(len(row) == 3 and row[2] for row in tables(library) if row[1] == "none")


def test_a_test_uses_what_each_row_names() -> None:
    found = "\n".join(
        path.read_text(errors="ignore")
        for path in (ROOT / "tests").rglob("*")
        if path.suffix in (".py", ".html", ".js", ".sh") and path != Path(__file__)
    )
    words = set(re.findall(r"\w+", found))
    every = set().union(*map(names, LIBRARIES)) - PLAIN
    # All experiments of configs/ are resolved, and all metrics are compared with their glossary.
    every = {each for each in every if not each.startswith(("configs/", "learn/"))}
    unused = {each for each in every if shortest(each) not in words and shortest(each) not in found}
    assert not unused


def shortest(name: str) -> str:
    """Return the part of a name that a test has, too."""
    if name.startswith("--"):
        return name
    last = name.split()[1] if name.startswith("surreal-like ") else name.rpartition("/")[2]
    return last.partition(".")[0] if "/" in name else last.rpartition(".")[2]


@pytest.mark.parametrize("name", ["surreal-like explode", "--explode", "learner.learn", "a/b.md"])
def test_a_name_that_is_not_there_is_seen(name: str) -> None:
    assert not is_there(name)


def test_a_setting_or_class_that_is_not_there_is_seen() -> None:
    assert not is_there("learner_config.algo.learning_rat")
    with pytest.raises(AttributeError):
        is_there("surreal_like.Agnet")


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
