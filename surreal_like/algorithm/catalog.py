"""Lists the registered algorithms, with facts that need no import of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from session.addons import collect
from session.config.named_code import place_of


class Registration(NamedTuple):
    """Facts about a registered algorithm that need no import of it, which would import torch.

    Args:
        path: dotted path of its class.
        actions: supported action specs.
        learns_from: content of a batch: rows, unrolls or sequences.
        bounded: continuous actions must have finite bounds.
        memory: supported values of `learner_config.model.memory`, besides none.
        central_critic: True if value functions may see more than the policy.
        replays: names of replays, of an add-on that has its own.
    """

    path: str
    actions: tuple[str, ...]
    learns_from: str
    bounded: bool = False
    memory: tuple[str, ...] = ()
    central_critic: bool = False
    replays: tuple[str, ...] = ()

    @property
    def replay(self) -> tuple[str, ...]:
        """Names of the replays of this library that give such batches."""
        if self.replays:
            return self.replays
        rows = self.learns_from == "rows"
        return ("UniformReplay", "PrioritizedReplay") if rows else ("FIFOReplay",)


EVERY_ACTION = ("discrete", "multi_discrete", "continuous")
CORES = ("lstm", "gru")

_REGISTERED: Mapping[str, Registration] = MappingProxyType(
    {
        "ddpg": Registration(
            "surreal_like.algorithm.ddpg:DDPG", ("continuous",), "rows", bounded=True
        ),
        "dqn": Registration("surreal_like.algorithm.dqn:DQN", ("discrete",), "rows"),
        "impala": Registration(
            "surreal_like.algorithm.impala:Impala",
            EVERY_ACTION,
            "unrolls",
            memory=CORES,
            central_critic=True,
        ),
        "ppo": Registration(
            "surreal_like.algorithm.ppo:PPO",
            EVERY_ACTION,
            "unrolls",
            memory=CORES,
            central_critic=True,
        ),
        "pqn": Registration(
            "surreal_like.algorithm.pqn:PQN", ("discrete",), "unrolls", memory=CORES
        ),
        "sac": Registration(
            "surreal_like.algorithm.sac:SAC", ("continuous",), "rows", bounded=True
        ),
        "td3": Registration(
            "surreal_like.algorithm.td3:TD3", ("continuous",), "rows", bounded=True
        ),
    }
)


# Names that are algorithms elsewhere -> what does the same here.
_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "apex": "dqn with the settings of configs/cartpole_apex.yaml",
        "apexdqn": "dqn with the settings of configs/cartpole_apex.yaml",
        "appo": "ppo, which is asynchronous by default, or impala",
        "c51": "dqn with learner_config.algo.distribution.kind=categorical",
        "cql": "sac with learner_config.algo.cql_alpha=5, or dqn with cql_alpha=1",
        "ddqn": "dqn, which is double by default",
        "doubledqn": "dqn, which is double by default",
        "duelingdqn": "dqn with learner_config.algo.dueling=true",
        "qrdqn": "dqn with learner_config.algo.distribution.kind=quantile",
        "rainbow": "dqn with the settings of configs/cartpole_rainbow.yaml",
        "recurrentppo": "ppo with learner_config.model.memory=lstm",
        "td3bc": "td3 with learner_config.algo.bc_weight=2.5",
        "td3plusbc": "td3 with learner_config.algo.bc_weight=2.5",
    }
)


def list_algorithms() -> dict[str, str]:
    """Returns the registered names, each with the dotted path of its class."""
    return {name: entry.path for name, entry in describe_algorithms().items()}


def describe_algorithms() -> dict[str, Registration]:
    """Returns the registered names, each with its :class:`Registration`."""
    return dict(sorted(({**_REGISTERED, **collect("algorithms")}).items()))


def known_elsewhere(name: str) -> str:
    """Returns what does here what an algorithm of that name does elsewhere; empty: unknown."""
    plain = "".join(filter(str.isalnum, name.casefold()))
    return str({**_ELSEWHERE, **collect("elsewhere")}.get(plain, ""))


def name_of(algorithm: str | type[Any]) -> str:
    """Returns the name of an algorithm in a config: of a class its registered name or its place.

    Raises:
        UsageError: other processes cannot import the class.
    """
    if isinstance(algorithm, str):
        return algorithm
    if registered := vars(algorithm).get("registered"):
        return str(registered)
    place = place_of(algorithm, "algorithm")
    names = {path: name for name, path in list_algorithms().items()}
    return names.get(place, place)
