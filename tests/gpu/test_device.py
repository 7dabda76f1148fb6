"""Learners on a GPU: their updates are those of the CPU, and nothing waits for the device.

Each test runs on the CPU, too, at least once, where it compares the code with itself: it must work
on the day on which there is a GPU.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from session import nest
from session.config import Config
from surreal_like import evaluate, load_policy, train
from surreal_like.addons.analysis.export import export
from surreal_like.data.batch import Batch
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Content, write_content
from surreal_like.network.flat import named_tensors

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "ours"))
from prepared import make_batch, make_learner, resolved

# In `make test-all`: on the CPU most of them compare the code with itself.
pytestmark = pytest.mark.slow

ON_A_GPU = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
DEVICES = ("cpu", pytest.param("cuda:0", marks=ON_A_GPU))
UPDATES = 20
# Config -> times that an update of it reads a number from the device: each waits for all work that
# was queued there. A step of an optimizer reads loss and norm, to leave out what is not finite; SAC
# reads its temperature, Rainbow the ends of its atoms (on the CPU alone), PPO which rows have an
# action and the means of passes.
READS: Mapping[str, int] = MappingProxyType(
    {
        "cartpole_dqn": 1,
        "cartpole_rainbow": 2,
        "cartpole_qrdqn": 1,
        "memory_r2d2": 1,
        "cartpole_ppo": 31,
        "cartpole_impala": 1,
        "pendulum_sac": 5,
        "pendulum_td3": 2,
        "pendulum_ddpg": 2,
    }
)
RANDOM = (
    *("normal_", "uniform_", "exponential_", "bernoulli_", "random_", "_standard_gamma"),
    *("randn", "rand", "randperm", "randint", "multinomial"),
)


class RandomOnTheCpu(TorchFunctionMode):
    """Draws all random numbers on the CPU, by one generator: devices have different ones."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(7)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name not in RANDOM:
            return func(*args, **kwargs)
        kwargs["generator"] = self.generator
        if args and isinstance(args[0], torch.Tensor):
            drawn = func(args[0].cpu(), *args[1:], **kwargs)
            return args[0].copy_(drawn) if name.endswith("_") else drawn.to(args[0].device)
        device = kwargs.pop("device", None)
        return func(*args, **kwargs).to(device or "cpu")


class Reads(TorchFunctionMode):
    """Counts how often tensors are read, or must be before work goes on: it waits for a device."""

    NAMES = ("item", "tolist", "__float__", "__int__", "__bool__", "__index__", "numpy", "nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += getattr(func, "__name__", "") in self.NAMES
        return func(*args, **(kwargs or {}))


@cache
def config_of(name: str, device: str) -> Config:
    return resolved(name, (f"learner_config.device={device}",))


def learner_of(name: str, device: str) -> Learner:
    return make_learner(config_of(name, device))


def batches_of(name: str, count: int) -> list[Batch]:
    torch.manual_seed(3)
    return [make_batch(config_of(name, "cpu")) for _ in range(count)]


def on(device: torch.device, batch: Batch) -> Batch:
    return Batch(nest.map(lambda x: x.to(device, copy=True), dict(batch)))


def learn(learner: Learner, batches: list[Batch]) -> None:
    with RandomOnTheCpu():
        for batch in batches:
            learner.learn(on(learner.device, batch))
            learner.pop_updates()
            learner.iteration += 1


def parameters(learner: Learner) -> dict[str, np.ndarray[Any, Any]]:
    tensors = named_tensors(learner.module_dict())
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def differences(one: Learner, two: Learner) -> dict[str, float]:
    """Returns the largest difference of each parameter, relative to the largest parameter."""
    a, b = parameters(one), parameters(two)
    assert a.keys() == b.keys()
    return {name: float(np.abs(a[name] - b[name]).max() / np.abs(a[name]).max()) for name in a}


@pytest.mark.parametrize(
    ("name", "device"),
    [("cartpole_ppo", "cpu"), *(pytest.param(name, "cuda:0", marks=ON_A_GPU) for name in READS)],
)
def test_updates_are_those_of_the_cpu(name: str, device: str) -> None:
    here, there = learner_of(name, "cpu"), learner_of(name, device)
    Content.of(here).give(there)
    begin = parameters(here)
    # On the CPU two learners do the same: a few updates show that the test works.
    batches = batches_of(name, 3 if device == "cpu" else UPDATES)
    learn(here, batches)
    learn(there, batches)
    assert max(differences(here, there).values()) < 1e-3
    after = parameters(there)
    assert any(not np.array_equal(begin[key], after[key]) for key in begin)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["cartpole_dqn", "pendulum_sac", "cartpole_ppo"])
