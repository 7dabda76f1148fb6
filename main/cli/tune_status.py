"""The page of ``surreal-like status`` for a tuning."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from main.cli.tune_table import trial_table
from session.folder import RunFolder
from session.show.text import decimal

_WATCH_SECONDS = 1.0


def show_tuning(folder: RunFolder, *, as_json: bool, watch: bool) -> int:
    """Prints the state of a tuning and of its trials; returns the exit code.

    Args:
        folder: of the tuning.
        as_json: everything on one line.
        watch: again every second until the tuning is over.
    """
    from surreal_like.tune.handle import TuningHandle

    handle = TuningHandle(folder)
    while True:
        found = handle.summary()
        sys.stdout.write(f"{json.dumps(found) if as_json else page(found)}\n")
        sys.stdout.flush()
        if not (watch and handle.running):
            return 0
        time.sleep(_WATCH_SECONDS)


def page(found: Mapping[str, Any]) -> str:
    """Returns the state of a tuning as text."""
    trials, best = found["trials"].values(), found["best"]
    lines = [f"tuning {found['tuning']}: {found['state']}, {states_text(found['states'])}"]
    if best is not None:
        lines.append(f"best: {best['trial']}, score {decimal(best['score'])}")
    rows = [{**each, "doing": each["reason"]} for each in trials]
    return "\n".join([*lines, "", *trial_table(rows)])


def states_text(states: Mapping[str, int]) -> str:
    """Returns numbers of trials by state, as ``3 terminated, 1 running``."""
    return ", ".join(f"{num} {state}" for state, num in states.items())
