"""The dashboard of a run as notebook widgets, refreshed by a thread.

The kernel's main thread runs the cells; a long cell must not stop the refreshing.
"""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from session.errors import MissingExtra, SurrealError
from session.show.charts import COLOURS, FAINT, INK, png
from session.show.components import STYLES, ComponentRow, component_cells

if TYPE_CHECKING:
    from session.show.dashboard import Dashboard

# Terminal style of a state -> colour.
_COLOURS = {"green": COLOURS[2], "cyan": COLOURS[5], "dim": FAINT, "bold red": COLOURS[4]}
# Drawing takes as much time as all the rest, and one second changes little in the picture.
_PICTURE_SECONDS = 2.0
_LOG_LINES = 60
_CLOSE_SECONDS = 5.0


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

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.widget)  # type: ignore[no-untyped-call]

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
    titles, _, texts = component_cells(rows)
    head = "".join(f"<th {cell}>{_span(title, FAINT)}</th>" for title in titles)
    lines = []
    for row, (name, *others) in zip(rows, texts, strict=True):
        dot = _span("●", _COLOURS.get(STYLES.get(row.state, ""), COLOURS[1]))
        shown = [f"{dot} {html.escape(name)}", *map(html.escape, others)]
        lines.append("<tr>" + "".join(f"<td {cell}>{text}</td>" for text in shown) + "</tr>")
    return f"<table style='line-height:1.5'><tr>{head}</tr>{''.join(lines)}</table>"


def _span(text: str, colour: str) -> str:
    return f"<span style='color:{colour}'>{html.escape(text)}</span>"
