"""Time to solve CartPole-v1: single processes beside our runs of several, by one criterion.

Seed by seed, each peer in turn, so that all see the same machine. stable-baselines3 has the
settings of our files, but for those in DIFFERS, which it has not. It is installed into an
environment outside the repository; where that cannot be done the others go on. Prints JSON and
writes it to benchmarks/results/<name>.json.

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
from learn import one_run, resolved, row
from machine import machine, spread, write_result
from peer_settings import stable_baselines3
from setting import add_scratch, seeds_of
from whole import RunFailed, judged_return, run_script

OURS = {"surreal_like": "dqn", "surreal_like_ppo": "ppo"}
PEERS = (*OURS, "plain_dqn", "sb3_dqn", "sb3_ppo")
# Algorithm -> settings of ours that the peer has not.
DIFFERS = {"dqn": ("algo.double",), "ppo": ("algo.normalize_advantages_per",)}
TIMEOUT_SECONDS = 600.0


def run_peer(python: str, script: str, words: list[str], seed: int) -> dict[str, Any]:
    """Runs the process of a peer; returns what it prints last."""
    began = (str(seed), repr(time.time()))
    try:
        found = run_script(python, script, *began, *words, seconds=TIMEOUT_SECONDS)
    except RunFailed as error:
        return {"seed": seed, "failed": str(error).splitlines()[-1]}
    return {"seed": seed, **found}


def settings_of(algorithm: str) -> str:
    """Returns what the peer's script gets: the settings of our file."""
    config = resolved(f"cartpole_{algorithm}")
    return json.dumps(stable_baselines3(config, DIFFERS[algorithm]))


def run_ours(algorithm: str, seed: int) -> dict[str, Any]:
    """Runs the shipped experiment, as processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        try:
            wanted = row(f"cartpole_{algorithm}", 475.0, 20.0)
            folder = Path(scratch) / "run"
            found = one_run(wanted, seed, folder)
            judged_mean = judged_return(folder, "best", seed)
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
    return {
        "seed": seed,
        "solved": solved,
        "env_steps": found["env_steps"],
        "judged_mean_return": judged_mean,
    }


def runners(peers: list[str], scratch: Path) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Peer -> what runs it with a seed; those that cannot be had are left out, and said."""
    found: dict[str, Callable[[int], dict[str, Any]]] = {}
    for peer in peers:
        if peer in OURS:
            found[peer] = partial(run_ours, OURS[peer])
        elif peer == "plain_dqn":
            found[peer] = partial(run_peer, sys.executable, "plain_dqn.py", [])
        else:
            try:
                python = install("sb3", scratch)
            except (OSError, RuntimeError) as error:
                print(f"{peer} is left out: {error}", file=sys.stderr)
                continue
            settings = settings_of(peer.removeprefix("sb3_"))
            found[peer] = partial(run_peer, python, "sb3_equal.py", [settings])
    return found


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and spread of one peer over its seeds."""
    solved = [run["solved"] for run in runs if run.get("solved")]
    judged = [run["judged_mean_return"] for run in runs if run.get("solved")]
    values = {
        **{key: [each[key] for each in solved] for key in ("greedy_seconds", "env_steps")},
        "judged_mean_return": judged,
    }
    return {
        "runs": len(runs),
        "solved": len(solved),
        **{key: spread(each) if solved else None for key, each in values.items()},
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
        "differs": DIFFERS,
        "summary": {peer: summary(each) for peer, each in runs.items()},
        "runs": runs,
    }
    print(write_result(given.name, found))


if __name__ == "__main__":
    main()
