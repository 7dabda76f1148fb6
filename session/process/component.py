"""A component describes one process as data; a topology holds all components and their wiring."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from session.addons import acting_kinds
from session.config.config import Config
from session.config.session_defaults import MOST_AGENTS
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.json_file import COUNT, FLAG, NUMBER, TEXT, MapOf, Maybe, read_object
from session.lazy import import_own

# Senders that are no components: operators' commands, a joined machine, the supervisor.
COMMANDS = ("command", "join", "supervisor")
# Environment variable with a pipe from the launcher, which is closed if the launcher dies.
LIFELINE = "SURREAL_LIKE_LIFELINE"
# Environment variable with a token, which other users cannot read as they can a command line.
TOKEN = "SURREAL_LIKE_TOKEN"
# Agents of machines that join a run have indices from here on.
FIRST_JOINED = MOST_AGENTS
# Names of a joined machine that has been silent for so long go to the next one [s].
SILENT_SECONDS = 600.0
# Metrics group of scripts that are no components; their names begin with it.
CLIENT = "client"

_SEVERAL = ("agent", "gateway", "eval")
# Numbers in names are below this one.
_NUMBERS = 100_000
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_SHAPE = {
    "components": [
        {
            **dict.fromkeys(("name", "kind", "module"), TEXT),
            "memory": Maybe(TEXT),
            "sends": Maybe(TEXT),
            "index": COUNT,
            "binds": [TEXT],
            "connects": [TEXT],
            "serves": MapOf(COUNT),
            "needs_torch": FLAG,
            "resources": {"cpu": NUMBER, "memory_bytes": COUNT, "gpu": COUNT},
            "restart": {"max_restarts": COUNT, "window_seconds": NUMBER},
        }
    ],
    "outside": Maybe([TEXT]),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of one process; summed and compared with the machine before a start."""

    cpu: float = 0.0
    memory_bytes: int = 0
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """Restart limit of a dead process: at most ``max_restarts`` within ``window_seconds``."""

    max_restarts: int = 5
    window_seconds: float = 60.0


