"""Descent of the weights of a population, from the lines of ``pbt.jsonl``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from session.errors import ConfigError
from session.json_file import NUMBER, OBJECT, TEXT, fault, read_lines

PBT_LOG, LINEAGE = "pbt.jsonl", "lineage.json"
_EXPLOIT = {
    **dict.fromkeys(("recipient", "donor"), TEXT),
    **dict.fromkeys(("recipient_time", "donor_time"), NUMBER),
    "new_settings": OBJECT,
}
_SKIPPED = {"recipient": TEXT, "skipped": TEXT}


@dataclass(frozen=True, slots=True)
class Part:
    """A trial between two of its exploits.

    Args:
        begin, end: own count of the trial, in the unit of the tuning.
        root: trial from which its weights descend first.
        settings: that it had.
    """

    begin: float
    end: float
    root: str
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arrow:
    """An exploit: names of the trials, and their own counts at the checkpoint and at the load."""

    donor: str
    recipient: str
    donor_at: float
    recipient_at: float


def read_exploits(
    tuning: Path, names: Collection[str], keys: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Returns the exploits in ``pbt.jsonl`` in their order; those that were skipped are left out.

    A last line that was cut short is left out, too.

    Args:
        tuning: folder of the tuning.
        names: of its trials.
        keys: settings that each exploit must have.

    Raises:
        ConfigError: another line is damaged: without it the others mean something else.
    """
    path = tuning / PBT_LOG
    lines = read_lines(path)
    for number, line in enumerate(lines, 1):
        wrong = fault(line, _SKIPPED if "skipped" in line else _EXPLOIT)
        if not wrong and "skipped" not in line:
            unknown = {line["recipient"], line["donor"]}.difference(names)
            lacking = set(keys).difference(line["new_settings"])
            if unknown:
                wrong = f"no trial is called {min(unknown)!r}"
            elif lacking:
                wrong = f"new_settings has no {min(lacking)}"
        if wrong:
            raise ConfigError(f"{path}:{number} is damaged: {wrong}; put a copy of it back")
    return [line for line in lines if "skipped" not in line]


def check_number(tuning: Path, trials: int, settings: int) -> None:
    """Checks that the tune file of a tuning plans settings for all of its trials.

    Raises:
        ConfigError: it plans fewer; one of the two files was changed.
    """
    if settings < trials:
        raise ConfigError(
            f"{tuning / 'tune.yaml'} plans {settings} trials, {tuning / 'tuning.json'} has "
            f"{trials}: put a copy of the changed one back"
        )


def donors(
    exploits: Sequence[Mapping[str, Any]],
) -> dict[str, list[tuple[float, str, float]]]:
    """Returns trial -> its loads: its time, the donor, and the donor's time, in their order."""
    found: dict[str, list[tuple[float, str, float]]] = {}
    for line in exploits:
        load = (line["recipient_time"], line["donor"], line["donor_time"])
        found.setdefault(line["recipient"], []).append(load)
    return found


def lineage(
    first: Mapping[str, Mapping[str, Any]],
    exploits: Sequence[Mapping[str, Any]],
    ends: Mapping[str, float],
) -> tuple[dict[str, list[Part]], list[Arrow]]:
    """Returns the parts of each trial, and the arrows between them.

    The time of weights that were loaded is that of the donor; own counts go on, so the time of a
    trial is its own count plus an offset, which each exploit changes.

    Args:
        first: trial -> settings at its start.
        exploits: lines of ``pbt.jsonl``, in their order.
        ends: trial -> time of its weights at the end.
    """
    parts: dict[str, list[Part]] = {name: [] for name in first}
    offsets, begins = dict.fromkeys(first, 0.0), dict.fromkeys(first, 0.0)
    roots, settings = {name: name for name in first}, dict(first)
    arrows = []
    for line in exploits:
        name, donor = line["recipient"], line["donor"]
        own = line["recipient_time"] - offsets[name]
        arrows.append(Arrow(donor, name, line["donor_time"] - offsets[donor], own))
        parts[name].append(Part(begins[name], own, roots[name], settings[name]))
        offsets[name] += line["donor_time"] - line["recipient_time"]
        begins[name], roots[name] = own, roots[donor]
        settings[name] = line["new_settings"]
    for name, end in ends.items():
        last = max(begins[name], end - offsets[name])
        parts[name].append(Part(begins[name], last, roots[name], settings[name]))
    return parts, arrows
