"""``surreal-like status RUN``: where a run stands, and each of its parts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from main.cli.asking import try_ask
from main.cli.columns import columns
from main.cli.figures import MISSING, count, decimal, duration, rate, short_time
from main.cli.listing import state_of
from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from main.cli.view import View
from session.folder import RunFolder

_ANSWER_SECONDS = 1.0
_ENDED = ("done", "failed")


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("status", "Shows where a run stands, and the state of each component.")
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    given = parser.parse_args(argv)
    view = View(find_run(given.run))
    view.look(_known(view.folder))
    if given.json:
        print(json.dumps(_as_data(view)))
    else:
        print("\n".join([*_head(view), "", _components(view)]))
    return 0


def _known(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """What the launcher knows of each component, or, after the end, has written."""
    answer = None
    if folder.in_use:
        answer = try_ask(folder, "supervisor.control", "status", timeout_seconds=_ANSWER_SECONDS)
    if answer is not None:
        return {row["name"]: row for row in answer["components"]}
    return dict((folder.read_result() or {}).get("components") or {})


def _as_data(view: View) -> dict[str, Any]:
    states = view.states()
    components = {}
    for name, state in states.items():
        beat = view.beats.get(name)
        told = {**asdict(beat), "age_seconds": beat.age_seconds} if beat is not None else {}
        components[name] = {**told, "state": state, "restarts": view.restarts.get(name, 0)}
    return {
        "run": str(view.folder),
        "state": state_of(view.folder),
        "progress": view.line,
        "result": view.folder.read_result(),
        "components": components,
    }


def _head(view: View) -> list[str]:
    line = view.line
    lines = [f"{view.title} · {view.folder}", _state_line(view)]
    if not line:
        return lines
    rates, train = line["rates"], line["train"]
    rows = [
        ["env steps", count(line["env_steps"]), rate(rates["env_steps_per_second"])],
        ["updates", count(line["iterations"]), rate(rates["updates_per_second"])],
        ["training return", decimal(train["mean_return_100"]), "last 100 episodes"],
        ["greedy return", _mean(line.get("eval")), f"best {_mean(line.get('best_eval'))}"],
    ]
    for budget in view.budgets() if view.folder.in_use else []:
        left = f"{duration(budget.left_seconds)} left" if budget.left_seconds is not None else ""
        used = f"{count(budget.used)} of {count(budget.limit)}"
        rows.append([f"budget {budget.name}", used, left])
    return [*lines, "", columns([], rows, right=(1,))]


def _state_line(view: View) -> str:
    state = state_of(view.folder)
    reason = (view.folder.read_result() or {}).get("reason")
    wall = view.line.get("wall_seconds")
    words = [state, f"after {duration(wall)}" if wall is not None else "", str(reason or "")]
    return " · ".join(filter(None, words))


def _mean(evaluation: Mapping[str, Any] | None) -> str:
    return decimal(evaluation["mean_return"]) if evaluation else MISSING


def _components(view: View) -> str:
    restarts = view.restarts
    rows = [
        [name, state, *_beat(view, name, state), str(restarts.get(name, 0))]
        for name, state in view.states().items()
    ]
    return columns(
        ["component", "state", "last beat", "pid", "doing", "restarts"], rows, right=(5,)
    )


def _beat(view: View, name: str, state: str) -> list[str]:
    beat = view.beats.get(name)
    if beat is None:
        return [MISSING, MISSING, ""]
    pid = MISSING if state in _ENDED else str(beat.pid)
    return [f"{short_time(beat.age_seconds)} ago", pid, view.doing(name)]
