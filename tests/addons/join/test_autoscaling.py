"""The number of machines follows the run's numbers within its bounds; no key outlives the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from session.addons.engines.machines import Machines, MachineSpec
from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.wire import AddressBook
from surreal_like.addons.join import autoscaling
from surreal_like.addons.join.admission_client import Admission, Invitation
from surreal_like.addons.join.agents import RunWatch, _tidy
from surreal_like.addons.join.autoscaling import Bounds, Target


def looks(learner: float, senders: float, begin: int, end: int) -> Iterator[dict[str, float]]:
    """A look each second."""
    for second in range(begin, end):
        yield {"wall_seconds": second, "learner_waits": learner, "senders_wait": senders}


def follow(target: Target, learner: float, senders: float, begin: int, end: int) -> list[int]:
    """The numbers after each change."""
    changes = [target.follow(load) for load in looks(learner, senders, begin, end)]
    return [int(change.split()[0]) for change in changes if change]


def test_a_learner_that_waits_gets_more_machines_up_to_the_most() -> None:
    target = Target(Bounds(2, 5))
    assert follow(target, 0.9, 0.0, 0, 400) == [4, 5]
    assert target.number == 5


def test_senders_that_wait_lose_machines_down_to_the_least() -> None:
    target = Target(Bounds(2, 5))
    follow(target, 0.9, 0.0, 0, 200)
    assert follow(target, 0.0, 0.9, 200, 900) == [4, 3, 2]


def test_between_the_limits_nothing_changes() -> None:
    target = Target(Bounds(2, 5))
    assert follow(target, 0.15, 0.4, 0, 300) == []
    assert target.number == 2


def test_a_change_has_thirty_seconds_before_the_next() -> None:
    target, times = Target(Bounds(1, 9)), []
    for load in looks(0.9, 0.0, 0, 200):
        if target.follow(load):
            times.append(load["wall_seconds"])
    assert all(later - earlier >= 30 for earlier, later in pairwise(times))
    assert len(times) >= 4


def test_a_number_that_is_fixed_follows_nothing() -> None:
    target = Target(Bounds(3, 3))
    assert follow(target, 0.9, 0.0, 0, 200) == []
    assert target.number == 3


def test_the_same_look_again_and_a_run_that_went_back_change_nothing() -> None:
    target = Target(Bounds(1, 4))
    assert target.follow({}) == ""
    (load,) = looks(0.9, 0.0, 50, 51)
    for _ in range(500):
        assert target.follow(load) == ""
    assert follow(target, 0.9, 0.0, 0, 25) == []


def test_a_change_says_why() -> None:
    target = Target(Bounds(1, 4))
    (change,) = [text for load in looks(0.5, 0.1, 0, 40) if (text := target.follow(load))]
    assert change == "2 machines from now on: learner waits 50 %, agents wait -"


def test_a_tuning_gets_machines_for_the_slots_that_it_wants() -> None:
    target = Target(Bounds(1, 5), slots=4)
    assert target.follow({}, 9) == "3 machines from now on: 9 slots wanted"
    assert target.follow({}, 9) == ""
    assert target.follow({}, 400) == "5 machines from now on: 400 slots wanted"
    assert target.follow({}, 0) == "1 machine from now on: 0 slots wanted"


# -- the end --------------------------------------------------------------------------------------


class Watch:
    """A run that is over at once, or goes on.

    Args:
        over: True: the run is over.
        resumable: True: it goes on later.
    """

    def __init__(self, over: bool, resumable: bool) -> None:
        self.over, self.resumable = over, resumable
        self.lost, self.load, self.wanted_slots = False, {}, None  # type: ignore[var-annotated]

    def tick(self) -> list[str]:
        return []

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class NoMachines(Machines):
    """Machines of which one poll sends SIGTERM to this process."""

    num = 0
    closed = False

    def want(self, number: int) -> None:
        pass

    def _poll(self) -> list[Event]:
        os.kill(os.getpid(), signal.SIGTERM)
        return []

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("over", [True, False])
def test_keys_of_machines_are_removed_once_the_run_is_over(
    over: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [
        folder / "keys" / "client.key"
        for folder in (tmp_path, *(tmp_path / "machines" / f"machine-{n}" for n in range(2)))
    ]
    for path in keys:
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.setattr(autoscaling, "request_admission", lambda look: look)
    monkeypatch.setattr(autoscaling, "RunWatch", lambda admission: Watch(over, False))
    invitation = Invitation("192.0.2.7:4000", "a token", folder=tmp_path)
    machines = NoMachines(MachineSpec(("true",), "a token", tmp_path / "machines"))
    assert autoscaling.keep_joined(invitation, machines, Bounds(1, 1)) == 0
    assert machines.closed
    # One that was asked to end may be started again: its machines come back under their names.
    assert [path.exists() for path in keys] == [not over] * 3


@pytest.mark.parametrize("resumable", [True, False])
@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize("given", [True, False])
def test_a_machine_that_may_come_back_keeps_its_key(
    over: bool, resumable: bool, given: bool, tmp_path: Path
) -> None:
    key = tmp_path / "keys" / "client.key"
    key.parent.mkdir()
    key.touch()
    invitation = Invitation("192.0.2.7:4000", "a token", folder=tmp_path if given else None)
    admission = Admission(Config({}), (), AddressBook({}), RunFolder(tmp_path))
    _tidy(invitation, admission, cast(RunWatch, Watch(over, resumable)))
    ended = over and not resumable
    assert (key.exists(), tmp_path.exists()) == (not ended, given or not ended)
