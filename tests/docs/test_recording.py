"""The moving picture of the live table: made of what a terminal showed, every line of it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.images.record import COLUMNS, COMMAND, FILE, THEME, record, svg

SPACE = "{http://www.w3.org/2000/svg}"


def texts(picture: str, frame: int) -> list[str]:
    """Return the lines of one frame."""
    root = ElementTree.fromstring(picture)
    lines = {each.get("id"): "".join(each.itertext()) for each in root.iter(f"{SPACE}g")}
    group = next(each for each in root.iter(f"{SPACE}g") if each.get("id") == f"f{frame}")
    return [lines[str(use.get("href")).removeprefix("#")] for use in group.iter(f"{SPACE}use")]


@pytest.mark.tmux
def test_a_terminal_is_recorded(tmp_path: Path) -> None:
    command = r"printf '\033[31mbegun\033[0m\n'; sleep 0.6; echo ended"
    frames = record(command, tmp_path, columns=100, lines=10)
    assert len(frames) >= 2
    picture = svg(frames, 100, "a")
    assert texts(picture, len(frames) - 1)[-3:] == ["begun", "ended", "$"]
    assert "ended" not in texts(picture, 0)
    assert THEME.ansi_colors[1].hex in picture


def test_the_kept_picture_is_a_run_of_the_command_in_readme() -> None:
    picture = FILE.read_text()
    root = ElementTree.fromstring(picture)
    assert root.findtext(f"{SPACE}title") == COMMAND
    frames = len(re.findall(r'class="f"', picture))
    first, last = texts(picture, 0), texts(picture, frames - 1)
    assert first[0].strip() == f"$ {COMMAND}"
    assert any(line.startswith("solved in ") for line in last)
    middle = "\n".join(texts(picture, frames // 2))
    for shown in ("env steps", "greedy return", "replay-0", "agent-1", "eval-0"):
        assert shown in middle
    assert max(len(line) for number in range(frames) for line in texts(picture, number)) <= COLUMNS
