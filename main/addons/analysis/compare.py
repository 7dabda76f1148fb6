"""``surreal-like compare RUN...``: statistics of methods over seeds and tasks, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from main.cli.arguments import SEVERAL_RUNS, Option, Parser
from main.cli.runs import find_runs
from session.config.file import write_file
from session.errors import UsageError
from session.show.text import MISSING, columns, decimal

_EXAMPLES = """examples:
  surreal-like compare 'runs/cartpole_*'
  surreal-like compare runs/dqn-* runs/rainbow-* --normalize scores.yaml --json compared.json

Runs whose configs differ only in the seed are one experiment, which needs 3 seeds or more, 5 for an
interval; those that differ only in the environment are tasks of one method. The score of a run is
the last value of the metric. FILE has a line 'task: {low: NUMBER, high: NUMBER}' for each
environment.
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = Parser(
        "compare",
        "Compares methods by the scores of their runs.",
        SEVERAL_RUNS,
        Option(
            "--metric",
            metavar="M",
            help="number of progress.jsonl or tag of TensorBoard; default: eval.mean_return",
        ),
        Option(
            "--normalize", metavar="FILE", help="scores that count as 0 and as 1, for each task"
        ),
        Option("--json", metavar="FILE", help="write the numbers, with all scores"),
        examples=_EXAMPLES,
    ).parse_args(argv)
    if given.json is not None and not given.json.endswith(".json"):
        raise UsageError(f"cannot write {given.json}: its name must end in .json")
    folders = [folder.path for word in given.runs for folder in find_runs(word)]

    from surreal_like.addons.analysis.comparison import compare

    found = compare(folders, metric=given.metric, normalize=given.normalize)
    if given.json is not None:
        write_file(given.json, found)
    print("\n\n".join(_texts(found)))
    return 0


def _texts(found: Mapping[str, Any]) -> list[str]:
    """Formats the tables: means, profiles, pairs."""
    methods = found["methods"]
    unit = "normalized" if found["normalized"] else "in units of the task"
    parts = [f"last {found['metric']} of each run, {unit}", _means(methods)]
    known = [each for each in methods if "profile" in each]
    if known:
        parts.append(_profiles(known))
    else:
        parts.append("--normalize FILE gives means over several tasks")
    parts += _few(methods)
    if found["improvement"]:
        parts.append(_pairs(found["improvement"]))
    return parts


def _means(methods: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            each["label"],
            str(each["seeds"]),
            str(len(each["tasks"])),
            _number(each.get("iqm")),
            _span(each.get("interval")),
            _number(each.get("mean")),
            _span(each.get("range")),
            _number(each.get("gap")),
        ]
        for each in methods
    ]
    head = ["method", "seeds", "tasks", "IQM", "95 % interval"]
    head += ["mean", "lowest to highest", "optimality gap"]
    return columns(head, rows, right=range(1, len(head)))


def _few(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the scores of methods with too few seeds for an interval."""
    few = [each for each in methods if "range" in each]
    lines = [
        f"{each['label']}: {', '.join(_number(one) for row in each['scores'] for one in row)}"
        for each in few
    ]
    head = "Fewer than 5 seeds show no interval, only their scores:"
    return ["\n".join([head, *lines])] if few else []


def _profiles(methods: Sequence[Mapping[str, Any]]) -> str:
    thresholds = methods[0]["profile"]["thresholds"]
    rows = [
        [each["label"], *(f"{share:.2f}" for share in each["profile"]["above"])] for each in methods
    ]
    head = ["share of scores above", *map(_number, thresholds)]
    return columns(head, rows, right=range(1, len(head)))


def _pairs(pairs: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [
            f"{each['of']} over {each['over']}",
            f"{each['probability']:.2f}",
            _span(each.get("interval")),
        ]
        for each in pairs
    ]
    head = ["probability of improvement", "", "95 % interval"]
    return columns(head, rows, right=(1, 2))


def _number(value: float | None) -> str:
    """Formats a score: three digits below 10, as means of normalized scores need."""
    if value is None:
        return MISSING
    return f"{value:.3g}" if abs(value) < 10 else decimal(value)


def _span(ends: Sequence[float] | None) -> str:
    return MISSING if ends is None else f"{_number(ends[0])} to {_number(ends[1])}"
