"""Environments of several agents, by the interfaces of PettingZoo.

A `JointEnv` is one environment with its agents; in the parallel interface all living agents act at
once, in AEC one after the other. PettingZoo itself is not imported: any object with the methods
and attributes of one of the interfaces will do. Both are in one file because they share their
checks.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.nest import Nest
from surreal_like.data.added_parts import AGENT_ID, STATE, state_part
from surreal_like.data.masks import MASK, has_mask, mask_spec
from surreal_like.data.spec import is_leaf
from surreal_like.data.task import NO_TASK, Task
from surreal_like.env.environment import Info
from surreal_like.env.spaces import observation_reader, specs_from_spaces
from surreal_like.env.step_results import flag, kinds, rewards_by_agent
from surreal_like.errors import DataError, SpecError

_log = logging.getLogger(__name__)

INTERFACES = ("auto", "parallel", "aec")
# Share of a sum of rewards that rounding may change.
_ROUNDED = 1e-5
_DIFFERS = (
    "agent {agent}: what last() gives as its reward is not the sum of `rewards`; last() counts: "
    "write each reward into `rewards` and call _accumulate_rewards() at the end of step()"
)
# Added part -> the setting that adds it.
_SETTINGS = {STATE: "observe_state"}

Specs = tuple[dict[str, Any], dict[str, Any]]


class AgentSpaces(Protocol):
    """An environment of PettingZoo, of either interface, or a class of the same form."""

    def observation_space(self, agent: str) -> Any:
        """Returns the observation space of an agent."""

    def action_space(self, agent: str) -> Any:
        """Returns the action space of an agent."""


class Turn(NamedTuple):
    """An observation of one agent, which acts on it unless it has ended.

    Args:
        agent: name of the agent.
        obs: the observation, as the environment gave it.
        terminated, truncated: flags of this agent.
        info: info of this agent.
        state: state of the whole environment, None unless it is observed.
    """

    agent: str
    obs: Any
    terminated: bool
    truncated: bool
    info: Info
    state: Any = None


class JointEnv(ABC):
    """One environment with several agents.

    Args:
        env: environment of PettingZoo.
        observe_state: adds the state of the environment to each turn.

    Attributes:
        env: the same.
        rewards: reward of each agent in the newest step, or until its first turn.
        over: True once no agent of the episode is left.
        differs: says that `rewards` and what `last()` gives differ; empty where they do not.
        task: the task of the run, which is the `options` of the next reset.
        metadata: as of an Env.
    """

    def __init__(self, env: Any, observe_state: bool = False) -> None:
        self.env = env
        self._observe_state = observe_state
        self.rewards: dict[str, float] = {}
        self.over = True
        self.differs = ""
        self.task: Task = NO_TASK
        self.metadata: Mapping[str, Any] = getattr(env, "metadata", {})
        # Agents whose last turn of this episode was given.
        self._gone: set[str] = set()

    @property
    def possible_agents(self) -> list[str]:
        """Names of all agents that may appear; empty if the environment does not tell them."""
        return list(getattr(self.env, "possible_agents", None) or ())

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        """Returns observation space and action space of an agent."""
        return self.env.observation_space(agent), self.env.action_space(agent)

    def specs_of(self, agent: str, added: Mapping[str, Any] | None = None) -> Specs:
        """Returns observation spec and action spec of an agent.

        A mask of actions is a part of the observations, also where the environment has it in its
        infos: then it is added to a mapping, or to one with the part `observation`.

        Args:
            agent: name of the agent.
            added: specs of further parts, which are added in the same way.

        Raises:
            SpecError: a space is of an unsupported kind, or the environment itself has such a
                part; the message names the agent.
        """
        try:
            space, actions = self.spaces_of(agent)
            obs_spec, action_spec = specs_from_spaces(space, actions)
        except SpecError as error:
            raise SpecError(f"agent {agent}: {error}") from None
        parts = obs_spec if isinstance(space, spaces.Dict) else {"observation": obs_spec}
        added = dict(added or {})
        for name in added:
            if name in parts:
                raise SpecError(
                    f"agent {agent}: its observations have a part {name!r} already: leave "
                    f"env_config.{_SETTINGS.get(name, name)} out, or rename that part in a wrapper"
                )
        if not has_mask(obs_spec) and action_spec["type"] != "continuous" and self._informs:
            added[MASK] = mask_spec(action_spec)
        return ({**parts, **added} if added else obs_spec), action_spec

    def state_spec(self, env_name: str) -> dict[str, Any]:
        """Returns the spec of the part `state` of observations.

        Args:
            env_name: name of the environment, for the errors.

        Raises:
            ConfigError: the environment has no state, or a nest of them.
            SpecError: `state_space` is of an unsupported kind.
        """
        space = getattr(self.env, "state_space", None)
        spec = None if space is None else specs_from_spaces(space, spaces.Discrete(1))[0]
        if spec is not None and not is_leaf(spec):
            raise ConfigError(
                f"env_config.observe_state is true, but state_space of {env_name} is a "
                f"{type(space).__name__}: flatten it to a Box in a wrapper, or leave it out"
            )
        try:
            self.reset(seed=0)
            state = self.state()
        except (AttributeError, NotImplementedError):
            state = None
        if spec is None or state is None:
            raise ConfigError(
                f"env_config.observe_state is true, but {env_name} has no state() with a "
                "state_space: give it both, or leave observe_state out"
            )
        return state_part(spec)

    @cached_property
    def _informs(self) -> bool:
        """True if infos have masks of actions, as those of a reset show."""
        return any(MASK in turn.info for turn in self.reset(seed=0))

    def reader_of(
        self, agent: str, obs_spec: Mapping[str, Any], agents: Sequence[str] = ()
    ) -> Callable[[Turn], Nest]:
        """Returns a function that converts the observations of agents to nests of arrays.

        Args:
            agent: name of one of the agents.
            obs_spec: their observation spec, as of `specs_of`.
            agents: names of all agents of the policy, in the order of `agent_id`.
        """
        space, _ = self.spaces_of(agent)
        # Not copied here: a row is copied into its batch at once.
        read = observation_reader(space, copy=False)
        own = space.spaces if isinstance(space, spaces.Dict) else None
        makers: dict[str, Callable[[], Callable[[Turn], Any]]] = {
            MASK: partial(_mask_reader, obs_spec),
            STATE: lambda: lambda turn: turn.state,
            AGENT_ID: partial(_id_reader, agents),
        }
        added = {
            name: make()
            for name, make in makers.items()
            if name in obs_spec and name not in (own or ())
        }
        if not added and (own is not None or "observation" not in obs_spec):
            return lambda turn: read(turn.obs)

        def join(turn: Turn) -> Nest:
            obs: Any = read(turn.obs)
            parts = {name: each(turn) for name, each in added.items()}
            return {"observation": obs, **parts} if own is None else {**obs, **parts}

        return join

    @abstractmethod
    def reset(self, seed: int | None = None) -> list[Turn]:
        """Starts an episode; returns the first observations that wait for an action."""

    def _check_names(self, living: Sequence[str]) -> None:
        """Raises DataError without a living agent, or for one that is not named."""
        if not living:
            raise DataError("reset() left no agent in `agents`: an episode needs one")
        possible = self.possible_agents
        for agent in living:
            if possible and agent not in possible:
                raise DataError(
                    f"agent {agent}: it is in `agents`, but not in `possible_agents`: name all "
                    "agents there that may appear"
                )

    def _reset_env(self, seed: int | None) -> Any:
        self._gone = set()
        return self.env.reset(seed=seed, **({"options": dict(self.task)} if self.task else {}))

    @abstractmethod
    def step(self, actions: Mapping[str, Any]) -> list[Turn]:
        """Makes one step of the environment.

        Args:
            actions: action of each agent whose newest turn has not ended.

        Returns:
            The observations that wait for an action, and the last ones of agents that have ended.

        Raises:
            DataError: the environment breaks its interface; the message names the agent.
        """

    @abstractmethod
    def cut(self) -> list[Turn]:
        """Truncates the episode after a step: returns a last turn of each agent that lives."""

    def state(self) -> Any:
        """Returns the global state of the environment."""
        return self.env.state()

    def _observe(self) -> Any:
        """Returns the state for a turn, an array; None unless it is observed."""
        return self._read_state(self.env.state()) if self._observe_state else None

    @cached_property
    def _read_state(self) -> Callable[[Any], Nest]:
        return observation_reader(self.env.state_space, f"obs/{STATE}")

    def render(self) -> Any:
        """Returns an image, or None."""
        return self.env.render()

    def close(self) -> None:
        """Frees the resources of the environment; `close` is optional."""
        close_env(self.env)


def _came_back(agent: str) -> DataError:
    return DataError(
        f"agent {agent}: it has come back after its end, which PettingZoo forbids: give it another "
        "name, or end it later"
    )


def _check_mappings(method: str, **given: Any) -> None:
    for name, each in given.items():
        if type(each) is not dict and not isinstance(each, Mapping):
            raise DataError(f"{method} gave {kinds(each)} as {name}, expected a mapping of agents")


def _mask_reader(obs_spec: Mapping[str, Any]) -> Callable[[Turn], Any]:
    """Returns a function that reads the mask of actions from the info of a turn."""
    idle = [0] * obs_spec[MASK]["dim"][0]

    def read(turn: Turn) -> Any:
        if MASK not in turn.info and not (turn.terminated or turn.truncated):
            raise DataError(
                f"info has no {MASK}, but that of a reset had one: give one whenever the agent acts"
            )
        return turn.info.get(MASK, idle)

    return read


def _id_reader(agents: Sequence[str]) -> Callable[[Turn], Any]:
    """Returns a function that gives the one-hot of the agent of a turn."""
    codes = dict(zip(agents, np.eye(len(agents), dtype=np.int8), strict=True))
    return lambda turn: codes[turn.agent]


class ParallelJointEnv(JointEnv):
    """All living agents act at once."""

    def __init__(self, env: Any, observe_state: bool = False) -> None:
        super().__init__(env, observe_state)
        self._acting: list[str] = []
        # Agents that have ended, but are still listed.
        self._lingering: set[str] = set()
        self._newest: dict[str, tuple[Any, Info]] = {}
        self._state: Any = None

    def reset(self, seed: int | None = None) -> list[Turn]:
        """See the base class."""
        result = self._reset_env(seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise DataError(
                f"reset() gave {kinds(result)}, expected (observations, infos); if agents act in "
                "turns, set env_config.multi_agent_api to aec"
            )
        observations, infos = result
        _check_mappings("reset()", observations=observations, infos=infos)
        self.rewards, self._newest, self._lingering = {}, {}, set()
        self._acting, self.over = list(self.env.agents), False
        self._check_names(self._acting)
        self._state = self._observe()
        return [self._turn(a, observations, infos, False, False) for a in self._acting]

    def step(self, actions: Mapping[str, Any]) -> list[Turn]:
        """See the base class."""
        result = self.env.step(dict(actions))
        if not isinstance(result, tuple) or len(result) != 5:
            wanted = "(observations, rewards, terminations, truncations, infos)"
            raise DataError(f"step() gave {kinds(result)}, expected {wanted}")
        observations, rewards, terminations, truncations, infos = result
        _check_mappings(
            "step()",
            observations=observations,
            terminations=terminations,
            truncations=truncations,
            infos=infos,
        )
        self.rewards, self._state = rewards_by_agent(rewards), self._observe()
        turns, living = [], []
        for agent in self._acting:
            if agent not in terminations or agent not in truncations:
                raise DataError(
                    f"agent {agent}: it acted, but step() gave no termination and no truncation "
                    "of it: an agent leaves with one of them"
                )
            terminated, truncated = terminations[agent], truncations[agent]
            # The usual flags pass without the cost of their check.
            if terminated is not True and terminated is not False:
                terminated = flag(f"terminations[{agent!r}]", terminated)
            if truncated is not True and truncated is not False:
                truncated = flag(f"truncations[{agent!r}]", truncated)
            if not (terminated or truncated):
                living.append(agent)
            turns.append(self._turn(agent, observations, infos, terminated, truncated))
        present = list(self.env.agents)
        if living != present:
            self._check(living, present)
            ended = self._lingering | set(self._acting).difference(living)
            self._lingering = ended.intersection(present)
            # In the order of the environment: a set would make two equal runs differ.
            joined = [each for each in present if each not in ended and each not in living]
            self._check_names(present)
            living += joined
            turns += [self._turn(each, observations, infos, False, False) for each in joined]
        self._acting, self.over = living, not living
        return turns

    def _check(self, living: list[str], present: list[str]) -> None:
        for agent in living:
            if agent not in present:
                raise DataError(
                    f"agent {agent}: it is not in `agents` any more, but step() gave no "
                    "termination and no truncation of it"
                )

    def cut(self) -> list[Turn]:
        """See the base class."""
        living, self._acting, self.over = self._acting, [], True
        newest = ((agent, *self._newest[agent]) for agent in living)
        return [Turn(agent, obs, False, True, info, self._state) for agent, obs, info in newest]

    def _turn(
        self,
        agent: str,
        observations: Mapping[str, Any],
        infos: Mapping[str, Info],
        terminated: bool,
        truncated: bool,
    ) -> Turn:
        if agent not in observations:
            raise DataError(f"agent {agent}: the environment gave no observation of it")
        if agent in self._gone:
            raise _came_back(agent)
        if terminated or truncated:
            self._gone.add(agent)
        obs, info = observations[agent], infos.get(agent) or {}
        self._newest[agent] = obs, info
        return Turn(agent, obs, terminated, truncated, info, self._state)


class AecJointEnv(JointEnv):
    """One agent acts after the other (Agent Environment Cycle)."""

    def __init__(self, env: Any, observe_state: bool = False) -> None:
        super().__init__(env, observe_state)
        self._living: list[str] = []
        # Of each agent: its rewards since its last action.
        self._sums: dict[str, float] = {}

    def reset(self, seed: int | None = None) -> list[Turn]:
        """See the base class."""
        self._reset_env(seed)
        self.rewards, self._sums, self.over = {}, {}, False
        self._add_rewards({})
        self._living = list(self.env.agents)
        self._check_names(self._living)
        return self._turns()

    def step(self, actions: Mapping[str, Any]) -> list[Turn]:
        """See the base class."""
        env, actor = self.env, self.env.agent_selection
        env.step(actions[actor])
        self.rewards = {}
        self._add_rewards(rewards_by_agent(env.rewards), actor)
        return self._turns()

    def _add_rewards(self, rewards: dict[str, float], actor: str | None = None) -> None:
        """Adds rewards of the newest step, as they stand in the sums that `last()` gives.

        Args:
            rewards: the environment's `rewards`, which count where it has no such sums.
            actor: the agent that has acted, whose sum began anew with its step.
        """
        sums = rewards_by_agent(getattr(self.env, "_cumulative_rewards", None) or {})
        for agent, total in sums.items():
            begun = 0.0 if agent == actor else self._sums.get(agent, 0.0)
            reward = rewards.get(agent, 0.0)
            missing = total - (begun + reward)
            # Only then: a difference of sums is rounded, and `rewards` is not.
            if missing:
                rewards[agent] = total - begun
            if abs(missing) > _ROUNDED * max(1.0, abs(total), abs(begun)) and not self.differs:
                self.differs = _DIFFERS.format(agent=agent)
                if reward:
                    _log.warning(self.differs)
        for agent, reward in rewards.items():
            self.rewards[agent] = self.rewards.get(agent, 0.0) + reward
        self._sums = sums

    def cut(self) -> list[Turn]:
        """See the base class."""
        self.over = True
        return [self._turn(agent)._replace(truncated=True) for agent in self.env.agents]

    def _turns(self) -> list[Turn]:
        """Returns the last turns of agents that have ended, and the turn of the next that acts."""
        env = self.env
        turns: list[Turn] = []
        while env.agents:
            agent = env.agent_selection
            if env.agents != self._living:
                self._check(turns)
            turns.append(turn := self._turn(agent))
            if not (turn.terminated or turn.truncated):
                return turns
            # An agent that has ended takes its leave with a step of no action.
            env.step(None)
            self._add_rewards({})
        self._check(turns)
        self.over = True
        return turns

    def _turn(self, agent: str) -> Turn:
        env = self.env
        try:
            given = env.terminations[agent], env.truncations[agent]
        except KeyError as error:
            raise DataError(
                f"agent {agent}: `terminations` or `truncations` lacks it, but it is in `agents`"
            ) from error
        terminated = flag(f"terminations[{agent!r}]", given[0])
        truncated = flag(f"truncations[{agent!r}]", given[1])
        if agent in self._gone:
            raise _came_back(agent)
        if terminated or truncated:
            self._gone.add(agent)
        info = env.infos.get(agent) or {}
        return Turn(agent, env.observe(agent), terminated, truncated, info, self._observe())

    def _check(self, turns: list[Turn]) -> None:
        """Refuses agents that have vanished; newest turns of this step are those that ended."""
        env, ended = self.env, {turn.agent for turn in turns}
        for agent in self._living:
            if agent not in env.agents and agent not in ended:
                raise DataError(
                    f"agent {agent}: it is not in `agents` any more, but it had no termination and "
                    "no truncation: an agent leaves by a step of None after one of them"
                )
        if env.agents and env.agent_selection not in env.agents:
            raise DataError(
                f"agent_selection is {env.agent_selection!r}, which is not in `agents`: "
                f"{', '.join(env.agents)}"
            )
        self._living = list(env.agents)
        if self._living:
            self._check_names(self._living)


def close_env(env: Any) -> None:
    """Closes an environment of PettingZoo's form, whose method `close` is optional."""
    close = getattr(env, "close", None)
    if close is not None:
        close()


