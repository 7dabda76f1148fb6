"""The live table: where a run stands, drawn in place while it goes on.

It shares the machine with the training, so it draws only what has changed, and reads only the new
end of the files that the run writes anyway.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from main.cli.figures import bar, count, decimal, duration, percent, rate
from main.cli.view import View
from main.cli.watching import event_line
from session.config import Config
from session.folder import RunFolder
from session.periodic import Every
from surreal_like.run import Watch

_DRAW_SECONDS = 0.25
_BAR_WIDTH = 30
_STYLES = {
    "running": "green",
    "starting": "yellow",
    "draining": "cyan",
    "done": "dim",
    "silent": "bold yellow",
    "failed": "bold red",
}
_EVENT_STYLES = {"evaluation": "green", "ending": "bold", "restored": "cyan"}


class LiveTable(Watch):
    """Draws a table on a terminal, and events as lines above it.

    Args:
        stream: a terminal.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._due = Every(seconds=_DRAW_SECONDS, clock=time.monotonic)
        self._view: View | None = None
        self._drawn: object = None
        self._started = time.time()

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Draws the first table."""
        self._view = View(folder, config)
        self._started = (config.get("run") or {}).get("started") or self._started
        self._live.start()
        self.look()

    def note(self, text: str) -> None:
        """One line above the table."""
        self._console.print(Text(text))

    def look(self) -> None:
        """Draws the table again if something in it has changed."""
        if self._view is None or not self._due():
            return
        view = self._view
        view.look()
        for event in view.new_events():
            style = _EVENT_STYLES.get(event["event"], "yellow")
            self._console.print(Text(f"{self._clock()}  {event_line(event)}", style))
        seconds = int(time.time() - self._started)
        now = (seconds, view.states(), view.line.get("wall_seconds"))
        if now != self._drawn:
            self._drawn = now
            self._live.update(render(view, self._clock()), refresh=True)

    def end(self) -> None:
        """Takes the table away; what was written above it stays."""
        self._live.stop()

    def _clock(self) -> str:
        before = (self._view.config.get("run") or {}).get("seconds_before", 0.0) if self._view else 0
        return duration(time.time() - self._started + before)


def render(view: View, clock: str) -> Group:
    """The table of a run.

    Args:
        view: what is known of it.
        clock: how long it has been going, as text.
    """
    title = Text.assemble((view.title, "bold"), (f" · {clock}", "dim"))
    parts = [Text(), title, Text(), _numbers(view), Text(), _conditions(view), Text()]
    return Group(*parts, _components(view))


def _numbers(view: View) -> Table:
    line: Mapping[str, Any] = view.line
    rates, train = line.get("rates") or {}, line.get("train") or {}
    last, best = line.get("eval") or {}, line.get("best_eval") or {}
    lag, replay = line.get("lag") or {}, line.get("replay") or {}
    table = Table.grid(padding=(0, 3))
    for justify in ("left", "right", "right", "left", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_row(
        _label("env steps"),
        count(line.get("env_steps")),
        rate(rates.get("env_steps_per_second")),
        _label("greedy return"),
        Text(decimal(last.get("mean_return")), "bold green"),
        _label(f"best {decimal(best.get('mean_return'))}"),
    )
    table.add_row(
        _label("updates"),
        count(line.get("iterations")),
        rate(rates.get("updates_per_second")),
        _label("training return"),
        decimal(train.get("mean_return_100")),
        _label("last 100 episodes"),
    )
    table.add_row(
        _label("episodes"),
        count(line.get("episodes")),
        "",
        _label("policy lag"),
        decimal(lag.get("mean_versions")),
        _label(f"versions, {decimal(lag.get('mean_updates'))} updates"),
    )
    table.add_row(
        _label("replay"),
        count(replay.get("size")),
        percent(view.replay_fill),
        _label("each row sampled"),
        decimal(rates.get("samples_per_insert")),
        _label("times"),
    )
    return table


def _conditions(view: View) -> Table:
    """Goal and budgets, each with its bar."""
    table = Table.grid(padding=(0, 3))
    goal = view.goal()
    if goal is not None:
        name, wanted, reached = goal
        share = reached / wanted if reached is not None and wanted > 0 else 0.0
        if reached is not None and reached >= wanted:
            share = 1.0
        said = f"{decimal(reached)} of {decimal(wanted)} {name}"
        table.add_row(_label("goal"), Text(bar(share, _BAR_WIDTH), "green"), said)
    for budget in view.budgets():
        used, limit = count(budget.used), count(budget.limit)
        said = f"{used} of {limit} {budget.name.replace('_', ' ')}"
        if budget.name == "seconds":
            said = f"{duration(budget.used)} of {duration(budget.limit)}"
        if budget.left_seconds is not None:
            said += f", {duration(budget.left_seconds)} left"
        table.add_row(_label("budget"), Text(bar(budget.share, _BAR_WIDTH), "blue"), said)
    if not table.rows:
        table.add_row(_label("no goal, no budget: it goes on until Ctrl-C"))
    return table


def _components(view: View) -> Text:
    """Every component with a mark in the colour of its state; what is not running says so."""
    words = Text()
    for name, state in view.states().items():
        beat = view.beats.get(name)
        said = f" {state}" if state != "running" else ""
        if beat is not None and beat.doing:
            said = f" {beat.doing}"
        words.append("● ", _STYLES.get(state, "yellow"))
        words.append(name)
        words.append(said, "dim")
        restarts = view.restarts.get(name, 0)
        words.append(f" restarted {restarts}x" if restarts else "", "yellow")
        words.append("   ")
    return words


def _label(text: str) -> Text:
    return Text(text, "dim")
