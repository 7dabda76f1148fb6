"""Names that end with digits which are no numbers, such as a raised two, are those of others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from session.checkpoint import earlier_ones, save_one, set_aside
from session.folder import RunFolder
from surreal_like.addons.recording.rerun import Repeater
from surreal_like.addons.recording.segments import list_segments
from surreal_like.data.spec import parse_obs_spec


def find_checkpoints(path: Path) -> object:
    repeater: Any = SimpleNamespace(_run=RunFolder(path), _policy="default")
    return Repeater._find_checkpoints(repeater)


def find_earlier_ones(path: Path) -> object:
    return earlier_ones(path / "best")


def move_aside(path: Path) -> object:
    (path / "broken").mkdir()
    return set_aside(path / "broken")


def read_spec(path: Path) -> object:
    (stray,) = path.iterdir()
    leaf = {"type": "uint8", "dim": [1]}
    return list(parse_obs_spec({"0": leaf, stray.name: leaf}))


@pytest.mark.parametrize("digit", ["²", "①"])
@pytest.mark.parametrize(
    ("name", "read", "found"),
    [
        ("{}.seg", list_segments, []),
        ("checkpoints/learner/{}", find_checkpoints, {}),
        ("best-{}", find_earlier_ones, []),
        ("aside/other.{}", move_aside, "set aside as aside/broken.1"),
        ("{}", read_spec, ["0", "{}"]),
    ],
)
def test_a_name_without_a_number_is_none_of_ours(
    name: str, read: Callable[[Path], object], found: object, digit: str, tmp_path: Path
) -> None:
    save_one(tmp_path / name.format(digit), {"time": 0.0}, lambda folder: None)
    if isinstance(found, list):
        found = [each.format(digit) for each in found]
    assert read(tmp_path) == found
