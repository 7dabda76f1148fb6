"""``surreal-like plot RUN...``: learning curves of several runs and seeds in one picture."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from main.cli.parser import Parser
from main.cli.runs import all_runs, find_run
from session.errors import UsageError
from session.folder import RunFolder
from surreal_like.run.folder import RUNS

_EXAMPLES = """examples:
  surreal-like plot latest
  surreal-like plot cartpole_dqn --x seconds --out curves.png
  surreal-like plot 'runs/cartpole_*' --metric rates.env_steps_per_second
  surreal-like plot latest --list

Runs whose configs differ only in the seed become a mean with a band from the lowest to the highest.
"""
_WILD = "*?["


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("plot", "Draws the learning curves of runs into one picture.", _EXAMPLES)
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="folder, name below runs/ or the beginning of several, a pattern, or latest",
    )
    parser.add_argument(
        "--metric",
        metavar="M",
        help="number of progress.jsonl or tag of TensorBoard; default: the returns",
    )
    parser.add_argument(
        "--x",
        default="env_steps",
        choices=("env_steps", "seconds", "iterations"),
        help="horizontal axis",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file to write (.png, .svg, .pdf); default: NAME-return.png in this folder",
    )
    parser.add_argument(
        "--band",
        default="range",
        choices=("range", "interval"),
        help="lowest to highest run, or the 95%% interval of the interquartile mean",
    )
    parser.add_argument("--list", action="store_true", help="list the metrics of these runs")
    given = parser.parse_args(argv)
    folders = [folder.path for word in given.runs for folder in find_runs(word)]

    from surreal_like.analysis.plot import metrics, plot

    if given.list:
        names, tags = metrics(folders)
        print("\n".join(["numbers of progress.jsonl:", *names, "", "tags of TensorBoard:", *tags]))
        return 0
    print(plot(folders, metric=given.metric, x=given.x, out=given.out, band=given.band))
    return 0


def find_runs(text: str) -> list[RunFolder]:
    """Returns the runs that match one word: a run, a pattern, or a prefix of names.

    Raises:
        UsageError: there is none; the message lists similar names.
    """
    if any(sign in text for sign in _WILD):
        paths = sorted({*glob.glob(text), *glob.glob(str(RUNS / text))})
        found = [RunFolder(path) for path in paths if (Path(path) / "config.yaml").is_file()]
        if not found:
            raise UsageError(f"no run fits '{text}'; surreal-like list runs shows all")
        return found
    if not any((path / "config.yaml").is_file() for path in (Path(text), RUNS / text)):
        below = [RunFolder(path.parent) for path in sorted(Path(text).glob("*/config.yaml"))]
        begun = [run for run in all_runs() if run.path.name.startswith(text)]
        # Exact names first: an environment or a number may stand between a prefix and the date.
        dated = re.compile(re.escape(text) + r"-\d{8}-\d{6}.*")
        exactly = [run for run in begun if dated.fullmatch(run.path.name)]
        if text != "latest" and (below or begun):
            return below or exactly or begun
    return [find_run(text)]
