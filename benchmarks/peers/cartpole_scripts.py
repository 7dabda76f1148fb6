"""Time to solve CartPole-v1: single processes beside our run of several, by one criterion.

Seed by seed, each peer in turn, so that all see the same machine. stable-baselines3 is installed
into an environment outside the repository; where that cannot be done the others go on. Prints
JSON and writes it to benchmarks/results/<name>.json.

    python benchmarks/peers/cartpole_scripts.py --seeds 1..5
    python benchmarks/peers/cartpole_scripts.py --seeds 1 --peers plain_dqn
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Scripts import their neighbours; this one lives a folder deeper.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from criterion import WORDS
from environments import install
from learn import one_run, row
from machine import machine, spread, write_result
from setting import add_scratch, seeds_of
from whole import RunFailed, run_script

PEERS = ("surreal_like", "plain_dqn", "sb3_dqn", "sb3_ppo")
TIMEOUT_SECONDS = 600.0


def run_peer(python: str, script: str, words: list[str], seed: int) -> dict[str, Any]:
    """Runs the process of a peer; returns what it prints last."""
    began = (str(seed), repr(time.time()))
    try:
        found = run_script(python, script, *began, *words, seconds=TIMEOUT_SECONDS)
    except RunFailed as error:
        return {"seed": seed, "failed": str(error).splitlines()[-1]}
    return {"seed": seed, **found}


def run_ours(seed: int) -> dict[str, Any]:
    """Runs the shipped experiment, as processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        try:
            found = one_run(row("cartpole_dqn", 475.0, 20.0), seed, Path(scratch) / "run")
        except SystemExit as error:
            return {"seed": seed, "failed": str(error).splitlines()[-1]}
    solved = None
    if found["greedy_seconds"] is not None:
        first, second = found["confirmed"]
        solved = {
            "greedy_seconds": found["greedy_seconds"],
            "env_steps": found["greedy_env_steps"],
            "first_mean": first,
            "second_mean": second,
        }
    return {"seed": seed, "solved": solved, "env_steps": found["env_steps"]}


def runners(peers: list[str], scratch: Path) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Peer -> what runs it with a seed; those that cannot be had are left out, and said."""
    found: dict[str, Callable[[int], dict[str, Any]]] = {}
    for peer in peers:
        if peer == "surreal_like":
            found[peer] = run_ours
        elif peer == "plain_dqn":
            found[peer] = partial(run_peer, sys.executable, "plain_dqn.py", [])
        else:
            try:
                python = install("sb3", scratch)
            except (OSError, RuntimeError) as error:
                print(f"{peer} is left out: {error}", file=sys.stderr)
                continue
            found[peer] = partial(run_peer, python, "sb3.py", ["0", peer.removeprefix("sb3_")])
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and spread of one peer over its seeds."""
    solved = [run["solved"] for run in runs if run.get("solved")]
    return {
        "runs": len(runs),
        "solved": len(solved),
        "greedy_seconds": spread([each["greedy_seconds"] for each in solved]) if solved else None,
        "env_steps": spread([each["env_steps"] for each in solved]) if solved else None,
    }


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", epilog=f"criterion: {WORDS}"
    )
    parser.add_argument("--seeds", default="1..5", help="1..5 or 1,4,9")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--name", default="cartpole-scripts", help="of the file with the results")
    add_scratch(parser)
    given = parser.parse_args()
    peers = runners(given.peers, given.scratch)
    runs: dict[str, list[dict[str, Any]]] = {peer: [] for peer in peers}
    for seed in seeds_of(given.seeds):
        for peer, run in peers.items():
            runs[peer].append(run(seed))
            print(json.dumps({"peer": peer, **runs[peer][-1]}), file=sys.stderr, flush=True)
    found = {
        "machine": machine(),
        "criterion": WORDS,
        "summary": {peer: summary(each) for peer, each in runs.items()},
        "runs": runs,
    }
    print(write_result(given.name, found))


if __name__ == "__main__":
    main()
