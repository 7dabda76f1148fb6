"""The moving picture of the live table: made of what a terminal showed, every line of it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.images.record import COLUMNS, COMMAND, FILE, THEME, Frame, record, svg

RED, GREEN, DIM, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"
SPACE = "{http://www.w3.org/2000/svg}"


def texts(picture: str, frame: int) -> list[str]:
    """Return the lines of one frame."""
    root = ElementTree.fromstring(picture)
    lines = {each.get("id"): "".join(each.itertext()) for each in root.iter(f"{SPACE}g")}
    group = next(each for each in root.iter(f"{SPACE}g") if each.get("id") == f"f{frame}")
    return [lines[str(use.get("href")).removeprefix("#")] for use in group.iter(f"{SPACE}use")]


def test_every_frame_has_its_lines() -> None:
    picture = svg([Frame(0.0, ("$ a",)), Frame(1.0, ("$ a", "", "b < c & d"))], 20, "a")
    assert texts(picture, 0) == ["$ a"]
    assert texts(picture, 1) == ["$ a", "b < c & d"]
    assert picture.count(">$ a<") == 1, "a line that is seen twice stands in the file once"


def test_frames_are_seen_one_after_the_other() -> None:
    picture = svg([Frame(0.3, ("a",)), Frame(2.0, ("b",)), Frame(4.0, ("c",))], 20, "a")
    steps = dict(re.findall(r"@keyframes k(\d)\{(.*)\}\n", picture))
    assert steps["0"] == "0.000%{visibility:visible}20.000%{visibility:hidden}"
    assert steps["1"].startswith("0%{visibility:hidden}20.000%{visibility:visible}40.000%")
    assert steps["2"] == "0%{visibility:hidden}40.000%{visibility:visible}"


def test_colours_go_on_in_the_next_line() -> None:
    picture = svg([Frame(0.0, (f"{RED}one", f"two{GREEN}three{PLAIN} four"))], 40, "a")
    red, green = THEME.ansi_colors[1].hex, THEME.ansi_colors[2].hex
    found = re.findall(r"<text ([^>]*)>([^<]*)</text>", picture)
    colours = {text: re.search(r'fill="([^"]*)"', attributes) for attributes, text in found}
    assert {text: match and match[1] for text, match in colours.items()} == {
        "one": red,
        "two": red,
        "three": green,
        " four": None,
    }
    columns = {text: re.search(r'x="(\d+)"', attributes) for attributes, text in found}
    assert [match and match[1] for match in columns.values()] == ["0", "0", "24", "64"]


def test_dim_is_darker() -> None:
    picture = svg([Frame(0.0, (f"{DIM}one{PLAIN}",))], 20, "a")
    assert f'fill="{THEME.foreground_color.hex}"' in picture
    assert re.search(r'<text [^>]*fill="#[0-9a-f]{6}"[^>]*>one<', picture)


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
