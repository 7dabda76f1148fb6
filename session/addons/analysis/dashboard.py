"""Dashboard of one run for notebooks: plain tables, numbers, pictures and commands.

Works with every launcher, and for a finished run. :class:`Panel` has its widgets.
"""

from __future__ import annotations

import html
import os
import signal
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from session.addons.analysis.charts import COLOURS, CURVES, FAINT, INK, png, run_figure
from session.errors import DeadlineError, MissingExtra, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.handle import RunHandle, open_run
from session.launchers.registry import LOCAL, launcher_of, list_detached
from session.process.component import has_joined, split_name
from session.process.heartbeat import KEPT
from session.show.components import STYLES, ComponentRow, component_table
from session.show.overview import conditions, heading, headline, overview, state_line
from session.show.run_view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Drawing takes as much time as all the rest, and one second changes little in the picture.
_PICTURE_SECONDS = 2.0
_LOG_LINES = 60
_CLOSE_SECONDS = 5.0

_TROUBLE = (" WARNING ", " ERROR ", " CRITICAL ")
_LEVELS = (" DEBUG ", " INFO ", *_TROUBLE)


def best_launcher() -> str:
    """Returns the launcher for notebooks: ``tmux`` if it is installed, else ``local``."""
    with_windows = (name for name in list_detached() if launcher_of(name).attach)
    return next((name for name in with_windows if which(name)), LOCAL.name)


class Dashboard:
    """State of one run; :meth:`refresh` reads new data.

    Args:
        run: the run folder, or the run that ``open_run`` or ``launch`` returned.

    Raises:
        UsageError: the folder holds no run.
    """

    def __init__(self, run: str | Path | RunFolder | RunHandle) -> None:
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
        # Those of other machines leave by themselves.
        return sum(split_name(name)[0] == kind != name and not has_joined(name) for name in names)


def _has_level(line: str) -> bool:
    return any(level in line for level in _LEVELS)


# Terminal style of a state -> colour.
_COLOURS = {"green": COLOURS[2], "cyan": COLOURS[5], "dim": FAINT, "bold red": COLOURS[4]}


