"""``surreal-like plot RUN...``: learning curves of several runs and seeds in one picture."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from main.cli.arguments import SEVERAL_RUNS, Option, Parser
from main.cli.runs import find_folder, find_runs, is_tuning, of_tunings
from session.addons.hooks import PLOT
from session.errors import UsageError
from session.folder import RunFolder

_EXAMPLES = """examples:
  surreal-like plot latest
  surreal-like plot cartpole_dqn --x seconds --out curves.png
  surreal-like plot 'runs/cartpole_*' --metric rates.env_steps_per_second
  surreal-like plot latest --list
  surreal-like plot runs/TUNING --lineage

Runs whose configs differ only in the seed become a mean with a band from the lowest to the highest.
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "plot",
        "Draws the learning curves of runs into one picture.",
        SEVERAL_RUNS,
        Option(
            "--metric",
            metavar="M",
            help="number of progress.jsonl or tag of TensorBoard; default: the returns",
        ),
        Option(
            "--x",
            choices=("env_steps", "seconds", "iterations"),
            help="horizontal axis; default: env_steps, of a tuning its unit",
        ),
        Option(
            "--out",
            metavar="FILE",
            help="file to write (.png, .svg, .pdf); default: NAME-return.png in this folder",
        ),
        Option(
            "--band",
            default="range",
            choices=("range", "interval"),
            help="lowest to highest run, or the 95%% interval of the interquartile mean of 5 or "
            "more",
        ),
        Option("--list", action="store_true", help="list the metrics of these runs"),
        Option(
            "--lineage",
            action="store_true",
            help="of a tuning: which trial has loaded which, and the mutated settings",
        ),
        examples=_EXAMPLES,
    ).parse_args(argv)
    tuning = _tuning(given.runs)
    if given.lineage and tuning is None:
        raise UsageError("--lineage belongs to a tuning: name the folder of one, and nothing else")
    if tuning is not None and not given.list:
        own = {"metric": given.metric, "x": given.x, "out": given.out, "lineage": given.lineage}
        print(of_tunings(PLOT)(tuning.path, **own))
        return 0
    folders = [folder.path for word in given.runs for folder in find_runs(word)]

    from surreal_like.addons.analysis.plot import metrics, plot

    if given.list:
        names, tags = metrics(folders)
        print("\n".join(["numbers of progress.jsonl:", *names, "", "tags of TensorBoard:", *tags]))
        return 0
    print(
        plot(folders, metric=given.metric, x=given.x or "env_steps", out=given.out, band=given.band)
    )
    return 0


def _tuning(words: Sequence[str]) -> RunFolder | None:
    """Returns the folder of the tuning that the only word names, None if it names none."""
    with suppress(UsageError):
        if len(words) == 1 and is_tuning(folder := find_folder(words[0])):
            return folder
    return None