def as_joint(env: Any, interface: str = "auto", observe_state: bool = False) -> JointEnv:
    """Returns the environment behind one interface for both of PettingZoo's.

    Args:
        env: environment of PettingZoo.
        interface: `env_config.multi_agent_api`; `auto` takes the one that the object has.
        observe_state: adds the state of the environment to each turn.

    Raises:
        ConfigError: the object has not that interface.
    """
    if interface not in INTERFACES:
        hint = did_you_mean(interface, INTERFACES, otherwise="expected auto, parallel or aec")
        raise ConfigError(f"env_config.multi_agent_api is {interface!r}: {hint}")
    is_aec = any(hasattr(env, name) for name in ("agent_iter", "agent_selection")) or hasattr(
        type(env), "agent_selection"
    )
    # One of the author's own may have its first agent_selection after a reset only.
    if interface == "aec" and callable(getattr(env, "observe", None)):
        is_aec = True
    found = "aec" if is_aec else "parallel"
    if interface not in ("auto", found):
        wanted = (
            "observe(agent) and agent_selection" if interface == "aec" else "no agent_selection"
        )
        raise ConfigError(
            f"env_config.multi_agent_api is {interface}, which needs {wanted}, but the environment "
            f"{type(env).__name__} has the interface {found}"
        )
    return (AecJointEnv if is_aec else ParallelJointEnv)(env, observe_state)


def group_by_specs(by_agent: Mapping[str, Specs]) -> list[tuple[Specs, list[str]]]:
    """Returns each pair of specs with the agents that have it."""
    groups: list[tuple[Specs, list[str]]] = []
    for agent, specs in by_agent.items():
        known = next((names for each, names in groups if each == specs), None)
        if known is None:
            groups.append((specs, [agent]))
        else:
            known.append(agent)
    return groups


def propose_policies(by_agent: Mapping[str, Specs]) -> str:
    """Returns `policies` and `policy_mapping` to paste: one policy for each pair of specs."""
    mapping: dict[str, str] = {}
    for _, agents in group_by_specs(by_agent):
        stem = agents[0].rstrip("0123456789").rstrip("_-").lower()
        policy = "".join(filter(str.isalnum, stem))[:16] or "policy"
        while policy in mapping.values():
            policy += "x"
        mapping |= dict.fromkeys(agents, policy)
    policies = ", ".join(f"{name}: {{}}" for name in dict.fromkeys(mapping.values()))
    pairs = ", ".join(f"{agent}: {policy}" for agent, policy in mapping.items())
    return f"policies: {{{policies}}} and env_config.policy_mapping: {{{pairs}}}"
