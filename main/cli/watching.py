"""What ``train`` shows while a run goes on, where nothing can be drawn: one line per report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import IO, Any

from main.cli.figures import count, decimal, duration, percent, rate
from main.cli.view import View
from session.config import Config
from session.folder import RunFolder
from surreal_like.run import Watch

_SECONDS = 2.0


class Lines(Watch):
    """Plain lines, at most one every two seconds, and events between them.

    Args:
        stream: where they go.
        clock: seconds, for tests.
    """

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._view: View | None = None
        self._due = 0.0

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Names the run."""
        self._view = View(folder, config)
        self.note(self._view.title)

    def note(self, text: str) -> None:
        """One line of its own."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def look(self) -> None:
        """Writes what is new."""
        if self._view is None:
            return
        news = self._view.look()
        for event in self._view.new_events():
            self.note(event_line(event))
        if news and self._clock() >= self._due:
            self._due = self._clock() + _SECONDS
            self.note(progress_line(self._view))


def event_line(event: Mapping[str, Any]) -> str:
    """An event as one line."""
    detail = str(event.get("detail", ""))
    return f"{event.get('component')}: {event.get('event')}" + (f": {detail}" if detail else "")


def progress_line(view: View) -> str:
    """Where a run stands, in one line."""
    line = view.line
    rates, train = line["rates"], line["train"]
    parts = [
        duration(line["wall_seconds"]),
        f"env steps {count(line['env_steps'])} ({rate(rates['env_steps_per_second'])})",
        f"updates {count(line['iterations'])} ({rate(rates['updates_per_second'])})",
        f"training return {decimal(train['mean_return_100'])}",
    ]
    if line.get("eval"):
        last, best = line["eval"]["mean_return"], line["best_eval"]["mean_return"]
        parts.append(f"greedy {decimal(last)}, best {decimal(best)}")
    parts.append(f"lag {decimal(line['lag']['mean_versions'])}")
    parts.append(f"replay {percent(view.replay_fill)}")
    for budget in view.budgets()[:1]:
        left = f", {duration(budget.left_seconds)} left" if budget.left_seconds is not None else ""
        parts.append(f"{percent(budget.share)} of {budget.name}{left}")
    return "  ".join(parts)
