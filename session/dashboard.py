"""One run as a notebook shows and steers it: plain tables, numbers, pictures and commands.

Works for whatever launched the run, and for one that is over. Widgets are in `session.notebook`.
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
from session.tensorplex.pages import Pages
from session.text_table import columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from session.notebook import Panel

# States of what the run keeps alive; who is draining ends for good.
_KEPT = ("waiting", "starting", "running")
# Agents from here on have joined from other machines, and leave by themselves.
_JOINED = 1000
_TROUBLE = (" WARNING ", " ERROR ", " CRITICAL ")
_LEVELS = (" DEBUG ", " INFO ", *_TROUBLE)


def best_launcher() -> str:
    """``tmux`` where there is one, else ``local``: what a notebook launches its cluster with."""
    return "tmux" if which("tmux") else "local"


class Dashboard:
    """What is known of one run; :meth:`refresh` reads what is new.

    Args:
        run: the run folder, or the run as ``open_run`` or ``launch`` gave it.

    Raises:
        UsageError: no run was ever started there.
    """

    def __init__(self, run: str | Path | RunFolder | RunControl) -> None:
        self._run = open_run(run) if isinstance(run, str | Path | RunFolder) else run
        self.folder: RunFolder = self._run.folder
        self.config: Config = self.folder.read_config()
        self._progress = Progress(self.folder.progress, CURVES)
        self._pages = Pages(self.folder)
        self._rows: list[dict[str, Any]] = []
        self._panel: Panel | None = None
        # Cells ask while the panel refreshes itself.
        self._lock = threading.RLock()
        self.running = True
        self.refresh()

    # -- what there is to see --------------------------------------------------------------------

    def refresh(self) -> None:
        """Asks the run for the state of its parts, and reads what it has reported since."""
        with self._lock:
            self.running = self._run.running
            if not self._progress.read() and not self.folder.progress.is_file():
                # The run folder is on another machine: only the newest line comes from there.
                self._progress.add(self._run.progress())
            self._rows = component_rows(
                self._run.status(), told(self.folder) if self.running else {}
            )

    def components(self) -> list[dict[str, Any]]:
        """A row for each component.

        Each has ``name``, ``state``, ``age_seconds`` since its last beat, ``pid``, ``restarts``,
        ``exit_code``, ``doing``, ``work`` (its rates in words), ``lag_versions`` and ``rss_bytes``;
        what is unknown is None.
        """
        return [dict(row) for row in self._rows]

    def numbers(self) -> dict[str, Any]:
        """The newest line of progress, empty before the first."""
        return dict(self._progress.line)

    def episodes(self) -> int:
        """Training episodes that have ended."""
        return int(self._progress.line.get("episodes", 0))

    def headline(self) -> list[tuple[str, str]]:
        """The numbers to look at first, as pairs of name and text."""
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
        """Algorithm, environment, seed, how it stands, and for how long it has been going."""
        config = self.config
        what = f"{config.algorithm} on {config.env_config.env_name}"
        seed = f"seed {config.session_config.seed}"
        took = duration(self._progress.line.get("wall_seconds"))
        return " · ".join([what, seed, self.state(), took, _shown(self.folder.path)])

    def state(self) -> str:
        """``running``, or how it ended, with the reason."""
        if self.running:
            return "running"
        result = self.folder.read_result() or {}
        reason = " ".join(str(result.get("reason") or "").split())
        return ": ".join(filter(None, [str(result.get("status", "not running")), reason]))

    def pages(self) -> dict[str, str]:
        """``tensorboard`` and ``prometheus`` -> address, of those that the run has started."""
        return self._pages.read()

    def table(self) -> str:
        """Title, numbers, addresses and components as text."""
        numbers = ", ".join(f"{name} {text}" for name, text in self.headline())
        pages = [f"{name}: {address}" for name, address in self.pages().items()]
        rows = columns(HEAD, [cells(row) for row in self._rows])
        return "\n".join([self.title(), *filter(None, [numbers]), *pages, "", rows])

    def figure(self) -> Figure:
        """Returns, throughput and policy lag over time.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        with self._lock:
            return run_figure(self._progress, self.config.session_config.stop.eval_return)

    def picture(self) -> bytes:
        """The same as a PNG file."""
        return png(self.figure())

    # -- what a component has said ----------------------------------------------------------------

    def names(self) -> list[str]:
        """Every component, by name."""
        return [row["name"] for row in self._rows]

    def output(self, name: str, lines: int = 50) -> list[str]:
        """The last lines of a component's log and of its standard error; none before the first."""
        try:
            return self._run.logs(name, lines)
        except UsageError:
            return []

    def errors(self, name: str, lines: int = 1000) -> list[str]:
        """Of its last lines the warnings and errors, with what belongs to them."""
        found, shown = [], False
        for line in self.output(name, lines):
            if not line.startswith("    "):
                # What bears no level was written to standard error: nobody does that in peace.
                shown = any(word in line for word in _TROUBLE) or not _has_level(line)
            if shown:
                found.append(line)
        return found

    # -- what can be done -------------------------------------------------------------------------

    def add_agent(self) -> int:
        """One agent more; returns how many there are then."""
        return self.scale("agent", self._number("agent") + 1)

    def remove_agent(self) -> int:
        """One agent fewer: the last one ends, and what it has sent counts."""
        return self.scale("agent", max(0, self._number("agent") - 1))

    def scale(self, kind: str, num: int) -> int:
        """So many of a kind, ``agent`` or ``eval``; returns the number.

        Raises:
            UsageError, WireError: the run is over, or refuses.
        """
        self._run.scale(kind, num)
        return num

    def restart(self, name: str) -> None:
        """Ends one component cleanly and starts it again."""
        self._run.restart(name)

    def kill(self, name: str) -> int:
        """Kills the process of one component, as a fault would; the run starts it again.

        Returns:
            The number of the process.

        Raises:
            UsageError: it has no process on this machine.
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
        """Begins the clean end of the run: it saves, and all experience is accounted for."""
        if self._run.running:
            self._run.stop(interrupted=True, reason="stopped from the dashboard")

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Waits until the run is over; False if it goes on after so long."""
        try:
            self._run.wait(timeout_seconds)
        except DeadlineError:
            return False
        finally:
            self.refresh()
        return True

    def show(self, interval_seconds: float = 1.0) -> Panel:
        """The dashboard as widgets that refresh themselves; the last one shown stays alive.

        Raises:
            MissingExtra: ipywidgets is not installed.
        """
        from session.notebook import Panel

        if self._panel is not None:
            self._panel.close()
        self._panel = Panel(self, interval_seconds)
        return self._panel

    def close(self) -> None:
        """Ends the refreshing and gives back what is held; the run goes on."""
        if self._panel is not None:
            self._panel.close()
        self._run.close()

    def _number(self, kind: str) -> int:
        """How many of a kind this run keeps alive itself."""
        names = [row.name for row in self._run.status() if row.state in _KEPT]
        numbers = [name.removeprefix(f"{kind}-") for name in names if name.startswith(f"{kind}-")]
        return sum(number.isdecimal() and int(number) < _JOINED for number in numbers)


def _shown(path: Path) -> str:
    """A path as short as it is from here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def _has_level(line: str) -> bool:
    return any(level in line for level in _LEVELS)
