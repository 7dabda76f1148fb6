"""``train`` on a terminal: a table that is redrawn in place, and events as lines above it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.process.clock import Moment
from session.process.periodic import Every
from session.show.overview import heading, headline
from session.show.progress import shown_evaluations
from session.show.run_view import RunView
from session.show.text import count, decimal, duration, percent
from session.tensorplex.pages import PAGES
from surreal_like.run.observer import INTERRUPTED, RunObserver

if TYPE_CHECKING:
    from main.cli.live_table import Canvas
    from session.launchers.handle import RunHandle

_SECONDS = 2.0
# Later the interval is the age of the run divided by _LINES, at most _MOST_SECONDS.
_LINES = 30
_MOST_SECONDS = 300.0


class Lines(RunObserver):
    """Writes the state of the run at most every two seconds, and events, as plain lines.

    The interval grows with the age of the run, up to five minutes.

    Args:
        stream: output.
        clock: clock in seconds, for tests.
    """

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._view: RunView | None = None
        self._due = 0.0
        self._began = clock()

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Writes the name of the run."""
        self._view = RunView(folder, config)
        self._view.pass_over()
        self.on_message(heading(self._view))

    def on_message(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def on_event(self, event: Event) -> None:
        """Writes an event of the supervisor as a line."""
        if is_news(event):
            self.on_message(str(event))

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes new events, and progress if its interval has passed."""
        if self._view is None:
            return
        news = self._view.refresh(components=components)
        for _, line in news_lines(self._view):
            self.on_message(line)
        if news and self._view.line["env_steps"] and self._clock() >= self._due:
            # A run of hours must not write thousands of lines.
            age = self._clock() - self._began
            self._due = self._clock() + min(_MOST_SECONDS, max(_SECONDS, age / _LINES))
            self.on_message(progress_line(self._view))


def news_lines(view: RunView) -> list[tuple[float | None, str]]:
    """Returns the events since the last call in order: seconds since 1970 if known, and text."""
    return [(event.get("time"), event_line(event)) for event in view.new_events()]


def is_news(event: Event) -> bool:
    """Returns False for the end of a component and for a stop that the user has just requested."""
    asked = event.kind == "stop" and event.detail == INTERRUPTED
    return event.kind != "ended" and not asked


def event_line(event: Mapping[str, Any]) -> str:
    """Formats an event as one line."""
    kind, detail = event.get("event"), " ".join(str(event.get("detail", "")).split())
    if kind == "evaluation" and detail.endswith("(again)"):
        return f"the same on new episodes: {detail.removesuffix(' (again)')}"
    if kind == "evaluation":
        return (
            f"best greedy return so far: {decimal(event['mean_return'])} over {event['episodes']} "
            f"episodes, at {count(event['env_steps'])} env steps"
        )
    if kind == "missing_metric":
        return detail
    if kind == "ending":
        return f"ending: {detail}"
    if kind in ("task", *PAGES):
        return f"{kind}: {detail}"
    return f"{event.get('component')}: {kind}" + (f": {detail}" if detail else "")


def progress_line(view: RunView) -> str:
    """Formats the state of a run as one line."""
    amounts, returns = headline(view)
    shown = {each.name: each for each in (*amounts, *returns)}
    steps, updates, greedy = (shown[name] for name in ("env steps", "updates", "greedy return"))
    parts = [
        view.time(view.line["wall_seconds"]),
        f"env steps {steps.text} ({steps.note})",
        f"updates {updates.text} ({updates.note})",
        f"training return {shown['training return'].text}",
        f"greedy {greedy.text}, {greedy.note}" if view.line.get("eval") else "",
        *(f"{name} {shown[f'{name} return'].text}" for name in shown_evaluations(view.line)),
        f"lag {shown['policy lag'].text}",
        f"replay {shown['replay'].note}",
    ]
    for budget in view.budgets()[:1]:
        left = f", {duration(budget.left_seconds)} left" if budget.left_seconds is not None else ""
        parts.append(f"{percent(min(1.0, budget.share))} of {budget.name}{left}")
    return "  ".join(filter(None, parts))


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