class Panel:
    """Status table, pictures, buttons and logs of one run.

    Args:
        dashboard: dashboard of the run.
        interval_seconds: time between two refreshes.

    Raises:
        MissingExtra: ipywidgets or matplotlib is not installed.
    """

    def __init__(self, dashboard: Dashboard, interval_seconds: float = 1.0) -> None:
        try:
            import ipywidgets
        except ModuleNotFoundError as error:
            raise MissingExtra.named("the dashboard's widgets", "notebook") from error
        self._widgets: Any = ipywidgets
        self._dashboard = dashboard
        self._picture_due = 0.0
        self._drawn: object = None
        self._head, self._table, self._log = (ipywidgets.HTML() for _ in range(3))
        self._image = ipywidgets.Image(format="png", layout={"max_width": "100%"})
        self._message = ipywidgets.HTML()
        self._which = ipywidgets.Dropdown(options=dashboard.names(), description="component")
        self._what = ipywidgets.ToggleButtons(options=["output", "errors"])
        self._buttons = self._make_buttons()
        self.widget = self._laid_out()
        for chooser in (self._which, self._what):
            chooser.observe(lambda change: self._show_log(), names="value")
        self.refresh()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._keep_fresh, args=(interval_seconds,), name="dashboard", daemon=True
        )
        self._thread.start()

    def refresh(self) -> None:
        """Reads new data and updates the widgets."""
        board = self._dashboard
        board.refresh()
        self._head.value = _head(board)
        self._table.value = _table(list(board.view.components.values()))
        names = board.names()
        if list(self._which.options) != names:
            chosen = self._which.value
            self._which.options = names
            self._which.value = chosen if chosen in names else next(iter(names), None)
        self._show_log()
        drawn = (board.numbers(), board.running)
        if drawn != self._drawn and (time.monotonic() >= self._picture_due or not board.running):
            self._image.value = png(board.figure())
            self._drawn, self._picture_due = drawn, time.monotonic() + _PICTURE_SECONDS
        for button in self._buttons:
            button.disabled = not board.running

    def close(self) -> None:
        """Stops refreshing; the last content stays visible."""
        self._closing.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_SECONDS)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Returns the widgets, and their present content for viewers without widgets."""
        picture = b64encode(self._image.value).decode()
        image = f"<img style='max-width:100%' src='data:image/png;base64,{picture}'>"
        shown = "<br>".join((self._head.value, image, self._table.value))
        bundle: dict[str, Any] = self.widget._repr_mimebundle_()
        return bundle | {"text/plain": self._dashboard.table(), "text/html": shown}

    # -- widgets ----------------------------------------------------------------------------------

    def _make_buttons(self) -> list[Any]:
        board = self._dashboard
        return [
            self._button("Add agent", "plus", lambda: f"{board.add_agent()} agents wanted"),
            self._button("Remove agent", "minus", lambda: f"{board.remove_agent()} agents wanted"),
            self._button("Kill component", "bolt", self._kill),
            self._button("Restart component", "refresh", self._restart),
            self._button("Stop everything", "stop", self._stop, style="danger"),
        ]

    def _button(self, text: str, icon: str, act: Callable[[], str], style: str = "") -> Any:
        button = self._widgets.Button(
            description=text, icon=icon, button_style=style, layout={"width": "auto"}
        )
        button.on_click(lambda _: self._do(act))
        return button

    def _laid_out(self) -> Any:
        row = self._widgets.HBox
        return self._widgets.VBox(
            [
                self._head,
                self._image,
                self._table,
                row(self._buttons),
                self._message,
                row([self._which, self._what]),
                self._log,
            ]
        )

    # -- actions ----------------------------------------------------------------------------------

    def _keep_fresh(self, interval_seconds: float) -> None:
        while self._dashboard.running and not self._closing.wait(interval_seconds):
            self._do(self.refresh)

    def _do(self, act: Callable[[], str | None] | Callable[[], None]) -> None:
        """Runs an action and shows its result or error below the buttons."""
        try:
            text, colour = act(), INK
        except SurrealError as error:
            text, colour = str(error), COLOURS[4]
        except Exception as error:  # noqa: BLE001 - the thread must not end unseen
            text, colour = repr(error), COLOURS[4]
        if text is not None:
            self._message.value = _span(text, colour)

    def _kill(self) -> str:
        return f"killed {self._which.value}, process {self._dashboard.kill(self._which.value)}"

    def _restart(self) -> str:
        self._dashboard.restart(self._which.value)
        return f"{self._which.value} ends and is started again"

    def _stop(self) -> str:
        self._dashboard.stop()
        return "the run is ending: it saves a checkpoint and accounts for all experience"

    def _show_log(self) -> None:
        name, board = self._which.value, self._dashboard
        if name is None:
            return
        errors = self._what.value == "errors"
        lines = board.errors(name) if errors else board.output(name, _LOG_LINES)
        text = "\n".join(lines[-_LOG_LINES:]) or f"no {'errors' if errors else 'output'} of {name}"
        self._log.value = (
            "<pre style='max-height:260px; overflow:auto; font-size:11px; line-height:1.35; "
            f"margin:0'>{html.escape(text)}</pre>"
        )


def _head(board: Dashboard) -> str:
    numbers = " ".join(
        f"<span style='margin-right:1.4em; white-space:nowrap'>{_span(name, FAINT)} "
        f"<b>{html.escape(text)}</b></span>"
        for name, text in board.headline()
    )
    pages = " ".join(
        f"{_span(name, FAINT)} <a href='{html.escape(address)}' target='_blank' "
        f"style='text-decoration:underline'>{html.escape(address)}</a>"
        for name, address in board.pages().items()
    )
    title = f"<b style='font-size:15px'>{html.escape(board.title())}</b>"
    return "<br>".join(filter(None, [title, numbers, pages]))


def _table(rows: Sequence[ComponentRow]) -> str:
    cell = "style='text-align:left; padding:1px 14px 1px 0'"
    table = component_table(rows)
    head = "".join(f"<th {cell}>{_span(title, FAINT)}</th>" for title in table)
    texts = zip(*(column[1:] for column in table.values()), strict=True)
    lines = []
    for row, (name, *others) in zip(rows, texts, strict=True):
        dot = _span("●", _COLOURS.get(STYLES.get(row.state, ""), COLOURS[1]))
        shown = [f"{dot} {html.escape(name)}", *map(html.escape, others)]
        lines.append("<tr>" + "".join(f"<td {cell}>{text}</td>" for text in shown) + "</tr>")
    return f"<table style='line-height:1.5'><tr>{head}</tr>{''.join(lines)}</table>"


def _span(text: str, colour: str) -> str:
    return f"<span style='color:{colour}'>{html.escape(text)}</span>"
