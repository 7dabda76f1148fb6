"""Machines of an engine get the run's address in a form that they can use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from main.cli import join
from session.launchers.engines.machines import Machines
from session.launchers.engines.processes import ProcessMachines
from surreal_like.join.client import Invitation
from surreal_like.join.fleet import Bounds
from tests.main.conftest import Said

WORDS = ("--token", "a secret", "--on", "processes", "--folder", "guest")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each machine would run."""
    found: list[list[str]] = []

    def keep(invitation: Invitation, machines: Machines, bounds: Bounds, *_: object, **__: object):  # type: ignore[no-untyped-def]
        found.append(machines._order.words("machine-0"))
        machines.close()
        return 0

    monkeypatch.setattr(join, "keep_joined", keep)
    return found


def test_the_folder_of_a_run_is_an_absolute_path_for_machines(
    command: Callable[..., Said], commands: list[list[str]]
) -> None:
    assert command("join", "./runs/mine", *WORDS).code == 0
    assert command("join", "192.0.2.7:4000", *WORDS).code == 0
    assert [each[5] for each in commands] == [str(Path("runs/mine").absolute()), "192.0.2.7:4000"]


def test_machines_that_do_not_have_the_folder_are_refused(
    command: Callable[..., Said], commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessMachines, "share_files", False)
    said = command("join", "./runs/mine", *WORDS)
    assert said.code == 2
    assert "machines of processes do not have the folder" in said.err
    assert "give the HOST:PORT that launch --host has printed" in said.err
    assert not commands
    assert command("join", "192.0.2.7:4000", *WORDS).code == 0
