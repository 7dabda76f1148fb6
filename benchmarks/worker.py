"""A process that does rounds of work on request; needs only the standard library.

One side is :class:`Worker`, in the script that compares; the other is :func:`serve`, in a process
that may belong to another environment. They exchange lines of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

_BUSY_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}
_END_SECONDS = 10.0

Answer = dict[str, Any]
Handlers = Mapping[str, Callable[..., Answer]]


def quiet_environment() -> dict[str, str]:
    """Returns the environment of a process with one busy thread and without GPU and warnings."""
    return {**os.environ, **dict.fromkeys(_BUSY_THREADS, "1"), **_QUIET}


class WorkerFailed(RuntimeError):
    """The process has ended, or has reported an error."""


class Worker:
    """Process that does rounds of work.

    Args:
        python: interpreter to run it with.
        words: script and arguments.
    """

    def __init__(self, python: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [python, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=quiet_environment(),
        )

    def ask(self, do: str, **arguments: Any) -> Answer:
        """Requests one round and waits for its result.

        Raises:
            WorkerFailed: the round failed.
        """
        self.start(do, **arguments)
        return self.finish()

    def start(self, do: str, **arguments: Any) -> None:
        """Requests one round; :meth:`finish` waits."""
        if self._process.stdin is None:
            raise WorkerFailed("no way to ask it")
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def finish(self) -> Answer:
        """Waits for the result of the started round."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise WorkerFailed(f"its process has ended with {self._process.wait()}")
        answer: Answer = json.loads(line)
        if "failed" in answer:
            raise WorkerFailed(answer["failed"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the process."""
        self.close()


def repeat(work: Callable[[], int], seconds: float) -> Answer:
    """Repeats some work for a time; returns the rows that it made, and the exact time.

    Args:
        work: returns its number of rows.
        seconds: of the round.
    """
    rows, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        rows += work()
    return {"rows": rows, "seconds": time.perf_counter() - begin}


def serve(handlers: Handlers) -> None:
    """Handles requests from standard input until its end.

    Args:
        handlers: name of a request -> its handler.
    """
    # Output of libraries must not mix with the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = handlers[request.pop("do")](**request)
        except Exception as error:  # noqa: BLE001 - every error is reported to the other side
            answer = {"failed": repr(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
