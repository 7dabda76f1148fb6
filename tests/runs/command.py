"""A whole run as its user starts it: the command in a process of its own, and what it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from session.folder import RunFolder
from session.process.heartbeat import Beat, read_beats
from surreal_like.addons.chaos.faults import KILL, Faults
from tests.polling import DEADLINE_SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
CARTPOLE = str(ROOT / "configs" / "cartpole_dqn.yaml")
# Not `python -m main.cli`: Python's -m can tell an interrupt that was handled as a death by SIGINT.
COMMAND = (sys.executable, str(Path(sys.executable).with_name("surreal-like")))
_OPEN_STATES = ("starting", "running", "draining")

# Keys whose values are real durations, in a run that is otherwise repeatable.
REAL_TIMES = ("_seconds", "_per_second")

T = TypeVar("T")
# pytest's record_property.
Record = Callable[[str, object], None]


def wait_for(seconds: float) -> None:
    """Lets some time pass, for a test that does things in a rhythm."""
    deadline = time.monotonic() + seconds
    until(lambda: time.monotonic() >= deadline, seconds=seconds + 1.0)


class Process:
    """A command of this repository in a process of its own; what it says goes to a file.

    Args:
        argv: the command line.
        said: the file.
    """

    def __init__(self, argv: Sequence[str], said: Path, **environment: str) -> None:
        self.said = said
        with said.open("w") as file:
            self._process = subprocess.Popen(
                argv,
                cwd=said.parent,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process.poll() is None

    @property
    def words(self) -> str:
        """All that it has said."""
        return self.said.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Sends a signal to this process alone."""
        self._process.send_signal(number)

    def wait(self, seconds: float = DEADLINE_SECONDS) -> int:
        """Its exit code; a test fails here when it does not come."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"goes on after {seconds:g} s:\n{self.words}") from None

    def end(self) -> None:
        """Leaves nothing of it behind."""
        if self.running:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


class Train(Process):
    """``surreal-like train`` with a run folder.

    Args:
        folder: of the run; its parent must exist.
        words: what else stands on the command line, an experiment file first.
    """

    def __init__(self, folder: Path, *words: str, **environment: str) -> None:
        self.folder = RunFolder(folder)
        argv = [*COMMAND, "train", *words, "--folder", str(folder)]
        said = folder.with_name(f"{folder.name}-{time.monotonic_ns()}.txt")
        super().__init__(argv, said, **environment)

    def until(self, look: Callable[[], T | None], *, seconds: float = DEADLINE_SECONDS) -> T:
        """Polls until ``look`` gives something; fails at once if the command ends before."""

        def looked() -> tuple[T] | None:
            found = look()
            assert found or self.running, f"it has ended too early:\n{self.words}"
            return (found,) if found else None

        return until(looked, seconds=seconds, what=lambda: self.words)[0]

    def learn(self, updates: int) -> None:
        """Waits until it has made more updates than it has now."""
        reached = self.line["iterations"] + updates
        self.until(lambda: self.line["iterations"] > reached)

    def family(self) -> list[psutil.Process]:
        """It and all processes below it."""
        own = psutil.Process(self.pid)
        return [own, *own.children(recursive=True)]

    def end(self) -> None:
        """As its user would end it if need be; whatever it left is killed."""
        family = self.family() if self.running else []
        super().end()
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        if family:
            gone(family)
            shutil.rmtree(self.folder.sockets, ignore_errors=True)

    @property
    def progress(self) -> list[dict[str, Any]]:
        """The whole lines of ``progress.jsonl``."""
        return read_lines(self.folder.progress)

    @property
    def line(self) -> dict[str, Any]:
        """The newest of them."""
        return (self.progress or [{}])[-1]

    @property
    def result(self) -> dict[str, Any]:
        """The content of ``result.json``."""
        return dict(self.folder.read_result() or {})

    @property
    def events(self) -> list[dict[str, Any]]:
        """The lines of ``events.jsonl``."""
        return read_lines(self.folder.events)

    def events_of(self, kind: str) -> list[dict[str, Any]]:
        """Those of one kind."""
        return [event for event in self.events if event["event"] == kind]

    def beat(self, name: str) -> Beat | None:
        """The last sign of life of a component."""
        return read_beats(self.folder.alive).get(name)

    def kill(self, name: str) -> float:
        """Kills a component that runs; returns the time until its successor does [s]."""
        return self.strike(KILL, name)[name]

    def strike(self, what: str, *names: str) -> dict[str, float]:
        """Kills or stops components that run, and waits until others do; returns the times [s]."""
        self.until(self.folder.topology.exists)
        faults = Faults(self.folder, ())
        for name in names:
            self.until(partial(faults.strike, what, name))
        self.until(faults.all_back)
        return {fault.name: round(fault.recovered_seconds or 0.0, 3) for fault in faults.happened}

    def running_beat(self, name: str) -> Beat:
        """The beat of a component, as soon as it is running."""

        def look() -> Beat | None:
            beat = self.beat(name)
            return beat if beat is not None and beat.state == "running" else None

        return self.until(look)

    def quiet(self) -> None:
        """Waits until two lines of progress tell of no further step."""
        self.until(lambda: still(self.progress))

    def steps(self, number: int) -> None:
        """Waits until the run has taken so many environment steps, and learns."""
        self.until(lambda: self.line.get("env_steps", 0) >= number and self.line["iterations"] > 0)


def still(progress: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the last lines of progress tell of no further step."""
    return len(progress) > 2 and len({line["env_steps"] for line in progress[-3:]}) == 1


def gone(processes: Iterable[psutil.Process], *, seconds: float = 10.0) -> None:
    """Waits until none of them is left; a zombie of somebody else's is gone."""

    def left() -> list[str]:
        found = []
        for process in processes:
            try:
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"{process.pid} {' '.join(process.cmdline())}")
            except psutil.NoSuchProcess:
                continue
        return found

    until(lambda: not left(), seconds=seconds, what=lambda: "\n".join(left()))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of JSON; the last one may be half written."""
    try:
        text = path.read_text()
    except OSError:
        return []
    return [json.loads(line) for line in text.split("\n")[:-1]]


def without_real_times(value: Any) -> Any:
    """The value without every field that holds a real duration, at any depth."""
    if isinstance(value, Mapping):
        return {
            key: without_real_times(each)
            for key, each in value.items()
            if not key.endswith(REAL_TIMES)
        }
    return [without_real_times(each) for each in value] if isinstance(value, list) else value


def balanced(result: Mapping[str, Any], *, fewer_rows: bool = False) -> bool:
    """Whether every row that was pushed is accounted for, exactly, and every step has its row.

    With ``fewer_rows`` there are fewer rows than steps: a row is a gradient of many, or others act.
    """
    rows = result["experience"]
    fates = ("inserted", "dropped", "holes", "unacked")
    known = rows["pushed"] == sum(rows[fate] for fate in fates)
    return bool(known and (rows["pushed"] < result["env_steps"]) == fewer_rows)


def clean(result: Mapping[str, Any], *, fewer_rows: bool = False) -> bool:
    """Whether it is balanced as after a clean stop: nothing missing, nothing unknown."""
    missing = ("holes", "unacked", "unknown_at_most")
    return balanced(result, fewer_rows=fewer_rows) and not any(
        result["experience"][name] for name in missing
    )
