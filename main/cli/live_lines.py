"""``train`` without a terminal: plain lines, one per report and one per event."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from main.cli.view import View
from session.config import Config
from session.folder import RunFolder
from session.format import count, decimal, duration, percent, rate
from session.launchers.instruction import Event
from session.progress import shown_evaluations
from session.tensorplex.pages import PAGES
from surreal_like.observer import INTERRUPTED, RunObserver

_SECONDS = 2.0
# Later the interval is the age of the run divided by _LINES, at most _MOST_SECONDS.
_LINES = 30
_MOST_SECONDS = 300.0


class Lines(RunObserver):
    """Writes the state of the run at most every two seconds, and events, as plain lines.

    The interval grows with the age of the run, up to five minutes.

    Args:
        stream: output.
        clock: in seconds, for tests.
    """

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._view: View | None = None
        self._due = 0.0
        self._began = clock()

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Writes the name of the run."""
        self._view = View(folder, config)
        self._view.pass_over()
        self.note(f"{self._view.title} · {folder}")

    def note(self, text: str) -> None:
        """Writes one line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def happened(self, happening: Event) -> None:
        """Writes an event of the launcher as a line."""
        if is_news(happening):
            self.note(happening_line(happening))

    def look(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Writes new events, and progress if its interval has passed."""
        if self._view is None:
            return
        news = self._view.look(components)
        for _, line in news_lines(self._view):
            self.note(line)
        if news and self._view.line["env_steps"] and self._clock() >= self._due:
            # A run of hours must not write thousands of lines.
            age = self._clock() - self._began
            self._due = self._clock() + min(_MOST_SECONDS, max(_SECONDS, age / _LINES))
            self.note(progress_line(self._view))


def news_lines(view: View) -> list[tuple[float | None, str]]:
    """Returns the events since the last call in order: seconds since 1970 if known, and text."""
    lines = [(event.get("time"), event_line(event)) for event in view.new_events()]
    # Also from the report: it is later than the event, but the event may be lost.
    best, missing = view.pop_new_best(), view.pop_missing_metric()
    if best is not None:
        lines.append((None, _best_line(best)))
    return [*lines, (None, missing)] if missing else lines


def _best_line(best: Mapping[str, Any]) -> str:
    return (
        f"best greedy return so far: {decimal(best['mean_return'])} over {best['episodes']} "
        f"episodes, at {count(best['env_steps'])} env steps"
    )


def is_news(happening: Event) -> bool:
    """Returns False for the end of a component and for a stop that the user has just requested."""
    asked = happening.kind == "stop" and happening.detail == INTERRUPTED
    return happening.kind != "ended" and not asked


def happening_line(happening: Event) -> str:
    """Formats an event of the launcher as one line."""
    words = (happening.component or "run", happening.kind, happening.detail)
    return ": ".join(word for word in words if word)


def event_line(event: Mapping[str, Any]) -> str:
    """Formats an event as one line."""
    kind, detail = event.get("event"), " ".join(str(event.get("detail", "")).split())
    if kind == "evaluation" and not detail.endswith("(again)"):
        return _best_line(event)
    if kind == "evaluation":
        return f"the same on new episodes: {detail.removesuffix(' (again)')}"
    if kind == "ending":
        return f"ending: {detail}"
    if kind in PAGES:
        return f"{kind}: {detail}"
    return f"{event.get('component')}: {kind}" + (f": {detail}" if detail else "")


def progress_line(view: View) -> str:
    """Formats the state of a run as one line."""
    line = view.line
    rates, train = view.rates, line["train"]
    parts = [
        view.time(line["wall_seconds"]),
        f"env steps {count(line['env_steps'])} ({rate(rates.get('env_steps_per_second'))})",
        f"updates {count(line['iterations'])} ({rate(rates.get('updates_per_second'))})",
        f"training return {decimal(train['mean_return_100'])}",
    ]
    if line.get("eval"):
        last, best = line["eval"]["mean_return"], line["best_eval"]["mean_return"]
        parts.append(f"greedy {decimal(last)}, best {decimal(best)}")
    for name, shown in shown_evaluations(line).items():
        parts.append(f"{name} {decimal(shown.get('mean_return'))}")
    parts.append(f"lag {decimal(line['lag']['mean_versions'])}")
    parts.append(f"replay {percent(view.replay_fill)}")
    for budget in view.budgets()[:1]:
        left = f", {duration(budget.left_seconds)} left" if budget.left_seconds is not None else ""
        parts.append(f"{percent(min(1.0, budget.share))} of {budget.name}{left}")
    return "  ".join(parts)
