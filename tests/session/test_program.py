"""Commands that are printed work where they are printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from session import program


def test_an_extra_is_installed_from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(program.__file__).parents[1]
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(program, "which", lambda name: None)
    python = program.path_from_here(Path(sys.executable))
    assert program.install_line("box2d") == (
        f'{python} -m pip install -c constraints.txt -e ".[box2d]"'
    )


def test_elsewhere_the_line_names_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout = Path(program.__file__).parents[1]
    monkeypatch.chdir(tmp_path)
    line = program.install_line("plot")
    assert f'-c {checkout}/constraints.txt -e "{checkout}[plot]"' in line


def test_without_a_checkout_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "_CHECKOUT", tmp_path)
    line = program.install_line("plot")
    assert "matplotlib" in line
    assert "surreal-like" not in line.partition("install")[2]


def test_an_interpreter_that_a_terminal_finds_is_called_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "which", lambda name: sys.executable)
    assert program.interpreter() == "python"
    monkeypatch.setattr(program, "which", lambda name: "/usr/bin/other")
    assert program.interpreter() != "python"
