"""``surreal-like launch``: starts a detached run and prints the next commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from main.cli.arguments import EXPERIMENT, FOLDER, HOST, Option, Parser, request_of
from session.addons.hooks import LAUNCHED
from session.launchers.registry import launcher_of, list_detached
from session.program import path_from_here, program
from session.show.text import columns
from session.tensorplex.pages import Pages
from surreal_like.run.observer import RunObserver
from surreal_like.run.train import run_detached

# Deadline for the web pages of a run, if it has any.
_PAGES_SECONDS = 5.0
_EXAMPLES = """examples:
  surreal-like launch configs/cartpole_dqn.yaml --on tmux
  surreal-like launch configs/cartpole_dqn.yaml --on local --agents 4
  surreal-like launch --resume --folder runs/NAME session_config.stop.env_steps=500000
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "launch",
        "Starts a run that goes on when this shell has ended, and returns.",
        EXPERIMENT,
        Option(
            "--on",
            default="local",
            metavar="|".join(list_detached()),
            help="local: background processes (default); others: see docs/launchers.md",
        ),
        *FOLDER,
        HOST,
        Option(
            "--insecure",
            action="store_true",
            help="no keys, no encryption: only on a network you trust",
        ),
        examples=_EXAMPLES,
    ).parse_args(argv)
    with run_detached(request_of(given), _Notes()) as launched:
        print("\n".join(next_steps(path_from_here(launched.folder.path), given.on)))
        for lines in LAUNCHED:
            print("".join(f"{line}\n" for line in lines(launched.folder)), end="")
        for name, address in Pages(launched.folder).wait(_PAGES_SECONDS).items():
            print(f"{name}: {address}")
    return 0


class _Notes(RunObserver):
    """Prints notes, such as on the state that a resumed run takes over."""

    def prepare(self, path: Path) -> None:
        if sys.stderr.isatty():  # elsewhere an error shall be the only line
            print(f"preparing {path}", file=sys.stderr)

    def on_message(self, text: str) -> None:
        print(text)


def next_steps(run: str, on: str) -> list[str]:
    """Returns the name of the launched run and useful next commands, in lines.

    Args:
        run: the run as a user would write it.
        on: the launcher.
    """
    ours = program("surreal-like")
    rows = [
        ["status", f"{ours} status {run} --watch"],
        ["logs", f"{ours} logs {run} --follow"],
        ["more agents", f"{ours} scale {run} agent=4"],
        ["stop", f"{ours} stop {run}"],
    ]
    launcher = launcher_of(on)
    if not launcher.remote:
        shown = "windows" if launcher.attach else "live table"
        rows.insert(2, [shown, f"{ours} attach {run}"])
    return [f"run {run} goes on by itself, on {on}", columns([], rows)]
