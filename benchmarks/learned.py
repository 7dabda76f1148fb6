"""The table of what the shipped experiments learn; nothing else is imported, so documents can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEARNED_CRITERION = (
    "greedy mean return of 100 episodes at or above the goal, and again over 100 more with the "
    "same parameters, all on seeds never used before; the clock runs from the command's start, "
    "start-up and evaluations included, until that is known"
)
_HEAD = """\
| experiment | must reach | reached | seconds | at most | environment steps | |
|---|---|---|---|---|---|---|"""


def learned_table(found: Mapping[str, Any]) -> str:
    """A line for each experiment, and below it where and when that was."""
    lines = [_HEAD, *(_line(each) for each in found["learned"])]
    return "\n".join(lines) + f"\n\n{_measured_on(found)}"


def _line(row: Mapping[str, Any]) -> str:
    cells = [f"`{row['config']}.yaml`"]
    if row["below"] is not None:
        cells[0] += ", without its LSTM"
        best = row["best_mean_return"]
        cells += [f"stays below {row['below']:g}", f"at best {best['max']:.2f}", "", "", ""]
    else:
        cells += [f"{row['goal']:g}", f"{row['met']} of {len(row['runs'])}"]
        cells += [_span(row["seconds"], ".1f"), f"{row['at_most_seconds']:g}"]
        cells += [_span(row["env_steps"], ",.0f")]
    return f"| {' | '.join([*cells, 'holds' if row['passed'] else '**missed**'])} |"


def _span(value: Mapping[str, float] | None, form: str) -> str:
    """``7.1 (5.9 to 9.0)``: median, least and most; empty where nothing was reached."""
    if value is None:
        return ""
    low, middle, high = (format(value[key], form) for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})"


def _measured_on(found: Mapping[str, Any]) -> str:
    machine, rows = found["machine"], found["learned"]
    versions = {"Python": machine["python"], **machine["versions"]}
    told = ", ".join(
        f"{name} {versions[name].partition('+')[0]}" for name in ("Python", "torch", "gymnasium")
    )
    seeds = ", ".join(str(run["seed"]) for run in rows[0]["runs"])
    loads = [run["load_before"] for row in rows for run in row["runs"]]
    return (
        f"`{machine['command']}`, {machine['date']}: {machine['processor']}, {machine['cores']} "
        f"cores, {machine['memory_gib']} GiB. {told}. Seeds {seeds}: medians, and from the least "
        f"to the most. Load of the machine before a run: {min(loads):g} to {max(loads):g}."
    )