_GIB = 1 << 30
# Kind -> resources of one process, unless `session_config.resources` says more.
RESOURCES: Mapping[str, Resources] = MappingProxyType(
    {
        "agent": Resources(1.0, _GIB),
        "evaluator": Resources(1.0, _GIB),
        "learner": Resources(2.0, 4 * _GIB),
        "replay": Resources(1.0, 4 * _GIB),
        "ps": Resources(0.5, _GIB),
        "tensorplex": Resources(0.5, _GIB // 2),
        "loggerplex": Resources(0.25, _GIB // 2),
        "tensorboard": Resources(0.5, _GIB),
    }
)


def resources_of(session_config: Mapping[str, Any], kind: str) -> Resources:
    """Returns the resources of one process of a kind.

    Raises:
        ConfigError: `session_config.resources` has an unknown kind, or a value of a wrong type.
    """
    given, kinds = session_config["resources"], (*RESOURCES, *acting_kinds())
    for name in given:
        if name not in kinds:
            hint = did_you_mean(name, kinds, otherwise=f"there are {', '.join(kinds)}")
            raise ConfigError(f"session_config.resources has no kind '{name}': {hint}")
    usual = RESOURCES.get(kind, RESOURCES["agent"])
    default = {"session_config": {"resources": {kind: asdict(usual)}}}
    whole = Config({"session_config": {"resources": {kind: given.get(kind, {})}}})
    found = whole.extend(default, strict=True).session_config.resources[kind]
    if min(found.values()) < 0:
        raise ConfigError(f"session_config.resources.{kind} is {dict(found)}, expected 0 or more")
    return Resources(**found)


@dataclass(frozen=True, slots=True)
class Component:
    """One process of a run.

    Args:
        name: lower case, digits and hyphens, at most 63 characters; names the log file, the tmux
            window, the pod and the dashboard row.
        kind: ``agent``, ``evaluator``, ``replay``, ``learner``, ``ps``, ...
        module: entry module; its ``build(context)`` makes the Service.
        index: number in the name, 0 if it has none.
        binds: endpoints that it binds, such as ``replay-0.experience``.
        connects: endpoints of other components to which it connects.
        serves: purpose -> TCP port on which it listens for programs from outside; 0: any free one.
        needs_torch: uses PyTorch, so it is forked from the fork server that has imported it.
        resources: limits of its use of the machine.
        restart: limit of its restarts.
        memory: file in memory that outlives its process; empty: there is none.
        sends: names what it sends, if that is the same each time: then its starts in a part of the
            run are one incarnation, which has the number of the part, and replay takes it once in
            all parts; empty: it is not.
    """

    name: str
    kind: str
    module: str
    index: int = 0
    binds: tuple[str, ...] = ()
    connects: tuple[str, ...] = ()
    serves: Mapping[str, int] = field(default_factory=dict, hash=False)
    needs_torch: bool = False
    resources: Resources = field(default_factory=Resources)
    restart: Restart = field(default_factory=Restart)
    memory: str = ""
    sends: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                f"component name '{self.name}': use lower case letters, digits and hyphens, "
                "at most 63 characters"
            )

    @property
    def metric_id(self) -> str:
        """Client id of its metrics, such as ``agent/3`` or ``session/ps``."""
        stem = self.name.removesuffix(f"-{self.index}")
        return f"session/{self.name}" if self.kind in SESSION_KINDS else f"{stem}/{self.index}"

    def arguments(self, folder: str) -> list[str]:
        """Command-line arguments of its entry module in a run folder."""
        return ["--name", self.name, "--folder", folder]

    def command(self, folder: str) -> list[str]:
        """Command line that starts it, the same for every launcher."""
        return [sys.executable, "-P", "-m", self.module, *self.arguments(folder)]

    def load(self) -> ModuleType:
        """Imports its entry module.

        In a script, a file or package of the user may have the name of ours, such as main.py: ours
        is loaded from its path, and that of the user is not executed.
        """
        return import_own(self.module)


SESSION_KINDS = ("ps", "tensorplex", "loggerplex", "tensorboard")


def split_name(name: str) -> tuple[str, int | None]:
    """Returns stem and number of a component's name: ``replay-left`` and 0 of ``replay-left-0``.

    The number is None, and the stem the whole name, if the name ends with none.
    """
    stem, hyphen, number = name.rpartition("-")
    # `isdecimal` alone accepts digits of other scripts; the name may come from the network.
    if hyphen and number.isascii() and number.isdecimal() and str(int(number)) == number:
        return stem, int(number)
    return name, None


def has_joined(name: str) -> bool:
    """Returns True for the name of an agent of a machine that joins a run."""
    stem, number = split_name(name)
    return stem == "agent" and number is not None and number >= FIRST_JOINED


def is_client(name: str) -> bool:
    """True for the name of a script that is no component, such as ``client-simulator-0``."""
    return name.startswith(f"{CLIENT}-") and _NAME.fullmatch(name) is not None


class Topology:
    """All components of a run; the wiring is checked on construction.

    Args:
        components: components in start order.
        outside: endpoints that components of another machine bind.

    Raises:
        ConfigError: two components share a name or bind one endpoint, or a component connects to
            an endpoint that none binds.
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
                    raise ConfigError(
                        f"{component.name} connects to {endpoint}: no component binds it"
                    )
        self.endpoints = tuple(owners)

    def __iter__(self) -> Iterator[Component]:
        return iter(self.components)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def requests(self) -> Resources:
        """Returns the sum of what its components request."""
        every = [component.resources for component in self.components]
        return Resources(
            cpu=sum(each.cpu for each in every),
            memory_bytes=sum(each.memory_bytes for each in every),
            gpu=sum(each.gpu for each in every),
        )

    def __getitem__(self, name: str) -> Component:
        if name not in self._by_name:
            raise ConfigError(f"no component '{name}'; there are {', '.join(self._by_name)}")
        return self._by_name[name]

    def component(self, name: str) -> Component:
        """Returns the component of a name; an additional agent or evaluator copies the first one.

        Raises:
            ConfigError: no component of this run has this name.
        """
        stem, number = split_name(name)
        first = self._by_name.get(f"{stem}-0")
        # One that binds is not copied: each endpoint has one address in the address book.
        if name in self or first is None or number is None or first.binds:
            return self[name]
        return replace(first, name=name, index=number)

    def knows(self, name: str) -> bool:
        """True if messages of this run may have this sender name.

        Valid are the names of its components, of additional agents and evaluators, and of COMMANDS.
        """
        if name in self or name in COMMANDS:
            return True
        stem, number = split_name(name)
        if number is None or number >= _NUMBERS:
            return False
        first = self._by_name.get(f"{stem}-0")
        # If all agents join from other machines, the topology itself has none.
        return stem in _SEVERAL if first is None else not first.binds

    def of_kind(self, kind: str) -> list[Component]:
        """Returns the components of one kind, in start order."""
        return [component for component in self.components if component.kind == kind]

    def to_dict(self) -> dict[str, Any]:
        """Returns the topology as plain data, the content of ``topology.json``."""
        outside = {"outside": list(self.outside)} if self.outside else {}
        return {"components": [asdict(component) for component in self.components], **outside}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Topology:
        """Restores a topology from the result of :meth:`to_dict`."""
        return cls(map(_component, data["components"]), data.get("outside", ()))

    @classmethod
    def load(cls, path: Path) -> Topology:
        """Reads ``topology.json``.

        Raises:
            ConfigError: the file is missing or is not a topology.
        """
        try:
            return cls.from_dict(read_object(path, _SHAPE))
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{path}: not a topology ({error})") from None


def _component(entry: Mapping[str, Any]) -> Component:
    # Runs that began earlier have no memory of this kind.
    values = {each.name: entry[each.name] for each in fields(Component) if each.name in entry}
    values["binds"] = tuple(values["binds"])
    values["connects"] = tuple(values["connects"])
    values["resources"] = Resources(**values["resources"])
    values["restart"] = Restart(**values["restart"])
    return Component(**values)
