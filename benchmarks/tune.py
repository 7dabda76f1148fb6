"""Cost of tunings: processor time of trials, exploits, answers, paused trials, starts.

Every row is measured on this machine with no other work; ratios are of one run of this program.
Prints a table with what is required, and writes JSON; about seven minutes. The exit code is 1 if a
requirement is missed.

    python benchmarks/tune.py [--rows fifo exploits answers paused many starts]
        [--steps 40000] [--json benchmarks/results/tune.json]
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from machine import machine
from targets import Target, holds, judge_all, targets_table
from tune_stand_ins import answer_seconds, seconds_until_all_ended

from main.addons.tuning.tune import LiveTuning
from session.process.heartbeat import read_beat
from surreal_like.addons.tuning import tuner as tuner_module
from surreal_like.addons.tuning.handle import Control, Reported
from surreal_like.addons.tuning.start import run_tuning
from surreal_like.addons.tuning.state import Answer
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file

ROOT = Path(__file__).resolve().parents[1]
EXPERIMENT = ROOT / "configs" / "cartpole_ppo.yaml"
COMMAND = (sys.executable, str(Path(sys.executable).with_name("surreal-like")))
PLAIN = ("session_config.evaluator.num=0", "session_config.stop.eval_return=null")
SPACE = "space={learner_config.algo.learning_rate.start: {loguniform: [1.0e-4, 1.0e-2]}}"
OTHER_SPACE = "space={learner_config.algo.gamma: {uniform: [0.9, 0.99]}}"
PBT = ("tune.scheduler=pbt", "tune.pbt.perturbation_interval=5000")
SYNCH = (*PBT, "tune.pbt.synch=true", SPACE)
EXPLOITS, LEAST_EXPLOITS, TRIES, STARTS = 20, 3, 3, 3

Found = dict[str, Any]

TARGETS = (
    Target("processor time of 8 trials, to that of 8 commands", "fifo.to_commands", "x", 0.7, 0.55),
    Target("the same with `pbt`, to `fifo`, per step", "fifo.pbt_to_fifo", "x", 1.15, 1.05),
    Target("its duration, to half of its processor time", "fifo.pbt_wall_to_cpu", "x", 1.25, 1.1),
    Target("exploit in place, `serial`, median", "exploits.serial_load.median", "s", 0.5, 0.2),
    Target("the worst of these", "exploits.serial_load.worst", "s", 2.0),
    Target("exploit in place, `local`, median", "exploits.local_load.median", "s", 0.5, 0.2),
    Target("the worst of these", "exploits.local_load.worst", "s", 2.0),
    Target("exploit by a start, `serial`, median", "exploits.serial_leave.median", "s", 3.0, 1.0),
    Target("exploit by a start, `local`, median", "exploits.local_leave.median", "s", 8.0, 4.0),
    Target("report to answer, 8 trials, median", "answers.trials_ms", "ms", 5.0, 2.0),
    Target("the last of 256 answers at once", "answers.stand_ins_last", "s", 0.5, 0.2),
    Target("processor time of the tuner, 8 trials", "answers.tuner_cpu", "% of a core", 2.0, 1.0),
    Target("processor time of a paused trial", "paused.cpu", "% of a core", 1.0, 0.1),
    Target("memory of a paused trial of its own", "paused.memory", "MB", 250.0, 150.0),
    Target("processor time of a step, 32 trials to 8", "many.ratio", "x", 1.1, 1.0),
    Target("command to the first trial's first update", "starts.seconds", "s", 4.0, 2.5),
    Target("1,000 trials that end at once", "starts.thousand_trials", "s", 60.0, 30.0),
)


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


def tuned(file: str | Path, overrides: Sequence[str]) -> Found:
    """Runs a tuning as a command; returns its seconds and its result."""
    with tempfile.TemporaryDirectory(prefix="sl-bench-") as name:
        folder = Path(name)
        argv = [*COMMAND, "tune", str(file), "--folder", "tuning", "--quiet", *overrides]
        found: Found = dict(run(argv, folder))
        result = json.loads((folder / "tuning" / "result.json").read_text())
    trials = result["trials"].values()
    found["env_steps"] = sum(each["env_steps"] for each in trials)
    found["scores"] = [each["score"] for each in trials]
    return {**found, "exploits": result["exploits"], "best": result["best"]["score"]}


def tuned_plain(overrides: Sequence[str]) -> Found:
    """Runs a tuning of the plain experiment as a command."""
    with tempfile.TemporaryDirectory() as name:
        tune_file(Path(name), [])
        found = tuned(Path(name) / "tuning.yaml", overrides)
    return {key: found[key] for key in ("wall_seconds", "cpu_seconds", "env_steps", "exploits")}


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
    plain, pbt = tuned_plain(words(steps)), tuned_plain(words(steps, SPACE, *PBT))
    per_step = [each["cpu_seconds"] / each["env_steps"] for each in (plain, pbt)]
    return {
        "commands_cpu_seconds": commands,
        "fifo": plain,
        "pbt": pbt,
        "to_commands": plain["cpu_seconds"] / commands,
        "pbt_to_fifo": per_step[1] / per_step[0],
        "pbt_wall_to_cpu": pbt["wall_seconds"] / (pbt["cpu_seconds"] / 2),
    }


@dataclass
class _Exploit:
    """An exploit under way; ``since`` is None while the tuner holds the trial."""

    kind: str
    seconds: float
    since: float | None
    loaded: bool = False


class Timed(Control):
    """Control that notes the times of reports and answers.

    An exploit lasts from the report at which it was decided to the next report, which comes after
    an update with the new settings; the time for which the trial was paused does not count.
    """

    waits: list[float]
    exploits: dict[str, list[float]]

    def __init__(self, socket: Any, names: list[str]) -> None:
        super().__init__(socket, names)
        self._reported: dict[int, float] = {}
        self._exploits: dict[int, _Exploit] = {}

    def receive(self) -> Reported | None:
        found = super().receive()
        if found is not None:
            now = self._reported[found.trial] = time.monotonic()
            exploit = self._exploits.get(found.trial)
            if exploit is not None and exploit.since is not None:
                exploit.seconds += now - exploit.since
                exploit.since = None
                if exploit.loaded or exploit.kind == "leave":
                    self.exploits[exploit.kind].append(exploit.seconds)
                    del self._exploits[found.trial]
        return found

    def answer(self, answer: Answer) -> None:
        super().answer(answer)
        now = time.monotonic()
        waited = now - self._reported[answer.trial]
        exploit = self._exploits.get(answer.trial)
        if answer.kind in ("load", "leave"):
            self._exploits[answer.trial] = _Exploit(answer.kind, waited, now)
        elif exploit is not None:
            exploit.since, exploit.loaded = now, True
        elif answer.kind == "continue":
            self.waits.append(waited)


@contextmanager
def timed() -> Iterator[type[Timed]]:
    """Replaces the control of tunings in this process."""
    Timed.waits, Timed.exploits = [], {"load": [], "leave": []}
    with patch.object(tuner_module, "Control", Timed):
        yield Timed


@contextmanager
def terminal() -> Iterator[Any]:
    """Opens a terminal that nothing shows."""
    ours, theirs = pty.openpty()

    def drain() -> None:
        # The other end is closed.
        with suppress(OSError):
            while os.read(ours, 1 << 16):
                pass

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        with open(theirs, "w") as stream:
            yield stream
    finally:
        reader.join()
        os.close(ours)


def tuned_here(overrides: Sequence[str]) -> dict[str, float]:
    """Runs a tuning in this process, with its table; returns the tuner's own processor time."""
    with tempfile.TemporaryDirectory() as name, terminal() as stream:
        folder = Path(name)
        file = tune_file(folder, overrides)
        cpu, began = time.process_time(), time.monotonic()
        run_tuning(file, folder=folder / "tuning", watch=LiveTuning(stream, time.time(), file))
        seconds = time.monotonic() - began
    return {"wall_seconds": seconds, "cpu_share": (time.process_time() - cpu) / seconds}


