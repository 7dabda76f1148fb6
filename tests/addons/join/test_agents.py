"""Waiting for a run that is not there: how long, and for which end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from session.errors import NOTICE, AdmissionError
from session.folder import RunFolder
from session.launchers.launcher import free_ports
from session.wire import AddressBook
from surreal_like.addons.join.admission_client import Invitation, NotNowError, request_admission
from surreal_like.addons.join.agents import (
    GivenUpError,
    LostRunError,
    experiment_of,
    try_again,
)
from surreal_like.addons.join.tokens import Token
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.run.observer import Interrupts

GIVE_UP = 0.2


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal_like.addons.join.agents._AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("surreal_like.addons.join.admission_client._ANSWER_SECONDS", 0.3)


def test_a_run_that_never_comes_is_given_up() -> None:
    tries = 0

    def once(interrupts: Interrupts) -> int | None:
        nonlocal tries
        tries += 1
        if tries > 1000:
            pytest.fail("it is waited for without end")
        raise NotNowError("nothing answers")

    said: list[str] = []
    with pytest.raises(GivenUpError, match="gave up: the run was not there for 00:00: nothing"):
        try_again(once, said.append, GIVE_UP)
    assert said == ["waiting for the run: nothing answers"]
    assert GivenUpError.exit_code == os.EX_TEMPFAIL


def test_a_run_that_was_there_is_waited_for_as_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("surreal_like.addons.join.agents.time.monotonic", lambda: now[0])
    ends = iter([NotNowError("a"), LostRunError("b"), NotNowError("c"), None, NotNowError("d"), 0])

    def once(interrupts: Interrupts) -> int | None:
        now[0] += 0.8
        end = next(ends)
        if isinstance(end, Exception):
            raise end
        return end

    assert try_again(once, lambda line: None, 1.0) == 0


@pytest.mark.parametrize(
    ("status", "reason", "newer", "refused"),
    [
        ("stopped", "goal", True, True),
        ("interrupted", "interrupted", True, True),
        ("interrupted", NOTICE, True, False),
        ("running", "", True, False),
        # Of an earlier part of a run that begins again.
        ("stopped", "goal", False, False),
    ],
)
def test_a_folder_says_that_its_run_has_ended_for_good(
    tmp_path: Path, status: str, reason: str, newer: bool, refused: bool
) -> None:
    run = RunFolder(tmp_path / "run")
    run.create()
    run.addresses.write_text(AddressBook.tcp(free_ports(["ps.join"])).dump())
    run.result.write_text(json.dumps({"status": status, "reason": reason}))
    os.utime(run.addresses, (1000, 1000))
    os.utime(run.result, (1001, 1001) if newer else (999, 999))
    token = Token(b"0" * 40, b"1" * 16).encode()
    invitation = Invitation(str(run.path), token, 1, folder=tmp_path / "here")
    kind, words = (AdmissionError, "is over") if refused else (NotNowError, "nothing answers")
    with pytest.raises(kind, match=words):
        request_admission(invitation)


def test_a_machine_resolves_the_policies_of_the_run_without_their_plans(tmp_path: Path) -> None:
    config = resolve(read_experiment("multi_cartpole_mixed"))
    before = config.fingerprint()
    config.policies_plan = "plan.py:of_all"
    for place in (config, config.policies.left):
        place.learner_config.execution_plan = "plan.py:of_one"
    here = resolve(experiment_of(config, RunFolder(tmp_path)))
    assert here.fingerprint() == before
    # The run's own settings stay.
    assert config.policies_plan == "plan.py:of_all"
