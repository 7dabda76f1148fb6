"""Environment steps until the goal, compared with stable-baselines3 at equal settings.

Runs each algorithm on both sides in turn, seed by seed; ours with the command that a user would
type. Both sides have the settings of one file in configs/, changed as ROWS says where the peer has
no such setting; the same stop criterion, and afterwards the same judge with the same start states.
Prints a table, writes benchmarks/results/<name>.json; the exit code is 1 if a row is missed.

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
from peer_settings import stable_baselines3, uses
from setting import add_scratch, add_seeds, seeds_of
from tables import LEARNED_CRITERION, samples_table
from whole import RunFailed, judged_return, run_script

TIMEOUT_SECONDS = 1200.0
WANTED = 1.25


@dataclass(frozen=True)
class Row:
    """One experiment.

    Args:
        name: of the row.
        config: in configs/.
        overrides: settings with which the peer has the same algorithm.
        every_steps: interval of the peer's evaluations [steps]; ours follow each other directly.
    """

    name: str
    config: str
    overrides: tuple[str, ...]
    every_steps: int


_ALGO = "learner_config.algo"
ROWS = (
    Row("dqn", "cartpole_dqn", (f"{_ALGO}.double=false",), 256),
    # The peer learns before it collects again; our agents collect meanwhile, unless they wait.
    Row(
        "ppo",
        "cartpole_ppo",
        (f"{_ALGO}.normalize_advantages_per=minibatch", f"{_ALGO}.synchronous=true"),
        256,
    ),
    Row("sac", "pendulum_sac", (), 200),
    Row("td3", "pendulum_td3", (), 200),
)


def experiment_of(wanted: Row) -> dict[str, Any]:
    """Returns what the peer's script gets."""
    return stable_baselines3(learn.resolved(wanted.config, wanted.overrides))


def ours(wanted: Row, seed: int) -> dict[str, Any]:
    """Runs ours once, in fresh processes."""
    limits = ("session_config.stop.seconds=600", "session_config.evaluator.interval_seconds=0")
    run = learn.Row(wanted.name, wanted.config, None, 600.0, (*wanted.overrides, *limits))
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        folder = Path(scratch) / "run"
        found = learn.one_run(run, seed, folder)
        # The parameters that met the goal, as the peer's.
        found["judged_mean_return"] = judged_return(folder, "best", seed)
    return {"seed": seed, "solved_env_steps": found.pop("greedy_env_steps"), **found}


def theirs(python: str, wanted: Row, seed: int) -> dict[str, Any]:
    """Runs the peer's script once."""
    experiment = json.dumps(experiment_of(wanted))
    words = (str(seed), repr(time.time()), experiment, str(wanted.every_steps))
    try:
        found = run_script(python, "sb3_equal.py", *words, seconds=TIMEOUT_SECONDS)
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
        "uses": uses(experiment_of(wanted)),
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
