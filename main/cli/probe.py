"""``surreal-like probe RUN COMPONENT``: is it alive? For health checks."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.figures import short_time
from main.cli.parser import Parser
from main.cli.runs import add_run, find_run
from session.config import Config
from session.errors import UsageError
from session.heartbeat import read_beat, read_beats

_DEAD = 1


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "probe",
        "Looks at the heartbeat of one component: exit code 0 if it is alive, 1 if it is not.",
    )
    add_run(parser)
    parser.add_argument("component", metavar="COMPONENT", help="such as agent-0")
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="oldest beat of one that is alive"
    )
    given = parser.parse_args(argv)
    folder = find_run(given.run)
    beat = read_beat(folder.alive, given.component)
    if beat is None:
        known = ", ".join(read_beats(folder.alive)) or "none yet"
        raise UsageError(f"'{given.component}' was never heard in {folder}; heard were: {known}")
    timeout = given.timeout
    if timeout is None:
        heartbeat = Config.load_file(folder.config).session_config.heartbeat
        timeout = heartbeat.starting_seconds if beat.state == "starting" else heartbeat.timeout
    alive = beat.state not in ("done", "failed") and not beat.late(timeout)
    said = f"{beat.state}, last heard {short_time(beat.age_seconds)} ago"
    print(f"{given.component}: {said}" + (f" ({beat.doing})" if beat.doing else ""))
    return 0 if alive else _DEAD
