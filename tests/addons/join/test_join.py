"""Machines of an engine get the run's address in a form of use to them; no error shows a token."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from main.addons.join import join
from session.addons.engines.machines import Machines
from session.addons.engines.processes import ProcessMachines
from surreal_like.addons.join.admission_client import Invitation
from surreal_like.addons.join.autoscaling import Bounds
from tests.main.conftest import Said

WORDS = ("--token", "a secret", "--on", "processes", "--folder", "guest")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each machine would run."""
    found: list[list[str]] = []

    def keep(invitation: Invitation, machines: Machines, bounds: Bounds, *_: object, **__: object):  # type: ignore[no-untyped-def]
        found.append(machines._spec.words("machine-0"))
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


SECRET = base64.urlsafe_b64encode(bytes(range(100, 151))).decode()
MISTYPED = {
    "an option": ("join", "127.0.0.1:1", "--token", "sl1-{}"),
    "an option, without its begin": ("join", "127.0.0.1:1", "--token", "{}"),
    "a file": ("join", "127.0.0.1:1", "--token-file", "token.txt"),
    "a variable": ("join", "127.0.0.1:1"),
    "an option with a typo": ("join", "127.0.0.1:1", "--tokn", "sl1-{}"),
    "an option with a typo in one word": ("join", "127.0.0.1:1", "--tokn={}"),
    "a further word": ("join", "127.0.0.1:1", "sl1-{}"),
    "the address": ("join", "sl1-{}", "--token", "sl1-x"),
    "a command": ("sl1-{}",),
    "an engine": ("join", "127.0.0.1:1", "--token", "sl1-{}", "--on", "processes"),
    "a client": ("client", "tcp://127.0.0.1:1", "--env", "gym:CartPole-v1", "sg1-{}"),
}


@pytest.mark.parametrize("words", MISTYPED.values(), ids=list(MISTYPED))
def test_a_mistyped_token_is_never_shown(
    command: Callable[..., Said],
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "token.txt").touch(mode=0o600)
    (tmp_path / "token.txt").write_text(f"sl1-{SECRET}\n")
    if words == MISTYPED["a variable"]:
        monkeypatch.setenv("SURREAL_LIKE_TOKEN", f"sl1-{SECRET}")
    said = command(*(word.format(SECRET) for word in words))
    assert said.code == 2
    assert said.err.startswith("surreal-like: error: ")
    assert SECRET[12:24] not in said.out + said.err
