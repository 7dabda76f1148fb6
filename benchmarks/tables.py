"""Tables for documents, from the results of a benchmark; imports no other module of the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def tables(found: Mapping[str, Any]) -> str:
    """Formats all groups of one ``results/*.json``: a bold heading, a description, a table."""
    return "\n\n".join(table(group) for group in found["groups"])


def table(group: Mapping[str, Any]) -> str:
    """Formats one group: a line for each quantity and each peer that was measured."""
    unit = group["unit"]
    lines = [
        f"**{group['name']}** ({unit}; {group['better']} is better). {group['about']}",
        "",
        "| what | surreal_like | peer | | ratio | wanted |",
        "|---|---|---|---|---|---|",
    ]
    for line in group["lines"]:
        ours = amount(group["sides"][line["side"]]["value"])
        for peer, ratio in line["ratios"].items():
            side = group["sides"][peer]
            cells = (line["what"], ours, side["label"], amount(side["value"]), times(ratio))
            lines.append(f"| {' | '.join(cells)} | {line['wanted']} |")
        if not line["ratios"]:
            lines.append(f"| {line['what']} | {ours} | | | | {line['wanted']} |")
    return "\n".join(lines)


def amount(value: Mapping[str, float]) -> str:
    """Formats median and range: ``2.1 M (1.9 to 2.2 M)``."""
    size, sign = next(
        ((size, f" {sign}") for size, sign in _STEPS if value["median"] >= size), (1.0, "")
    )
    low, middle, high = (_short(value[key] / size) for key in ("min", "median", "max"))
    return f"{middle}{sign} ({low} to {high}{sign})"


def times(ratio: Mapping[str, float]) -> str:
    """Formats a ratio: ``12 x (11 to 13)``."""
    low, middle, high = (_short(ratio[key]) for key in ("min", "median", "max"))
    return f"{middle} x ({low} to {high})"


def _short(number: float) -> str:
    """Formats three digits, without exponent."""
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def provenance(machine: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Formats command, date, machine and versions in two sentences."""
    named = {"Python": machine["python"], **versions}
    listed = ", ".join(f"{name} {version.partition('+')[0]}" for name, version in named.items())
    return (
        f"`{machine['command']}`, {machine['date']}: {machine['processor']}, {machine['cores']} "
        f"cores, {machine['memory_gib']} GiB. {listed}."
    )


def measured_on(found: Mapping[str, Any]) -> str:
    """Formats machine, date, versions and command in one paragraph."""
    machine = found["machine"]
    ours = {name: machine["versions"][name] for name in ("numpy", "pyzmq", "torch")}
    rounds = found["groups"][0]["rounds"]
    text = provenance(machine, {**found["peers"], **ours})
    text += f" Medians of {rounds} rounds, and from the least to the most."
    missing = [f"{peer} ({reason})" for peer, reason in found["left_out"].items()]
    return f"{text} Left out: {'; '.join(missing)}." if missing else text


def measured(found: Mapping[str, Any]) -> str:
    """Formats everything that a document shows of one ``results/*.json``."""
    return f"{tables(found)}\n\n{measured_on(found)}"
