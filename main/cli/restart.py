"""``surreal-like restart RUN COMPONENT``: ends one component and starts it again."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.arguments import Parser
from main.cli.runs import add_run, find_run, refuse_over
from session.launchers.handle import open_run
from session.program import program


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser(
        "restart",
        "Ends one component cleanly and starts it again; the learner saves itself first. "
        "In tmux 'supervisor' brings back a supervisor that has died.",
    )
    add_run(parser)
    parser.add_argument("component", metavar="COMPONENT", help="such as learner or agent-0")
    given = parser.parse_args(argv)
    with open_run(find_run(given.run)) as adopted:
        refuse_over(adopted)
        adopted.restart(given.component)
    print(
        f"{given.component} is being restarted; see: {program('surreal-like')} status {given.run}"
    )
    return 0
