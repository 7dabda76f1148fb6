"""Machines of an engine: each runs one command that joins a run, for as long as it is wanted."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil
from pathlib import Path
from typing import ClassVar

from session.addons import collect, load
from session.did_you_mean import did_you_mean
from session.errors import UsageError
from session.launchers.instruction import Event
from session.process.component import RESOURCES, Resources

# Begin of every command: this interpreter, on the machine that has it at the same path.
COMMAND = (sys.executable, "-P", "-m", "main.cli")
# Time for which a machine without its run holds its place [s]; a run that begins again may need it.
WAIT_SECONDS = 120.0
# Exit code of a machine that has waited for so long.
GIVEN_UP = os.EX_TEMPFAIL


def keep_trying(wait_seconds: float = WAIT_SECONDS) -> tuple[str, ...]:
    """Returns the words by which a machine waits for its run, and gives it up after a time."""
    return "--keep-trying", "--give-up-after", f"{wait_seconds:g}s"


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """The command of every machine, and the resources that it needs.

    Args:
        command: words of the command, without its token and folder.
        token: token of the run, for as many machines as are ever wanted at a time.
        folder: folder of the machines' files, on a file system that they share with this process
            unless the engine has none; ``machine-0``, ... below it has the keys of each, so that
            it keeps its names.
        cpu: cores of each machine.
        gpu: GPUs of each machine.
        options: further settings of the engine.
    """

    command: tuple[str, ...]
    token: str = field(repr=False)
    folder: Path
    cpu: float = 1.0
    gpu: float = 0.0
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def resources(self) -> Resources:
        """Resources of a machine; each core has the memory of an agent."""
        memory_bytes = round(RESOURCES["agent"].memory_bytes * max(1.0, self.cpu))
        return Resources(self.cpu, memory_bytes, ceil(self.gpu))

    def words(self, machine: str) -> list[str]:
        """Returns the whole command of a machine; its token comes in the variable TOKEN.

        Args:
            machine: name of the machine, or what the engine replaces by it.
        """
        return [*self.command, "--folder", str(self.folder / machine)]


@cache
def list_engines() -> dict[str, str]:
    """Returns name of an engine -> its class, sorted."""
    return dict(sorted(collect("engines").items()))


class Machines(ABC):
    """Keeps as many machines at work as are wanted; one that ends is replaced.

    A machine that is not wanted any more gets SIGTERM: it sends what it has, and leaves. A class is
    made from a :class:`MachineSpec`; it raises UsageError, and leaves nothing behind, if its engine
    does not answer.

    Attributes:
        name: name of the engine, or of its machines there, in events.
        options: name of each further setting of the engine -> its meaning.
        share_files: True if its machines have the folders of this one.
    """

    name: str
    options: ClassVar[Mapping[str, str]] = {}
    share_files: ClassVar[bool] = True

    def __init__(self, spec: MachineSpec) -> None:
        self._spec = spec
        self._silence = ""

    @abstractmethod
    def want(self, number: int) -> None:
        """Sets the number of machines from now on; takes effect at the next :meth:`poll`."""

    def poll(self) -> list[Event]:
        """Starts and ends machines as wanted; returns what has happened.

        Machines go on while their engine does not answer, or refuses: it is asked again at a later
        call. Each new reason is one event.
        """
        events: list[Event] = []
        known, self._silence = self._silence, ""
        try:
            events.extend(self._poll())
        except UsageError as error:
            self._silence = str(error)
            if self._silence != known:
                events.append(Event(self.name, "failed", self._silence))
        return events

    @abstractmethod
    def _poll(self) -> Iterable[Event]:
        """Does :meth:`poll` once; what it has yielded before an error is reported.

        Raises:
            UsageError: the engine does not answer, or refuses.
        """

    @property
    @abstractmethod
    def num(self) -> int:
        """Number of machines that are at work."""

    @abstractmethod
    def close(self) -> None:
        """Ends all machines, and waits until nothing of them is left; may be called again.

        Raises:
            UsageError: some are left; the message says how to end them.
        """


def make_machines(engine: str, spec: MachineSpec) -> Machines:
    """Returns the machines of an engine, none of which is at work yet.

    Raises:
        UsageError: there is no such engine or setting, or the engine does not answer.
    """
    engines = list_engines()
    known = f": there are {', '.join(engines)}"
    if engine not in engines:
        raise UsageError(
            f"no engine '{engine}'{did_you_mean(engine, engines, lead='; ', otherwise=known)}"
        )
    machines: type[Machines] = load(engines[engine])
    for name in spec.options:
        if name not in machines.options:
            others = f"it has {', '.join(machines.options) or 'none'}"
            hint = did_you_mean(name, machines.options, otherwise=others)
            raise UsageError(f"engine {engine} has no setting '{name}'; {hint}")
    return machines(spec)


def machine_name(number: int) -> str:
    """Returns the name of a machine, in events and of its folder."""
    return f"machine-{number}"
