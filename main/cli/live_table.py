"""The live table, drawn with rich."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from session.process.heartbeat import State
from session.show.components import STYLES, ComponentRow
from session.show.overview import (
    BAR_WIDTH,
    POLICY_HEAD,
    conditions,
    heading,
    numbers_table,
    policies_table,
)
from session.show.run_view import RunView
from session.show.text import bar, duration


class Canvas:
    """An area of a terminal that is redrawn, and lines above it that stay.

    Args:
        stream: the terminal.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal."""
        return self._console.size

    def draw_preparation(self, what: Path | str) -> None:
        """Draws a note until there is a table to show."""
        doing = "importing torch, building one environment"
        text = Text.assemble(("preparing", "bold"), (f" · {doing} · {what}", "dim"))
        self.draw(Group(Text(), text))

    def draw_run(self, view: RunView, seconds: float) -> None:
        """Draws the table of a run."""
        self.draw(render(view, seconds))

    def draw(self, what: Group | Text) -> None:
        """Draws the area anew."""
        self._live.update(what, refresh=True)

    def write(self, text: str, style: str) -> None:
        """Writes one line above the table."""
        self._console.print(Text(text, style))

    def close(self) -> None:
        """Removes the table."""
        self._live.stop()


def render(view: RunView, seconds: float) -> Group:
    """Renders the table of a run.

    Args:
        view: the state of the run.
        seconds: the duration so far.
    """
    gap = Text()
    rest = heading(view, duration(seconds)).removeprefix(view.title)
    title = Text.assemble((view.title, "bold"), (rest, "dim"))
    components = Columns([_component(row) for row in view.components.values()])
    if not view.line:
        return Group(gap, title, gap, components)
    above = [Group(part, gap) for part in (_numbers(view), *_policies(view))]
    return Group(gap, title, gap, *above, _conditions(view, seconds), gap, components)


def _numbers(view: RunView) -> Table:
    table = Table.grid(padding=(0, 2))
    for side in ("left", "right", "right", "left", "right", "left"):
        table.add_column(justify="right" if side == "right" else "left", no_wrap=True)
    for left, amount, note, right, value, remark in numbers_table(view):
        style = "bold green" if right == "greedy return" else ""
        table.add_row(_label(left), amount, note, _label(right), Text(value, style), _label(remark))
    return table


def _policies(view: RunView) -> list[Table]:
    """Renders a line for each of several policies."""
    table = Table.grid(*POLICY_HEAD, padding=(0, 2))
    for column in table.columns[1:]:
        column.justify = "right"
    rows = policies_table(view)
    table.add_row(*map(_label, POLICY_HEAD))
    for row in rows:
        table.add_row(*row)
    return [table] if rows else []


def _conditions(view: RunView, seconds: float) -> Table:
    """Renders goal and budgets, each with a bar."""
    table = Table.grid(padding=(0, 2))
    for name, share, text in conditions(view, seconds):
        table.add_row(_label(name), _bar(share, "green" if name == "goal" else "blue"), text)
    if not table.rows:
        table.add_row(_label("no goal and no budget: it goes on until Ctrl-C"))
    return table


def _bar(share: float, style: str) -> Text:
    text = bar(share, BAR_WIDTH)
    filled = text.rstrip("─")
    return Text.assemble((filled, style), (text[len(filled) :], "dim"))


def _component(row: ComponentRow) -> Text:
    """Renders a component with a mark in the colour of its state; names unusual states."""
    text = "" if row.momentary else row.doing
    text = text or row.last_death or (row.state if row.state != State.running else "")
    return Text.assemble(
        ("● ", STYLES.get(row.state, "yellow")),
        row.name,
        (f" {text}" if text else "", "dim"),
        (f" restarted {row.restarts}x" if row.restarts else "", "yellow"),
        "  ",
    )


def _label(text: str) -> Text:
    return Text(text, "dim")
