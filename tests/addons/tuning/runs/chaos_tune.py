"""Faults of tunings: injects each one, and prints what was expected and what was seen.

``python tests/addons/tuning/runs/chaos_tune.py [X1 X3 ...]``; without names all of
them. Exit code 1 if one differs. A full disk needs root, for a file system of its own.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# Of a program that is started by its path, only its own folder is there.
sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from session.folder import RunFolder
from session.process.heartbeat import read_beat
from session.show.text import columns
from tests.addons.tuning.runs.test_tune import BREAKS
from tests.leftovers import names_folder
from tests.polling import until
from tests.runs.command import COMMAND, ROOT, Process, gone
from tests.runs.small_disk import fill, small_disk

EXPERIMENT = ROOT / "configs" / "cartpole_ppo.yaml"
FILE = f"""
experiment: {EXPERIMENT}
space:
  learner_config.algo.learning_rate.start: {{loguniform: [1.0e-4, 1.0e-2]}}
session_config:
  evaluator: {{num: 0}}
  stop: {{eval_return: null}}
  heartbeat: {{timeout: 4}}
tune:
  trials: 3
  slots: 2
  min_episodes: 5
  report_every: 2000
  stop: {{env_steps: 16_000}}
"""
PBT = ("tune.scheduler=pbt", "tune.pbt.perturbation_interval=4000")


class Tuning:
    """A tuning as a user starts it.

    Args:
        folder: of the tuning; the tune file lies beside it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder.parent / "chaos.yaml"
        self.file.write_text(FILE)
        self.process = self.start(str(self.file))

    def start(self, *words: str) -> Process:
        said = self.folder.parent / "said.txt"
        argv = [*COMMAND, "tune", "--folder", str(self.folder), *words]
        self.process = Process(argv, said)
        return self.process

    def end(self) -> int:
        return self.process.wait(200)

    @property
    def trials(self) -> dict[str, dict[str, Any]]:
        state = json.loads((self.folder / "tuning.json").read_text())
        return {each["name"]: each for each in state["trials"]}

    @property
    def states(self) -> str:
        return " ".join(f"{each['state']}/{each['failures']}" for each in self.trials.values())

    def learns(self, trial: str, lines: int = 2) -> bool:
        path = self.folder / trial / "progress.jsonl"
        return path.is_file() and len(path.read_text().splitlines()) >= lines

    def pid(self, trial: str) -> int:
        beat = read_beat(self.folder / "alive", trial)
        assert beat is not None
        return beat.pid

    def processes(self) -> list[psutil.Process]:
        found = psutil.Process(self.process.pid).children(recursive=True)
        return [psutil.Process(self.process.pid), *found]

    def steps(self) -> dict[str, int]:
        found = {}
        for path in self.folder.glob("trial-*/progress.jsonl"):
            lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
            found[path.parent.name] = json.loads(lines[-1])["env_steps"] if lines else 0
        return found

    def left(self) -> list[str]:
        """Returns what is left of it: processes and sockets."""
        names = [" ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])]
        folders = [self.folder, *self.folder.glob("trial-*")]
        sockets = [str(each) for each in map(RunFolder, folders) if each.sockets.exists()]
        return [
            name for name in names if names_folder(name, self.folder) and "chaos_tune" not in name
        ] + sockets


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    injected: str
    expected: str
    seen: str


def killed(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    os.kill(tuning.pid("trial-000"), signal.SIGKILL)
    code = tuning.end()
    expected = "0: terminated/1 terminated/0 terminated/0"
    return Row("a trial's process is killed", expected, f"{code}: {tuning.states}")


def hangs(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    os.kill(tuning.pid("trial-000"), signal.SIGSTOP)
    code = tuning.end()
    expected = "0: terminated/1 terminated/0 terminated/0"
    return Row("a trial's process hangs", expected, f"{code}: {tuning.states}")


def no_checkpoint(tuning: Tuning) -> Row:
    saved = tuning.folder / "trial-000" / "checkpoints" / "learner"
    until(lambda: tuning.learns("trial-000", 4))
    os.kill(tuning.process.pid, signal.SIGINT)
    tuning.end()
    for file in saved.glob("*/*"):
        if file.is_file():
            os.truncate(file, 10)
    tuning.start("--resume")
    code = tuning.end()
    names = "trial-000/checkpoints" in tuning.trials["trial-000"]["reason"]
    expected = "0: error/1 terminated/0 terminated/0, named"
    seen = f"{code}: {tuning.states}{', named' if names else ''}"
    return Row("no whole checkpoint is left", expected, seen)


def tuner_killed(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    processes = tuning.processes()
    os.kill(tuning.process.pid, signal.SIGKILL)
    began = time.monotonic()
    tuning.process.wait(10)
    # A zombie has ended: the process that inherits it may be slow to wait for it.
    gone(processes[1:])
    seconds = time.monotonic() - began
    fast = "within 1 s" if seconds < 1.0 else f"after {seconds:.1f} s"
    seen = f"{fast}, {len(tuning.left())} files or processes"
    expected = "within 1 s, 0 files or processes"
    return Row("the tuner is killed", expected, seen)


def all_killed(tuning: Tuning) -> Row:
    draws, steps = random.Random(0), dict[str, int]()
    falls, finished = 0, dict[str, str]()
    for _ in range(5):
        time.sleep(draws.uniform(2.0, 7.0))
        if not tuning.process.running:
            break
        for process in tuning.processes():
            if process.is_running():
                process.kill()
        tuning.process.wait(10)
        # The folder of its sockets stays: every process that could remove it was killed.
        until(lambda: not [each for each in tuning.left() if "main." in each])
        now = tuning.steps()
        falls += sum(now.get(name, 0) < value for name, value in steps.items())
        steps = now
        if (tuning.folder / "tuning.json").is_file():
            tuning.start("--resume")
        else:
            tuning.start(str(tuning.file))
        for path in tuning.folder.glob("trial-*/result.json"):
            result = json.loads(path.read_text())
            if result["status"] == "stopped":
                finished.setdefault(path.parent.name, path.read_text())
    code = tuning.end()
    again = sum(
        (tuning.folder / name / "result.json").read_text() != text
        for name, text in finished.items()
    )
    seen = f"{code}: {tuning.states}, {falls} counters fell, {again} ran again, {tuning.left()}"
    expected = "0: terminated/0 terminated/0 terminated/0, 0 counters fell, 0 ran again, []"
    return Row("everything is killed, five times", expected, seen)


def cut_short(tuning: Tuning) -> Row:
    tuning.process.end()
    tuning.process.wait(10)
    case = "tests/addons/tuning/test_exploit_files.py::test_the_newest_intact_checkpoint_is_copied"
    argv = [sys.executable, "-m", "pytest", "-q", str(ROOT / case)]
    found = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return Row(
        "a donor's checkpoint is cut short", "0: an older one", f"{found.returncode}: an older one"
    )


def full_disk(tuning: Tuning) -> Row:
    tuning.process.end()
    tuning.process.wait(10)
    disk = tuning.folder.with_name("disk")
    disk.mkdir()
    with small_disk(disk, 24):
        full = Tuning(disk / "tuning")
        full.process.end()
        full.process.wait(10)
        full.folder = disk / "pbt"
        full.start(str(full.file), *PBT, "tune.stop.env_steps=40_000", "tune.slots=3")
        until(lambda: all(full.learns(f"trial-00{number}", 2) for number in range(3)))
        fill(disk / "ballast")
        time.sleep(5.0)
        (disk / "ballast").unlink()
        code = full.end()
        events = (full.folder / "events.jsonl").read_text()
        skipped = any(word in events for word in ("No space left", "not_written", "disk"))
        states = (
            "terminated"
            if {each["state"] for each in full.trials.values()} == {"terminated"}
            else full.states
        )
        return Row(
            "the disk is full for 5 s",
            "0: terminated, an event",
            f"{code}: {states}{', an event' if skipped else ''}",
        )


def interrupted(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    os.kill(tuning.process.pid, signal.SIGINT)
    code = tuning.end()
    line = f"surreal-like tune --resume --folder {tuning.folder}" in tuning.process.words
    saved = [
        bool(list(each.glob("checkpoints/learner/*"))) for each in tuning.folder.glob("trial-*")
    ]
    seen = (
        f"{code}, {'resume line' if line else 'no line'}, {'saved' if all(saved) else 'not saved'}"
    )
    return Row("Ctrl-C", "130, resume line, saved", f"{seen}")


def interrupted_twice(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    os.kill(tuning.process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.kill(tuning.process.pid, signal.SIGINT)
    began = time.monotonic()
    code = tuning.end()
    fast = "at once" if time.monotonic() - began < 3.0 else "late"
    return Row("Ctrl-C twice", "130 at once, []", f"{code} {fast}, {tuning.left()}")


def stopped(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    said = tuning.folder.with_name("stop.txt")
    stops = Process([*COMMAND, "stop", str(tuning.folder)], said).wait(60)
    return Row("surreal-like stop", "0 and 130", f"{stops} and {tuning.end()}")


def tuner_stands(tuning: Tuning) -> Row:
    until(lambda: tuning.learns("trial-000"))
    os.kill(tuning.process.pid, signal.SIGSTOP)
    time.sleep(10.0)
    os.kill(tuning.process.pid, signal.SIGCONT)
    code = tuning.end()
    expected = "0: terminated/0 terminated/0 terminated/0"
    return Row("the tuner stands still for 10 s", expected, f"{code}: {tuning.states}")


def all_given_up(tuning: Tuning) -> Row:
    tuning.process.end()
    tuning.process.wait(10)
    place = tuning.folder.parent
    (place / "breaks.py").write_text(BREAKS)
    tuning.folder = place / "breaks"
    env = "env_config={env_name: 'breaks:Breaks', env_args: {after: 20}}"
    path = f"session_config.import_path=['{place}']"
    tuning.start(str(tuning.file), env, path, "tune.max_failures=1")
    code = tuning.end()
    reason = json.loads((tuning.folder / "result.json").read_text())["reason"]
    counted = "3 of 3 trials were given up; the first: trial-000" in reason
    seen = f"{code}: {tuning.states}{', counted' if counted else ''}"
    return Row("every trial is given up", "1: error/2 error/2 error/2, counted", seen)


CASES: dict[str, tuple[Callable[[Tuning], Row], ...]] = {
    "X1": (killed, hangs),
    "X2": (no_checkpoint,),
    "X3": (tuner_killed,),
    "X4": (all_killed,),
    "X5": (cut_short,),
    "X6": (full_disk,),
    "X7": (interrupted, interrupted_twice, stopped),
    "X8": (tuner_stands,),
    "X9": (all_given_up,),
}


def main(names: list[str]) -> int:
    """Injects the faults of these names, all without one; returns 1 if something differs."""
    rows, wrong = [], 0
    for name, cases in CASES.items():
        for case in cases if not names or name in names else ():
            with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
                began = time.monotonic()
                try:
                    row = case(Tuning(Path(folder) / "tuning"))
                except (AssertionError, OSError, subprocess.SubprocessError) as error:
                    row = Row(case.__name__, "no error", repr(error)[:200])
            wrong += row.seen != row.expected
            mark = "" if row.seen == row.expected else "DIFFERS"
            seconds = f"{time.monotonic() - began:.0f}"
            rows.append([name, row.injected, row.expected, row.seen, seconds, mark])
            sys.stdout.write(f"{name} {row.injected}: {row.seen} {mark}\n")
            sys.stdout.flush()
    head = ["row", "injected", "expected", "seen", "seconds", ""]
    sys.stdout.write(f"\n{columns(head, rows, right=(4,))}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
