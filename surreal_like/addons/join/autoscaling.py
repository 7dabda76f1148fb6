"""Keeps machines of an engine joined to a run, as many as its numbers advise within bounds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

from session.addons.engines.machines import Machines
from session.show.text import plural
from session.show.wanted_agents import SENDERS_SECONDS, Advice, Load, want_agents
from surreal_like.addons.join.admission_client import (
    Invitation,
    default_folder,
    remove_key,
    request_admission,
)
from surreal_like.addons.join.agents import INTERRUPTED, RunWatch, try_again
from surreal_like.run.observer import Interrupts

# Files of the machines, below the folder of the process that keeps them joined.
MACHINES = "machines"
_POLL_SECONDS = 0.1
_KEPT_SECONDS = 2 * SENDERS_SECONDS

Report = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the largest number of machines; equal for a number that is fixed."""

    least: int
    most: int


def keep_joined(
    invitation: Invitation,
    machines: Machines,
    bounds: Bounds,
    report: Report = lambda line: None,
    *,
    slots: int = 1,
) -> int:
    """Keeps machines joined to a run, until it is over or this process is stopped.

    Args:
        invitation: address and token; its number of agents is that of each machine.
        machines: machines of the engine; they are ended at the end.
        bounds: bounds of their number.
        report: called with each line of progress.
        slots: slots of each machine, if it is a tuning.

    Returns the exit code and raises as :func:`surreal_like.addons.join.agents.join`.
    """
    look = replace(invitation, agents=0)
    target = Target(bounds, slots)
    try:
        return try_again(partial(_keep, look, machines, target, report), report)
    finally:
        machines.close()


def _keep(
    look: Invitation, machines: Machines, target: Target, report: Report, interrupts: Interrupts
) -> int | None:
    """Keeps machines at work until the run is over; None if it goes on later."""
    admission = request_admission(look)
    interrupts.only_count()
    with RunWatch(admission) as watch:
        while not watch.over and not interrupts.count:
            if change := target.follow(watch.load, watch.wanted_slots):
                report(change)
            machines.want(target.number)
            for event in machines.poll():
                report(str(event))
            for line in watch.tick():
                report(line)
            if watch.lost:
                raise watch.loss()
            time.sleep(_POLL_SECONDS)
    if interrupts.count:
        return 0 if interrupts.terminated else INTERRUPTED
    if watch.resumable:
        return None
    machines.close()
    report("the run is over; its machines have left")
    _tidy(look)
    return 0


def _tidy(invitation: Invitation) -> None:
    """Removes the secret keys of all machines, and the temporary folder, of a run that is over."""
    folder = invitation.folder or default_folder(invitation.token)
    for machine in (folder, *(folder / MACHINES).glob("*/")):
        remove_key(machine)
    if invitation.folder is None:
        shutil.rmtree(folder, ignore_errors=True)


class Target:
    """The wanted number of machines, which follows the numbers of the run.

    Args:
        bounds: bounds of the number; it begins with the least.
        slots: slots of each machine, for trials of a tuning.

    Attributes:
        number: the wanted number.
    """

    def __init__(self, bounds: Bounds, slots: int = 1) -> None:
        self.number = bounds.least
        self._slots = slots
        self._bounds = bounds
        self._loads: list[Load] = []
        self._advice: Advice | None = None

    def follow(self, load: Mapping[str, float], wanted_slots: int | None = None) -> str:
        """Follows the newest numbers; returns the change of the number in words, empty if none.

        Args:
            load: numbers as ``LOAD`` in ``ps/schemas.py``; those of the last call are ignored.
            wanted_slots: slots that a tuning wants from machines; None: it is a run.
        """
        if wanted_slots is not None:
            reason = f"{plural(wanted_slots, 'slot')} wanted"
            return self._set(ceil(wanted_slots / self._slots), reason)
        bounds, at = self._bounds, load.get("wall_seconds")
        if at is None or bounds.least == bounds.most:
            return ""
        if self._loads and at <= self._loads[-1].at:
            if at < self._loads[-1].at:
                # The run was resumed from an earlier time.
                self._advice, self._loads = None, []
            return ""
        new = Load(at, self.number, load["learner_waits"], load["senders_wait"])
        self._loads = [*(each for each in self._loads if each.at > at - _KEPT_SECONDS), new]
        self._advice = want_agents(self._loads, at, self._advice)
        return self._set(self._advice.number, self._advice.reason)

    def _set(self, number: int, reason: str) -> str:
        number = min(self._bounds.most, max(self._bounds.least, number))
        if number == self.number:
            return ""
        self.number = number
        return f"{plural(number, 'machine')} from now on: {reason}"
