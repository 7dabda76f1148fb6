"""Whole trainings, ours and those of peers, each a separate command with all its processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from worker import quiet_environment

from session.folder import RunFolder
from surreal_like import load_policy

PEERS = Path(__file__).resolve().parent / "peers"
# The judge is a module of the peers' scripts, which know no other folder.
sys.path.append(str(PEERS))
from judge import judged, start_seeds  # noqa: E402

TRAIN = (sys.executable, "-P", "-m", "main.cli", "train")
_LOOK_SECONDS = 0.1
_END_SECONDS = 15.0
# Time that a run may take beyond its budget before it is stopped.
_GRACE_SECONDS = 240.0

Record = dict[str, Any]


class RunFailed(RuntimeError):
    """A training ended without a result; `peer` names its owner, unless it is ours."""

    peer = ""


def run_script(python: str, script: str, *words: str, seconds: float) -> Record:
    """Runs a script of :mod:`peers` to its end; returns the last line that it prints.

    Args:
        python: interpreter of the peer's environment.
        script: in the folder of peers.
        words: its arguments.
        seconds: after which it is given up.

    Raises:
        RunFailed: it has failed.
    """
    command = [python, str(PEERS / script), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise RunFailed(done.stderr.strip())
    found: Record = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def peer(python: str, script: str, seed: int, seconds: float, *words: str) -> Record:
    """Runs a script of :mod:`peers` to its last line; returns its result, by its own clock.

    Args:
        python: interpreter of the peer's environment.
        script: in the folder of peers.
        seed: of the run.
        seconds: argument of :class:`clock.Clock`.
        words: further arguments.

    Raises:
        RunFailed: it printed no result.
    """
    begin = [python, "-W", "ignore", str(PEERS / script), str(seed)]
    command = [*begin, repr(time.time()), repr(seconds), *words]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=quiet_environment(),
    ) as process:
        signal.signal(signal.SIGALRM, lambda *_: end(process))
        signal.alarm(int(seconds + _GRACE_SECONDS))
        try:
            result = _read_result(process)
        finally:
            signal.alarm(0)
            end(process)
    if result is None:
        raise RunFailed(f"{script} {' '.join(words)} printed no result")
    return result


def _read_result(process: subprocess.Popen[str]) -> Record | None:
    for line in process.stdout or ():
        if line.startswith('{"greedy_seconds"'):
            result: Record = json.loads(line)
            return result
    return None


def end(process: subprocess.Popen[Any]) -> None:
    """Ends a command and all processes that it has started."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


def ours(
    config: Path,
    folder: Path,
    seed: int,
    overrides: Sequence[str],
    done: Callable[[Record], bool] | None = None,
) -> list[Record]:
    """Runs ``surreal-like train``; returns the lines of its progress, and its result as the last.

    Args:
        config: the experiment.
        folder: of the run.
        seed: of the run.
        overrides: settings that differ from the file's.
        done: returns True for a line of progress if the run may be interrupted; None: no interrupt.

    Raises:
        RunFailed: the run left no result, or the folder has one already.
    """
    _check_new(folder)
    with training(str(config), *overrides, "--seed", str(seed), folder=folder) as process:
        seen = 0
        while process.poll() is None:
            time.sleep(_LOOK_SECONDS)
            lines = progress_lines(folder)
            if done is not None and any(done(line) for line in lines[seen:]):
                break
            seen = len(lines)
    result = RunFolder(folder).read_result()
    if result is None:
        raise RunFailed(f"the run of {config.name} left no result")
    return [*progress_lines(folder), dict(result)]


@contextmanager
def training(*words: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts ``surreal-like train``; ends it like Ctrl-C, and waits until it has ended.

    Args:
        words: experiment and settings.
        folder: of the run.
    """
    command = [*TRAIN, *words, "--quiet", "--folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait()


def result_of(
    *words: str, seed: int, folder: Path, seconds: float | None = None, resume: bool = False
) -> Record:
    """Runs ``surreal-like train`` to its end; returns its result.

    Args:
        words: experiment and settings.
        seed: of the run.
        folder: of the run.
        seconds: after which it is given up; None: never.
        resume: True to go on with a run that was cut, and to take the result of one that was not.

    Raises:
        RunFailed: it has failed, or the folder has a result already.
    """
    command = [*TRAIN, "--quiet", "--folder", str(folder)]
    ended = RunFolder(folder).read_result()
    if resume and ended is not None and ended["status"] == "stopped":
        return dict(ended)
    if resume and RunFolder(folder).config.exists():
        command += ["--resume"]
    else:
        _check_new(folder)
        command += [*words, "--seed", str(seed)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    result = RunFolder(folder).read_result()
    if result is None or result["status"] != "stopped":
        raise RunFailed(done.stderr.strip() or str(result))
    return dict(result)


def judged_return(folder: Path, checkpoint: str, seed: int) -> float:
    """Returns what our run's parameters reach from the start states that peers get, too.

    Args:
        folder: of the run.
        checkpoint: as `surreal_like.load_policy` takes it.
        seed: of the run.
    """
    policy = load_policy(folder, checkpoint)
    env, stop = policy.config.env_config, policy.config.session_config.stop
    name = env.env_name.removeprefix("gym:")
    seeds = start_seeds(seed, stop.eval_episodes)
    return judged(lambda obs: policy(obs)[0], name, seeds, env.limit_episode_length)


def _check_new(folder: Path) -> None:
    """Raises RunFailed if a folder has a result, which would be taken for that of a new run."""
    if RunFolder(folder).read_result() is not None:
        raise RunFailed(f"{folder} has a result of an earlier run: take another folder")


def progress_lines(folder: Path) -> list[Record]:
    """Returns the complete lines of a run's progress.jsonl; empty if there is none."""
    path = RunFolder(folder).progress
    text = path.read_text() if path.exists() else ""
    # The newest line may be incomplete.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


class After:
    """Criterion to stop: so many seconds after the first update, by lines of progress."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: float | None = None

    def __call__(self, line: Record) -> bool:
        """Returns True from that time on."""
        now = float(line["wall_seconds"])
        if self._began is None and line["iterations"]:
            self._began = now
        return self._began is not None and now - self._began >= self._seconds


def rate(lines: Sequence[Record]) -> float:
    """Returns the learned rows per second, without the first quarter of the time.

    Raises:
        RunFailed: there are too few lines of progress.
    """
    busy = [line for line in lines if line.get("iterations") and "version" in line]
    if busy:
        begin = busy[0]["wall_seconds"]
        begin += (busy[-1]["wall_seconds"] - begin) / 4
        busy = [line for line in busy if line["wall_seconds"] >= begin]
    if len(busy) < 2:
        raise RunFailed("the run ended before its speed could be seen")
    passed = busy[-1]["wall_seconds"] - busy[0]["wall_seconds"]
    first, last = (line["experience"]["sampled"] for line in (busy[0], busy[-1]))
    return float((last - first) / passed)
