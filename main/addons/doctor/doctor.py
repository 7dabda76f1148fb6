"""``surreal-like doctor RUN``: what limits the speed of a run, and what is odd in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from main.cli.arguments import RUN, Option, Parser
from main.cli.output import terminal_width
from main.cli.runs import find_run, open_found
from main.cli.summary import lay_out
from session.show.overview import heading, state_line
from session.show.run_view import RunView
from session.show.text import columns, short_time

if TYPE_CHECKING:
    from surreal_like.addons.doctor.rules import Diagnosis, Finding

# Stage of a traced chunk -> its words.
_STAGES = {
    "step": "in the environments of its agent",
    "act": "in its agent, which chooses actions and writes rows",
    "wait_to_send": "full, until its agent may send it",
    "to_replay": "from its agent until replay has stored it",
    "in_replay": "in replay, until rows of it are sampled",
    "to_learner": "from there until the learner takes them",
    "learn": "for an update",
}


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "doctor",
        "Explains what limits the speed of a run, and what is odd in it.",
        RUN,
        Option("--json", action="store_true", help="the findings as JSON, on one line"),
    ).parse_args(argv)
    folder = find_run(given.run)
    from surreal_like.addons.doctor.facts import CURVES
    from surreal_like.addons.doctor.rules import diagnose

    view = RunView(folder, curves=CURVES)
    with open_found(folder) as handle:
        view.refresh(handle)
    found = diagnose(view)
    print(_as_json(view, found) if given.json else _page(view, found))
    return 0


def _as_json(view: RunView, found: Diagnosis) -> str:
    data = {
        "run": str(view.folder),
        "state": view.state,
        "latency": found.facts.latency,
        "waiting_share": found.facts.waiting_share,
        "bottleneck": None if found.bottleneck is None else asdict(found.bottleneck),
        "odd": [asdict(each) for each in found.odd],
    }
    return json.dumps(data)


def _page(view: RunView, found: Diagnosis) -> str:
    blocks = [[heading(view), state_line(view)]]
    if not view.line:
        return "\n".join([*blocks[0], "", "nothing to look at: no line of progress yet"])
    times = {name: found.facts.stage(name) for name in _STAGES}
    times["learn"] = found.facts.learn_seconds
    rows = [
        [f"  {name.replace('_', ' ')}", short_time(seconds), _STAGES[name]]
        for name, seconds in times.items()
        if seconds is not None
    ]
    if rows:
        blocks.append(["where the time of a chunk of rows goes", columns([], rows, right=(1,))])
    width = terminal_width()
    if view.counted:
        blocks.append(["bottleneck: none, as the time of a serial run is counted"])
    elif found.bottleneck is None:
        blocks.append([f"bottleneck: {found.limits}"])
    else:
        blocks.append(_lay_out("bottleneck: ", found.bottleneck, width))
    odd = [line for each in found.odd for line in _lay_out("odd: ", each, width)]
    blocks.append(odd or ["odd: nothing"])
    return "\n\n".join("\n".join(block) for block in blocks)


def _lay_out(title: str, finding: Finding, width: int) -> list[str]:
    rows = [["  numbers", finding.numbers], ["  change", finding.setting]]
    _, lines = lay_out(rows, width)
    return [f"{title}{finding.name}: {finding.meaning}", *lines]
