"""Whole local runs with more and more agent processes, beside bare processes and RLlib's workers.

The simulator sleeps 20 ms a step (`peers/sleeping.py`), so that two cores can serve many agents: an
agent that costs nothing makes 50 steps/s. Each agent has one environment. For each number of agents
in turn: a run of DQN with all its components; as many bare processes that only sleep and step; as
many that also choose their actions with the same network in plain torch; with `--peer` as many of
RLlib's env runners. Then runs to CartPole's goal, and one in which two random
agents are killed each minute. Writes benchmarks/results/scaling.json and docs/images/scaling.png.

    python benchmarks/scaling.py                         1 to 256 agents, as many as memory holds
    python benchmarks/scaling.py --agents 4 --seconds 8 --seeds "" --minutes 0 --name small
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
from environments import install, versions
from machine import RESULTS, machine, write_result
from setting import add_scratch, add_seeds, seeds_of
from tables import OF_RATES, grid, load_before, provenance
from whole import training as started

from session.folder import RunFolder
from session.process.heartbeat import Beat, read_beats

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
sys.path.append(str(PEERS))
from sleeping import STEP_SECONDS  # noqa: E402

AGENTS = (1, 4, 16, 64, 128, 256)
# RLlib's workers take ten times the memory of our agents.
PEER_WORKERS = (1, 4, 16)
GOAL, GOAL_AGENTS = 475, (1, 4, 16, 64)
KILLED_AGENTS, KILL_SECONDS = 16, 30.0
# Each process starts by itself; on two cores 256 of them take minutes.
START_SECONDS = 600.0
SETTLE_SECONDS = 5.0
GOAL_SECONDS = 900.0
SIMULATOR = (
    "--env",
    "sleeping:SleepingPole",
    "env_config.num_envs=1",
    f"session_config.import_path=[{PEERS}]",
)
# What is measured are agents: the learner does little for each row.
THROUGHPUT = (
    "--algorithm",
    "dqn",
    "learner_config.replay.samples_per_insert=4",
    "learner_config.replay.min_size=200",
    "session_config.tensorplex.update_schedule=10",
)
# A hundred episodes of evaluation in which each step sleeps would take minutes.
LEARNS = (str(HERE.parent / "configs" / "cartpole_dqn.yaml"), "env_config.eval_mode.step_seconds=0")


def training(
    folder: Path, agents: int, *words: str
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Starts a run of so many agents in front of the simulator that sleeps.

    Args:
        folder: of the run.
        agents: number of agents.
        words: experiment and settings.
    """
    number = f"session_config.agent.num={agents}"
    return started(*words, *SIMULATOR, "--on", "local", number, folder=folder)


def agents_of(folder: Path) -> dict[str, Beat]:
    """Returns the last heartbeats of the agents that have stepped."""
    beats = read_beats(RunFolder(folder).alive)
    return {
        name: beat
        for name, beat in beats.items()
        if name.startswith("agent-") and beat.status.get("env_steps")
    }


def wait_for(folder: Path, agents: int, run: subprocess.Popen[bytes]) -> None:
    """Waits until all agents have sent their first steps.

    Raises:
        SystemExit: the run has ended, or they take too long.
    """
    deadline = time.monotonic() + START_SECONDS
    while len(agents_of(folder)) < agents:
        if run.poll() is not None or time.monotonic() >= deadline:
            raise SystemExit(f"{len(agents_of(folder))} of {agents} agents have stepped: {folder}")
        time.sleep(0.5)


def component_of(command: list[str]) -> str | None:
    """Returns the component's name from its process title; None for an ended process."""
    words = " ".join(command).split()
    if "--name" in words:
        return words[words.index("--name") + 1]
    if not words:
        return None
    return "fork_server" if "session.launchers.fork_server" in words else "others"


def processes_of(run: subprocess.Popen[bytes]) -> dict[str, psutil.Process]:
    """Returns component -> process."""
    found = {}
    for process in psutil.Process(run.pid).children(recursive=True):
        try:
            name = component_of(process.cmdline())
        except psutil.Error:
            continue
        if name is not None:
            found[name] = process
    return found


