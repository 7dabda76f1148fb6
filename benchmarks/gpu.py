"""Learners on a GPU: updates per second beside a bare loop of torch, and a whole run of Pong.

DQN, IMPALA and PPO with the Nature CNN on bytes of 4 x 84 x 84, each learning from the same random
batch again: with the batch on the device already, with the batch coming from arrays each time, and
as a bare loop of torch. Then frames per second of a whole run of Pong with 12 agents, unless
--small is given or the extra atari is missing. Prints JSON, and writes benchmarks/results/gpu.json.
At most eight minutes; --small takes half a minute on a CPU.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --small --device cpu --out /tmp/gpu.json
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from bare import LOOPS, step  # noqa: E402
from machine import RESULTS, machine  # noqa: E402
from networks import make_network  # noqa: E402
from prepared import make_batch, make_learner  # noqa: E402

from session import nest  # noqa: E402
from session.config import Config  # noqa: E402
from session.folder import RunFolder  # noqa: E402
from surreal_like.data.batch import Batch, Sampled  # noqa: E402
from surreal_like.learner.device_prefetch import CudaCopies, DevicePrefetch, DeviceTransfer  # noqa: E402
from surreal_like.run.request import RunRequest  # noqa: E402

ROWS, SMALL_ROWS = (256, 2048), (32,)
UNROLL = 16
ACTIONS = 6
PICTURES = (
    "env_config.env_name=remote",
    "env_config.obs_spec={type: uint8, dim: [4, 84, 84]}",
    f"env_config.action_spec={{type: discrete, dim: [{ACTIONS}]}}",
    "session_config.agent.num=0",
    "session_config.evaluator.num=0",
    "session_config.gateway.num=1",
    "session_config.learner.batches_per_request=1",  # 2048 rows are 58 MB
)
AGENTS = 12
PONG_SECONDS = 120


def config_of(algorithm: str, rows: int, device: str) -> Config:
    """Returns the config of a learner of pictures.

    Args:
        algorithm: dqn, impala or ppo.
        rows: of a batch; on policy in unrolls of 16 steps.
        device: of the learner.
    """
    words = [*PICTURES, f"learner_config.device={device}", "env_config.num_envs=1"]
    width = rows if algorithm == "dqn" else rows // UNROLL
    words += [f"learner_config.replay.batch_size={width}"]
    if algorithm != "dqn":
        words += [f"session_config.sender.flush_iteration={UNROLL}"]
        words += ["learner_config.model.shared=true", "learner_config.model.activation=relu"]
    if algorithm == "ppo":
        words += ["learner_config.algo.num_sgd_iter=1", "learner_config.algo.minibatches=1"]
    return RunRequest(algorithm=algorithm, overrides=tuple(words)).resolve().config


def bare_dqn(config: Config) -> Callable[[Batch], None]:
    """Returns an update of DQN as a bare loop of torch."""
    online = make_network(ACTIONS)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=1e-4)
    limit = config.learner_config.algo.max_grad_norm

    def update(batch: Batch) -> None:
        with torch.no_grad():
            value = target(batch.obs_next.float() / 255).amax(1)
            goal = batch.rewards + batch.discounts * value
        taken = online(batch.obs.float() / 255).gather(1, batch.actions[:, None])[:, 0]
        losses = nn.functional.huber_loss(taken, goal, reduction="none")
        step(adam, (losses * batch.weights).mean(), limit)

    return update


def bare_of(config: Config, device: torch.device) -> Callable[[Batch], None]:
    """Returns the bare update of a config, with networks on a device."""
    with torch.device(device):
        made = bare_dqn(config) if config.algorithm == "dqn" else LOOPS[config.algorithm](config)

    def update(batch: Batch) -> None:
        with torch.device(device):
            made(batch)

    return update


def wait(device: torch.device) -> None:
    """Waits until the device has done all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def per_second(update: Callable[[], object], device: torch.device, seconds: float) -> float:
    """Returns calls per second, the device's work included."""
    update()
    wait(device)
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds or not count:
        update()
        count += 1
    wait(device)
    return round(count / (time.perf_counter() - began), 2)


def updates(algorithm: str, rows: int, device: torch.device, seconds: float) -> dict[str, Any]:
    """Measures one learner: on the device, fed from arrays, and as a bare loop."""
    config = config_of(algorithm, rows, str(device))
    learner = make_learner(config)
    batch = make_batch(config)
    columns = {name: column for name, column in batch.items() if name != "extras" or column}
    arrays = nest.flatten(nest.map(lambda x: x.numpy(), columns))
    here = Batch(nest.map(lambda x: x.to(device), dict(batch)))

    def learn(given: Batch) -> None:
        # Operators of a plan add columns to a batch.
        learner.learn(Batch(given))
        learner.pop_updates()

    feed, ahead = DeviceTransfer(device), None
    if device.type == "cuda":
        sampled = Sampled(arrays, 0, 0, {})
        ahead = DevicePrefetch(lambda: sampled, lambda each: False, CudaCopies(device))

    def fed() -> None:
        found = None if ahead is None else ahead.next()
        tensors = feed(arrays) if found is None else found[1]
        learn(Batch({"extras": {}, **nest.unflatten(tensors)}))

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    found = {
        "algorithm": algorithm,
        "rows": rows,
        "ours": per_second(partial(learn, here), device, seconds),
        "fed": per_second(fed, device, seconds),
        "bare": per_second(partial(bare_of(config, device), here), device, seconds),
    }
    if device.type == "cuda":
        found["peak_memory_mib"] = round(torch.cuda.max_memory_allocated(device) / 2**20)
    return found


def pong(device: str) -> dict[str, Any]:
    """Measures a whole run of Pong by IMPALA with 12 agents."""
    with tempfile.TemporaryDirectory(prefix="sl-gpu-") as scratch:
        folder = Path(scratch) / "pong"
        command = [sys.executable, "-P", "-m", "main.cli", "train"]
        command += [str(HERE / "pong_impala.yaml"), "--quiet"]
        command += ["--folder", str(folder), f"learner_config.device={device}"]
        command += [f"session_config.agent.num={AGENTS}"]
        command += [f"session_config.stop={{seconds: {PONG_SECONDS}}}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        result: Mapping[str, Any] = RunFolder(folder).read_result() or {}
    return {"agents": AGENTS, "frames": result["frames"], **result["rates"]}


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--small", action="store_true", help="batches of 32 rows, no run")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="file to write")
    given = parser.parse_args()
    device = torch.device(given.device)
    cuda = device.type == "cuda"
    found: dict[str, Any] = {
        "machine": machine(),
        "device": torch.cuda.get_device_name(device) if cuda else "cpu",
        "updates": [
            updates(algorithm, rows, device, 0.3 if given.small else 8.0)
            for algorithm in ("dqn", "impala", "ppo")
            for rows in (SMALL_ROWS if given.small else ROWS)
        ],
        "pong": None,
    }
    if not given.small and importlib.util.find_spec("ale_py"):
        found["pong"] = pong(given.device)
    text = json.dumps(found, indent=2)
    given.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
