"""Distributed reinforcement learning in small processes that you can see, restart and multiply.

The names below are loaded when they are first used, so that processes without tensors stay small.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import session
from session.config import Config
from session.enumeration import StringEnum
from session.errors import ConfigError

if TYPE_CHECKING:
    # For type checkers and editors; at run time these are loaded when they are first used.
    from surreal_like.agent.base import Agent
    from surreal_like.agent.mode import AgentMode
    from surreal_like.algorithm.base import Algorithm
    from surreal_like.env.base import Env, VectorEnv, Wrapper
    from surreal_like.env.exp_sender import ExpSenderWrapper
    from surreal_like.env.frame_stack import FrameStack
    from surreal_like.env.gym_adapter import GymAdapter
    from surreal_like.env.monitor import (
        ConsoleMonitor,
        EvalTensorplexMonitor,
        TrainingTensorplexMonitor,
    )
    from surreal_like.launching import launch
    from surreal_like.learner.base import Learner
    from surreal_like.network.module import Module
    from surreal_like.network.tensors import to_float_tensor, to_tensor
    from surreal_like.policy import load_policy
    from surreal_like.replay.base import Replay
    from surreal_like.replay.tuple_replay import ExpTuple, TupleReplay
    from surreal_like.replay.uniform_replay import UniformReplay
    from surreal_like.run import train

_HERE = Path(__file__).resolve().parent.parent
_SESSION = Path(str(session.__file__)).resolve().parent.parent
if _SESSION != _HERE:
    raise ImportError(
        f"another package called 'session' is in the way: {session.__file__}; "
        f"surreal_like needs its own, in {_HERE / 'session'}. Remove that folder from the path "
        "(start Python with -P, or append to session_config.import_path instead of PYTHONPATH)"
    )

_HOMES = {
    "train": "surreal_like.run",
    "launch": "surreal_like.launching",
    "load_policy": "surreal_like.policy",
    "Agent": "surreal_like.agent.base",
    "AgentMode": "surreal_like.agent.mode",
    "Learner": "surreal_like.learner.base",
    "Replay": "surreal_like.replay.base",
    "TupleReplay": "surreal_like.replay.tuple_replay",
    "ExpTuple": "surreal_like.replay.tuple_replay",
    "UniformReplay": "surreal_like.replay.uniform_replay",
    "Algorithm": "surreal_like.algorithm.base",
    "Env": "surreal_like.env.base",
    "VectorEnv": "surreal_like.env.base",
    "Wrapper": "surreal_like.env.base",
    "GymAdapter": "surreal_like.env.gym_adapter",
    "ExpSenderWrapper": "surreal_like.env.exp_sender",
    "FrameStack": "surreal_like.env.frame_stack",
    "TrainingTensorplexMonitor": "surreal_like.env.monitor",
    "EvalTensorplexMonitor": "surreal_like.env.monitor",
    "ConsoleMonitor": "surreal_like.env.monitor",
    "Module": "surreal_like.network.module",
    "to_float_tensor": "surreal_like.network.tensors",
    "to_tensor": "surreal_like.network.tensors",
}

__all__ = [
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
    "FrameStack",
    "GymAdapter",
    "Learner",
    "Module",
    "Replay",
    "StringEnum",
    "TrainingTensorplexMonitor",
    "TupleReplay",
    "UniformReplay",
    "VectorEnv",
    "Wrapper",
    "launch",
    "load_policy",
    "to_float_tensor",
    "to_tensor",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'surreal_like' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
