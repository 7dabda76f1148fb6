"""A component is one process described as data; a topology is all of them, wired."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from session.errors import ConfigError

# What is no component and speaks to a run: operators' commands, a joined machine, the supervisor.
COMMANDS = ("command", "join", "supervisor")
# Group of the metrics of scripts that are no component; their names begin with it.
CLIENT = "client"

_SEVERAL = ("agent", "eval")
_INDEX_DIGITS = 5
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one process may use; summed and compared with the machine before a start."""

    cpu: float = 0.0
    memory_bytes: int = 0
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """How often a dead process is started again: at most ``max_restarts`` in ``window_seconds``."""

    max_restarts: int = 5
    window_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Component:
    """One process of a run.

    Args:
        name: lower case, digits and hyphens, at most 63 characters; names the log file, the tmux
            window, the pod and the dashboard row.
        kind: what it is: ``agent``, ``evaluator``, ``replay``, ``learner``, ``ps``, ...
        module: entry module; its ``build(context)`` makes the Service.
        index: the number in the name, 0 where there is none.
        binds: endpoints that it owns, such as ``replay-0.experience``.
        connects: endpoints of others that it uses.
        needs_torch: it computes with tensors, so it is forked from a warm process.
        resources: what it may use.
        restart: when it is started again after its death.
    """

    name: str
    kind: str
    module: str
    index: int = 0
    binds: tuple[str, ...] = ()
    connects: tuple[str, ...] = ()
    needs_torch: bool = False
    resources: Resources = field(default_factory=Resources)
    restart: Restart = field(default_factory=Restart)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"component name '{self.name}': use lower case letters, digits and hyphens, "
                "at most 63 characters"
            )

    @property
    def metric_id(self) -> str:
        """The id under which it reports, such as ``agent/3`` or ``session/ps``."""
        stem = self.name.removesuffix(f"-{self.index}")
        return f"session/{self.name}" if self.kind in SESSION_KINDS else f"{stem}/{self.index}"

    def arguments(self, folder: str) -> list[str]:
        """Arguments of its entry module in a run folder."""
        return ["--name", self.name, "--folder", folder]

    def command(self, folder: str) -> list[str]:
        """The command line that starts it, the same for every launcher."""
        return [sys.executable, "-P", "-m", self.module, *self.arguments(folder)]


SESSION_KINDS = ("ps", "tensorplex", "loggerplex", "tensorboard")


def is_client(name: str) -> bool:
    """True for the name of a script that is no component, such as ``client-simulator-0``."""
    return name.startswith(f"{CLIENT}-") and _NAME.fullmatch(name) is not None


class Topology:
    """All components of a run; the wiring is checked on construction.

    Args:
        components: in the order in which they are started.
        outside: endpoints that components of another machine bind.

    Raises:
        ConfigError: two components share a name or bind one endpoint, or nobody binds an endpoint
            that somebody connects to.
    """

    def __init__(self, components: Iterable[Component], outside: Iterable[str] = ()) -> None:
        self.components = tuple(components)
        self.outside = tuple(outside)
        self._by_name = {component.name: component for component in self.components}
        if len(self._by_name) < len(self.components):
            raise ConfigError("two components have the same name")
        owners: dict[str, str] = {}
        for component in self.components:
            for endpoint in component.binds:
                if endpoint in owners:
                    raise ConfigError(f"{owners[endpoint]} and {component.name} bind {endpoint}")
                owners[endpoint] = component.name
        for component in self.components:
            for endpoint in component.connects:
                if endpoint not in owners and endpoint not in self.outside:
                    raise ConfigError(f"{component.name} connects to {endpoint}: nobody binds it")
        self.endpoints = tuple(owners)

    def __iter__(self) -> Iterator[Component]:
        return iter(self.components)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Component:
        if name not in self._by_name:
            raise ConfigError(f"no component '{name}'; there are {', '.join(self._by_name)}")
        return self._by_name[name]

    def component(self, name: str) -> Component:
        """The component of that name; a further agent or evaluator is like the first of its kind.

        Raises:
            ConfigError: the name fits no component of this run.
        """
        stem, _, number = name.rpartition("-")
        first = self._by_name.get(f"{stem}-0")
        if name in self or first is None or not number.isdigit() or first.binds:
            return self[name]
        return replace(first, name=name, index=int(number))

    def knows(self, name: str) -> bool:
        """Whether messages of this run may come under a name.

        Those are the names of its components, of further agents and evaluators, and of the
        commands that speak to it.
        """
        stem, _, number = name.rpartition("-")
        if name in self or name in COMMANDS:
            return True
        if not (number.isascii() and number.isdecimal() and len(number) <= _INDEX_DIGITS):
            return False
        first = self._by_name.get(f"{stem}-0")
        # Where all agents join from other machines, the run itself has none.
        several = stem in _SEVERAL if first is None else not first.binds
        return several and str(int(number)) == number

    def of_kind(self, kind: str) -> list[Component]:
        """The components of one kind, in order."""
        return [component for component in self.components if component.kind == kind]

    def to_dict(self) -> dict[str, Any]:
        """The topology as plain data: what ``topology.json`` holds."""
        return {"components": [asdict(component) for component in self.components]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Topology:
        """The topology that :meth:`to_dict` wrote."""
        return cls(map(_component, data["components"]))


def _component(entry: Mapping[str, Any]) -> Component:
    values = {each.name: entry[each.name] for each in fields(Component)}
    values["binds"] = tuple(values["binds"])
    values["connects"] = tuple(values["connects"])
    values["resources"] = Resources(**values["resources"])
    values["restart"] = Restart(**values["restart"])
    return Component(**values)
