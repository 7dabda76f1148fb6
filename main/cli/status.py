"""``surreal-like status RUN``: progress of a run and state of each component."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from main.cli.listing import state_of
from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from main.cli.view import View
from session.component_table import component_cells, component_rows
from session.format import MISSING, count, decimal, duration, rate
from session.launchers.asking import told
from session.launchers.handle import open_run
from session.launchers.launcher import RunControl
from session.progress import shown_evaluations
from session.state import State
from session.tensorplex.pages import Pages
from session.text_table import columns

_WATCH_SECONDS = 1.0


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("status", "Shows where a run stands, and the state of each component.")
    add_run(parser)
    parser.add_argument(
        "--watch", action="store_true", help="refresh every second until the run is over"
    )
    parser.add_argument("--json", action="store_true", help="everything as JSON, on one line")
    given = parser.parse_args(argv)
    folder = find_run(given.run)
    with open_run(folder) as adopted:
        view = View(folder)
        while True:
            view.show(adopted)
            running = adopted.running
            text = _as_json(view, adopted) if given.json else _page(view, adopted)
            _show(text, over=given.watch and not given.json)
            if not (given.watch and running):
                return 0
            time.sleep(_WATCH_SECONDS)


def _show(text: str, *, over: bool) -> None:
    """Prints the text; on a terminal over the previous output."""
    if over and sys.stdout.isatty():
        # Cursor home, the text with the rest of each line cleared, then all lines below cleared.
        text = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\n\x1b[J"
        print(text, end="", flush=True)
    else:
        print(text, flush=True)


def _page(view: View, adopted: RunControl) -> str:
    heard = told(view.folder) if adopted.running else {}
    states = view.states()
    known = [replace(row, state=states[name]) for name, row in view.rows.items()]
    head, right, rows = component_cells(component_rows(known, heard))
    pages = [f"{name}: {address}" for name, address in Pages(view.folder).read().items()]
    lines = [*_head(view, adopted), *pages, "", columns(head, rows, right=right)]
    if view.folder.launcher == "kubernetes" and adopted.running and view.folder.over:
        lines += ["", _idle(view)]
    supervisor = view.rows.get("supervisor")
    if supervisor is not None and supervisor.state == State.dead:
        lines += ["", f"bring its supervisor back: surreal-like restart {view.folder} supervisor"]
    return "\n".join(lines)


def _idle(view: View) -> str:
    """Describes the resources that a run on a cluster still reserves after its end."""
    from session.launchers.kubernetes.advice import idle_note

    there = [name for name, row in view.rows.items() if row.state != State.gone]
    return f"{idle_note(view.config, there)} {view.folder}"


def _as_json(view: View, adopted: RunControl) -> str:
    components = {}
    for name, state in view.states().items():
        beat, row = view.beats.get(name), view.rows.get(name)
        reported: dict[str, Any] = asdict(beat) if beat is not None else {}
        known: dict[str, Any] = asdict(row) if row is not None else {"restarts": 0}
        components[name] = {**reported, **known, "state": state}
    data = {
        "run": str(view.folder),
        "launcher": view.folder.launcher,
        "state": _state(view, adopted),
        "progress": view.line,
        "result": view.folder.read_result(),
        "components": components,
    }
    return json.dumps(data)


def _head(view: View, adopted: RunControl) -> list[str]:
    line = view.line
    lines = [f"{view.title} · {view.folder}", _state_line(view, adopted)]
    if not line:
        return lines
    if _state(view, adopted) == "running" and line.get("standstill"):
        lines.append(line["standstill"])
    rates, train = view.rates, line["train"]
    repeated = line.get("repeated_iterations")
    again = f", {count(repeated)} repeated" if repeated else ""
    rows = [
        ["env steps", count(line["env_steps"]), rate(rates.get("env_steps_per_second"))],
        ["updates", count(line["iterations"]), rate(rates.get("updates_per_second")) + again],
        ["training return", decimal(train["mean_return_100"]), "last 100 episodes"],
        ["greedy return", _mean(line.get("eval")), f"best {_mean(line.get('best_eval'))}"],
    ]
    for name, shown in shown_evaluations(line).items():
        rows.append([f"{name} return", _mean(shown), "does not judge"])
    for budget in view.budgets() if adopted.running else []:
        left = f"{duration(budget.left_seconds)} left" if budget.left_seconds is not None else ""
        show = duration if budget.name == "seconds" else count
        used = f"{show(budget.used)} of {show(budget.limit)}"
        rows.append([f"budget {budget.name}", used, left])
    missing = [view.missing_metric()] if view.missing_metric() else []
    return [*lines, *missing, "", columns([], rows, right=(1,))]


def _state(view: View, adopted: RunControl) -> str:
    return "running" if adopted.running and not view.folder.over else state_of(view.folder)


def _state_line(view: View, adopted: RunControl) -> str:
    state, launcher = _state(view, adopted), view.folder.launcher
    if state == "running" and launcher:
        state = f"running on {launcher}" if launcher != "serial" else "running in one thread"
    reason = (view.folder.read_result() or {}).get("reason")
    wall = view.line.get("wall_seconds")
    words = [state, f"after {view.time(wall)}" if wall is not None else "", str(reason or "")]
    return " · ".join(filter(None, words))


def _mean(evaluation: Mapping[str, Any] | None) -> str:
    return decimal(evaluation["mean_return"]) if evaluation else MISSING
