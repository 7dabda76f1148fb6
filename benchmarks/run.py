"""A real local run, measured from outside: start-up, speed, lag, and the cost of each process.

Starts `surreal-like train` as a user would, observes its processes meanwhile, and reads the run
folder afterwards. Prints JSON and writes it to benchmarks/results/<name>.json.

    python benchmarks/run.py                                     the shipped CartPole, its own seed
    python benchmarks/run.py --seeds 1..5                        several seeds, median and spread
    python benchmarks/run.py --name lunar configs/lunar_dqn.yaml session_config.agent.num=4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from machine import machine, spread, write_result

from session.config import Config
from session.folder import RunFolder

HERE = Path(__file__).resolve().parent
CONFIG = HERE.parent / "configs" / "cartpole_dqn.yaml"
LOOK_SECONDS = 0.25
TIMEOUT_SECONDS = 900.0
CRITERION = (
    "solved.greedy_seconds: from the command's start, imports included, until one version of the "
    "parameters has reached session_config.stop.eval_return as the mean of "
    "session_config.stop.eval_episodes greedy episodes, and again over as many on fresh seeds"
)
MEANINGS = {
    "startup_seconds": "from the command's start to the first environment step, the first update, "
    "and the moment at which the last process was ready",
    "cpu_share": "processor seconds of a process by the seconds that it lived: 1 is one core",
    "peak_memory_mib": "resident, pages that processes share counted in each",
    "policy_lag": "versions and updates between the parameters that a row was acted with and the "
    "newest ones when it was learned from",
}


@dataclass
class Cost:
    """Resource use of a process so far, and its component."""

    name: str
    cpu_seconds: float = 0.0
    peak_memory_mib: float = 0.0
    first_seen: float = 0.0
    last_seen: float = 0.0

    def plain(self) -> dict[str, float]:
        """Returns plain data for JSON."""
        lived = max(LOOK_SECONDS, self.last_seen - self.first_seen)
        return {
            "cpu_seconds": round(self.cpu_seconds, 2),
            "cpu_share": round(self.cpu_seconds / lived, 3),
            "peak_memory_mib": round(self.peak_memory_mib, 1),
        }


class Watcher:
    """Samples the resource use of a process and all its descendants.

    Args:
        pid: of the command.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._costs: dict[tuple[int, float], Cost] = {}

    def look(self) -> None:
        """Records the current use of each of them."""
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                with process.oneshot():
                    self._note(process)
            except psutil.Error:
                # It has just ended: the last sample is kept.
                continue

    def _note(self, process: psutil.Process) -> None:
        name = component_of(process.cmdline(), process.pid == self._root.pid)
        if name is None:
            return
        began = process.create_time()
        cost = self._costs.setdefault((process.pid, began), Cost(name, first_seen=began))
        # A process that has just been forked still has the name of its parent.
        cost.name = name
        used = process.cpu_times()
        cost.cpu_seconds = used.user + used.system
        cost.peak_memory_mib = max(cost.peak_memory_mib, process.memory_info().rss / 2**20)
        cost.last_seen = time.time()

    def table(self) -> dict[str, dict[str, float]]:
        """Returns component -> cost, most expensive first; for restarted ones the longest run."""
        longest: dict[str, Cost] = {}
        for cost in self._costs.values():
            name = cost.name
            if name not in longest or cost.cpu_seconds > longest[name].cpu_seconds:
                longest[name] = cost
        ordered = sorted(longest.items(), key=lambda item: -item[1].cpu_seconds)
        return {name: cost.plain() for name, cost in ordered}


def component_of(command: list[str], is_root: bool) -> str | None:
    """Returns the component's name from its process title; None for an ended process."""
    words = " ".join(command).split()
    if is_root or not words:
        return "train" if words else None
    if "--name" in words:
        return words[words.index("--name") + 1]
    return "fork_server" if "session.launchers.fork_server" in words else "others"


def one_run(
    config: Path, overrides: Iterable[str], seed: int | None, folder: Path
) -> dict[str, Any]:
    """Runs the command to its end; returns all measurements."""
    command = [sys.executable, "-P", "-m", "main.cli", "train", str(config), *overrides, "--quiet"]
    command += ["--folder", str(folder)]
    command += ["--seed", str(seed)] if seed is not None else []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        watcher = Watcher(process.pid)
        while process.poll() is None:
            watcher.look()
            if time.monotonic() > deadline:
                process.terminate()
                deadline += TIMEOUT_SECONDS
            time.sleep(LOOK_SECONDS)
    result = RunFolder(folder).read_result()
    if result is None:
        raise SystemExit(f"the run left no result: exit code {process.returncode}")
    return {"exit_code": process.returncode, **of_folder(folder, result), "cost": watcher.table()}