def exploits(steps: int) -> Found:
    """Times exploits in place and by a start, of serial and local trials."""
    found: Found = {}
    often = (
        *("tune.pbt.perturbation_interval=1000", "tune.pbt.quantile_fraction=0.5"),
        *("tune.pbt.max_age=0", "tune.report_every=1000", "tune.trials=4"),
    )
    for launcher, own_steps in (("serial", steps // 2), ("local", max(6000, steps // 4))):
        for kind, space in (("load", SPACE), ("leave", OTHER_SPACE)):
            own = [*words(own_steps, space, *PBT, *often), f"tune.launcher={launcher}"]
            with timed() as control:
                for seed in range(TRIES):
                    tuned_here([*own, f"tune.seed={seed}"])
                    if len(control.exploits[kind]) >= LEAST_EXPLOITS:
                        break
            times = sorted(control.exploits[kind][:EXPLOITS])
            if not times:
                raise SystemExit(f"no exploit by {kind} within {own_steps} steps: give more")
            found[f"{launcher}_{kind}"] = {
                "count": len(times),
                "median": statistics.median(times),
                "worst": times[-1],
            }
    return found


def answers(steps: int) -> Found:
    """Times answers at the tuner with 8 working trials and with 256 stand-ins."""
    with timed() as control:
        facts = tuned_here(words(steps, "tune.slots=8", "tune.report_every=1000"))
    waits = sorted(control.waits)
    with tempfile.TemporaryDirectory() as name:
        at_once = sorted(answer_seconds(tune_file(Path(name), words(1000, "tune.trials=256"))))
    return {
        "trials_ms": 1e3 * statistics.median(waits),
        "trials_worst_ms": 1e3 * waits[-1],
        "stand_ins_median": statistics.median(at_once),
        "stand_ins_last": at_once[-1],
        "tuner_cpu": 1e2 * facts["cpu_share"],
    }


def starts(steps: int) -> Found:
    """Times 1,000 trials that end at once, and the start of a real one until it learns."""
    with tempfile.TemporaryDirectory() as name:
        file = tune_file(Path(name), words(1000, "tune.trials=1000"))
    thousand = seconds_until_all_ended(file)
    return {"thousand_trials": thousand, "seconds": [cold_start() for _ in range(STARTS)]}


def cold_start() -> float:
    """Returns the seconds from a command to the first update of its first trial."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tune_file(folder, [])
        few = words(2000, "tune.report_every=1000", "tune.trials=1")
        began = time.monotonic()
        argv = [*COMMAND, "tune", "tuning.yaml", "--folder", "tuning", "--quiet", *few]
        process = subprocess.Popen(argv, cwd=folder)
        progress = folder / "tuning" / "trial-000" / "progress.jsonl"
        while not (progress.is_file() and '"report": 1' in progress.read_text()):
            if process.poll() is not None:
                raise SystemExit("the tuning has ended before its trial has learned")
            time.sleep(0.01)
        seconds = time.monotonic() - began
        process.wait()
    return seconds


def paused(steps: int) -> Found:
    """Measures trials that are paused: share of a core, and memory that they do not share."""
    shares, sizes = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tune_file(folder, [])
        few = ("tune.slots=1", "tune.trials=4", f"tune.pbt.perturbation_interval={steps // 4}")
        own = words(steps, *SYNCH, *few, "--quiet")
        argv = [*COMMAND, "tune", "tuning.yaml", "--folder", "tuning", *own]
        process = subprocess.Popen(argv, cwd=folder)
        # Trial -> monotonic time and processor time when it was first seen paused.
        since: dict[str, tuple[float, float]] = {}
        while process.poll() is None:
            time.sleep(0.05)
            for trial in _trials(folder / "tuning"):
                with suppress(OSError, ValueError, psutil.Error):
                    beat = read_beat(folder / "tuning/alive", trial["name"])
                    if beat is None:
                        continue
                    times = psutil.Process(beat.pid).cpu_times()
                    now = (time.monotonic(), times.user + times.system)
                    if trial["state"] != "paused":
                        since.pop(trial["name"], None)
                    elif trial["name"] not in since:
                        since[trial["name"]] = now
                    elif now[0] - since[trial["name"]][0] > 1.0:
                        before, cpu = since.pop(trial["name"])
                        shares.append((now[1] - cpu) / (now[0] - before))
                        sizes.append(psutil.Process(beat.pid).memory_full_info().uss)
    return {
        "samples": len(shares),
        "cpu": 1e2 * statistics.mean(shares),
        "memory": statistics.median(sizes) / 1e6,
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
        found = tuned_plain([*words(steps // 2, *SYNCH), f"tune.trials={number}"])
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
    "paused": paused,
    "many": many,
    "starts": starts,
}


def keep(path: Path | None, found: Found) -> int:
    """Prints the table and writes the JSON; returns 1 if a requirement is missed, else 0."""
    print(targets_table(found))
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(map(holds, found["targets"])) else 1


def main() -> int:
    """Measures, prints, and writes JSON; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", choices=tuple(ROWS), default=list(ROWS))
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: Found = {"machine": machine(), "load": os.getloadavg()[0], "steps": given.steps}
    for name in given.rows:
        began = time.monotonic()
        found[name] = ROWS[name](given.steps)
        found[name]["took_seconds"] = round(time.monotonic() - began, 1)
        print(f"{name}: {json.dumps(found[name], indent=1)}", file=sys.stderr, flush=True)
    return keep(given.json, {**found, "targets": judge_all(TARGETS, found)})


if __name__ == "__main__":
    raise SystemExit(main())
