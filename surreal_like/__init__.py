"""Distributed reinforcement learning in small processes that you can see, restart and multiply.

Call first:

    from surreal_like import train, load_policy
    run = train(algorithm="dqn", env="gym:CartPole-v1", folder="runs/first")
    run.result["best_eval"]
    policy = load_policy("runs/first")
    actions, state = policy(observations)       # [N, ...]

For one name see help(surreal_like.train); docs/api.md lists all signatures.

Run an experiment, which is a YAML file or a Config (docs/configuration.md):

    train, launch            run it to its end; start it and return its controls
    tune                     many trials of one experiment (docs/tune.md)
    evaluate, play, plot     score the trained policy; show it; draw the curves of runs
    load_policy, make_policy   the trained policy, a new one, for your own program
    RolloutWorker, WorkerSet, Trainer    what collects for it; a run as an object (docs/policies.md)
    Config, ConfigError      settings with checked keys; the error of a wrong one
    BASE_LEARNER_CONFIG, BASE_ENV_CONFIG, BASE_SESSION_CONFIG    every default

Bring an environment (docs/your_own_environment.md):

    Env, VectorEnv           base classes: reset and step, of one stream or of N
    check_env                plays random steps and reports every mistake
    GymAdapter               an environment of Gymnasium
    Wrapper, FrameStack      change an environment; return the newest frames of each stream
    make_vector_env          builds the N streams of an agent or evaluator from a config

Write an algorithm (docs/your_own_algorithm.md) or a replay (docs/your_own_replay.md):

    Algorithm                names your Agent, your Learner and their defaults
    build_algorithm          an algorithm built of functions: a loss is enough
    Agent, AgentMode         acts in training or evaluation: write act, module_dict
    Learner                  write learn, module_dict
    Module                   a torch.nn.Module whose parameters are sent as one block
    to_tensor, to_float_tensor   a nest of tensors from a nest of arrays
    UniformReplay, PrioritizedReplay, FIFOReplay    replays that an algorithm can learn from
    Replay, TupleReplay, ExpTuple   write insert, sample; on batches, or on single transitions
    StringEnum               an enumeration of texts

Connect a script of your own to a run (docs/scripts.md):

    ExpSenderWrapper         sends the steps of an environment to replay
    ConsoleMonitor, TrainingTensorplexMonitor, EvalTensorplexMonitor    report its episodes
    TensorplexClient, LoggerplexClient   report metrics and log lines from any script
    Telemetry                collects both in a folder without a run (docs/metrics.md)

Names are loaded at their first use, so that processes without tensors stay small.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

_HERE = Path(__file__).resolve().parent.parent


def _check_session() -> None:
    """Rejects another package or module of the name `session`, before it is executed."""
    loaded = sys.modules.get("session")
    spec = importlib.util.find_spec("session") if loaded is None else None
    file = getattr(loaded, "__file__", None) if spec is None else spec.origin
    if file is None or Path(file).resolve().parent.parent != _HERE:
        raise ImportError(
            f"another 'session' is in the way: {file}; surreal_like needs its own, in "
            f"{_HERE / 'session'}. Rename that file or folder, or take its folder out of the path "
            "(start Python with -P, or append to session_config.import_path instead of PYTHONPATH)",
            name="session",
        )


_check_session()

# ruff: noqa: E402  (only after the check)
from session.config import Config
from session.config.string_enum import StringEnum
from session.errors import ConfigError
from session.version import VERSION

if TYPE_CHECKING:
    # For type checkers and editors; at run time names are loaded at their first use.
    from session.config.defaults import (
        BASE_ENV_CONFIG,
        BASE_LEARNER_CONFIG,
        BASE_SESSION_CONFIG,
    )
    from surreal_like.agent.base import Agent
    from surreal_like.agent.mode import AgentMode
    from surreal_like.algorithm.base import Algorithm
    from surreal_like.algorithm.builder import build_algorithm
    from surreal_like.analysis.evaluate import evaluate
    from surreal_like.analysis.play import play
    from surreal_like.analysis.plot import plot
    from surreal_like.env.base import Env, VectorEnv, Wrapper
    from surreal_like.env.check import check_env
    from surreal_like.env.frame_stack import FrameStack
    from surreal_like.env.gym_adapter import GymAdapter
    from surreal_like.env.monitor import (
        ConsoleMonitor,
        EvalTensorplexMonitor,
        TrainingTensorplexMonitor,
    )
    from surreal_like.env.vector import make_vector_env
    from surreal_like.experience.wrapper import ExpSenderWrapper
    from surreal_like.learner.base import Learner
    from surreal_like.network.module import Module
    from surreal_like.network.tensors import to_float_tensor, to_tensor
    from surreal_like.policy import load_policy, make_policy
    from surreal_like.policy.rollout_worker import RolloutWorker
    from surreal_like.policy.worker_set import WorkerSet
    from surreal_like.replay.base import Replay
    from surreal_like.replay.fifo_replay import FIFOReplay
    from surreal_like.replay.prioritized_replay import PrioritizedReplay
    from surreal_like.replay.tuple_replay import ExpTuple, TupleReplay
    from surreal_like.replay.uniform_replay import UniformReplay
    from surreal_like.run.train import launch, train
    from surreal_like.run.trainer import Trainer
    from surreal_like.script.clients import LoggerplexClient, TensorplexClient
    from surreal_like.script.telemetry import Telemetry
    from surreal_like.tune import tune

__version__ = VERSION

_HOMES = {
    "BASE_LEARNER_CONFIG": "session.config.defaults",
    "BASE_ENV_CONFIG": "session.config.defaults",
    "BASE_SESSION_CONFIG": "session.config.defaults",
    "train": "surreal_like.run.train",
    "launch": "surreal_like.run.train",
    "tune": "surreal_like.tune",
    "load_policy": "surreal_like.policy",
    "make_policy": "surreal_like.policy",
    "RolloutWorker": "surreal_like.policy.rollout_worker",
    "Trainer": "surreal_like.run.trainer",
    "WorkerSet": "surreal_like.policy.worker_set",
    "evaluate": "surreal_like.analysis.evaluate",
    "play": "surreal_like.analysis.play",
    "plot": "surreal_like.analysis.plot",
    "Agent": "surreal_like.agent.base",
    "AgentMode": "surreal_like.agent.mode",
    "Learner": "surreal_like.learner.base",
    "Replay": "surreal_like.replay.base",
    "TupleReplay": "surreal_like.replay.tuple_replay",
    "ExpTuple": "surreal_like.replay.tuple_replay",
    "UniformReplay": "surreal_like.replay.uniform_replay",
    "PrioritizedReplay": "surreal_like.replay.prioritized_replay",
    "FIFOReplay": "surreal_like.replay.fifo_replay",
    "Algorithm": "surreal_like.algorithm.base",
    "build_algorithm": "surreal_like.algorithm.builder",
    "check_env": "surreal_like.env.check",
    "Env": "surreal_like.env.base",
    "VectorEnv": "surreal_like.env.base",
    "Wrapper": "surreal_like.env.base",
    "make_vector_env": "surreal_like.env.vector",
    "GymAdapter": "surreal_like.env.gym_adapter",
    "ExpSenderWrapper": "surreal_like.experience.wrapper",
    "FrameStack": "surreal_like.env.frame_stack",
    "TrainingTensorplexMonitor": "surreal_like.env.monitor",
    "EvalTensorplexMonitor": "surreal_like.env.monitor",
    "ConsoleMonitor": "surreal_like.env.monitor",
    "Module": "surreal_like.network.module",
    "to_float_tensor": "surreal_like.network.tensors",
    "to_tensor": "surreal_like.network.tensors",
    "LoggerplexClient": "surreal_like.script.clients",
    "Telemetry": "surreal_like.script.telemetry",
    "TensorplexClient": "surreal_like.script.clients",
}

__all__ = [
    "BASE_ENV_CONFIG",
    "BASE_LEARNER_CONFIG",
    "BASE_SESSION_CONFIG",
    "Agent",
    "AgentMode",
    "Algorithm",
    "Config",
    "ConfigError",
    "ConsoleMonitor",
    "Env",
    "EvalTensorplexMonitor",
    "ExpSenderWrapper",
    "ExpTuple",
    "FIFOReplay",
    "FrameStack",
    "GymAdapter",
    "Learner",
    "LoggerplexClient",
    "Module",
    "PrioritizedReplay",
    "Replay",
    "RolloutWorker",
    "StringEnum",
    "Telemetry",
    "TensorplexClient",
    "Trainer",
    "TrainingTensorplexMonitor",
    "TupleReplay",
    "UniformReplay",
    "VectorEnv",
    "WorkerSet",
    "Wrapper",
    "build_algorithm",
    "check_env",
    "evaluate",
    "launch",
    "load_policy",
    "make_policy",
    "make_vector_env",
    "play",
    "plot",
    "to_float_tensor",
    "to_tensor",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        names = {public.lower(): public for public in __all__}
        near = get_close_matches(name.lower(), names, n=1)
        hint = f"; the nearest public name is {names[near[0]]}" if near else ""
        raise AttributeError(
            f"module 'surreal_like' has no attribute '{name}'{hint}",
            name=name,
            obj=sys.modules[__name__],
        )
    value = getattr(importlib.import_module(_HOMES[name]), name)
    # A default config is copied: changes must not affect other experiments.
    return value.copy() if isinstance(value, Config) else value


def __dir__() -> list[str]:
    return sorted(__all__)
