"""Commands that watch a run: ``status``, ``logs`` and ``attach``."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from main.cli.arguments import RUN, Option, Parser, seconds_of
from main.cli.live_observer import LiveTable
from main.cli.output import terminal_width
from main.cli.runs import find_folder, find_run, is_tuning, of_tunings, open_found, refuse_over
from session.addons import load
from session.addons.hooks import FINDINGS, PAGE
from session.errors import UsageError
from session.launchers.handle import RunHandle, open_run
from session.launchers.registry import launcher_of
from session.launchers.status import ComponentStatus
from session.process.clock import Moment
from session.process.heartbeat import State
from session.show.components import CORE
from session.show.overview import overview
from session.show.run_view import RunView
from session.show.text import plural
from session.show.wanted_agents import want_gateways

# Time between two looks of `status --watch`, and of `attach`.
_WATCH_SECONDS, _LOOK_SECONDS = 1.0, 0.25
_LEVELS = ("debug", "info", "warning", "error", "critical")
# A line of a log is ``2025-01-31 12:00:00.123 INFO     learner: text``.
_TIME_WIDTH = 23


def show_status(argv: Sequence[str]) -> int:
    """Runs ``status``, which shows where a run stands; returns the exit code."""
    given = Parser(
        "status",
        "Shows where a run stands, and the state of each component.",
        RUN,
        Option("--watch", action="store_true", help="refresh every second until the run is over"),
        Option("--json", action="store_true", help="everything as JSON, on one line"),
    ).parse_args(argv)
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
    found = [find(view) for find in FINDINGS]
    lines = [
        overview(view, terminal_width()),
        *(f"\ndoctor: {line}" for line in filter(None, found)),
    ]
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


def show_logs(argv: Sequence[str]) -> int:
    """Runs ``logs``, which shows log lines of all components or of one; returns the exit code."""
    given = Parser(
        "logs",
        "Shows what the components of a run have logged, in order of time.",
        RUN,
        Option(
            "--component",
            metavar="NAME",
            help="only this component, such as learner; of a tuning, a trial",
        ),
        Option("--level", choices=_LEVELS, default="debug", help="only from this level on"),
        Option("--since", metavar="5m", help="only of the last 30s, 5m, 2h or 1d"),
        Option("--lines", metavar="N", type=int, help="only the last N lines"),
        Option("--follow", action="store_true", help="show new lines until the run is over"),
    ).parse_args(argv)
    since = time.time() - seconds_of(given.since, "--since") if given.since else 0.0
    if given.lines is not None and given.lines < 0:
        raise UsageError(f"--lines {given.lines}: expected a number of lines, 0 or more")
    with open_found(find_folder(given.run)) as adopted:
        name = given.component or ""
        there = list(adopted.log_lines(name))
        for line in deque(select(there, given.level, since), maxlen=given.lines):
            print(line)
        if given.follow:
            new = islice(adopted.log_lines(name, follow=True), len(there), None)
            for line in select(new, given.level):
                print(line, flush=True)
    return 0


def select(lines: Iterable[str], level: str, since: float = 0.0) -> Iterator[str]:
    """Yields the lines at or above a level, with their continuation lines, which are indented.

    Args:
        lines: lines of a log.
        level: the lowest one.
        since: seconds since 1970; older lines are left out.
    """
    wanted = _LEVELS.index(level)
    shown = True
    for line in lines:
        if not line.startswith("    "):
            words = line.split(maxsplit=3)
            name = words[2].lower() if len(words) > 2 else ""
            shown = name not in _LEVELS or _LEVELS.index(name) >= wanted
            shown = shown and (not since or _time_of(line, since) >= since)
        if shown:
            yield line


def _time_of(line: str, default: float) -> float:
    try:
        return datetime.fromisoformat(line[:_TIME_WIDTH]).timestamp()
    except ValueError:
        return default


def attach(argv: Sequence[str]) -> int:
    """Runs ``attach``, which shows a run in this terminal; returns the exit code."""
    given = Parser(
        "attach",
        "Shows a run in this terminal: the windows of tmux (leave them with Ctrl-B d), else the "
        "live table (leave it with Ctrl-C). The run goes on.",
        RUN,
    ).parse_args(argv)
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                f"attach needs a terminal; without one: surreal-like logs {given.run} --follow"
            )
        if windows := launcher_of(adopted.folder.launcher).attach:
            load(windows)(adopted)
        _follow(adopted)
    return 0


def _follow(adopted: RunHandle) -> None:
    """Draws the live table until the run is over or the user presses Ctrl-C."""
    folder = adopted.folder
    config = folder.read_config()
    table = LiveTable(sys.stdout, time.time() - Moment.of_run(folder.read_run()).seconds_since())
    table.prepare(folder.path)
    try:
        table.begin(folder, config)
        while adopted.running:
            table.follow(adopted)
            time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        table.on_message(f"the run goes on; its end: surreal-like stop {folder}")
    finally:
        table.end()
