"""Cost of tunings: processor time of trials, exploits, answers, residents, start.

Every row is measured on this machine with no other work; ratios are of one run of this program.

    python benchmarks/tune.py [--rows fifo exploits answers residents many stand_ins]
        [--steps 40000] [--json benchmarks/results/tune.json]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import psutil
from machine import machine

from session.client import Client
from session.folder import RunFolder
from session.launchers.backend import Exit
from session.wire import AddressBook, Message
from session.wire.requests import Call
from session.wire.sockets import poll
from surreal_like.run.interrupts import Interrupts
from surreal_like.tune import tuner as tuner_module
from surreal_like.tune.control import Control, Reported
from surreal_like.tune.schemas import ANSWERS, CONTROL
from surreal_like.tune.start import run_tuning
from surreal_like.tune.state import Answer, Trial
from surreal_like.tune.tune_file import TuneFile, read_tune_file
from surreal_like.tune.tuner import Tuner
from surreal_like.tune.tuning import Tuning
from surreal_like.tune.watch import TuneWatch

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = ROOT / "configs" / "cartpole_ppo.yaml"
COMMAND = (sys.executable, str(Path(sys.executable).with_name("surreal-like")))
PLAIN = ("session_config.evaluator.num=0", "session_config.stop.eval_return=null")
SPACE = "space={learner_config.algo.learning_rate.start: {loguniform: [1.0e-4, 1.0e-2]}}"
PBT = ("tune.scheduler=pbt", "tune.pbt.perturbation_interval=5000")
SYNCH = (*PBT, "tune.pbt.synch=true", SPACE)

Found = dict[str, Any]


def words(steps: int, *more: str) -> list[str]:
    """Returns the settings of a tuning of 8 trials on 2 slots."""
    own = ("tune.trials=8", "tune.slots=2", f"tune.stop.env_steps={steps}", "tune.min_episodes=5")
    return [*PLAIN, *own, *more]


def tune_file(folder: Path, overrides: Sequence[str]) -> TuneFile:
    """Writes and reads a tune file."""
    path = folder / "tuning.yaml"
    path.write_text(f"experiment: {EXPERIMENT}\n")
    return read_tune_file(path, overrides)


def run(argv: Sequence[str], folder: Path) -> dict[str, float]:
    """Runs a command; returns its wall and processor seconds, with those of all its processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (folder / "said.txt").open("w") as said:
        ended = subprocess.run(argv, cwd=folder, stdout=said, stderr=said, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 3: a budget ended before the goal.
    if ended.returncode not in (0, 3):
        raise SystemExit((folder / "said.txt").read_text())
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": time.monotonic() - began, "cpu_seconds": cpu}


def tuned(overrides: Sequence[str]) -> dict[str, float]:
    """Runs a tuning as a command; also returns the environment steps of all trials."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tune_file(folder, [])
        argv = [*COMMAND, "tune", "tuning.yaml", "--folder", "tuning", "--quiet", *overrides]
        found = run(argv, folder)
        result = json.loads((folder / "tuning" / "result.json").read_text())
    steps = sum(each["env_steps"] for each in result["trials"].values())
    return {**found, "env_steps": steps, "exploits": result["exploits"]}


def fifo(steps: int) -> Found:
    """Compares 8 trials, with and without exploits, with 8 runs by their own commands."""
    with tempfile.TemporaryDirectory() as name:
        alone = [
            run(
                [
                    *(*COMMAND, "train", str(EXPERIMENT), "--on", "serial", "--quiet", *PLAIN),
                    *("--seed", str(seed), f"session_config.stop.env_steps={steps}"),
                ],
                Path(name),
            )
            for seed in range(8)
        ]
    commands = sum(each["cpu_seconds"] for each in alone)
    plain, pbt = tuned(words(steps)), tuned(words(steps, SPACE, *PBT))
    return {
        "commands_cpu_seconds": commands,
        "fifo": plain,
        "pbt": pbt,
        "fifo_over_commands": plain["cpu_seconds"] / commands,
        "pbt_over_fifo": pbt["cpu_seconds"] / plain["cpu_seconds"],
        "pbt_wall_over_half_cpu": pbt["wall_seconds"] / (pbt["cpu_seconds"] / 2),
    }


class Timed(Control):
    """Control that notes the times of reports and answers."""

    waits: list[float]
    exploits: dict[str, list[float]]

    def __init__(self, socket: Any, names: list[str]) -> None:
        super().__init__(socket, names)
        self._reported: dict[int, float] = {}
        self._left: dict[int, tuple[str, float]] = {}

    def receive(self) -> Reported | None:
        found = super().receive()
        if found is not None:
            now = time.monotonic()
            self._reported[found.trial] = now
            if found.trial in self._left:
                kind, since = self._left.pop(found.trial)
                self.exploits[kind].append(now - since)
        return found

    def answer(self, answer: Answer) -> None:
        super().answer(answer)
        now = time.monotonic()
        since = self._reported.pop(answer.trial, now)
        if answer.kind in ("load", "leave"):
            self._left[answer.trial] = answer.kind, now
        elif answer.kind == "continue":
            self.waits.append(now - since)


@contextmanager
def timed() -> Iterator[type[Timed]]:
    """Replaces the control of tunings in this process."""
    Timed.waits, Timed.exploits = [], {"load": [], "leave": []}
    with patch.object(tuner_module, "Control", Timed):
        yield Timed


def tuned_here(overrides: Sequence[str]) -> dict[str, float]:
    """Runs a tuning in this process; returns its result, and the tuner's own processor time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cpu, began = time.process_time(), time.monotonic()
        found = run_tuning(tune_file(folder, overrides), folder=folder / "tuning")
        seconds = time.monotonic() - began
        log = found.folder / "pbt.jsonl"
        lines = [json.loads(each) for each in log.read_text().splitlines()] if log.exists() else []
    return {
        "wall_seconds": seconds,
        "tuner_cpu_share": (time.process_time() - cpu) / seconds,
        "exploits": found.result["exploits"],
        "files_seconds": max((each.get("seconds", 0.0) for each in lines), default=0.0),
    }


def exploits(steps: int) -> Found:
    """Times exploits in place and by a start, of serial and local trials.

    From the answer to the recipient's next request. In place that comes after the load and the
    first checkpoint; after a start it is the next report, after one update or more.
    """
    found: Found = {}
    every = "tune.report_every=1000"
    gamma = "space={learner_config.algo.gamma: {uniform: [0.9, 0.99]}}"
    for launcher in ("serial", "local"):
        for kind, space in (("load", SPACE), ("leave", gamma)):
            own = [*words(steps, space, *PBT, every), f"tune.launcher={launcher}", "tune.trials=4"]
            with timed() as control:
                facts = tuned_here([*own, "tune.pbt.perturbation_interval=2000"])
            times = sorted(control.exploits[kind][:20])
            name = "in_place" if kind == "load" else "by_start"
            found[f"{launcher}_{name}"] = {
                "count": len(times),
                "median_seconds": statistics.median(times) if times else None,
                "worst_seconds": times[-1] if times else None,
                "files_seconds": facts["files_seconds"],
            }
    return found


def answers(steps: int) -> Found:
    """Times answers at the tuner with 8 working trials and with 256 stand-ins."""
    with timed() as control:
        facts = tuned_here(words(steps, "tune.slots=8", "tune.report_every=1000"))
    waits = sorted(control.waits)
    at_once = sorted(stand_in_answers(256))
    return {
        "trials_median_seconds": statistics.median(waits),
        "trials_worst_seconds": waits[-1],
        "stand_ins_median_seconds": statistics.median(at_once),
        "stand_ins_worst_seconds": at_once[-1],
        "tuner_cpu_share": facts["tuner_cpu_share"],
    }


class StandIns:
    """Processes that do nothing; they end when they are asked to, or at once."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once
        self._alive: dict[str, int] = {}
        self.ended: list[str] = []

    def start(self, component: Any) -> None:
        self._alive[component.name] = len(self._alive) + 1
        if self._at_once:
            self.ended.append(component.name)

    def pid(self, name: str) -> int:
        return 0

    def signal(self, name: str, number: int) -> None:
        self.ended.append(name)

    def wait_on(self) -> list[int]:
        return []

    def poll(self) -> list[Exit]:
        names, self.ended = self.ended, []
        return [Exit(name, 0, "") for name in names if self._alive.pop(name, 0)]

    def close(self) -> None:
        pass


class Servers:
    """Fork servers that fork nothing."""

    def remove_at_end(self, sockets: str) -> None:
        pass


@contextmanager
def tuner_of(number: int, processes: StandIns) -> Iterator[tuple[Tuner, RunFolder]]:
    """Makes a tuner of stand-ins."""
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "tuning")
        folder.create()
        file = tune_file(Path(name), words(1000, f"tune.trials={number}"))
        trials = [Trial(f"trial-{each:03}", {}) for each in range(number)]
        tuning = Tuning(trials, file.scheduler(), slots=number)
        with patch.object(tuner_module, "Processes", lambda *given: processes):
            tuner = Tuner(file, folder, tuning, cast(Any, Servers()), TuneWatch())
        try:
            yield tuner, folder
        finally:
            tuner.close()


def stand_in_answers(number: int) -> list[float]:
    """Lets stand-ins report at once; returns the seconds until each has its answer."""
    processes = StandIns(at_once=False)
    seconds: list[float] = []

    def report(folder: RunFolder) -> None:
        book = AddressBook.load(folder.addresses)
        clients = [Client(book, f"trial-{each:03}") for each in range(number)]
        sockets = [each.dealer(CONTROL, ANSWERS) for each in clients]
        calls = []
        for each in clients:
            fields = {"trial": each.identity.name, "incarnation": 1, "number": 1, "step": 0}
            message = Message("report", {**fields, "time": 1.0, "line": {}})
            calls.append(Call(partial(_same, message), again_seconds=60.0))
        time.sleep(1.0)
        waiting, began = set(range(number)), time.monotonic()
        while waiting:
            for place in list(waiting):
                if sockets[place].ask(calls[place], time.monotonic()) is not None:
                    waiting.discard(place)
                    seconds.append(time.monotonic() - began)
            poll([sockets[place] for place in waiting], 0.01)
        processes.ended += [each.identity.name for each in clients]
        for each in clients:
            each.close(0.0)

    with tuner_of(number, processes) as (tuner, folder):
        thread = threading.Thread(target=report, args=(folder,))
        thread.start()
        tuner.run(Interrupts())
        thread.join()
    return seconds


def _same(message: Message) -> Message:
    return message


def stand_ins(steps: int) -> Found:
    """Times 1,000 trials that end at once, and the start of a real one until it learns."""
    with tuner_of(1000, StandIns(at_once=True)) as (tuner, _):
        began = time.monotonic()
        tuner.run(Interrupts())
        thousand = time.monotonic() - began
    return {"thousand_trials_seconds": thousand, "cold_start_seconds": cold_start(steps)}


def cold_start(steps: int) -> float:
    """Returns the seconds from a command to the first update of its first trial."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tune_file(folder, [])
        every = ("tune.report_every=1000", "tune.trials=1")
        argv = [*COMMAND, "tune", "tuning.yaml", "--folder", "tuning", *words(steps, *every)]
        began = time.monotonic()
        with (folder / "said.txt").open("w") as said:
            process = subprocess.Popen(argv, cwd=folder, stdout=said, stderr=said)
        progress = folder / "tuning" / "trial-000" / "progress.jsonl"
        while not (progress.is_file() and '"report": 1' in progress.read_text()):
            time.sleep(0.01)
        seconds = time.monotonic() - began
        process.kill()
        process.wait()
        # Its trials end by their lifeline.
        time.sleep(4.0)
    return seconds


def residents(steps: int) -> Found:
    """Measures trials that are paused: share of a core, and private memory."""
    shares, sizes = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tune_file(folder, [])
        own = words(steps, *SYNCH, "tune.slots=1", "tune.trials=4")
        argv = [*COMMAND, "tune", "tuning.yaml", "--folder", "tuning", *own]
        with (folder / "said.txt").open("w") as said:
            process = subprocess.Popen(argv, cwd=folder, stdout=said, stderr=said)
        paused: dict[str, tuple[float, float]] = {}
        while process.poll() is None:
            time.sleep(0.05)
            for trial in _trials(folder / "tuning"):
                try:
                    pid = json.loads((folder / "tuning/alive" / trial["name"]).read_text())["pid"]
                    times = psutil.Process(pid).cpu_times()
                    now = (time.monotonic(), times.user + times.system)
                    if trial["state"] != "paused":
                        paused.pop(trial["name"], None)
                    elif trial["name"] not in paused:
                        paused[trial["name"]] = now
                    elif now[0] - paused[trial["name"]][0] > 1.0:
                        since, cpu = paused.pop(trial["name"])
                        shares.append((now[1] - cpu) / (now[0] - since))
                        sizes.append(psutil.Process(pid).memory_full_info().uss)
                except (OSError, ValueError, psutil.Error):
                    continue
    return {
        "paused_cpu_share": statistics.median(shares) if shares else None,
        "paused_private_bytes": statistics.median(sizes) if sizes else None,
        "samples": len(shares),
    }


def _trials(folder: Path) -> list[Mapping[str, Any]]:
    try:
        return list(json.loads((folder / "tuning.json").read_text())["trials"])
    except (OSError, ValueError):
        return []


def many(steps: int) -> Found:
    """Compares processor time per environment step of 32 and of 8 trials, on 2 slots."""
    per_step = {}
    for number in (8, 32):
        found = tuned([*words(steps, *SYNCH), f"tune.trials={number}"])
        per_step[number] = found["cpu_seconds"] / found["env_steps"]
    return {
        "cpu_seconds_per_step_8": per_step[8],
        "cpu_seconds_per_step_32": per_step[32],
        "ratio": per_step[32] / per_step[8],
    }


ROWS: dict[str, Callable[[int], Found]] = {
    "fifo": fifo,
    "exploits": exploits,
    "answers": answers,
    "residents": residents,
    "many": many,
    "stand_ins": stand_ins,
}


def main() -> int:
    """Measures, prints, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: Found = {"machine": machine(), "load": os.getloadavg()[0], "steps": given.steps}
    for name in given.rows:
        found[name] = ROWS[name](given.steps)
        print(f"{name}: {json.dumps(found[name], indent=1)}", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
