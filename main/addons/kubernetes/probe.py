"""``surreal-like probe RUN [COMPONENT]``: health check, alive or ready, of a component."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import RUN, Option, Parser
from main.cli.runs import find_run
from session.errors import UsageError
from session.folder import RunFolder
from session.process.heartbeat import Beat, State, read_beats, starting_seconds
from session.show.text import ago

_DEAD = 1


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "probe",
        "Looks at the heartbeat of one component: exit code 0 if it is alive, 1 if it is not.",
        RUN,
        Option(
            "component",
            metavar="COMPONENT",
            nargs="?",
            help="such as agent-0; not needed if there is only one",
        ),
        Option(
            "--ready",
            action="store_true",
            help="exit code 0 only while it works, not while it starts or ends",
        ),
        Option(
            "--timeout",
            type=float,
            metavar="SECONDS",
            help="age of the last heartbeat up to which it counts as alive",
        ),
    ).parse_args(argv)
    folder = find_run(given.run)
    beat = _find_beat(folder, given.component)
    timeout = given.timeout
    if timeout is None:
        timeout = folder.read_config().session_config.heartbeat.timeout
        if beat.state == State.starting:
            timeout = starting_seconds(timeout)
    alive = beat.state not in (State.done, State.failed) and not beat.late(timeout)
    text = f"{beat.state}, last heartbeat {ago(beat.age_seconds)}"
    idle = ", not ready" if given.ready and not beat.ready else ""
    print(f"{beat.name}: {text}{idle}" + (f" ({beat.doing})" if beat.doing else ""))
    return 0 if alive and (beat.ready or not given.ready) else _DEAD


def _find_beat(folder: RunFolder, name: str | None) -> Beat:
    """Returns the heartbeat of that component, or of the only one in the folder."""
    beats = read_beats(folder.alive)
    known = ", ".join(beats) or "none yet"
    if name is None and len(beats) == 1:
        return next(iter(beats.values()))
    if name is None and beats:
        raise UsageError(f"several components have heartbeats in {folder}: name one of {known}")
    if name not in beats:
        subject = "no component" if name is None else f"'{name}'"
        has = "has a" if name is None else "has no"
        raise UsageError(f"{subject} {has} heartbeat in {folder}; heartbeats there: {known}")
    return beats[name]