def test_checkpoints_move_between_devices(
    name: str, back: bool, device: str, tmp_path: Path
) -> None:
    places = ("cpu", device)
    first, second = (learner_of(name, place) for place in (places[::-1] if back else places))
    batches = batches_of(name, 4)
    learn(first, batches[:2])
    write_content(first, tmp_path)
    Content.read(second, tmp_path).give(second)
    assert set(differences(first, second).values()) == {0.0}
    # The optimizers have moved, too.
    learn(first, batches[2:])
    learn(second, batches[2:])
    assert max(differences(first, second).values()) < 1e-3
    assert {tensor.device.type for tensor in named_tensors(second.module_dict()).values()} == {
        second.device.type
    }


@pytest.mark.parametrize("name", READS)
def test_an_update_reads_from_the_device_what_is_listed(name: str) -> None:
    learner = learner_of(name, "cpu")
    warm, counted = batches_of(name, 2)
    learner.learn(on(learner.device, warm))
    batch = on(learner.device, counted)
    with Reads() as reads:
        learner.learn(batch)
    assert reads.count == READS[name]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", READS)
def test_an_update_waits_for_the_gpu_no_more_often(name: str) -> None:
    learner = learner_of(name, "cuda:0")
    warm, counted = batches_of(name, 2)
    learner.learn(on(learner.device, warm))
    batch = on(learner.device, counted)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")  # says once, as a warning, that it is a prototype
        try:
            learner.learn(batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    waits = [w for w in seen if "called a synchronizing CUDA operation" in str(w.message)]
    where = Counter(f"{Path(wait.filename).name}:{wait.lineno}" for wait in waits)
    assert where.total() <= READS[name], where


@pytest.mark.parametrize("device", DEVICES)
def test_a_run_on_the_device_is_loaded_evaluated_and_exported(device: str, tmp_path: Path) -> None:
    folder, model = tmp_path / "run", tmp_path / "policy.onnx"
    words = ["session_config.stop={iterations: 30, eval_episodes: 2}"]
    words += [f"learner_config.device={device}", "learner_config.replay.min_size=64"]
    words += ["session_config.evaluator.interval_seconds=0"]
    train(algorithm="dqn", env="gym:CartPole-v1", folder=folder, launcher="serial", overrides=words)
    policy = load_policy(folder, "latest", trainable=True)
    assert policy.learner.device == torch.device(device)
    actions = policy.compute_actions(np.zeros((3, 4), np.float32))[0]
    assert actions.shape == (3,)
    assert evaluate(folder, checkpoint="latest", episodes=2)["episodes"] == 2
    export(folder, model, checkpoint="latest")
    assert model.stat().st_size > 0


def test_the_benchmark_runs_in_its_small_form(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"
    command = [sys.executable, str(script), "--small", "--device", "cpu", "--out"]
    out = tmp_path / "gpu.json"
    subprocess.run([*command, str(out)], check=True, timeout=110, capture_output=True)
    found = json.loads(out.read_text())
    assert found["device"] == "cpu"
    names = {(row["algorithm"], row["rows"]) for row in found["updates"]}
    assert names == {(name, 32) for name in ("dqn", "impala", "ppo")}
    assert all(row["ours"] > 0 and row["bare"] > 0 and row["fed"] > 0 for row in found["updates"])
