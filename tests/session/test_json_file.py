"""Reading of JSON files with a check of types: each fault is one line that names file and field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from session.errors import ConfigError
from session.json_file import (
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    VALUE,
    MapOf,
    Maybe,
    Nullable,
    Shape,
    fault,
    read_lines,
    read_object,
)

SHAPE: Shape = {
    "name": TEXT,
    "steps": COUNT,
    "done": FLAG,
    "score": Nullable(VALUE),
    "rates": MapOf(NUMBER),
    "parts": [{"at": NUMBER}],
    "more": Maybe(OBJECT),
}
WHOLE: dict[str, Any] = {
    "name": "a",
    "steps": 3,
    "done": False,
    "score": None,
    "rates": {"x": 1.5},
    "parts": [{"at": 1}, {"at": 2.0, "further": []}],
    "unknown": object,
}


@pytest.mark.parametrize(
    "change", [{}, {"score": float("inf")}, {"more": None}, {"more": {"a": 1}}, {"rates": {}}]
)
def test_what_fits(change: dict[str, Any]) -> None:
    assert fault({**WHOLE, **change}, SHAPE) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 5}, "name is 5, expected a text"),
        ({"steps": True}, "steps is True, expected a whole number, not negative"),
        ({"steps": -1}, "steps is -1, expected"),
        ({"steps": 2.0}, "steps is 2.0, expected"),
        ({"steps": 10**5000}, "steps is a huge number, expected"),
        ({"done": 0}, "done is 0, expected true or false"),
        ({"score": "x" * 100}, f"score is '{'x' * 39}..., expected a number"),
        ({"rates": {"x": float("nan")}}, "rates.x is nan, expected a finite number"),
        ({"rates": [1]}, "rates is a list, expected a mapping"),
        ({"parts": {}}, "parts is a dict, expected a list"),
        ({"parts": [{"at": 1}, {}]}, "parts[1].at is missing, expected a finite number"),
        ({"more": 5}, "more is 5, expected a mapping"),
        ({"name": None}, "name is None, expected a text"),
    ],
)
def test_the_first_fault_is_named(change: dict[str, Any], said: str) -> None:
    assert fault({**WHOLE, **change}, SHAPE).startswith(said)
    without = {key: value for key, value in WHOLE.items() if key not in change}
    optional = isinstance(SHAPE, dict) and "more" in change
    assert ("is missing" in fault(without, SHAPE)) == (not optional)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is damaged: no JSON, line 1: Expecting value"),
        (b'{"a": 1,\n]', "is damaged: no JSON, line 2"),
        (b'{"a": "\xa0"}', "is damaged: no UTF-8 text at byte 7"),
        (b"[1]", "is damaged: it is a list, expected a mapping"),
        (b"[" * 100_000, "is damaged: no JSON: "),
        (b"9" * 5000, "is damaged: no JSON: "),
        (b'{"a": 1}', "is damaged: steps is missing"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_object(path, {"steps": COUNT})
    assert str(caught.value).startswith(f"{path} {said}")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file")):
        with pytest.raises(ConfigError, match=f"{path} cannot be read: {said}"):
            read_object(path)


def test_lines_of_which_none_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert read_lines(path) == []
    path.write_text('{"a": 1}\n{"a": 2}\n{"cut')
    assert read_lines(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n["x"]\n{"a": 3}\n')
    with pytest.raises(ConfigError, match=rf"{path}:2 is damaged: "):
        read_lines(path)
    with pytest.raises(ConfigError, match="Is a directory"):
        read_lines(tmp_path)


def test_numbers_beyond_those_of_a_double_are_no_counts() -> None:
    assert fault(json.loads("1e999"), NUMBER)
    assert not fault(1 << 53, COUNT)
    assert fault((1 << 53) + 1, COUNT)


@pytest.mark.parametrize(
    ("make", "said"), [(os.mkfifo, "it is no regular file"), (os.mkdir, "Is a directory")]
)
def test_what_is_no_file_is_refused_without_a_wait(
    make: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    make(path)
    for read in (read_object, read_lines):
        with pytest.raises(ConfigError, match=rf"a\.json cannot be read: {said}"):
            read(path)
