"""What a component shows in the terminal that it was started in."""

import os
import pty
import time
from collections.abc import Iterator

import pytest

from session.loggerplex.terminal import TERMINAL, Terminal
from tests.polling import readable


@pytest.fixture
def both() -> Iterator[tuple[int, int]]:
    """A person's end of a terminal, and the other one."""
    person, terminal = pty.openpty()
    yield person, terminal
    os.close(person)
    os.close(terminal)


@pytest.fixture
def shown(both: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv(TERMINAL, os.ttyname(both[1]))
    terminal = Terminal.of_process()
    assert terminal is not None
    return terminal


def read(person: int, lines: int = 1) -> list[str]:
    """So many lines, which a terminal hands over in pieces of its own size."""
    text = b""
    while text.count(b"\n") < lines:
        assert readable([person]), text
        text += os.read(person, 10_000)
    return text.decode().splitlines()


def test_a_record_is_one_short_line(both: tuple[int, int], shown: Terminal) -> None:
    clock = time.strftime("%H:%M:%S", time.localtime(12.5))
    shown.record(12.5, "info", "start: incarnation 7")
    shown.record(12.5, "warning", "it failed:\nTraceback\n  there\n\nValueError: \x1b[2J no\n")
    shown.record(12.5, "error", "x" * 10_000)
    assert read(both[0], 3) == [
        f"{clock} info    start: incarnation 7",
        f"{clock} warning it failed: ... ValueError: ?[2J no",
        f"{clock} error   {'x' * 300}",
    ]


def test_a_terminal_that_reads_nothing_delays_no_component(
    both: tuple[int, int], shown: Terminal
) -> None:
    for _ in range(10_000):
        shown.show("a line that nobody reads")
    assert read(both[0])[0].endswith(" a line that nobody reads")
    # What is set for these lines does not hold for others on the same terminal.
    assert os.get_blocking(both[1])


def test_a_silenced_terminal_shows_nothing(both: tuple[int, int], shown: Terminal) -> None:
    shown.silence()
    shown.show("no")
    os.write(both[1], b"after\n")
    assert read(both[0]) == ["after"]


def test_without_a_terminal_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TERMINAL, raising=False)
    assert Terminal.of_process() is None
    monkeypatch.setenv(TERMINAL, "/dev/null/terminal")
    assert Terminal.of_process() is None
