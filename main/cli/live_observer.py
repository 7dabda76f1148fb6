"""``train`` on a terminal: a table that is redrawn in place, and events as lines above it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from main.cli.progress_lines import is_news, news_lines
from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.process.clock import Moment
from session.process.periodic import Every
from session.show.run_view import RunView
from session.show.text import duration
from surreal_like.run.observer import RunObserver

if TYPE_CHECKING:
    from main.cli.live_table import Canvas
    from session.launchers.handle import RunHandle

_DRAW_SECONDS = 0.25


class LiveTable(RunObserver):
    """Draws the state of a run.

    It must not slow down the training: it draws only after changes, and reads only the new end of
    files that the run writes anyway.

    Args:
        stream: a terminal.
        started: start of the command, in seconds since 1970.
    """

    def __init__(self, stream: IO[str], started: float) -> None:
        self._stream = stream
        self._started = started
        self._moment = Moment.at(started)
        self._before = 0.0
        self._canvas: Canvas | None = None
        self._view: RunView | None = None
        self._due = Every(seconds=_DRAW_SECONDS, clock=time.monotonic)
        self._drawn: object = None

    def prepare(self, path: Path) -> None:
        """Draws a note about the preparation, which takes several seconds."""
        # Imported late: it is slow, and torch is imported in parallel at this point.
        from main.cli.live_table import Canvas

        self._canvas = Canvas(self._stream)
        self._canvas.draw_preparation(path)

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Draws the first table."""
        self._view = RunView(folder, config)
        self._view.pass_over()
        # Includes the time of earlier parts of a resumed run.
        self._before = (config.get("run") or {}).get("seconds_before", 0.0)

    def on_message(self, text: str) -> None:
        """Writes one line above the table."""
        self._write(text, "bold")

    def on_event(self, event: Event) -> None:
        """Writes an event of the launcher above the table."""
        if is_news(event):
            self._write(str(event), "yellow")

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Draws the table again if something in it has changed."""
        self._update(lambda view: view.refresh(components=components))

    def follow(self, run: RunHandle) -> None:
        """Like :meth:`look`, for a run that another process supervises."""
        self._update(lambda view: view.refresh(run))

    def _update(self, read: Callable[[RunView], object]) -> None:
        view = self._view
        if view is None or self._canvas is None or not self._due():
            return
        read(view)
        for when, line in news_lines(view):
            self._write(line, "", None if view.counted else when)
        rows = [(row.name, row.state, row.restarts) for row in view.components.values()]
        now = (self._clock(), rows, view.line.get("wall_seconds"))
        if now != self._drawn:
            self._drawn = now
            self._canvas.draw_run(view, self._seconds(None))

    def end(self) -> None:
        """Removes the table; the lines above it stay."""
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None

    def _write(self, text: str, style: str, when: float | None = None) -> None:
        if self._canvas is not None:
            self._canvas.write(f"{self._clock(when)}  {text}", style)

    def _clock(self, when: float | None = None) -> str:
        return duration(self._seconds(when))

    def _seconds(self, when: float | None) -> float:
        """Returns the seconds of the run so far, or at a wall-clock time."""
        since = self._moment.seconds_since() if when is None else when - self._started
        return self._before + since
