"""Builds the policies of a run that do not learn: fixed ones, and opponents of add-ons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session import nest
from session.addons import load
from session.config import Config
from session.config.named_code import load_named
from session.config.sections import sections_of
from session.errors import ConfigError
from session.process.context import Context
from session.process.seeding import component_seed
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.algorithm.algorithm import Algorithm
from surreal_like.data.policy_names import learns, opponent_of, policies_of
from surreal_like.env.actions import random_action
from surreal_like.policies.assignment import parts_of
from surreal_like.policies.config import policy_config

RANDOM, RUN = "random", "run:"


class Found(NamedTuple):
    """Finds what policies are made of.

    Args:
        algorithm: returns the algorithm of a policy by its config.
        trained: returns the agent of a trained policy, by ``FOLDER[:CHECKPOINT[:POLICY]]`` and the
            config of the policy that it plays.
    """

    algorithm: Callable[[Config], type[Algorithm]]
    trained: Callable[[str, Config], Agent]


class Trained(NamedTuple):
    """The trained policies of a run.

    Args:
        checkpoints: folder of its checkpoints.
        agent: returns the agent of a policy by its name.
    """

    checkpoints: Path
    agent: Callable[[str], Agent]


class RandomAgent(Agent):
    """Takes any legal action, each with the same probability."""

    def act(self, obs: Any) -> npt.NDArray[Any]:
        arrays = nest.map(lambda leaf: leaf.numpy(), obs)
        spec, rng = self.env_config.action_spec, self.rng
        rows = (
            nest.map(lambda leaf, row=row: leaf[row], arrays) for row in range(len(self.streams))
        )
        return np.stack([random_action(spec, rng, each) for each in rows])

    def module_dict(self) -> dict[str, Any]:
        return {}


def make_opponents(
    config: Config,
    found: Found,
    source: Context | Trained,
    *,
    num_envs: int,
    seed: int,
    evaluation: bool = False,
) -> list[ActingPolicy]:
    """Returns the policies that do not learn, of those that may play.

    Args:
        config: the resolved experiment.
        found: finds algorithms and trained policies.
        source: where parameters of policies come from: context of the process, or the trained
            policies of a run.
        num_envs: number of environments.
        seed: seed of the process.
        evaluation: True for the policies that play in evaluations.

    Raises:
        ConfigError: a class is no agent, or a trained policy has other specs.
    """
    made: list[ActingPolicy] = []
    playing = parts_of(config, evaluation=evaluation)
    for name, settings in policies_of(config).items():
        if learns(settings) or name not in playing:
            continue
        own = policy_config(config, name)
        # Two policies with the same draws would not act independently.
        drawn = component_seed(seed, name, 1)
        if "fixed" in settings:
            acting = Acting(_seed(make_fixed(name, settings.fixed, own, found), drawn))
            made.append(ActingPolicy(name, acting))
            continue
        kind = opponent_of(settings)
        assert kind is not None  # it is not fixed
        make = partial(build_agent, found.algorithm(own).agent, own)
        made.append(load(kind.make)(name, settings, make, source, num_envs=num_envs, seed=drawn))
    return made


def make_fixed(name: str, fixed: str, config: Config, found: Found) -> Agent:
    """Returns the agent of a fixed policy.

    Args:
        name: name of the policy.
        fixed: ``random``, ``run:FOLDER[:CHECKPOINT[:POLICY]]`` or ``module:Class``.
        config: config of the policy.
        found: finds trained policies.

    Raises:
        ConfigError: a class is no agent.
        UsageError: there is no such run, checkpoint or policy.
        SpecError: the trained policy has other specs.
    """
    if fixed == RANDOM:
        return build_agent(RandomAgent, config)
    if fixed.startswith(RUN):
        return found.trained(fixed.removeprefix(RUN), config)
    where = f"policies.{name}.fixed"
    kind = load_named(fixed, where)
    if not (isinstance(kind, type) and issubclass(kind, Agent)):
        raise ConfigError(f"{where} is {fixed!r}, which is no subclass of surreal_like.Agent")
    return build_agent(kind, config)


def build_agent(kind: type[Agent], config: Config, seed: int = 0) -> Agent:
    """Returns an agent that draws its actions, and is connected to no run.

    Args:
        kind: class of the agent.
        config: config of its policy.
        seed: seed of its draws.
    """
    agent = kind(**sections_of(config), agent_id=0, agent_mode=AgentMode.eval_stochastic)
    return _seed(agent, seed)


def _seed(agent: Agent, seed: int) -> Agent:
    agent.rng = np.random.default_rng(seed)
    agent.generator.manual_seed(seed)
    return agent
