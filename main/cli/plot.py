"""``surreal-like plot RUN...``: learning curves of several runs and seeds in one picture."""

from __future__ import annotations

from collections.abc import Sequence

from main.cli.parser import Parser
from main.cli.runs import add_runs, find_runs

_EXAMPLES = """examples:
  surreal-like plot latest
  surreal-like plot cartpole_dqn --x seconds --out curves.png
  surreal-like plot 'runs/cartpole_*' --metric rates.env_steps_per_second
  surreal-like plot latest --list

Runs whose configs differ only in the seed become a mean with a band from the lowest to the highest.
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    parser = Parser("plot", "Draws the learning curves of runs into one picture.", _EXAMPLES)
    add_runs(parser)
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
