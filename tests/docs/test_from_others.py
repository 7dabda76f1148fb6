"""Every name of ours in the tables for those who come from other libraries is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from main.cli.commands import all_commands
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import SECTIONS
from surreal_like.experiment.resolve import defaults
from surreal_like.tune.dimension import LISTS, NUMBERS
from surreal_like.tune.tune_defaults import TUNE_CONFIG
from tests.docs.test_from_surreal import find

ROOT = Path(__file__).resolve().parents[2]
HEADS = ("RLlib", "stable-baselines3", "ALF", "Ray Tune")
PAGES = ("from_rllib.md", "from_stable_baselines3.md", "from_alf.md", "from_ray_tune.md")


def tables(page: str) -> list[list[str]]:
    """Return the cells of each row that is no head."""
    lines = (ROOT / "docs" / page).read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [row for row in rows if row[0] not in HEADS]


def names(page: str) -> set[str]:
    """Return what stands as code in the column of our names."""
    return {name for row in tables(page) for name in re.findall(r"`([^`]+)`", row[1])}


def text(path: str) -> str:
    return (ROOT / path).read_text()


def is_there(name: str) -> bool:
    """Whether a setting, a file, an option, a command, a metric or something to import exists."""
    if name.startswith(SECTIONS):
        known: Any = Config(defaults("dqn")).extend(BASE_CONFIG, abstract=True)
        for key in name.split("."):
            known = known[key]
        return True
    if name.startswith("surreal-like "):
        return name.split()[1] in [each.name for each in all_commands()]
    if name.startswith("--"):
        commands = ("train", "arguments", "tune")
        return any(f'"{name}"' in text(f"main/cli/{each}.py") for each in commands)
    if name.startswith("tune."):
        known = TUNE_CONFIG
        for key in name.split("."):
            known = known[key]
        return True
    if name.startswith(("surreal_like.", "session.")):
        return find(name) is not None
    return name in PLAIN or f"`{name}`" in text("docs/metrics.md") or (ROOT / name).is_file()


# Values, and parts of texts that stand beside the name they belong to.
PLAIN = {'info["metrics"]', "learn/...", "progress.jsonl", "checkpoints/best"}
PLAIN |= {*LISTS, *NUMBERS, "step", "space", "fifo", "asha", "median", "pbt", "tpe"}
PLAIN |= {"result.json"}
PLAIN |= {"start", "end", "steps", "points", "sync", "process"}


@pytest.mark.parametrize("page", PAGES)
def test_our_names_are_there(page: str) -> None:
    found = names(page)
    assert len(found) > 12
    assert not [name for name in sorted(found) if not is_there(name)]


@pytest.mark.parametrize("page", PAGES)
def test_every_row_says_what_it_is_here(page: str) -> None:
    assert all(len(row) >= 2 and row[1].strip() for row in tables(page))


@pytest.mark.parametrize("name", ["surreal-like explode", "--explode", "learner.learn", "a/b.md"])
def test_a_name_that_is_not_there_is_seen(name: str) -> None:
    assert not is_there(name)


def test_a_setting_or_class_that_is_not_there_is_seen() -> None:
    with pytest.raises(KeyError):
        is_there("learner_config.algo.learning_rat")
    with pytest.raises(AttributeError):
        is_there("surreal_like.Agnet")
