"""Measured numbers beside what is required of them, and their table for documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machine import spread
from tables import OF_LEARNING, amount, grid, load_before, provenance, verdict


@dataclass(frozen=True)
class Target:
    """A number that is required.

    Args:
        what: is measured.
        key: dotted name of the number among the results.
        unit: of the numbers; may be empty.
        must: bound.
        aim: a better bound; None: there is none.
        more: True if a larger number is better.
    """

    what: str
    key: str
    unit: str
    must: float
    aim: float | None = None
    more: bool = False

    def judge(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the line of the table, with minimum, median and maximum of what was measured."""
        found: Any = results
        for part in self.key.split("."):
            found = found[part]
        values = spread([float(f"{each:.4g}") for each in _listed(found)])
        line = {"what": self.what, "unit": self.unit, "must": self.must, "aim": self.aim}
        return {**line, "better": "more" if self.more else "less", "value": values}


def _listed(found: Any) -> Sequence[float]:
    return found if isinstance(found, list) else [found]


def judge_all(targets: Iterable[Target], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a line for each number whose row was measured."""
    return [each.judge(results) for each in targets if each.key.partition(".")[0] in results]


def holds(line: Mapping[str, Any]) -> bool:
    """Returns True if every number of a line is within the bound that it must keep."""
    if line["better"] == "more":
        return bool(line["value"]["min"] >= line["must"])
    return bool(line["value"]["max"] <= line["must"])


def targets_table(found: Mapping[str, Any]) -> str:
    """Formats a line for each requirement, and below the table the machine and the date."""
    table = grid(("measure", "reached", "must", "aim", ""), map(_line, found["targets"]))
    return f"{table}\n\n{provenance(found['machine'], OF_LEARNING)} {load_before(found)}"


def _line(line: Mapping[str, Any]) -> list[str]:
    value, sign = line["value"], "≥" if line["better"] == "more" else "≤"
    reached = amount(value) if value["min"] < value["max"] else f"{value['median']:,.3g}"
    bounds = [
        f"{sign} {each:g}" if each is not None else "" for each in (line["must"], line["aim"])
    ]
    return [line["what"], f"{reached} {line['unit']}".strip(), *bounds, verdict(holds(line))]
