"""Environments: one (`Env`), N of them (`VectorEnv`), their wrappers, and their names in configs.

Names are loaded on first use, so that a toy environment does not wait for gymnasium.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from surreal_like.env.base import Env, VectorEnv, VectorWrapper, Wrapper

if TYPE_CHECKING:
    from surreal_like.env.frame_stack import FrameStack
    from surreal_like.env.gym_adapter import GymAdapter
    from surreal_like.env.monitor import (
        ConsoleMonitor,
        EvalTensorplexMonitor,
        TrainingTensorplexMonitor,
    )
    from surreal_like.env.registry import derive_specs, list_environments, make_env
    from surreal_like.env.vector import as_vector, make_vector_env
    from surreal_like.experience.wrapper import ExpSenderWrapper

__all__ = [
    "ConsoleMonitor",
    "Env",
    "EvalTensorplexMonitor",
    "ExpSenderWrapper",
    "FrameStack",
    "GymAdapter",
    "TrainingTensorplexMonitor",
    "VectorEnv",
    "VectorWrapper",
    "Wrapper",
    "as_vector",
    "derive_specs",
    "list_environments",
    "make_env",
    "make_vector_env",
]

_MODULES = {
    "ConsoleMonitor": "monitor",
    "EvalTensorplexMonitor": "monitor",
    "TrainingTensorplexMonitor": "monitor",
    "ExpSenderWrapper": "exp_sender",
    "FrameStack": "frame_stack",
    "GymAdapter": "gym_adapter",
    "as_vector": "vector",
    "make_vector_env": "vector",
    "derive_specs": "registry",
    "list_environments": "registry",
    "make_env": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
