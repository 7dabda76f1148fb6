"""Gains of schedulers over `fifo`: scores and environment steps of the shipped tunings of CartPole.

Each tuning is the command that a user would type, with serial trials; those of a scheduler run on
one slot, so that the same trials meet at every repetition, and nothing depends on the load of the
machine. The seeds did not serve to choose settings: those of `asha` are others, because its budget
was chosen with 101 and 102. Prints a table and writes JSON; about twelve minutes. The exit code is
1 if a requirement is missed.

    python benchmarks/tune_learning.py [--tunings pbt asha] [--seeds 104..106]
        [--json benchmarks/results/tune_learning.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from machine import machine
from setting import seeds_of
from targets import Target, judge_all
from tune import ROOT, Found, keep, tuned

# Trials add their number to the seed: no two of them may have the same one.
SEEDS_APART = 1000
SEEDS = {"pbt": "101..103", "asha": "104..106"}

TARGETS = (
    Target(
        "`cartpole_pbt.yaml`: mean score of all trials, to `fifo`",
        "pbt.mean_score_to_fifo",
        "x",
        1.3,
        more=True,
    ),
    Target(
        "`cartpole_asha.yaml`: best score, to `fifo`",
        "asha.best_score_to_fifo",
        "x",
        0.95,
        more=True,
    ),
    Target("its environment steps, to `fifo`", "asha.env_steps_to_fifo", "x", 0.5),
)


def once(scheduler: str, seed: int) -> Found:
    """Runs a shipped tuning, with its scheduler and with `fifo`."""
    file = ROOT / "configs" / f"cartpole_{scheduler}.yaml"
    words = [f"tune.seed={seed}", f"session_config.seed={SEEDS_APART * seed}"]
    found = {
        scheduler: tuned(file, [*words, "tune.slots=1"]),
        "fifo": tuned(file, [*words, "tune.slots=2", "tune.scheduler=fifo"]),
    }
    run: Found = {"seed": seed}
    for name, each in found.items():
        # A trial whose episodes were too few has no score.
        scores = [score or 0.0 for score in each["scores"]]
        run[name] = {
            "mean_score": statistics.mean(scores),
            "best_score": each["best"],
            "env_steps": each["env_steps"],
            "exploits": each["exploits"],
            "scores": scores,
        }
    print(json.dumps({"tuning": file.stem, **run}), file=sys.stderr, flush=True)
    return run


def compared(scheduler: str, runs: Sequence[Found]) -> Found:
    """Returns the runs of a tuning, and for each measure the ratios to `fifo`."""

    def ratios(name: str) -> list[float]:
        return [run[scheduler][name] / run["fifo"][name] for run in runs]

    names = ("mean_score", "best_score", "env_steps")
    return {"runs": list(runs), **{f"{name}_to_fifo": ratios(name) for name in names}}


def main() -> int:
    """Runs, prints, and writes JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tunings", nargs="+", choices=tuple(SEEDS), default=list(SEEDS))
    parser.add_argument("--seeds", help="1..5 or 1,4,9: two tunings for each")
    parser.add_argument(
        "--json", type=Path, help="tunings that are left out stay as they are in it"
    )
    given = parser.parse_args()
    found: dict[str, Any] = {}
    if given.json is not None and given.json.exists():
        found = json.loads(given.json.read_text())
    found |= {"machine": machine(), "load": os.getloadavg()[0]}
    for name in given.tunings:
        seeds = seeds_of(given.seeds or SEEDS[name])
        found[name] = compared(name, [once(name, seed) for seed in seeds])
    return keep(given.json, {**found, "targets": judge_all(TARGETS, found)})


if __name__ == "__main__":
    raise SystemExit(main())
