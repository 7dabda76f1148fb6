"""How a run is started: the same steps for processes of this machine and for one thread."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from session.component import Topology
from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import RunError, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from surreal_like.algorithm.registry import list_algorithms
from surreal_like.experiment import read_answer, resolve_elsewhere, write_request

if TYPE_CHECKING:
    from session.launchers.launcher import Outcome

LAUNCHERS = ("local", "serial")
# What is slow to import and the same for everybody; a user's own modules are not among it, for
# they may do anything when they are imported.
_PRELOADED = (
    # What all components have in common; from here on those that need no torch wait by themselves.
    "main.ps",
    "spare:main.ps",
    "spare:main.loggerplex",
    "spare:main.tensorplex",
    "spare:main.replay",
    "torch",
    "gymnasium",
    "surreal_like.experiment",
    "surreal_like.env.vector",
    "surreal_like.env.native",
    "main.learner",
    "main.agent",
    "main.evaluator",
)


class Launched(Protocol):
    """A run that goes on, as long as it is polled."""

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it goes on."""
        ...

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        """Does what is to be done; returns what has happened since the last call."""
        ...

    def components(self) -> Mapping[str, Mapping[str, Any]]:
        """Name -> restarts, exit_code, alive_seconds."""
        ...

    def stop(self, *, interrupted: bool = False, reason: str = "") -> None:
        """Begins the clean end."""
        ...

    def kill(self) -> None:
        """Ends everything at once."""
        ...


class Starter(Protocol):
    """Resolves an experiment and launches it."""

    def started(self, command_started: float) -> float:
        """When the run began, on the clock of its components."""
        ...

    def resolve(self, user: Config) -> Config:
        """The complete config."""
        ...

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> Launched:
        """Starts all components."""
        ...

    def close(self) -> None:
        """Ends whatever is left."""
        ...


def make_starter(launcher: str, algorithm: str) -> Starter:
    """The one that belongs to a launcher; a local one begins to warm up at once.

    Args:
        launcher: ``local`` or ``serial``.
        algorithm: of the experiment.

    Raises:
        UsageError: there is no such launcher.
    """
    if launcher == "local":
        return LocalStarter(algorithm)
    if launcher == "serial":
        return SerialStarter()
    hint = did_you_mean(launcher, LAUNCHERS, lead="; ")
    raise UsageError(f"no launcher '{launcher}': there are {' and '.join(LAUNCHERS)}{hint}")


class LocalStarter:
    """Processes of this machine; resolving and the components share one import of torch.

    Args:
        algorithm: of the experiment; a registered one is imported only once, too.
    """

    def __init__(self, algorithm: str) -> None:
        from session.launchers.zygote import Zygote

        module = list_algorithms().get(algorithm, "").partition(":")[0]
        self._zygote = Zygote.start([*_PRELOADED, *filter(None, [module])])
        self._launcher: Any = None

    def started(self, command_started: float) -> float:
        """The wall clock of the command's start."""
        return command_started

    def resolve(self, user: Config) -> Config:
        """In a process that the warm one forks."""
        # For launch; now, because the warm one still imports, and we would only wait for it.
        import session.launchers.local  # noqa: F401

        with tempfile.TemporaryDirectory(prefix="sl-resolve-") as folder:
            asked, answer = write_request(user, Path(folder))
            said = Path(folder) / "stderr"
            argv = [str(asked), str(answer)]
            try:
                self._zygote.call("surreal_like.experiment", argv, str(said))
            except RunError as error:
                raise RunError(f"the experiment could not be resolved: {error}") from None
            stderr = said.read_text(errors="replace") if said.exists() else ""
            return read_answer(answer, stderr)

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> Launched:
        """Every component a supervised process."""
        from session.launchers.local import LocalLauncher

        self._launcher = LocalLauncher(config, topology, folder, zygote=self._zygote)
        self._launcher.launch()
        launched: Launched = self._launcher
        return launched

    def close(self) -> None:
        """Kills what is left of the run, and ends the warm process."""
        if self._launcher is not None:
            self._launcher.__exit__(None, None, None)
            return
        self._zygote.receive()
        if not self._zygote.ready:
            # It imports, and nobody works yet: there is nothing that it must outlive.
            self._zygote.kill()
        self._zygote.close()


class SerialStarter:
    """Everything in this thread, on a counted clock: two runs with one seed are identical."""

    def __init__(self) -> None:
        self._run: SerialRun | None = None
        self._began: float | None = None

    def started(self, command_started: float) -> float:
        """The counted clock begins at 0."""
        self._began = command_started
        return 0.0

    def resolve(self, user: Config) -> Config:
        """In a process of its own: the environment's constructor may do anything."""
        return resolve_elsewhere(user)

    def launch(self, config: Config, topology: Topology, folder: RunFolder) -> Launched:
        """Every component a service that is ticked in turn."""
        self._run = SerialRun(config, topology, folder, self._began)
        return self._run

    def close(self) -> None:
        """Closes what is left of the run."""
        if self._run is not None:
            self._run.close()


class SerialRun:
    """A serial run, polled for a moment at a time.

    Args:
        config: the resolved experiment.
        topology: its components.
        folder: the run folder, locked already.
        began: when the command began, seconds since 1970; None: now.
    """

    def __init__(
        self, config: Config, topology: Topology, folder: RunFolder, began: float | None = None
    ) -> None:
        import torch

        from session.launchers.serial import SerialLauncher

        self._details = ""
        threads = torch.get_num_threads()
        self._restore: Callable[[], None] = lambda: torch.set_num_threads(threads)
        # More threads would add up numbers in another order on another machine.
        self._launcher = SerialLauncher(
            config, topology, folder, prepare=lambda: torch.set_num_threads(1), began=began
        )
        self._launcher.launch()

    @property
    def outcome(self) -> Outcome | None:
        """How it ended, None while it goes on."""
        outcome = self._launcher.outcome
        return outcome and replace(outcome, details=self._details or outcome.details)

    def poll(self, timeout_seconds: float = 0.0) -> list[Event]:
        """Makes rounds for so long; the outcome tells of an error that ended the run."""
        until = time.monotonic() + timeout_seconds
        try:
            while self._launcher.step() and time.monotonic() < until:
                pass
        except SurrealError as error:
            self._details = str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - algorithm and environment are the user's
            self._details = traceback.format_exc().strip()
        return []

    def components(self) -> Mapping[str, Mapping[str, Any]]:
        """Name -> restarts, exit_code, alive_seconds."""
        return self._launcher.components()

    def stop(self, *, interrupted: bool = False, reason: str = "") -> None:
        """Begins the clean end."""
        self._launcher.stop(interrupted=interrupted, reason=reason)

    def kill(self) -> None:
        """Ends everything at once."""
        self._launcher.kill()

    def close(self) -> None:
        """Ends what still runs, and puts torch's threads back."""
        self._launcher.kill()
        self._restore()
