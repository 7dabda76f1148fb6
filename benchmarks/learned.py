"""Tables of learning results, for documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tables
from machine import spread

LEARNED_CRITERION = (
    "greedy mean return of 100 episodes at or above the goal, and again over 100 more with the "
    "same parameters, all on seeds never used before; the clock runs from the command's start, "
    "start-up and evaluations included, until that is known"
)
_HEAD = """\
| experiment | must reach | reached | seconds | at most | environment steps | |
|---|---|---|---|---|---|---|"""
_MILESTONES_HEAD = """\
| row | must reach | reached | greedy return | seconds | environment steps | |
|---|---|---|---|---|---|---|"""
_SAMPLES_HEAD = """\
| experiment | learned from | surreal_like | | stable-baselines3 | | ratio | at most | |
|---|---|---|---|---|---|---|---|---|"""


def learned_table(found: Mapping[str, Any]) -> str:
    """Formats one line for each experiment, and below the table the machine and the date."""
    lines = [_HEAD, *(_line(each) for each in found["learned"])]
    return "\n".join(lines) + f"\n\n{_measured_on(found)}"


def _line(row: Mapping[str, Any]) -> str:
    cells = [f"`{row['config']}.yaml`"]
    if row["below"] is not None:
        cells[0] += row["name"].removeprefix(row["config"])
        best = row["best_mean_return"]
        cells += [f"stays below {row['below']:g}", f"at best {best['max']:.2f}", "", "", ""]
    else:
        cells += [f"{row['goal']:g}", f"{row['met']} of {len(row['runs'])}"]
        cells += [_span(row["seconds"], ".1f"), f"{row['at_most_seconds']:g}"]
        cells += [_span(row["env_steps"], ",.0f")]
    return f"| {' | '.join([*cells, 'holds' if row['passed'] else '**missed**'])} |"


def milestones_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Formats one line for each row of milestones.py that has runs."""
    lines = [_MILESTONES_HEAD]
    for row in rows:
        runs, goal = row["runs"], row["goal"]
        met = [run for run in runs if run["greedy_seconds"] is not None]
        last = [run["mean_return"] for run in runs if run["mean_return"] is not None]
        cells = [f"`{row['name']}`"]
        if goal is None:
            cells += ["", f"{len(runs)} runs", _of(last, ".1f"), "", ""]
        else:
            cells += [f"{goal:g}", f"{len(met)} of {len(runs)}", _of(last, ".2f")]
            cells += [_of([run["greedy_seconds"] for run in met], ".0f")]
            cells += [_of([run["greedy_env_steps"] for run in met], ",.0f")]
        lines.append(f"| {' | '.join([*cells, 'holds' if row['passed'] else '**missed**'])} |")
    return "\n".join(lines)


def _of(values: list[float], form: str) -> str:
    if len(values) == 1:
        return format(values[0], form)
    return _span(spread(values) if values else None, form)


def samples_table(found: Mapping[str, Any]) -> str:
    """Formats one line for each algorithm: environment steps to the goal, ours and the peer's."""
    lines = [_SAMPLES_HEAD]
    for row in found["samples"]:
        cells = [f"`{row['config']}.yaml`", row["uses"]]
        for side in (row["ours"], row["peer"]):
            cells += [f"{side['met']} of {len(side['runs'])}", _span(side["env_steps"], ",.0f")]
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        cells += [ratio, f"{row['wanted']:g}", "holds" if row["passed"] else "**missed**"]
        lines.append(f"| {' | '.join(cells)} |")
    peer = f"stable-baselines3 {found['peers']['stable-baselines3']}"
    seeds = [run["seed"] for run in found["samples"][0]["ours"]["runs"]]
    return "\n".join(lines) + f"\n\n{provenance(found['machine'], seeds)} {peer}."


def _span(value: Mapping[str, float] | None, form: str) -> str:
    """Formats ``7.1 (5.9 to 9.0)``: median, least and most; empty without values."""
    if value is None:
        return ""
    low, middle, high = (format(value[key], form) for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})"


def _measured_on(found: Mapping[str, Any]) -> str:
    rows = found["learned"]
    seeds = [run["seed"] for run in rows[0]["runs"]]
    runs = [run for row in rows for run in row["runs"]]
    return f"{provenance(found['machine'], seeds)} {loads(runs)}"


def loads(runs: Sequence[Mapping[str, Any]]) -> str:
    """Formats the least and the largest load that the machine had before runs, as a sentence."""
    found = sorted({run["load_before"] for run in runs})
    span = " to ".join(f"{load:g}" for load in dict.fromkeys((found[0], found[-1])))
    return f"Load of the machine before a run: {span}."


def provenance(machine: Mapping[str, Any], seeds: Sequence[int]) -> str:
    """Formats command, date, machine, versions and seeds in a few sentences."""
    versions = {name: machine["versions"][name] for name in ("torch", "gymnasium")}
    text = f"Seeds {', '.join(map(str, seeds))}: medians, and from the least to the most."
    if len(seeds) == 1:
        text = f"Seed {seeds[0]}."
    return f"{tables.provenance(machine, versions)} {text}"
