"""Bare processes that only sleep and step: the most that so many agents could reach.

python sleepers.py PROCESSES SECONDS

Prints one line of JSON: environment steps per second of all, processor seconds per step.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "peers"))
from sleeping import SleepingPole


def sleeper(number: int, begin: Any, seconds: float, found: Any) -> None:
    """Steps one environment for some seconds after all have begun; always the same action."""
    env = SleepingPole()
    env.reset(seed=number)
    begin.wait()
    steps, until, before = 0, time.monotonic() + seconds, _cpu_seconds()
    while time.monotonic() < until:
        *_, terminated, truncated, _ = env.step(steps % 2)
        steps += 1
        if terminated or truncated:
            env.reset()
    found.put((steps, _cpu_seconds() - before))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(processes: int, seconds: float) -> None:
    """Starts them, waits for all, prints."""
    context = multiprocessing.get_context("fork")
    begin, found = context.Barrier(processes), context.SimpleQueue()
    started = [
        context.Process(target=sleeper, args=(number, begin, seconds, found))
        for number in range(processes)
    ]
    for each in started:
        each.start()
    counts = [found.get() for _ in started]
    for each in started:
        each.join()
    steps = sum(count for count, _ in counts)
    print(json.dumps({"per_second": steps / seconds, "cpu": sum(s for _, s in counts) / steps}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
