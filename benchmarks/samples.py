"""Environment steps until the goal, compared with stable-baselines3 with its published settings.

Runs each algorithm on both sides in turn, seed by seed; ours with the command that a user would
type. Both sides use the same stop criterion and learn equally often from each step; ROWS has the
resulting changes of the shipped experiments. Prints a table, writes benchmarks/results/<name>.json;
the exit code is 1 if a row is missed.

    python benchmarks/samples.py [--seeds 101..103] [--rows dqn ppo]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import learn
from environments import install, versions
from machine import machine, spread, write_result
from setting import add_scratch, add_seeds, seeds_of
from tables import LEARNED_CRITERION, samples_table
from whole import RunFailed, run_script

TIMEOUT_SECONDS = 1200.0
WANTED = 1.25


@dataclass(frozen=True)
class Row:
    """One algorithm on one environment.

    Args:
        name: name in the peer's script.
        config: ours, in configs/.
        overrides: adapt the number of uses of each step to the peer's.
        uses: description of that number.
        every_steps: interval of the peer's evaluations [steps]; ours follow each other directly.
    """

    name: str
    config: str
    overrides: tuple[str, ...]
    uses: str
    every_steps: int


_REPLAY = "learner_config.replay"
_ALGO = "learner_config.algo"
_PENDULUM = (f"{_REPLAY}.batch_size=256", f"{_REPLAY}.samples_per_insert=256")
ROWS = (
    Row("dqn", "cartpole_dqn", (), "32 samples per step", 256),
    Row(
        "ppo",
        "cartpole_ppo",
        (
            *("env_config.num_envs=8", f"{_REPLAY}.batch_size=8", f"{_REPLAY}.capacity=256"),
            *(f"{_ALGO}.num_sgd_iter=20", f"{_ALGO}.minibatches=1"),
        ),
        "20 passes over 256 steps",
        256,
    ),
    Row("sac", "pendulum_sac", _PENDULUM, "256 samples per step", 200),
    Row("td3", "pendulum_td3", _PENDULUM, "256 samples per step", 200),
)


def ours(wanted: Row, seed: int) -> dict[str, Any]:
    """Runs ours once, in fresh processes."""
    limits = ("session_config.stop.seconds=600", "session_config.evaluator.interval_seconds=0")
    run = learn.Row(wanted.name, wanted.config, None, 600.0, (*wanted.overrides, *limits))
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        found = learn.one_run(run, seed, Path(scratch) / "run")
    return {"seed": seed, "solved_env_steps": found.pop("greedy_env_steps"), **found}


def theirs(python: str, wanted: Row, seed: int) -> dict[str, Any]:
    """Runs the peer's script once."""
    words = (str(seed), repr(time.time()), "0", wanted.name, str(wanted.every_steps))
    try:
        found = run_script(python, "sb3.py", *words, seconds=TIMEOUT_SECONDS)
    except RunFailed as error:
        raise SystemExit(f"{wanted.name}, seed {seed}: {error}") from None
    solved = found["solved"] or {}
    return {"seed": seed, "solved_env_steps": solved.get("env_steps"), **found}


def side(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarizes one side of a row: its runs, and the steps of those that met the goal."""
    steps = [run["solved_env_steps"] for run in runs if run["solved_env_steps"] is not None]
    return {"met": len(steps), "env_steps": spread(steps) if steps else None, "runs": runs}


def judged(wanted: Row, mine: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """Builds a row of the table; passed if all our runs met the goal within the allowed ratio."""
    sides = {"ours": side(mine), "peer": side(peers)}
    steps: list[Mapping[str, float] | None] = [each["env_steps"] for each in sides.values()]
    ratio = steps[0]["median"] / steps[1]["median"] if steps[0] and steps[1] else None
    return {
        "name": wanted.name,
        "config": wanted.config,
        "overrides": list(wanted.overrides),
        "uses": wanted.uses,
        **sides,
        "ratio": ratio,
        "wanted": WANTED,
        "passed": sides["ours"]["met"] == len(mine) and (ratio is None or ratio <= WANTED),
    }


def measured(python: str, wanted: Row, seeds: list[int]) -> dict[str, Any]:
    """Measures both sides of one row, seed by seed; reports each result as soon as it is known."""
    mine, peers = [], []
    for seed in seeds:
        mine.append(ours(wanted, seed))
        peers.append(theirs(python, wanted, seed))
        steps = [mine[-1]["solved_env_steps"], peers[-1]["solved_env_steps"]]
        print(json.dumps({"row": wanted.name, "seed": seed, "env_steps": steps}), file=sys.stderr)
    return judged(wanted, mine, peers)


def main() -> int:
    """Measures, prints and writes; returns 1 if a row is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "",
        epilog=f"criterion: {LEARNED_CRITERION}",
    )
    names = [each.name for each in ROWS]
    parser.add_argument("--rows", nargs="+", choices=names, default=names)
    add_seeds(parser, "101..103")
    parser.add_argument("--name", default="samples", help="of the file with the results")
    add_scratch(parser)
    given = parser.parse_args()
    python = install("sb3", given.scratch)
    kept: dict[str, Any] = {
        "machine": machine(),
        "peers": versions(python),
        "criterion": LEARNED_CRITERION,
        "samples": [],
    }
    for wanted in (each for each in ROWS if each.name in given.rows):
        kept["samples"].append(measured(python, wanted, seeds_of(given.seeds)))
        # Written after each row: a row takes minutes, and a later failure must not lose it.
        write_result(given.name, kept)
    print(samples_table(kept))
    return 0 if all(each["passed"] for each in kept["samples"]) else 1


if __name__ == "__main__":
    sys.exit(main())
