"""Dashboard of one run for notebooks: plain tables, numbers, pictures and commands.

Works with every launcher, and for a finished run. Widgets are in `session.show.notebook`.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.launchers.handle import open_run
from session.launchers.launcher import RunControl
from session.launchers.registry import DETACHED, LOCAL, launcher_of
from session.process.heartbeat import KEPT
from session.show.charts import CURVES, png, run_figure
from session.show.overview import conditions, heading, headline, overview, state_line
from session.show.run_view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from session.show.notebook import Panel

# Agents with this index or above have joined from other machines and leave by themselves.
_JOINED = 1000
_TROUBLE = (" WARNING ", " ERROR ", " CRITICAL ")
_LEVELS = (" DEBUG ", " INFO ", *_TROUBLE)


def best_launcher() -> str:
    """Returns the launcher for notebooks: ``tmux`` if it is installed, else ``local``."""
    with_windows = (name for name in DETACHED if launcher_of(name).attach)
    return next((name for name in with_windows if which(name)), LOCAL.name)


class Dashboard:
    """State of one run; :meth:`refresh` reads new data.

    Args:
        run: the run folder, or the run that ``open_run`` or ``launch`` returned.

    Raises:
        UsageError: the folder holds no run.
    """

    def __init__(self, run: str | Path | RunFolder | RunControl) -> None:
        self._run = open_run(run) if isinstance(run, str | Path | RunFolder) else run
        self.folder: RunFolder = self._run.folder
        self.view = RunView(self.folder, curves=CURVES)
        self._panel: Panel | None = None
        # Cells read while the panel's thread refreshes.
        self._lock = threading.RLock()
        self.refresh()

    # -- state -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Reads the state of all components and newly reported progress."""
        with self._lock:
            self.view.refresh(self._run, telemetry=True)
            self.running = self.view.running

    def components(self) -> list[dict[str, Any]]:
        """Returns one row per component: the fields of :class:`ComponentRow`."""
        return [asdict(row) for row in self.view.components.values()]

    def numbers(self) -> dict[str, Any]:
        """The newest line of ``progress.jsonl``, empty before the first."""
        return dict(self.view.line)

    def headline(self) -> list[tuple[str, str]]:
        """The most important numbers, goal and first budget, as pairs of name and text."""
        amounts, returns = headline(self.view)
        found = {each.name: each.words for each in (*returns, *amounts)}
        limits = reversed(conditions(self.view) if found else [])
        return list((found | {name: text for name, _, text in limits}).items())

    def title(self) -> str:
        """Algorithm, environment, seed, state, duration and folder of the run."""
        return heading(self.view, state_line(self.view))

    def state(self) -> str:
        """``running``, or the outcome with its reason."""
        return ": ".join(filter(None, [self.view.state, self.view.reason]))

    def pages(self) -> dict[str, str]:
        """Addresses of web pages, see :meth:`session.tensorplex.board.Pages.read`."""
        return self.view.pages.read()

    def table(self) -> str:
        """Formats all of it as text, as ``surreal-like status`` prints it."""
        return overview(self.view)

    def figure(self) -> Figure:
        """Draws returns, throughput and policy lag over time.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        with self._lock:
            goal = self.view.config.session_config.stop.eval_return
            return run_figure(self.view.progress, goal)

    def picture(self) -> bytes:
        """Returns :meth:`figure` as a PNG file."""
        return png(self.figure())

    # -- output of a component --------------------------------------------------------------------

    def names(self) -> list[str]:
        """Names of all components."""
        return list(self.view.components)

    def output(self, name: str, lines: int = 50) -> list[str]:
        """The last lines of a component's log and standard error; empty before the first."""
        try:
            return self._run.logs(name, lines)
        except UsageError:
            return []

    def errors(self, name: str, lines: int = 1000) -> list[str]:
        """Warnings and errors among the last lines, with their continuation lines."""
        found, shown = [], False
        for line in self.output(name, lines):
            if not line.startswith("    "):
                # Lines without a log level come from stderr; they are shown as errors.
                shown = any(word in line for word in _TROUBLE) or not _has_level(line)
            if shown:
                found.append(line)
        return found

    # -- commands ---------------------------------------------------------------------------------

    def add_agent(self) -> int:
        """Adds one agent; returns the new number of agents."""
        return self.scale("agent", self._number("agent") + 1)

    def remove_agent(self) -> int:
        """Removes the last agent; its sent experience stays counted. Returns the new number."""
        return self.scale("agent", max(0, self._number("agent") - 1))

    def scale(self, kind: str, num: int) -> int:
        """Sets the number of components of a kind, ``agent`` or ``eval``, and returns it.

        Raises:
            UsageError, WireError: the run is over, or refuses the command.
        """
        self._run.scale(kind, num)
        return num

    def restart(self, name: str) -> None:
        """Ends one component cleanly and starts it again."""
        self._run.restart(name)

    def kill(self, name: str) -> int:
        """Kills the process of one component to simulate a fault; the run restarts it.

        Returns:
            The process id.

        Raises:
            UsageError: the component has no process on this machine.
        """
        pid = next((row.pid for row in self._run.status() if row.name == name), 0)
        try:
            if pid <= 0:
                raise ProcessLookupError
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            raise UsageError(
                f"'{name}' has no process on this machine that could be killed"
            ) from None
        return pid

    def stop(self) -> None:
        """Starts a clean shutdown: the run saves a checkpoint and accounts for all experience."""
        if self._run.running:
            self._run.stop(interrupted=True, reason="stopped from the dashboard")

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the run is over; False if the timeout passes first."""
        try:
            self._run.wait(timeout_seconds)
        except DeadlineError:
            return False
        finally:
            self.refresh()
        return True

    def show(self, interval_seconds: float = 1.0) -> Panel:
        """Shows the dashboard as self-refreshing widgets; a panel shown before is closed.

        Raises:
            MissingExtra: ipywidgets is not installed.
        """
        from session.show.notebook import Panel

        if self._panel is not None:
            self._panel.close()
        self._panel = Panel(self, interval_seconds)
        return self._panel

    def close(self) -> None:
        """Stops refreshing and releases resources; the run continues."""
        if self._panel is not None:
            self._panel.close()
        self._run.close()

    def _number(self, kind: str) -> int:
        """Number of components of a kind that the run itself keeps alive."""
        names = [row.name for row in self._run.status() if row.state in KEPT]
        numbers = [name.removeprefix(f"{kind}-") for name in names if name.startswith(f"{kind}-")]
        return sum(number.isdecimal() and int(number) < _JOINED for number in numbers)


def _has_level(line: str) -> bool:
    return any(level in line for level in _LEVELS)
