"""The live table, drawn with rich."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from main.cli.view import Budget, View
from session.format import bar, count, decimal, duration, percent, rate
from session.progress import shown_evaluations
from session.state import State

_BAR_WIDTH = 24
_STATE_STYLES = {
    State.running: "green",
    State.draining: "cyan",
    State.done: "dim",
    State.silent: "bold yellow",
    State.failed: "bold red",
}


class Canvas:
    """An area of a terminal that is redrawn, and lines above it that stay.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def draw_preparation(self, path: Path) -> None:
        """Draws a note until there is a table to show."""
        doing = "importing torch, building one environment"
        text = Text.assemble(("preparing", "bold"), (f" · {doing} · {path}", "dim"))
        self._live.update(Group(Text(), text), refresh=True)

    def draw(self, view: View, clock: str) -> None:
        """Draws the table."""
        self._live.update(render(view, clock), refresh=True)

    def write(self, text: str, style: str) -> None:
        """Writes one line above the table."""
        self._console.print(Text(text, style))

    def close(self) -> None:
        """Removes the table."""
        self._live.stop()


def render(view: View, clock: str) -> Group:
    """Renders the table of a run.

    Args:
        view: the state of the run.
        clock: its duration so far, as text.
    """
    gap = Text()
    title = Text.assemble((view.title, "bold"), (f" · {clock} · {view.folder}", "dim"))
    if not view.line:
        return Group(gap, title, gap, _components(view))
    return Group(
        gap, title, gap, _numbers(view), gap, _conditions(view, clock), gap, _components(view)
    )


def _numbers(view: View) -> Table:
    line: Mapping[str, Any] = view.line
    rates, lag = view.rates, line["lag"]
    last, best = line.get("eval") or {}, line.get("best_eval") or {}
    table = Table.grid(padding=(0, 2))
    for name in ("left", "right", "right", "left", "right", "left"):
        table.add_column(justify="right" if name == "right" else "left", no_wrap=True)
    table.add_row(
        _label("env steps"),
        count(line["env_steps"]),
        rate(rates.get("env_steps_per_second")),
        _label("greedy return"),
        Text(decimal(last.get("mean_return")), "bold green"),
        _label(f"best {decimal(best.get('mean_return'))}"),
    )
    table.add_row(
        _label("updates"),
        count(line["iterations"]),
        rate(rates.get("updates_per_second")),
        _label("training return"),
        decimal(line["train"]["mean_return_100"]),
        _label("last 100 episodes"),
    )
    table.add_row(
        _label("episodes"),
        count(line["episodes"]),
        "",
        _label("policy lag"),
        decimal(lag["mean_versions"]),
        _label(f"versions, {count(lag['mean_updates'])} updates"),
    )
    table.add_row(
        _label("replay"),
        count(line["replay"]["size"]),
        percent(view.replay_fill),
        _label("sampled"),
        decimal(rates.get("samples_per_insert")),
        _label("times each row"),
    )
    for name, shown in shown_evaluations(line).items():
        value = decimal(shown.get("mean_return"))
        table.add_row("", "", "", _label(f"{name} return"), value, _label("does not judge"))
    return table


def _conditions(view: View, clock: str) -> Table:
    """Renders goal and budgets, each with a bar."""
    table = Table.grid(padding=(0, 2))
    goal = view.goal()
    if goal is not None:
        name, wanted, reached = goal
        text = f"{decimal(reached)} of {decimal(wanted)} {name}"
        table.add_row(_label("goal"), _bar(share_of(reached, wanted), "green"), text)
    for budget in view.budgets():
        table.add_row(_label("budget"), _bar(budget.share, "blue"), _budget(view, budget, clock))
    if not table.rows:
        table.add_row(_label("no goal and no budget: it goes on until Ctrl-C"))
    return table


def share_of(reached: float | None, wanted: float) -> float:
    """Returns the share of a goal that is reached, 0 to 1; for negative goals the inverse ratio."""
    if reached is None:
        return 0.0
    if reached >= wanted:
        return 1.0
    return reached / wanted if wanted > 0 else wanted / reached


def _bar(share: float, style: str) -> Text:
    text = bar(share, _BAR_WIDTH)
    filled = text.rstrip("─")
    return Text.assemble((filled, style), (text[len(filled) :], "dim"))


def _budget(view: View, budget: Budget, clock: str) -> str:
    if budget.name == "seconds":
        # The clock of the table: the value of the last report is a moment older.
        used = duration(budget.used) if view.counted else clock
        return f"{used} of {view.time(budget.limit)}"
    text = f"{count(budget.used)} of {count(budget.limit)} {budget.name.replace('_', ' ')}"
    if budget.left_seconds is not None and budget.used:
        text += f", {duration(budget.left_seconds)} left"
    return text


def _components(view: View) -> Columns:
    """Renders each component with a mark in the colour of its state; names unusual states."""
    return Columns([_component(view, name, state) for name, state in view.states().items()])


def _component(view: View, name: str, state: State) -> Text:
    text = view.doing(name) or (state if state != State.running else "")
    times = view.restarts.get(name, 0)
    return Text.assemble(
        ("● ", _STATE_STYLES.get(state, "yellow")),
        name,
        (f" {text}" if text else "", "dim"),
        (f" restarted {times}x" if times else "", "yellow"),
        "  ",
    )


def _label(text: str) -> Text:
    return Text(text, "dim")
