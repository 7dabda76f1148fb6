"""``surreal-like status RUN``: progress of a run and state of each component."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any

from main.cli.arguments import Parser
from main.cli.runs import add_run, find_folder, is_tuning, of_tunings, open_found
from session.addons import load
from session.addons.hooks import FINDINGS, PAGE
from session.launchers.handle import RunHandle
from session.launchers.registry import launcher_of
from session.launchers.status import ComponentStatus
from session.process.heartbeat import State
from session.show.advice import want_gateways
from session.show.components import CORE
from session.show.overview import overview
from session.show.run_view import RunView
from session.show.text import plural

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
    folder = find_folder(given.run)
    look = of_tunings(PAGE) if is_tuning(folder) else partial(_run_page, RunView(folder))
    with open_found(folder) as handle:
        while True:
            text, running = look(handle, as_json=given.json)
            _show(text, over=given.watch and not given.json)
            if not (given.watch and running):
                return 0
            time.sleep(_WATCH_SECONDS)


def _run_page(view: RunView, handle: RunHandle, *, as_json: bool) -> tuple[str, bool]:
    """Returns what is shown of a run, and whether it runs."""
    view.refresh(handle, telemetry=not as_json)
    return _as_json(view) if as_json else _page(view), view.running


def _show(text: str, *, over: bool) -> None:
    """Prints the text; on a terminal over the previous output."""
    if over and sys.stdout.isatty():
        # Cursor home, the text with the rest of each line cleared, then all lines below cleared.
        text = "\x1b[H" + text.replace("\n", "\x1b[K\n") + "\x1b[K\n\x1b[J"
        print(text, end="", flush=True)
    else:
        print(text, flush=True)


def _page(view: RunView) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    found = [find(view) for find in FINDINGS]
    lines = [overview(view, width), *(f"\ndoctor: {line}" for line in filter(None, found))]
    if view.state == "running" and (wanted := "; ".join(_list_wanted(view))):
        lines += ["", f"wanted: {wanted}"]
    if launcher_of(view.launcher).idle and view.running and view.folder.over:
        lines += ["", _idle(view)]
    supervisor = view.components.get("supervisor")
    if supervisor is not None and supervisor.state == State.dead:
        lines += ["", f"bring its supervisor back: surreal-like restart {view.folder} supervisor"]
    return "\n".join(lines)


def _list_wanted(view: RunView) -> Iterator[str]:
    """Yields the numbers of agents and of gateways that a run could use, with the reasons."""
    line = view.line.get("wanted") or {}
    # More agents cannot replace what is away.
    if (agents := line.get("agents")) is not None and not view.away(CORE):
        yield f"{plural(agents, 'agent')} ({line['reason']})"
    sessions = [row.sessions for row in view.components.values() if row.sessions is not None]
    places = (view.config.session_config.get("gateway") or {}).get("max_clients", 0)
    if (advice := want_gateways(sessions, places, now=0.0)) is not None:
        yield f"{plural(advice.number, 'gateway')} ({advice.reason})"


def _idle(view: RunView) -> str:
    """Describes the resources that a run on a cluster still reserves after its end."""
    there = [name for name, row in view.components.items() if row.state != State.gone]
    return f"{load(launcher_of(view.launcher).idle)(view.config, there)} {view.folder}"


def _as_json(view: RunView) -> str:
    components = {}
    for name, row in view.components.items():
        beat = view.beats.get(name)
        reported: dict[str, Any] = asdict(beat) if beat is not None else {}
        known = {each.name: getattr(row, each.name) for each in fields(ComponentStatus)}
        components[name] = {**reported, **known}
    data = {
        "run": str(view.folder),
        "launcher": view.launcher,
        "state": view.state,
        "progress": view.line,
        "result": view.folder.read_result(),
        "components": components,
    }
    return json.dumps(data)