def cpu_seconds(processes: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Returns component -> processor seconds so far."""
    times = {name: process.cpu_times() for name, process in processes.items()}
    return {name: each.user + each.system for name, each in times.items()}


def ours(folder: Path, agents: int, seconds: float) -> dict[str, Any]:
    """Measures a run for some seconds after all its agents have begun."""
    with training(folder, agents, *THROUGHPUT) as run:
        wait_for(folder, agents, run)
        time.sleep(SETTLE_SECONDS)
        processes = processes_of(run)
        first, before, began = agents_of(folder), cpu_seconds(processes), time.monotonic()
        ages: list[float] = []
        while time.monotonic() - began < seconds:
            time.sleep(1.0)
            ages += [beat.status["policy_age_seconds"] for beat in agents_of(folder).values()]
        last, after, passed = agents_of(folder), cpu_seconds(processes), time.monotonic() - began
        shared = [process.memory_full_info().pss for process in processes.values()]
    # Steps are counted where chunks are cut, and read from heartbeats: both come with a delay that
    # is equal on average at both ends.
    steps = sum(last[name].status["env_steps"] - first[name].status["env_steps"] for name in first)
    used = {name: after[name] - before[name] for name in after}
    of_agents = sum(each for name, each in used.items() if name.startswith("agent-"))
    result = RunFolder(folder).read_result() or {}
    account = result["experience"]
    return {
        "per_second": round(steps / passed, 1),
        "cpu": round(of_agents / steps, 7),
        "cores": {
            name: round(each / passed, 4)
            for name, each in used.items()
            if not name.startswith("agent-")
        },
        "policy_age_seconds": {
            "median": round(sorted(ages)[len(ages) // 2], 2),
            "p99": round(sorted(ages)[int(0.99 * len(ages))], 2),
        },
        "memory_mib": round(sum(shared) / 2**20),
        "exact": account["pushed"] == account["inserted"] + account["dropped"],
    }


def bare(agents: int, seconds: float, widths: Sequence[int] = ()) -> dict[str, Any]:
    """Measures as many processes that only sleep and step.

    Args:
        agents: number of processes.
        seconds: for which they step.
        widths: hidden layers of the network that chooses the actions; empty: there is none.
    """
    numbers = map(str, (agents, seconds, *widths))
    command = [sys.executable, str(HERE / "ours" / "sleepers.py"), *numbers]
    found = json.loads(subprocess.check_output(command, text=True))
    return {"per_second": round(found["per_second"], 1), "cpu": round(found["cpu"], 7)}


def peer(python: str, workers: int, seconds: float) -> dict[str, Any] | None:
    """Measures as many of RLlib's env runners; None if it has failed, with its last words."""
    command = [python, "-W", "ignore", str(PEERS / "rllib_sleeping.py"), str(workers), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    printed = [line for line in done.stdout.splitlines() if line.startswith('{"per_second"')]
    if not printed:
        print(f"RLlib with {workers} workers: {done.stderr.strip()[-2000:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(printed[-1])
    return found


def to_goal(folder: Path, agents: int, seed: int) -> float | None:
    """Returns the seconds to CartPole's goal; None if it was not reached."""
    stop = f"session_config.stop={{eval_return: {GOAL}, seconds: {GOAL_SECONDS}}}"
    with training(folder, agents, *LEARNS, stop, f"session_config.seed={seed}") as run:
        run.wait()
    result = RunFolder(folder).read_result() or {}
    solved = result.get("solved") or {}
    return solved.get("greedy_seconds")


def with_kills(folder: Path, minutes: float) -> dict[str, Any]:
    """Kills two random agents each minute; returns how often, and the accounts at the end."""
    rng, killed = random.Random(0), 0
    with training(folder, KILLED_AGENTS, *THROUGHPUT) as run:
        wait_for(folder, KILLED_AGENTS, run)
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until:
            time.sleep(KILL_SECONDS)
            agents = sorted(name for name in processes_of(run) if name.startswith("agent-"))
            processes_of(run)[rng.choice(agents)].kill()
            killed += 1
    result = RunFolder(folder).read_result() or {}
    names = ("pushed", "inserted", "dropped")
    account = {name: result["experience"][name] for name in names}
    exact = account["pushed"] == account["inserted"] + account["dropped"]
    return {"agents": KILLED_AGENTS, "killed": killed, **account, "exact": exact}


def table(found: Mapping[str, Any]) -> str:
    """Formats a line for each number of agents."""
    cost = "processor time per step"
    head = ["agents", "steps/s", "of bare processes", cost, "bare"]
    # Results of older versions have none.
    networks = all("network" in row for row in found["scaling"])
    head += ["bare with the network: steps/s", cost] if networks else []
    head += ["age of the policy, median and 99th percentile", "memory"]
    rows = []
    for row in found["scaling"]:
        mine, least, theirs = row["ours"], row["bare"], row.get("rllib")
        age = mine["policy_age_seconds"]
        cells = [f"{row['agents']}", f"{mine['per_second']:,.0f}"]
        cells += [f"{mine['per_second'] / least['per_second']:.2f}"]
        cells += [_milliseconds(mine), _milliseconds(least)]
        if networks:
            cells += [f"{row['network']['per_second']:,.0f}", _milliseconds(row["network"])]
        cells += [f"{age['median']:.1f} s, {age['p99']:.1f} s", _gibibytes(mine)]
        if theirs is None:
            cells += ["", "", ""]
        else:
            cells += [f"{theirs['per_second']:,.0f}", _milliseconds(theirs), _gibibytes(theirs)]
        rows.append(cells)
    return grid([*head, "RLlib: steps/s", cost, "memory"], rows)


def _milliseconds(side: Mapping[str, Any]) -> str:
    return f"{1e3 * side['cpu']:.2f} ms"


def _gibibytes(side: Mapping[str, Any]) -> str:
    return f"{side['memory_mib'] / 1024:.1f} GiB"


def goals_table(found: Mapping[str, Any]) -> str:
    """Formats the seconds to the goal for each number of agents."""
    rows = []
    for row in found["goals"]:
        reached = sorted(each for each in row["seconds"] if each is not None)
        text = ", ".join(f"{each:.0f}" for each in reached)
        rows.append((f"{row['agents']}", f"{text} ({len(reached)} of {len(row['seconds'])})"))
    return grid(("agents", "seconds to a greedy mean return of 475"), rows)


def scaling_document(found: Mapping[str, Any]) -> str:
    """Formats all tables, for docs/performance.md."""
    where = provenance(found["machine"], OF_RATES, found.get("peer_versions"))
    parts = [table(found), f"{where} {load_before(found)}"]
    if found["goals"]:
        parts.append(goals_table(found))
    kills = found["kills"]
    if kills:
        parts.append(
            f"With {kills['agents']} agents, of which {kills['killed']} were killed one after the "
            f"other: {kills['pushed']:,} rows pushed = {kills['inserted']:,} inserted + "
            f"{kills['dropped']:,} dropped."
        )
    return "\n\n".join(parts)


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Draws steps per second over the number of agents, beside bare processes and RLlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    rows = found["scaling"]
    for key, label, style in (
        ("bare", "bare processes", "k--"),
        ("network", "bare processes with the network", "k:"),
        ("ours", "surreal_like", "o-"),
        ("rllib", "RLlib", "s-"),
    ):
        points = [(row["agents"], row[key]["per_second"]) for row in rows if key in row]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="agent processes", ylabel="environment steps/s")
    axes.set_xticks([row["agents"] for row in rows], [str(row["agents"]) for row in rows])
    axes.minorticks_off()
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def fits(agents: int, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Returns False if so many agents would not fit into the memory that is left."""
    if not rows:
        return True
    per_agent = rows[-1]["ours"]["memory_mib"] / rows[-1]["agents"]
    return bool(agents * per_agent < 0.8 * psutil.virtual_memory().available / 2**20)


def main() -> int:
    """Measures, prints and writes; returns 1 if rows were lost without being counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--agents", type=int, nargs="+", default=list(AGENTS))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--peer", action="store_true", help="also RLlib")
    add_seeds(parser, "101..103")
    parser.add_argument("--minutes", type=float, default=3.0, help="with kills; 0: none")
    add_scratch(parser)
    parser.add_argument("--name", default="scaling", help="of the file with the results")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sl-scaling-"))
    python = install("rllib", given.scratch) if given.peer else ""
    found: dict[str, Any] = {
        "machine": machine(),
        "load": round(os.getloadavg()[0], 2),
        "step_seconds": STEP_SECONDS,
        "scaling": [],
        "goals": [],
        "kills": None,
    }
    if python:
        found["peer_versions"] = {"ray": versions(python)["ray"]}
    try:
        for agents in given.agents:
            if not fits(agents, found["scaling"]):
                print(f"{agents} agents do not fit into memory", file=sys.stderr)
                continue
            row: dict[str, Any] = {"agents": agents}
            row["ours"] = ours(folder / f"run-{agents}", agents, given.seconds)
            row["bare"] = bare(agents, given.seconds)
            config = RunFolder(folder / f"run-{agents}").read_config()
            widths = config.learner_config.model.hidden_sizes
            row["network"] = bare(agents, given.seconds, widths)
            if python and agents in PEER_WORKERS:
                theirs = peer(python, agents, given.seconds)
                row |= {} if theirs is None else {"rllib": theirs}
            found["scaling"].append(row)
            write_result(given.name, found)
            print(json.dumps(row), file=sys.stderr, flush=True)
        for agents in GOAL_AGENTS if given.seeds else ():
            seconds = [
                to_goal(folder / f"goal-{agents}-{seed}", agents, seed)
                for seed in seeds_of(given.seeds)
            ]
            found["goals"].append({"agents": agents, "seconds": seconds})
            write_result(given.name, found)
            print(json.dumps(found["goals"][-1]), file=sys.stderr, flush=True)
        if given.minutes:
            found["kills"] = with_kills(folder / "kills", given.minutes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    write_result(given.name, found)
    draw(found, RESULTS / f"{given.name}.png" if given.name != "scaling" else IMAGE)
    print(scaling_document(found))
    exact = all(row["ours"]["exact"] for row in found["scaling"])
    return int(not exact or bool(found["kills"] and not found["kills"]["exact"]))


IMAGE = HERE.parent / "docs" / "images" / "scaling.png"

if __name__ == "__main__":
    sys.exit(main())
