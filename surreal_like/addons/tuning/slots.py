"""Slots of a tuning, and the memory of its trials, from the cores and the memory of a machine."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.config import Config
from session.errors import UsageError
from session.launchers.registry import launcher_of
from session.show.text import plural
from surreal_like.experiment.machine import find_available_bytes, replay_need
from surreal_like.experiment.topology import make_topology

# Memory of a process beside replay: interpreter, torch, environment.
_PROCESS_BYTES = 250_000_000
# Share of the available memory for trials that have processes.
_RESIDENT_SHARE = 0.85
VISIBLE = "CUDA_VISIBLE_DEVICES"
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class Machine:
    """Free resources of a machine, within the limits of its container.

    Args:
        cores: number of cores, at least 1.
        memory_bytes: available memory.
        gpus: GPUs, as in ``CUDA_VISIBLE_DEVICES``.
    """

    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()

    @classmethod
    def here(cls) -> Machine:
        """Measures this machine."""
        cores = len(os.sched_getaffinity(0))
        try:
            quota, period = _CPU_MAX.read_text().split()
            cores = min(cores, max(1, math.floor(int(quota) / int(period))))
        except (OSError, ValueError):  # no such group, or its quota is "max"
            pass
        return cls(cores, find_available_bytes(), find_gpus())


def find_gpus() -> tuple[str, ...]:
    """Returns the GPUs that this process may use, as in ``CUDA_VISIBLE_DEVICES``."""
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        return tuple(filter(None, visible.split(",")))
    try:
        return tuple(str(number) for number, _ in enumerate(_NVIDIA.iterdir()))
    except OSError:
        return ()


def gpu_of(slot: int, trial_gpus: float, gpus: Sequence[str]) -> str:
    """Returns the GPU of the trials in a slot.

    Args:
        slot: number of the slot.
        trial_gpus: GPUs of a trial; below 1, several slots share one.
        gpus: GPUs of this machine, at least one.
    """
    return gpus[math.floor(slot * trial_gpus) % len(gpus)]


@dataclass(frozen=True, slots=True)
class Slots:
    """Numbers of trials that work, and that have processes, at the same time.

    Args:
        num: trials that work; 0: on other machines only.
        max_resident: trials that have processes, working or not, at least ``num``.
        trial_cores: cores of each trial.
        trial_bytes: memory of each trial.
        least_bytes: memory that a trial will need whatever it uses now; 0: ``max_resident`` and
            ``trial_bytes`` are settings of the user, and do not follow from what trials use.
        memory_bytes: available to all trials.
        note: message for the user; empty: none.
    """

    num: int
    max_resident: int
    trial_cores: float
    trial_bytes: int
    least_bytes: int
    memory_bytes: int
    note: str = ""

    def residents(self, used_bytes: float) -> int:
        """Returns ``max_resident`` for the memory that the largest trial uses; 0: unknown."""
        if not used_bytes or not self.least_bytes:
            return self.max_resident
        size = max(used_bytes, self.least_bytes)
        return max(self.num, math.floor(_RESIDENT_SHARE * self.memory_bytes / size))


def find_slots(tune: Mapping[str, Any], config: Config, machine: Machine) -> Slots:
    """Returns the slots of a tuning on a machine.

    Args:
        tune: section ``tune``.
        config: the resolved experiment of a trial.
        machine: machine of the tuning.

    Raises:
        UsageError: not even one trial fits; with the calculation.
    """
    cores, note = _cores(tune, config, machine)
    size = _bytes(tune, config, machine)
    # A trial that stays resident keeps its memory while it waits.
    fit = max(1, math.floor(_RESIDENT_SHARE * machine.memory_bytes / size))
    resident = int(tune["max_resident"]) or fit
    room = min(math.floor(machine.cores / cores), _gpu_slots(tune, machine))
    num = max(0, int(tune["slots"]) or max(1, room))
    if tune["slots"] and num * cores > machine.cores:
        note = (
            f"{plural(num, 'slot')} of {cores:g} cores are more than the {machine.cores} of this "
            "machine: trials share them"
        )
    if num > resident:
        note = (
            f"{plural(num, 'slot')}, but memory for {plural(resident, 'trial')}: "
            f"{resident} work at the same time"
        )
    fixed = tune["max_resident"] or tune["trial_memory_bytes"]
    least = 0 if fixed else max(1, replay_need(config).total_bytes)
    return Slots(min(num, resident), resident, cores, size, least, machine.memory_bytes, note)


def _cores(tune: Mapping[str, Any], config: Config, machine: Machine) -> tuple[float, str]:
    """Returns the cores of a trial, and a note about them."""
    given: float = tune["trial_cores"]
    if given > machine.cores:
        raise UsageError(
            f"tune.trial_cores is {given:g}, but this machine has {machine.cores} cores: no trial "
            "could ever start"
        )
    if given or launcher_of(tune["launcher"]).one_thread:
        return given or 1.0, ""
    topology = make_topology(config)
    asked = sum(component.resources.cpu for component in topology)
    if asked <= machine.cores:
        return max(1.0, asked), ""
    return machine.cores, (
        f"the components of a trial ask for {asked:g} cores, and this machine has "
        f"{machine.cores}: a trial gets them all"
    )


def _gpu_slots(tune: Mapping[str, Any], machine: Machine) -> int:
    """Returns the number of slots for which there are GPUs."""
    given, there = float(tune["trial_gpus"]), len(machine.gpus)
    if given > there:
        raise UsageError(
            f"tune.trial_gpus is {given:g}, but this machine has {there} GPUs: no trial could ever "
            "start"
        )
    return math.floor(there / given) if given else machine.cores


def _bytes(tune: Mapping[str, Any], config: Config, machine: Machine) -> int:
    """Returns the memory of a trial.

    Raises:
        UsageError: it is more than the machine has.
    """
    replay, given = replay_need(config).total_bytes, int(tune["trial_memory_bytes"])
    processes = 1 if launcher_of(tune["launcher"]).one_thread else len(list(make_topology(config)))
    size = given or replay + processes * _PROCESS_BYTES
    if size <= machine.memory_bytes:
        return size
    parts = f"replay {_gb(replay)}, {processes} processes {_gb(processes * _PROCESS_BYTES)}"
    remedy = "lower learner_config.replay.capacity, or set tune.trial_memory_bytes"
    raise UsageError(
        f"a trial takes {_gb(size)} GB ({'tune.trial_memory_bytes' if given else parts}), and this "
        f"machine has {_gb(machine.memory_bytes)} available: {remedy}"
    )


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f}"
