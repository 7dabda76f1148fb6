"""Learners of our configs, and batches of the shapes that they learn from, made before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from session.config import Config
from session.config.sections import sections_of
from surreal_like.data.batch import Batch
from surreal_like.experiment.find import algorithm_of
from surreal_like.learner.learner import Learner
from surreal_like.run.request import RunRequest

TOP = Path(__file__).resolve().parents[2]
CONFIGS = TOP / "configs"
BYTES = 256


def make_learner(config: Config) -> Learner:
    """The learner of a resolved config."""
    torch.manual_seed(0)
    return algorithm_of(config, None).learner(**sections_of(config))


def resolved(name: str, overrides: Sequence[str] = ()) -> Config:
    """A config, with some settings changed, and with the specs of its environment."""
    places = (CONFIGS, TOP / "benchmarks")
    config = next(file for place in places for file in place.rglob(f"{name}.yaml"))
    return RunRequest(config, overrides=tuple(overrides)).resolve().config


def make_batch(config: Config) -> Batch:
    """Random experience as this config's learner gets it."""
    on_policy = config.algorithm in ("ppo", "impala")
    width = config.learner_config.replay.batch_size
    steps = config.session_config.sender.flush_iteration
    if config.algorithm == "r2d2":
        sequence = config.learner_config.replay.sequence
        steps = sequence.burn_in + sequence.length
    timed = on_policy or config.algorithm == "r2d2"
    lead = (steps, width) if timed else (width,)
    batch = Batch(
        rewards=torch.rand(lead),
        discounts=torch.full(lead, 0.99),
        dones=torch.zeros(lead),
        actions=_actions(config, lead),
    )
    rows = (steps + 1, width) if timed else lead
    batch["obs"] = _observations(config, rows)
    batch["extras"] = {}
    if timed:
        batch["first"] = torch.zeros(rows, dtype=torch.bool)
        batch["mask"] = torch.ones(lead)
    else:
        batch["obs_next"] = _observations(config, rows)
    if on_policy:
        number = config.env_config.action_spec.dim[0]
        batch["extras"] = {"logits": 0.1 * torch.randn(*lead, number)}
    else:
        batch["weights"] = torch.ones(width)
    if config.algorithm == "r2d2":
        batch["mask"][: sequence.burn_in] = 0.0
        memory = 2 * config.learner_config.model.memory_size
        batch["extras"] = {"memory": 0.1 * torch.randn(*lead, memory)}
    return batch


def _observations(config: Config, lead: tuple[int, ...]) -> torch.Tensor:
    spec = config.env_config.obs_spec
    if spec.type == "uint8":
        return torch.randint(0, BYTES, (*lead, *spec.dim), dtype=torch.uint8)
    return torch.randn(*lead, *spec.dim)


def _actions(config: Config, lead: tuple[int, ...]) -> torch.Tensor:
    spec: Any = config.env_config.action_spec
    if spec.type == "discrete":
        return torch.randint(0, spec.dim[0], lead)
    return torch.rand(*lead, *spec.dim) - 0.5