def of_folder(folder: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """Extracts the results of an ended run from its folder."""
    return {
        "seed": result["seed"],
        "status": result["status"],
        "goal_met": result["goal_met"],
        "wall_seconds": result["wall_seconds"],
        "solved": result.get("solved"),
        "best_mean_return": (result.get("best_eval") or {}).get("mean_return"),
        "env_steps": result.get("env_steps"),
        "iterations": result.get("iterations"),
        "startup_seconds": startup(RunFolder(folder)),
        "whole_run_rates": result.get("rates"),
        "steady_rates": steady(RunFolder(folder)),
        "policy_lag": result.get("lag"),
        "latency_seconds": result.get("latency"),
        "experience": result.get("experience"),
    }


def startup(folder: RunFolder) -> dict[str, float | None]:
    """Returns the seconds from the command's start to events of the start-up."""
    began = Config.load_file(folder.config).run.started
    events = [json.loads(line) for line in folder.events.read_text().splitlines()]

    def times(kind: str) -> list[float]:
        return [round(each["time"] - began, 3) for each in events if each.get("event") == kind]

    return {
        "first_env_step": min(times("acting"), default=None),
        "first_update": min(times("learning"), default=None),
        "all_ready": max(times("start"), default=None),
    }


def steady(folder: RunFolder) -> dict[str, float | None]:
    """Returns the rates between the first and the last line of progress with updates."""
    lines = [json.loads(line) for line in folder.progress.read_text().splitlines()]
    busy = [line for line in lines if line["iterations"]]
    if len(busy) < 2:
        return {"env_steps_per_second": None, "updates_per_second": None, "waiting_share": None}
    first, last = busy[0], busy[-1]
    passed = last["wall_seconds"] - first["wall_seconds"]
    shares = [line["waiting_share"] for line in busy[1:]]
    return {
        "env_steps_per_second": round((last["env_steps"] - first["env_steps"]) / passed, 1),
        "updates_per_second": round((last["iterations"] - first["iterations"]) / passed, 1),
        "waiting_share": round(sum(shares) / len(shares), 3),
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns median and spread over the runs, and the number of solved runs."""
    solved = [
        run["solved"]["greedy_seconds"]
        for run in runs
        if (run["solved"] or {}).get("greedy_seconds")
    ]
    first = [run["startup_seconds"]["first_env_step"] for run in runs]
    known = [seconds for seconds in first if seconds is not None]
    return {
        "runs": len(runs),
        "solved": len(solved),
        "greedy_seconds": spread(solved) if solved else None,
        "first_env_step_seconds": spread(known) if known else None,
    }


def seeds_of(text: str) -> list[int]:
    """Parses ``1..5`` or ``1,4,9``."""
    first, dots, last = text.partition("..")
    return (
        list(range(int(first), int(last) + 1)) if dots else [int(each) for each in text.split(",")]
    )


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "", epilog=f"criterion: {CRITERION}"
    )
    parser.add_argument("words", nargs="*", metavar="CONFIG.yaml section.key=value")
    parser.add_argument("--seeds", help="1..5 or 1,4,9: one run for each")
    parser.add_argument("--name", help="of the file with the results")
    given = parser.parse_intermixed_args()
    files = [word for word in given.words if "=" not in word]
    config = Path(files[0]) if files else CONFIG
    overrides = [word for word in given.words if "=" in word]
    seeds: list[int | None] = [*seeds_of(given.seeds)] if given.seeds else [None]
    runs = []
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as scratch:
        for seed in seeds:
            runs.append(one_run(config, overrides, seed, Path(scratch) / f"run-{seed}"))
            shown = {key: runs[-1][key] for key in ("seed", "solved", "startup_seconds")}
            print(json.dumps(shown), file=sys.stderr)
    found = {
        "machine": machine(),
        "criterion": CRITERION,
        "meanings": MEANINGS,
        "summary": summary(runs),
        "runs": runs,
    }
    name = given.name or f"run-{config.stem}{'-seeds' if given.seeds else ''}"
    print(write_result(name, found))


if __name__ == "__main__":
    main()
