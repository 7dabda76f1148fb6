"""Hooks: functions that add-ons give in ``AddOn.hooks``, and that other modules call.

Each has a type here; ``docs/architecture.md`` lists which modules call it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from session.addons import ServedPort, add_ons, load
from session.errors import UsageError

if TYPE_CHECKING:
    from session.config import Config
    from session.folder import RunFolder
    from session.process.component import Component
    from session.process.context import Context
    from session.wire import AddressBook

F = TypeVar("F")


@dataclass(frozen=True)
class Hook(Generic[F]):
    """A hook; the functions of add-ons are imported when it is iterated.

    Args:
        name: name in declarations.
    """

    name: str

    def __iter__(self) -> Iterator[F]:
        """Yields the functions that add-ons give, in the order of ``main/addons/__init__.py``."""
        for each in add_ons().values():
            if self.name in each.hooks:
                yield load(each.hooks[self.name])

    def require(self, reason: str) -> F:
        """Returns the first function.

        Args:
            reason: text of the error.

        Raises:
            UsageError: this installation has no add-on that gives one.
        """
        found = next(iter(self), None)
        if found is None:
            raise UsageError(reason)
        return found


class Check(Protocol):
    """Refuses a config; gets the class of its replay, and whether its processes start here."""

    def __call__(
        self, config: Config, replay: type[Any], /, *, synchronous: bool, here: bool
    ) -> None: ...


class Specs(Protocol):
    """Returns observation and action spec of an experiment, or None."""

    def __call__(
        self, user: Config, config: Config, /
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None: ...


class Ports(Protocol):
    """Yields the ports at which components will listen for programs from outside."""

    def __call__(self, config: Config, /) -> Iterable[ServedPort]: ...


class Components(Protocol):
    """Yields components; gets the ends of replay shards, and those to which all connect."""

    def __call__(
        self, config: Config, shards: tuple[str, ...], shared: tuple[str, ...], /
    ) -> Iterable[Component]: ...


class Pages(Protocol):
    """Returns the names of pages that a run serves."""

    def __call__(self, session_config: Config, /) -> Iterable[str]: ...


class ServerEnds(Protocol):
    """Returns further endpoints of the parameter server."""

    def __call__(self, session_config: Config, /) -> Iterable[str]: ...


class ServerService(Protocol):
    """Returns a service that runs in the process of the parameter server, or None."""

    def __call__(self, context: Context, /) -> Any: ...


class Launched(Protocol):
    """Returns notes after a launch, in lines."""

    def __call__(self, folder: RunFolder, /) -> Iterable[str]: ...


class PrepareAgent(Protocol):
    """Prepares an agent that trains; gets the class of its learner."""

    def __call__(self, context: Context, agent: Any, learner: type[Any], /) -> None: ...


class MakeView(Protocol):
    """Returns a view of a replay in place of that of its kind, or None."""

    def __call__(self, replay: Any, seed: int, /) -> Any: ...


class MakeRecorder(Protocol):
    """Returns what writes down the chunks that a shard accepts, or None; gets its replay."""

    def __call__(self, context: Context, replay: Any, /, *, goes_on: bool) -> Any: ...


class MakeLearnerLog(Protocol):
    """Returns what writes down the batches of a learner, or None; gets the learner."""

    def __call__(self, context: Context, learner: Any, /) -> Any: ...


class MakeFilm(Protocol):
    """Returns what films the evaluations of an evaluator, from its context; or None."""

    def __call__(self, context: Context, /) -> Any: ...


class TaskSource(Protocol):
    """Chooses the tasks of a run's episodes."""

    key: str
    """Key of ``env_config`` that names it."""
    name: str
    """Value of that key."""
    eval_task: Mapping[str, Any]
    """Task of all evaluations; empty: the newest one."""

    def check(self) -> None:
        """Loads the user's code; raises ConfigError if it cannot choose."""
        ...

    def play(self, env_config: Config, task: Mapping[str, Any], /) -> None:
        """Lets evaluations play a task, unless they have one of their own."""
        ...

    def first(self) -> Mapping[str, Any] | None:
        """Returns the task with which a new run begins, or None; raises ConfigError."""
        ...

    def choose(self, context: Context, record: Any, learners: Any, /) -> bool:
        """Begins the next task of a run if it is time; returns True then."""
        ...


class FindTasks(Protocol):
    """Returns what chooses the tasks of the episodes of an experiment, or None."""

    def __call__(self, env_config: Mapping[str, Any], /) -> TaskSource | None: ...


class ChooseReplay(Protocol):
    """Returns the class that holds experience in place of that of the config, or None."""

    def __call__(self, learner_config: Mapping[str, Any], kind: type[Any], /) -> Any: ...


class Pods(Protocol):
    """Changes the settings of a run in a cluster; gets the files of a certificate in a pod."""

    def __call__(self, session_config: Config, certificate: tuple[str, str], /) -> None: ...


class Tokens(Protocol):
    """Returns the tokens of clients in a folder; each has a ``name``."""

    def __call__(self, folder: Path, /) -> Iterable[Any]: ...


class MakeToken(Protocol):
    """Returns a token by which a number of machines join; gets the folder of a run's keys."""

    def __call__(self, keys: Path, uses: int, /) -> str: ...


class Admit(Protocol):
    """Lets a script join a run at HOST:PORT with a token, under a name; returns its folder."""

    def __call__(self, address: str, token: str, name: str, /) -> RunFolder: ...


class Fetch(Protocol):
    """Copies a run from a URL into a folder, None: a temporary one; returns the folder."""

    def __call__(self, url: str, folder: Path | None, /) -> Path: ...


class RunsAt(Protocol):
    """Yields the runs at a URL or below it: URL, time of the copy [s], folder with their facts."""

    def __call__(self, url: str, /) -> Iterable[tuple[str, float, Any]]: ...


