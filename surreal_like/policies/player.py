"""Lets the agents of all policies play the joint episodes of evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session.config import Config
from session.process.context import Context
from surreal_like.agent.acting import Acting
from surreal_like.agent.base import Agent
from surreal_like.agent.evaluation import Evaluation
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.fetcher import Fetcher, agent_for
from surreal_like.agent.link import AgentLink
from surreal_like.agent.loop import make_agent
from surreal_like.agent.player import MakePlayer, Player, make_player
from surreal_like.algorithm.base import Algorithm
from surreal_like.data.parameters import Parameters
from surreal_like.env.base import Pulse, no_pulse
from surreal_like.env.joint_vector import JointStep, JointVector, make_joint_vector
from surreal_like.policies.config import learning_policies, policies_of, policy_configs
from surreal_like.policies.mapping import map_to_only, parts_of

_POLL_SECONDS = 0.1


class Companion:
    """Agent of another policy than the one that an evaluator judges.

    Args:
        context: context of the process.
        agent: agent in the evaluator's mode; not yet attached.
        policy: name of its policy.

    Attributes:
        policy: the same.
        acting: lets it act.
        flat: parameters that it has loaded, uint8 ``[bytes]``.
    """

    def __init__(self, context: Context, agent: Agent, policy: str) -> None:
        self.policy = policy
        self.acting = Acting(agent)
        self._context = context
        link = AgentLink(context, policy=policy)
        agent.attach(link)
        self._fetcher = Fetcher(
            link.client, context.clock, mode="step", interval_seconds=_POLL_SECONDS
        )
        self._newest: Parameters | None = None
        self.flat: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)

    @property
    def ready(self) -> bool:
        """True once it has parameters, or can load some."""
        return self._newest is not None or self.acting.agent.version > 0

    def fetch(self) -> None:
        """Fetches newer parameters."""
        self._newest = self._fetcher.tick() or self._newest
        if self._fetcher.idle:
            self._fetcher.want()

    def load(self) -> None:
        """Loads the newest parameters."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self.flat = newest.flat
            agent = agent_for(self._context, self.acting.agent, newest, self.policy)
            self.acting.agent = agent
            agent.load(newest)


class JointPlayer(Player):
    """Steps environments of several agents.

    Args:
        acting: policy -> lets its agent act.
        env: the environments.
        companions: policies whose parameters it fetches itself.
    """

    def __init__(
        self,
        acting: Mapping[str, Acting],
        env: JointVector,
        companions: Sequence[Companion] = (),
    ) -> None:
        self.num_envs = env.num_envs
        self._all, self._joint, self._companions = acting, env, companions
        self._newest = JointStep({}, [])

    @property
    def ready(self) -> bool:
        """True once all companions have parameters."""
        return all(each.ready for each in self._companions)

    def fetch(self) -> None:
        """Fetches the parameters of the companions."""
        for each in self._companions:
            each.fetch()

    def load(self) -> None:
        """Loads the newest parameters of the companions."""
        for each in self._companions:
            each.load()

    def flats(self) -> dict[str, npt.NDArray[np.uint8]]:
        """Returns the parameters of the companions, as arrays of an evaluation."""
        return {f"flat/{each.policy}": each.flat for each in self._companions}

    def reset(self) -> None:
        """Starts a new episode in every environment."""
        for name, acting in self._all.items():
            acting.state = acting.agent.initial_state(self._joint.num_streams[name])
        self._newest = self._joint.reset()

    def step(self, evaluation: Evaluation) -> None:
        """Makes one step of all environments, and counts it."""
        actions = {}
        for name, rows in self._newest.rows.items():
            acting = self._all[name]
            actions[name], _ = acting.act(rows.obs, rows.first, rows.streams)
        steps = self._joint.env_steps
        self._newest = self._joint.step(actions)
        evaluation.count(self._newest.episodes, self._joint.env_steps - steps)
        episodes = [summary for _, summary in self._newest.episodes]
        for acting in self._all.values():
            acting.end_step(episodes)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the environment."""
        return self._joint.metadata

    def render(self) -> Any:
        """Returns an image of the first environment, or None."""
        return self._joint.render()

    def close(self) -> None:
        """Closes the environments."""
        self._joint.close()


def make_evaluator_service(
    context: Context, find: Callable[[Config], type[Algorithm]]
) -> EvaluatorService:
    """Builds the service of an evaluator process.

    Args:
        context: context of the process.
        find: returns the algorithm of a policy by its config.
    """
    modes = context.config.session_config.evaluator.mode
    mode = modes[context.component.index % len(modes)]
    agents = {
        name: make_agent(context, find(own).agent, mode, config=own)
        for name, own in policy_configs(context.config).items()
    }
    first, *others = agents
    companions = [Companion(context, agents[name], name) for name in others]
    make = make_player_of(context.config, companions)
    return EvaluatorService(context, agents[first], make, first)


def make_player_of(config: Config, companions: Sequence[Companion] = ()) -> MakePlayer:
    """Returns what makes the player of an experiment, of one or of several agents.

    Args:
        config: the resolved experiment.
        companions: all policies but the first.
    """
    if not policies_of(config):
        return make_player
    first = learning_policies(config)[0]

    def make(acting: Acting, config: Config, **given: Any) -> Player:
        others = {each.policy: each.acting for each in companions}
        return make_joint_player({first: acting, **others}, config, companions, **given)

    return make


def make_joint_player(
    acting: Mapping[str, Acting],
    config: Config,
    companions: Sequence[Companion] = (),
    *,
    num_envs: int,
    seed: int,
    pulse: Pulse = no_pulse,
) -> JointPlayer:
    """Builds the environments of an evaluation, of several agents.

    Args:
        acting: policy -> lets its agent act.
        config: the resolved experiment.
        companions: policies whose parameters the player fetches itself.
        num_envs: number of environments.
        seed: seed of the environments.
        pulse: called between them.
    """
    env = make_joint_vector(
        config.env_config,
        parts_of(config, evaluation=True),
        num_envs=num_envs,
        seed=seed,
        mapping=map_to_only(config),
        evaluation=True,
        pulse=pulse,
    )
    return JointPlayer(acting, env, companions)
