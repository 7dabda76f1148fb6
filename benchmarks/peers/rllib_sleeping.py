"""RLlib's IMPALA with one environment in each env runner, on the simulator that sleeps.

python rllib_sleeping.py WORKERS SECONDS

Prints one line of JSON: environment steps per second after a first part of SECONDS, processor
seconds of the env runners per step, memory of all processes [MiB].
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import time
from typing import Any

import ray
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.tune.registry import register_env
from sleeping import SleepingPole

# Ray brings a copy of its own, which its import makes known.
psutil: Any = importlib.import_module("psutil")
HERE = os.path.dirname(os.path.abspath(__file__))
FIRST_SECONDS = 10.0


def runners() -> list[Any]:
    """Returns the processes of env runners."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if "EnvRunner" in " ".join(each.cmdline())]


def cpu_seconds(processes: list[Any]) -> float:
    """Returns the processor seconds of processes so far."""
    times = [each.cpu_times() for each in processes]
    return float(sum(each.user + each.system for each in times))


def main(workers: int, seconds: float) -> None:
    """Trains for both parts, measures the second, prints."""
    ray.init(
        num_cpus=workers + 2,
        num_gpus=0,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": HERE}},
    )
    register_env("sleeping", lambda _: SleepingPole())
    config = IMPALAConfig().environment("sleeping")
    config.env_runners(
        num_env_runners=workers, num_envs_per_env_runner=1, rollout_fragment_length=32
    )
    config.training(train_batch_size_per_learner=64 * max(1, workers // 4), lr=0.0005)
    config.reporting(min_time_s_per_iteration=0.5)
    algorithm = config.learners(num_learners=1).debugging(log_level="ERROR").build_algo()

    def train_for(wanted: float) -> tuple[float, float]:
        """Trains; returns the steps so far, and the seconds that have passed."""
        began, steps = time.monotonic(), 0.0
        while time.monotonic() - began < wanted:
            result: dict[str, Any] = algorithm.train()
            steps = result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", steps)
        return float(steps), time.monotonic() - began

    before, _ = train_for(FIRST_SECONDS)
    processes = runners()
    used = cpu_seconds(processes)
    after, passed = train_for(seconds)
    used = cpu_seconds(processes) - used
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    memory = sum(each.memory_full_info().pss for each in family) / 2**20
    found = {
        "per_second": round((after - before) / passed, 1),
        "cpu": round(used / (after - before), 7),
        "memory_mib": round(memory),
    }
    print(json.dumps(found), flush=True)
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
