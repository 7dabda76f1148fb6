"""Lists the registered algorithms, with facts that need no import of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Registration(NamedTuple):
    """Facts about a registered algorithm that need no import of it, which would import torch.

    Args:
        path: dotted path of its class.
        actions: supported action specs.
        learns_from: content of a batch: rows, unrolls or sequences.
        bounded: continuous actions must have finite bounds.
        memory: supported values of `learner_config.model.memory`, besides none.
    """

    path: str
    actions: tuple[str, ...]
    learns_from: str
    bounded: bool = False
    memory: tuple[str, ...] = ()

    @property
    def replay(self) -> tuple[str, ...]:
        """Names of the replays of this library that give such batches."""
        if self.learns_from == "sequences":
            return ("SequenceReplay",)
        rows = self.learns_from == "rows"
        return ("UniformReplay", "PrioritizedReplay") if rows else ("FIFOReplay",)


_ANY = ("discrete", "multi_discrete", "continuous")
_CORES = ("lstm", "gru")

_REGISTERED: Mapping[str, Registration] = MappingProxyType(
    {
        "a3c": Registration("surreal_like.algorithm.a3c:A3C", _ANY, "unrolls", memory=_CORES),
        "ddpg": Registration(
            "surreal_like.algorithm.ddpg:DDPG", ("continuous",), "rows", bounded=True
        ),
        "dqn": Registration("surreal_like.algorithm.dqn:DQN", ("discrete",), "rows"),
        "impala": Registration(
            "surreal_like.algorithm.impala:Impala", _ANY, "unrolls", memory=_CORES
        ),
        "ppo": Registration("surreal_like.algorithm.ppo:PPO", _ANY, "unrolls", memory=_CORES),
        "r2d2": Registration(
            "surreal_like.algorithm.r2d2:R2D2", ("discrete",), "sequences", memory=_CORES
        ),
        "sac": Registration(
            "surreal_like.algorithm.sac:SAC", ("continuous",), "rows", bounded=True
        ),
        "td3": Registration(
            "surreal_like.algorithm.td3:TD3", ("continuous",), "rows", bounded=True
        ),
    }
)


def list_algorithms() -> dict[str, str]:
    """Returns the registered names, each with the dotted path of its class."""
    return {name: entry.path for name, entry in _REGISTERED.items()}


def describe_algorithms() -> dict[str, Registration]:
    """Returns the registered names, each with its :class:`Registration`."""
    return dict(_REGISTERED)
