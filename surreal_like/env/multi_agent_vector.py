"""N environments of several agents in step; rows of the streams that have an observation.

A stream is one agent of one copy of the environment, under the policy that plays it. There is no
padding: a stream has a row when its agent gets an observation on which it acts, and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from surreal_like.data.episodes import CUT_SHORT, EpisodeSummary
from surreal_like.data.policy_names import PolicyId
from surreal_like.data.rows import Rows
from surreal_like.data.task import TASK
from surreal_like.env.actions import ActionValidator
from surreal_like.env.environment import Pulse, no_pulse
from surreal_like.env.masks import make_guard
from surreal_like.env.multi_agent import JointEnv, Specs, Turn
from surreal_like.env.registry import make_joint_env
from surreal_like.env.restarts import NO_RESTARTS, Restarts
from surreal_like.env.spaces import action_writer
from surreal_like.env.step_results import MOST, ObservationBatch, step_rewards
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.vector import stream_seeds
from surreal_like.env.wrappers import horizon
from surreal_like.errors import DataError

Flags = npt.NDArray[np.bool_]
# Returns the policy that plays an agent.
Mapper = Callable[[str], str]
# Begins an episode; returns the mapping of its agents.
Assign = Callable[[], Mapper]


class JointStep(NamedTuple):
    """Result of one step of all copies.

    Args:
        rows: rows by policy; a policy without a row is left out.
        episodes: number of the copy and summary of each joint episode that ended.
    """

    rows: Mapping[str, Rows]
    episodes: list[tuple[int, EpisodeSummary]]


@dataclass(frozen=True, slots=True)
class PolicyAgents:
    """Agents that a policy plays.

    Args:
        specs: observation spec and action spec of its agents.
        agents: names of the agents that it may play.
        learns: False for a policy whose rows are not sent.
    """

    specs: Specs
    agents: Sequence[str]
    learns: bool = True


@dataclass(slots=True)
class _AgentState:
    """An agent of a copy, in the present episode."""

    policy: str
    stream: int
    begun: bool = False
    ended: bool = False
    reward: float = 0.0
    total: float = 0.0
    # Its newest observation, with which its episode is cut short.
    turn: Turn | None = None


@dataclass(slots=True)
class _Copy:
    """One copy of the environment, with its present episode."""

    env: JointEnv
    seed: int | None
    # Set by each reset.
    mapping: Mapper = str
    states: dict[str, _AgentState] = field(default_factory=dict)
    actions: dict[str, Any] = field(default_factory=dict)
    # Rewards of agents before their first turn.
    early: dict[str, float] = field(default_factory=dict)
    length: int = 0
    uncounted: int = 0
    # Number of its task, and True after an error.
    number: int = 0
    cut_short: bool = False


class _Collector:
    """Collects the rows of one policy in one step of all copies."""

    def __init__(self, part: PolicyAgents, env: JointEnv, streams: int) -> None:
        obs_spec, action_spec = part.specs
        self._batch = ObservationBatch(obs_spec, streams, self._describe)
        agent = part.agents[0]
        self._read = env.reader_of(agent, obs_spec, part.agents)
        self.write = action_writer(env.spaces_of(agent)[1])
        self.places: list[tuple[_Copy, str]] = []
        self._masks = make_guard(obs_spec, action_spec, self._describe)
        self._actions = ActionValidator(action_spec, None, masks=self._masks)
        self._rows: list[tuple[int, float, bool, bool, bool, int]] = []

    def begin(self) -> None:
        self.places, self._rows = [], []

    def put(self, copy: _Copy, turn: Turn, state: _AgentState, *, first: bool, steps: int) -> None:
        row = len(self._rows)
        self.places.append((copy, turn.agent))
        try:
            obs = self._read(turn)
        except DataError as error:
            raise DataError(f"{error}, {self._describe(row)}") from error
        self._batch.put(row, obs)
        self._rows.append(
            (state.stream, state.reward, turn.terminated, turn.truncated, first, steps)
        )

    def take(self) -> Rows | None:
        if not self._rows:
            return None
        streams, rewards, terminated, truncated, first, steps = zip(*self._rows, strict=True)
        obs = self._batch.take(len(streams))
        if self._masks is not None:
            self._masks.observe(obs, self._ended())
        return Rows(
            np.array(streams, np.int64),
            obs,
            step_rewards(rewards),
            np.array(terminated),
            np.array(truncated),
            np.array(first),
            np.array(steps, np.int64),
        )

    def _describe(self, row: int) -> str:
        copy, agent = self.places[row]
        return f"of agent {agent} after {copy.length} steps"

    def _ended(self) -> Flags:
        return np.array([row[2] or row[3] for row in self._rows])

    def write_actions(self, actions: npt.NDArray[Any]) -> None:
        """Writes the actions to the copies; those of rows at an end are ignored."""
        ended = self._ended()
        checked = self._actions(actions, ended)
        # One number each: written at once, which adds the start of a discrete space.
        several = checked.ndim > 1
        singles: Any = map(self.write, checked) if several else self.write(checked).tolist()
        for (copy, agent), action, over in zip(self.places, singles, ended.tolist(), strict=True):
            if not over:
                copy.actions[agent] = action


def make_joint_vector(
    env_config: Mapping[str, Any],
    parts: Mapping[str, PolicyAgents],
    *,
    num_envs: int,
    seed: int,
    assign: Assign,
    evaluation: bool = False,
    pulse: Pulse = no_pulse,
    feed: TaskFeed | None = None,
) -> JointVector:
    """Builds the N copies of one agent or evaluator, each with a seed of its own.

    Arguments and errors are those of `make_vector_env` and of `JointVector`.
    """
    envs: list[JointEnv] = []
    try:
        for _ in range(num_envs):
            envs.append(make_joint_env(env_config, evaluation))
        limit = horizon(env_config.get("limit_episode_length"))
        seeds = stream_seeds(seed, num_envs)
        vector = JointVector(
            envs,
            seeds,
            parts,
            assign=assign,
            horizon=limit or 0,
            team_reward=str(env_config.get("team_reward") or "own"),
            pulse=pulse,
            feed=feed or TaskFeed(env_config, evaluation=evaluation),
        )
        make = partial(make_joint_env, env_config, evaluation)
        vector.restarts = Restarts(env_config, seeds, make)
        return vector
    except BaseException:
        for env in envs:
            env.close()
        raise


class JointVector:
    """Steps N copies of an environment of several agents, one after the other.

    Args:
        envs: the copies.
        seeds: seed of the first reset of each.
        parts: policy -> agents that it plays.
        assign: begins an episode; returns a function that gives the policy of each agent once.
        horizon: steps after which an episode is truncated; 0: never.
        team_reward: `env_config.team_reward`.
        pulse: called after each copy.
        feed: progress and task of the run.

    Attributes:
        num_envs: N.
        num_streams: policy -> number of its streams, N for each of its agents.
        env_steps: steps of the environment so far.
        metadata: as of an Env.
        restarts: makes a copy anew that raises an error.
    """

    restarts: Restarts = NO_RESTARTS

    def __init__(
        self,
        envs: Sequence[JointEnv],
        seeds: Sequence[int],
        parts: Mapping[str, PolicyAgents],
        *,
        assign: Assign,
        horizon: int = 0,
        team_reward: str = "own",
        pulse: Pulse = no_pulse,
        feed: TaskFeed | None = None,
    ) -> None:
        self.num_envs = len(envs)
        self.num_streams = {name: self.num_envs * len(part.agents) for name, part in parts.items()}
        self.env_steps = 0
        self.metadata = envs[0].metadata
        self._copies = [_Copy(env, seed) for env, seed in zip(envs, seeds, strict=True)]
        self._assign, self._horizon, self._pulse = assign, horizon, pulse
        self._learning = {name for name, part in parts.items() if part.learns}
        self._team_reward = team_reward
        self._feed = feed or TaskFeed({})
        self._places = {
            name: {agent: place for place, agent in enumerate(part.agents)}
            for name, part in parts.items()
        }
        self._collectors = {
            name: _Collector(part, envs[0], self.num_streams[name]) for name, part in parts.items()
        }

    def reset(self) -> JointStep:
        """Starts a new episode in every copy."""
        return self._collect(self._reset)

    def step(self, actions: Mapping[str, npt.NDArray[Any]]) -> JointStep:
        """Makes one step of every copy, or resets it if its last step has ended its episode.

        Args:
            actions: policy -> action of each of its newest rows, ``[n, ...]``. Those of rows at an
                end are ignored.

        Raises:
            DataError: an action does not fit its spec, or the environment breaks its interface.
        """
        for name, given in actions.items():
            self._collectors[name].write_actions(given)
        return self._collect(self._step)

    def _collect(self, advance: Callable[[int, _Copy], EpisodeSummary | None]) -> JointStep:
        for collector in self._collectors.values():
            collector.begin()
        episodes = []
        for number, copy in enumerate(self._copies):
            summary = advance(number, copy)
            if summary is not None:
                episodes.append((number, summary))
            self._pulse()
        rows = ((name, collector.take()) for name, collector in self._collectors.items())
        return JointStep({name: each for name, each in rows if each is not None}, episodes)

    def _reset(self, number: int, copy: _Copy) -> None:
        while True:
            copy.env.task, copy.number = self._feed.task, self._feed.number
            try:
                turns = copy.env.reset(copy.seed)
                break
            except Exception as error:  # noqa: BLE001 - the author's code
                self._renew(number, copy, error)
        copy.seed, copy.mapping = None, self._assign()
        copy.states, copy.actions, copy.length = {}, {}, 0
        copy.early = dict(copy.env.rewards)
        copy.cut_short = False
        for turn in turns:
            self._put(number, copy, turn, 0)

    def _step(self, number: int, copy: _Copy) -> EpisodeSummary | None:
        if copy.env.over:
            self._reset(number, copy)
            return None
        actions, copy.actions = copy.actions, {}
        try:
            turns = copy.env.step(actions)
        except Exception as error:  # noqa: BLE001 - the author's code
            turns = self._cut_short(number, copy, error)
        self.env_steps += 1
        copy.length += 1
        copy.uncounted += 1
        team = self._share(copy)
        for agent, reward in copy.env.rewards.items():
            if not abs(reward) <= MOST:
                raise DataError(
                    f"reward of agent {agent}: {reward} given after {copy.length} steps, "
                    "expected a finite float32"
                )
            state = copy.states.get(agent)
            if state is None:
                copy.early[agent] = copy.early.get(agent, 0.0) + reward
            elif not state.ended:
                state.reward += reward if team is None else team
                state.total += reward
        if self._horizon and copy.length >= self._horizon and not copy.env.over:
            ended = [turn for turn in turns if turn.terminated or turn.truncated]
            turns = ended + copy.env.cut()
        for turn in turns:
            copy.uncounted -= self._put(number, copy, turn, copy.uncounted)
        return self._summary(copy) if copy.env.over else None

    @property
    def env_restarts(self) -> int:
        """Number of copies that were made anew after an error."""
        return self.restarts.count

    def _cut_short(self, number: int, copy: _Copy, error: Exception) -> list[Turn]:
        """Renews a copy whose step failed; truncates its agents at their last observations."""
        self._renew(number, copy, error)
        copy.cut_short = True
        living = [state.turn for state in copy.states.values() if not state.ended]
        return [turn._replace(truncated=True) for turn in living if turn is not None]

    def _renew(self, number: int, copy: _Copy, error: Exception) -> None:
        """Makes a copy anew; raises the error where that is not wanted any more."""
        error.add_note(f"after {copy.length} steps of the episode")
        copy.env = self.restarts.renew(copy.env, error)
        copy.seed = self.restarts.seed_of(number)

    def _share(self, copy: _Copy) -> float | None:
        """Returns the reward of all agents that lived in the step; None if each gets its own."""
        if self._team_reward == "own":
            return None
        rewards, states = copy.env.rewards, copy.states
        lived = [agent for agent, state in states.items() if not state.ended]
        # Of AEC, agents whose first turn comes later live, too.
        lived += [agent for agent in copy.env.env.agents if agent not in states]
        # One that was not paid has 0, and gets the team's reward.
        shared = [rewards.setdefault(agent, 0.0) for agent in lived]
        return sum(shared) / (len(shared) if self._team_reward == "mean" and shared else 1)

    def _put(self, number: int, copy: _Copy, turn: Turn, steps: int) -> int:
        """Adds a row; returns the number of environment steps that it counts."""
        state = copy.states.get(turn.agent)
        if state is None:
            policy = copy.mapping(turn.agent)
            places = self._places[policy]
            stream = number * len(places) + places[turn.agent]
            total = copy.early.pop(turn.agent, 0.0)
            state = copy.states[turn.agent] = _AgentState(policy, stream, total=total)
        state.ended = turn.terminated or turn.truncated
        first = not state.begun
        if first and state.ended:
            # It has ended before it could act.
            return 0
        state.begun, state.turn = True, turn
        counted = 0 if first or state.policy not in self._learning else steps
        self._collectors[state.policy].put(copy, turn, state, first=first, steps=counted)
        state.reward = 0.0
        return counted

    def _summary(self, copy: _Copy) -> EpisodeSummary:
        by_policy: dict[str, list[float]] = {}
        for state in copy.states.values():
            by_policy.setdefault(state.policy, []).append(state.total)
        returns = {f"return/{agent}": state.total for agent, state in copy.states.items()}
        means = {PolicyId(name).add("policy/{}"): each for name, each in by_policy.items()}
        returns |= {name: sum(each) / len(each) for name, each in means.items() if name}
        if len(self.num_streams) > 1:
            returns |= {
                f"seat/{state.policy}/{agent}": state.total
                for agent, state in copy.states.items()
                if len(self._places[state.policy]) > 1
            }
        if copy.cut_short:
            returns[CUT_SHORT] = 1
        if self._feed.numbered:
            returns[TASK] = copy.number
        return {
            "return": float(sum(state.total for state in copy.states.values())),
            "length": copy.length,
            "metrics": returns,
        }

    def render(self) -> Any:
        """Returns an image of the first copy, or None."""
        return self._copies[0].env.render()

    def close(self) -> None:
        """Closes every copy."""
        for copy in self._copies:
            copy.env.close()
