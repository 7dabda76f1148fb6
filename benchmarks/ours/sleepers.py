"""Bare processes that only sleep and step: the most that so many agents could reach.

python sleepers.py PROCESSES SECONDS [WIDTH ...]

With widths of hidden layers each also chooses its actions with a network in plain torch.
Prints one line of JSON: environment steps per second of all, processor seconds per step.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]
from sleeping import SleepingPole  # noqa: E402


def sleeper(
    number: int, begin: Any, seconds: float, found: Any, act: Callable[[Any, int], int]
) -> None:
    """Steps one environment for some seconds after all have begun."""
    env = SleepingPole()
    obs, _ = env.reset(seed=number)
    begin.wait()
    steps, until, before = 0, time.monotonic() + seconds, _cpu_seconds()
    while time.monotonic() < until:
        obs, _, terminated, truncated, _ = env.step(act(obs, steps))
        steps += 1
        if terminated or truncated:
            obs, _ = env.reset()
    found.put((steps, _cpu_seconds() - before))


def alternate(obs: Any, steps: int) -> int:
    """Takes both actions in turn."""
    return steps % 2


def make_greedy(widths: Sequence[int]) -> Callable[[Any, int], int]:
    """Returns the action of the largest output of a network with these hidden layers."""
    import torch
    from bare import mlp

    torch.set_num_threads(1)
    net = mlp([4, *widths, 2], torch.nn.ReLU).requires_grad_(False)

    @torch.inference_mode()
    def act(obs: Any, steps: int) -> int:
        return int(net(torch.from_numpy(obs[None])).argmax(1))

    return act


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(processes: int, seconds: float, *widths: int) -> None:
    """Starts them, waits for all, prints."""
    act = make_greedy(widths) if widths else alternate
    context = multiprocessing.get_context("fork")
    begin, found = context.Barrier(processes), context.SimpleQueue()
    started = [
        context.Process(target=sleeper, args=(number, begin, seconds, found, act))
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
    main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))
