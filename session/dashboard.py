"""Dashboard of one run for notebooks: plain tables, numbers, pictures and commands.

Works with every launcher, and for a finished run. Widgets are in `session.notebook`.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from session.charts import png
from session.component_table import HEAD, cells, component_rows
from session.config import Config
from session.errors import DeadlineError, UsageError
from session.folder import RunFolder
from session.format import count, decimal, duration, percent, rate
from session.launchers.asking import told
from session.launchers.handle import open_run
from session.launchers.launcher import RunControl
from session.progress import Progress, shown_evaluations
from session.run_figure import CURVES, run_figure
from session.state import KEPT
from session.tensorplex.pages import Pages
from session.text_table import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from session.notebook import Panel

# Agents with this index or above have joined from other machines and leave by themselves.
_JOINED = 1000
_TROUBLE = (" WARNING ", " ERROR ", " CRITICAL ")
_LEVELS = (" DEBUG ", " INFO ", *_TROUBLE)


def best_launcher() -> str:
    """Returns the launcher for notebooks: ``tmux`` if it is installed, else ``local``."""
    return "tmux" if which("tmux") else "local"


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
        self.config: Config = self.folder.read_config()
        self._progress = Progress(self.folder.progress, CURVES)
        self._pages = Pages(self.folder)
        self._rows: list[dict[str, Any]] = []
        self._panel: Panel | None = None
        # Cells read while the panel's thread refreshes.
        self._lock = threading.RLock()
        self.running = True
        self.refresh()

    # -- state -----------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Reads the state of all components and newly reported progress."""
        with self._lock:
            self.running = self._run.running
            if not self._progress.read() and not self.folder.progress.is_file():
                # The run folder is on another machine, which sends only the newest line.
                self._progress.add(self._run.progress())
            self._rows = component_rows(
                self._run.status(), told(self.folder) if self.running else {}
            )

    def components(self) -> list[dict[str, Any]]:
        """Returns one row per component.

        Each has ``name``, ``state``, ``age_seconds`` since its last beat, ``pid``, ``restarts``,
        ``exit_code``, ``doing``, ``work`` (its rates in words), ``lag_versions`` and ``rss_bytes``;
        unknown values are None.
        """
        return [dict(row) for row in self._rows]

    def numbers(self) -> dict[str, Any]:
        """The newest line of ``progress.jsonl``, empty before the first."""
        return dict(self._progress.line)

    def episodes(self) -> int:
        """Number of finished training episodes."""
        return int(self._progress.line.get("episodes", 0))

    def headline(self) -> list[tuple[str, str]]:
        """The most important numbers, as pairs of name and text."""
        line = self._progress.line
        if not line:
            return []
        last, best = line.get("eval") or {}, line.get("best_eval") or {}
        rates, lag = line["rates"], line["lag"]
        shown = shown_evaluations(line).items()
        return [
            ("greedy return", decimal(last.get("mean_return"))),
            ("best", decimal(best.get("mean_return"))),
            ("goal", decimal(self.config.session_config.stop.eval_return)),
            *((f"{name} return", decimal(each.get("mean_return"))) for name, each in shown),
            ("training return", decimal(line["train"]["mean_return_100"])),
            ("episodes", count(line["episodes"])),
            ("env steps", f"{count(line['env_steps'])}, {rate(rates['env_steps_per_second'])}"),
            ("updates", f"{count(line['iterations'])}, {rate(rates['updates_per_second'])}"),
            ("policy lag", f"{decimal(lag['mean_versions'])} versions"),
            ("replay", f"{count((line.get('replay') or {}).get('size'))} rows"),
            ("learner waits", percent(line.get("waiting_share"))),
        ]

    def title(self) -> str:
        """Algorithm, environment, seed, state, duration and folder of the run."""
        config = self.config
        what = f"{config.algorithm} on {config.env_config.env_name}"
        seed = f"seed {config.session_config.seed}"
        took = duration(self._progress.line.get("wall_seconds"))
        return " · ".join([what, seed, self.state(), took, _shown(self.folder.path)])

    def state(self) -> str:
        """``running``, or the final status with its reason."""
        if self.running:
            return "running"
        result = self.folder.read_result() or {}
        reason = " ".join(str(result.get("reason") or "").split())
        return ": ".join(filter(None, [str(result.get("status", "not running")), reason]))

    def pages(self) -> dict[str, str]:
        """``tensorboard`` and ``prometheus`` -> address, for those that run."""
        return self._pages.read()

    def table(self) -> str:
        """Formats title, numbers, addresses and components as text."""
        numbers = ", ".join(f"{name} {text}" for name, text in self.headline())
        pages = [f"{name}: {address}" for name, address in self.pages().items()]
        rows = columns(HEAD, [cells(row) for row in self._rows])
        return "\n".join([self.title(), *filter(None, [numbers]), *pages, "", rows])

    def figure(self) -> Figure:
        """Draws returns, throughput and policy lag over time.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        with self._lock:
            return run_figure(self._progress, self.config.session_config.stop.eval_return)

    def picture(self) -> bytes:
        """Returns :meth:`figure` as a PNG file."""
        return png(self.figure())

    # -- output of a component --------------------------------------------------------------------

    def names(self) -> list[str]:
        """Names of all components."""
        return [row["name"] for row in self._rows]

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
        from session.notebook import Panel

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


def _shown(path: Path) -> str:
    """Returns a path relative to the current folder if it is below it, else unchanged."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _has_level(line: str) -> bool:
    return any(level in line for level in _LEVELS)