class Findings(Protocol):
    """Describes in one line what limits a run and what is odd in it; empty: nothing known."""

    def __call__(self, view: Any, /) -> str: ...


class PlayLeague(Protocol):
    """Plays the snapshots of each policy of a run against each other; returns shares won."""

    def __call__(
        self, folder: Path, /, *, episodes: int, import_path: Sequence[str | Path]
    ) -> dict[str, dict[str, dict[str, float]]]: ...


class TuningService(Protocol):
    """Returns the service by which workers join a tuning, and the command to join."""

    def __call__(self, tuning: Any, /) -> tuple[Any, str]: ...


class Admitted(Protocol):
    """A machine that was admitted to a run or a tuning."""

    @property
    def config(self) -> Config:
        """The config of the run, or the tune file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its components, or of the worker."""
        ...

    @property
    def addresses(self) -> AddressBook:
        """Endpoints of the run or tuning."""
        ...

    @property
    def folder(self) -> RunFolder:
        """Folder of this machine."""
        ...


class Watch(Protocol):
    """The connection of a machine that asks whether its run or tuning goes on."""

    over: bool
    resumable: bool

    @property
    def lost(self) -> bool:
        """True if it has not answered for too long."""
        ...

    def tick(self) -> Sequence[str]:
        """Asks again when it is due; returns lines to report."""
        ...

    def loss(self) -> Exception:
        """Returns the error of a run that is lost."""
        ...


class Work(Protocol):
    """Runs trials of a tuning of another machine; returns the exit code, None if it goes on."""

    def __call__(
        self, admission: Admitted, slots: int, report: Any, interrupts: Any, watch: Watch, /
    ) -> int | None: ...


class Reporter(Protocol):
    """Returns the object that reports a run which is one of many, or None; gets its coordinator."""

    def __call__(self, coordinator: Any, /) -> Any: ...


class Plan(Protocol):
    """Prints a plan of its own for the arguments of ``plan``; returns the exit code, or None."""

    def __call__(self, given: Any, /) -> int | None: ...


class OpenTuning(Protocol):
    """Returns the handle of a tuning."""

    def __call__(self, folder: RunFolder, /) -> Any: ...


class TuningFacts(Protocol):
    """Returns the facts of a tuning for lists of runs."""

    def __call__(self, folder: RunFolder, /) -> Any: ...


class TuningPage(Protocol):
    """Returns the state of a tuning as text or JSON, and whether it runs."""

    def __call__(self, handle: Any, /, *, as_json: bool) -> tuple[str, bool]: ...


class PlotTuning(Protocol):
    """Draws a tuning into a file and returns its path; gets the options of ``plot``."""

    def __call__(self, folder: Path, /, **options: Any) -> Path: ...


CHECK: Hook[Check] = Hook("check")
SPECS: Hook[Specs] = Hook("specs")
PORTS: Hook[Ports] = Hook("ports")
COMPONENTS: Hook[Components] = Hook("components")
RUN_PAGES: Hook[Pages] = Hook("pages")
PS_ENDS: Hook[ServerEnds] = Hook("ps_ends")
PS_SERVICE: Hook[ServerService] = Hook("ps_service")
LAUNCHED: Hook[Launched] = Hook("launched")
AGENT: Hook[PrepareAgent] = Hook("agent")
VIEW: Hook[MakeView] = Hook("view")
RECORDER: Hook[MakeRecorder] = Hook("recorder")
LEARNER_LOG: Hook[MakeLearnerLog] = Hook("learner_log")
FILM: Hook[MakeFilm] = Hook("film")
TASKS: Hook[FindTasks] = Hook("tasks")
REPLAY: Hook[ChooseReplay] = Hook("replay")
PODS: Hook[Pods] = Hook("pods")
TOKENS: Hook[Tokens] = Hook("tokens")
TOKEN: Hook[MakeToken] = Hook("token")
ADMIT: Hook[Admit] = Hook("admit")
FETCH: Hook[Fetch] = Hook("fetch")
RUNS_AT: Hook[RunsAt] = Hook("runs_at")
FINDINGS: Hook[Findings] = Hook("findings")
LEAGUE: Hook[PlayLeague] = Hook("league")
TUNING_SERVICE: Hook[TuningService] = Hook("tuning_service")
WORK: Hook[Work] = Hook("work")
REPORTER: Hook[Reporter] = Hook("reporter")
PLAN: Hook[Plan] = Hook("plan")
OPEN: Hook[OpenTuning] = Hook("open")
FACTS: Hook[TuningFacts] = Hook("facts")
PAGE: Hook[TuningPage] = Hook("page")
PLOT: Hook[PlotTuning] = Hook("plot")


# -- runs at URLs ---------------------------------------------------------------------------------

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_NO_MIRRORS = "{} is a URL, but the add-on of mirrors is not here"


def is_url(place: object) -> bool:
    """Returns True for a URL, such as that of a run on object storage."""
    return _URL.match(str(place)) is not None


def fetch(url: str, folder: Path | None = None) -> Path:
    """Copies a run from a URL; returns its folder.

    Args:
        url: URL of the run.
        folder: new folder; None: a temporary one, which is removed when this process ends.

    Raises:
        UsageError: there is no run, or this installation cannot fetch one.
    """
    return FETCH.require(_NO_MIRRORS.format(url))(url, folder)


def runs_at(url: str) -> Iterator[tuple[str, float, Any]]:
    """Yields the runs at a URL or below it: URL, time of the copy [s], folder with their facts.

    Raises:
        UsageError: this installation cannot fetch them.
    """
    yield from RUNS_AT.require(_NO_MIRRORS.format(url))(url)
