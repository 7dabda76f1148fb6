"""Time to solve CartPole-v1: single processes beside our run of several, by one criterion.

Seed by seed, each peer in turn, so that all see the same machine. stable-baselines3 is installed
into a scratch environment outside the repository, beside the torch that is here already; where that
cannot be done the others go on. Prints JSON and writes it to benchmarks/results/<name>.json.

    python benchmarks/peers/cartpole_scripts.py --seeds 1..5
    python benchmarks/peers/cartpole_scripts.py --seeds 1 --peers plain_dqn
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BENCHMARKS = HERE.parent
ROOT = BENCHMARKS.parent
CONFIG = ROOT / "configs" / "cartpole_dqn.yaml"
PEERS = ("surreal_like", "plain_dqn", "sb3_dqn", "sb3_ppo")
TIMEOUT_SECONDS = 600.0

# Scripts import their neighbours; this one lives a folder deeper.
sys.path.append(str(BENCHMARKS))
from criterion import WORDS  # noqa: E402
from environments import pip_install  # noqa: E402
from machine import machine, spread, write_result  # noqa: E402
from run import seeds_of  # noqa: E402


def run_script(python: str, words: list[str], seed: int) -> dict[str, Any]:
    """One process of a peer; the last line that it prints is what came of it."""
    command = [python, str(HERE / words[0]), *words[1:], str(seed), repr(time.time())]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    if done.returncode:
        return {"seed": seed, "failed": done.stderr.strip().splitlines()[-1]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {"seed": seed, **result}


def run_ours(seed: int) -> dict[str, Any]:
    """The shipped experiment, as processes of this machine."""
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        command = [sys.executable, "-P", "-m", "main.cli", "train", str(CONFIG), "--quiet"]
        command += ["--json", "--seed", str(seed), "--folder", f"{scratch}/run"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    if not done.stdout:
        return {"seed": seed, "failed": done.stderr.strip().splitlines()[-1]}
    result = json.loads(done.stdout.strip().splitlines()[-1])
    solved, confirmed = result["solved"], (result["eval"] or {}).get("confirmed")
    found = None
    if solved["greedy_seconds"] is not None:
        found = {
            "greedy_seconds": round(solved["greedy_seconds"], 3),
            "env_steps": solved["greedy_env_steps"],
            "first_mean": confirmed[0] if confirmed else None,
            "second_mean": confirmed[1] if confirmed else None,
        }
    return {"seed": seed, "solved": found, "env_steps": result["env_steps"]}


def install_sb3(folder: Path) -> str:
    """The interpreter of an environment with stable-baselines3.

    It sees the packages of this one, so that torch is the same and nothing large is fetched.

    Raises:
        RuntimeError: it cannot be installed; says why.
    """
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    show = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = subprocess.check_output([python, "-c", show], text=True).strip()
    (Path(site) / "beside.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    pip_install(python, ["stable-baselines3"])
    return python


def runners(peers: list[str], scratch: Path) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Peer -> what runs it with a seed; those that cannot be had are left out, and said."""
    found: dict[str, Callable[[int], dict[str, Any]]] = {}
    python = ""
    for peer in peers:
        if peer == "surreal_like":
            found[peer] = run_ours
        elif peer == "plain_dqn":
            found[peer] = partial(run_script, sys.executable, ["plain_dqn.py"])
        else:
            try:
                python = python or install_sb3(scratch / "sb3")
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                print(f"{peer} is left out: {error}", file=sys.stderr)
                continue
            found[peer] = partial(run_script, python, ["sb3.py", peer.removeprefix("sb3_")])
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
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sl-peers-") as scratch:
        peers = runners(given.peers, Path(scratch))
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
