"""``train`` in a pipe or a file: a line of progress now and then, and events, as plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from session.config import Config
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.loggerplex.terminal import printable
from session.show.overview import heading, headline
from session.show.progress import shown_evaluations
from session.show.run_view import RunView
from session.show.text import decimal, duration, percent, steps_or_updates
from session.tensorplex.pages import PAGES
from surreal_like.run.observer import INTERRUPTED, RunObserver

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
        now = self._view.line
        begun = news and (now["env_steps"] or now["iterations"])
        if begun and self._clock() >= self._due:
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
    kind, detail = event.get("event"), printable(" ".join(str(event.get("detail", "")).split()))
    if kind == "evaluation" and detail.endswith("(again)"):
        return f"the same on new episodes: {detail.removesuffix(' (again)')}"
    if kind == "evaluation":
        return (
            f"best greedy return so far: {decimal(event['mean_return'])} over {event['episodes']} "
            f"episodes, at {steps_or_updates(event['env_steps'], event.get('iteration', 0))}"
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
        f"env steps {steps.text} ({steps.note})" if view.line["env_steps"] else "",
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
