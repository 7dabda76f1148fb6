"""Players step an environment of any kind as a check does: they give rows of named agents.

A single environment has one agent, whose name is empty, a batch many streams of it. What is found
only in one kind of environment is found here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from surreal_like.data.masks import has_mask
from surreal_like.data.spec import parse_action_spec
from surreal_like.env.actions import random_action
from surreal_like.env.batched import FirstStream
from surreal_like.env.check_findings import Report, Row, Values, list_names
from surreal_like.env.environment import Env, ObservationWrapper, VectorEnv, Wrapper
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.multi_agent import AecJointEnv, JointEnv, Specs, Turn
from surreal_like.env.registry import specs_of
from surreal_like.env.spaces import action_writer
from surreal_like.env.step_results import reset_parts, step_parts
from surreal_like.env.task_feed import TaskFeed
from surreal_like.env.wrappers import horizon
from surreal_like.errors import DataError


class Player(ABC):
    """Resets and steps one environment, or a batch of them.

    Attributes:
        specs: agent -> observation spec and action spec.
        values: agent -> checks of its rows.
        about: names of the agents; empty if it has no names.
        kind: kind of its steps, for texts.
        remedy: advice for slow steps.
        source: the generator that an author should draw from.
        copies: number of environments that a step steps.
        foreign: the environment of Gymnasium or PettingZoo itself; None for others.
        steps: number of steps.
    """

    specs: Mapping[str, Specs]
    values: Mapping[str, Values]
    about = ""
    kind = "random steps"
    remedy = (
        "see 'My simulator is slow' in docs/environment_options.md (env_config.vector, "
        "session_config.stop.eval_episodes)"
    )
    source = "self.rng"
    copies = 1
    foreign: Any = None
    steps = 0

    @abstractmethod
    def reset(self, seed: int | None = None) -> list[Row]:
        """Starts an episode; returns its first rows."""

    @abstractmethod
    def step(self, actions: Sequence[npt.NDArray[Any]]) -> list[Row]:
        """Makes a step, or begins the next episode where the last step has ended one.

        Args:
            actions: action of each of the newest rows that has not ended, in their order.
        """

    def report(self, report: Report) -> None:  # noqa: B027 - most kinds have none
        """Adds what is found only in environments of this kind."""


def make_player(env: Env | JointEnv, config: Mapping[str, Any], report: Report) -> Player:
    """Returns the player of an environment.

    Args:
        env: the environment.
        config: `env_config`.
        report: collects what is found.

    Raises:
        SpecError: config and environment differ, or a space has no spec.
        DataError: an environment of several agents names none.
    """
    if isinstance(env, JointEnv):
        return _JointPlayer(env, config, report)
    if isinstance(env, FirstStream):
        return _BatchPlayer(env, config, report)
    return SinglePlayer(env, config, report, _space_of(env))


class SinglePlayer(Player):
    """Plays an Env; values are as its author gave them.

    Args:
        env: the environment.
        config: `env_config`.
        report: collects what is found.
        space: space of observations, whose bounds hold, too; None: only those of the specs do.
    """

    def __init__(
        self, env: Env, config: Mapping[str, Any], report: Report, space: Any = None
    ) -> None:
        self.env, self._feed = env, TaskFeed(config)
        self._feed.begin_run()
        self._feed.introduce(env)
        self.specs = {"": specs_of(env, config)}
        self.values = {"": Values(report, self.specs[""], space=space)}
        if hasattr(env, "gym_env"):
            self.source = "self.np_random"
            # Its tests choose actions without a look at a mask.
            self.foreign = None if has_mask(self.specs[""][0]) else env.gym_env.unwrapped

    def reset(self, seed: int | None = None) -> list[Row]:
        if seed is not None:
            self.env.seed(seed)
        self._feed.begin(self.env)
        return self._begin()

    def _begin(self) -> list[Row]:
        obs, info = reset_parts(self.env.reset())
        return [Row("", obs, info=info)]

    def step(self, actions: Sequence[npt.NDArray[Any]]) -> list[Row]:
        if not actions:
            return self.reset()
        [action] = actions
        self.steps += 1
        return [Row("", *step_parts(self.env.step(action if action.ndim else action.item())))]


class _BatchPlayer(SinglePlayer):
    """Plays all streams of a batched environment, each with actions of its own."""

    def __init__(self, env: FirstStream, config: Mapping[str, Any], report: Report) -> None:
        space = getattr(env.vector.env, "single_observation_space", None)
        super().__init__(env, config, report, space)
        self._first, self._vector = env, env.vector
        self.copies = env.vector.num_envs
        self.kind = f"random steps of {self.copies} copies"
        if not isinstance(env.vector.env, VectorEnv):
            self.source = "self.np_random"
        self._action_spec = self.specs[""][1]
        self._acts = np.ones(self.copies, np.bool_)
        # Last observations beside the first ones of next episodes, and those that are equal.
        self._final = self._repeated = 0

    def _begin(self) -> list[Row]:
        self._acts = np.ones(self.copies, np.bool_)
        return [Row("", obs) for obs in _split(self._first.reset_all()[0])]

    def step(self, actions: Sequence[npt.NDArray[Any]]) -> list[Row]:
        given = parse_action_spec(self._action_spec).array.zeros(self.copies)
        if actions:
            given[self._acts] = np.stack(actions)
        obs, rewards, terminated, truncated, info = self._vector.step(given)
        self.steps += self.copies
        last, resets = terminated | truncated, "final_obs" in info
        self._acts = last | True if resets else ~last
        final = iter(_split(info["final_obs"])) if resets else iter(())
        rows: list[Row] = []
        streams = zip(last, _split(obs), rewards, terminated, truncated, strict=True)
        for ended, seen, *values in streams:
            if ended and resets:
                rows.append(Row("", next(final), *values))
                self._final += 1
                self._repeated += _equal(rows[-1].obs, seen)
                values = []
            rows.append(Row("", seen, *values))
        return rows

    def report(self, report: Report) -> None:
        if self._final and self._repeated == self._final:
            report.add(
                "advice",
                "final_obs",
                f"equals the first observation of the next episode in all {self._final} ends: "
                "give the last one of the episode that has ended, unless observations are always "
                "the same",
            )
        if self._vector.takes_tasks:
            with report.guard("reset_mask"):
                self._check_masked_reset(report)

    def _check_masked_reset(self, report: Report) -> None:
        """Adds a finding if a reset of the first copy changes the observations of others."""
        rng, vector = np.random.default_rng(0), self._vector
        rows = self.reset()
        mask = np.arange(self.copies) == 0
        # Away from the beginning, to which a reset of all would lead.
        actions = [random_action(self._action_spec, rng, row.obs) for row in rows]
        before = _split(vector.step(np.stack(actions))[0])
        after = _split(vector.read(vector.reset_streams(mask)[0], len(mask)))
        if not all(map(_equal, before[1:], after[1:])):
            text = (
                "reset(options={'reset_mask': mask}) changed observations of copies that are not "
                "in the mask: leave them as they are"
            )
            report.add("error", "reset_mask", text)


class _JointPlayer(Player):
    """Plays an environment of several agents."""

    kind = "random joint steps"
    remedy = "session_config.agent.num is the number of processes that step them"
    source = "the seed that reset() gets"

    def __init__(self, env: JointEnv, config: Mapping[str, Any], report: Report) -> None:
        agents = env.possible_agents
        if not agents:
            raise DataError(
                "it has no `possible_agents`: give it the names of all agents that may appear"
            )
        turns = "one after the other (AEC)" if isinstance(env, AecJointEnv) else "all at once"
        self.env, self.foreign = env, env.env
        self.about = f"{list_names(agents)}, which act {turns}"
        self._limit = horizon(config.get("limit_episode_length")) or 0
        feed = TaskFeed(config)
        feed.begin_run()
        env.task = feed.task
        self.specs = {agent: env.specs_of(agent) for agent in agents}
        self.values = {
            agent: Values(report, specs, agent, env.spaces_of(agent)[0])
            for agent, specs in self.specs.items()
        }
        self._read = {agent: env.reader_of(agent, specs[0]) for agent, specs in self.specs.items()}
        self._write = {agent: action_writer(env.spaces_of(agent)[1]) for agent in agents}
        self._acting: list[str] = []
        self._length = 0
        # Rewards of each agent since its last row.
        self._paid: dict[str, float] = {}

    def reset(self, seed: int | None = None) -> list[Row]:
        turns = self.env.reset(seed)
        self._length, self._paid = 0, {}
        return [row._replace(reward=None) for row in self._rows(turns)]

    def step(self, actions: Sequence[npt.NDArray[Any]]) -> list[Row]:
        env = self.env
        if env.over:
            return self.reset()
        given = zip(self._acting, actions, strict=True)
        turns = env.step({agent: self._write[agent](action) for agent, action in given})
        self.steps, self._length = self.steps + 1, self._length + 1
        for agent, reward in env.rewards.items():
            self._paid[agent] = self._paid.get(agent, 0.0) + reward
        if self._limit and self._length >= self._limit and not env.over:
            turns = [each for each in turns if each.terminated or each.truncated] + env.cut()
        return self._rows(turns)

    def _rows(self, turns: Sequence[Turn]) -> list[Row]:
        self._acting = [each.agent for each in turns if not (each.terminated or each.truncated)]
        return [self._row(turn) for turn in turns]

    def _row(self, turn: Turn) -> Row:
        agent = turn.agent
        try:
            obs = self._read[agent](turn)
        except DataError as error:
            raise DataError(f"agent {agent}: {error}") from error
        return Row(agent, obs, self._paid.pop(agent, 0.0), turn.terminated, turn.truncated)

    def report(self, report: Report) -> None:
        if self.env.differs:
            report.add("advice", "rewards", self.env.differs)


def _space_of(env: Env) -> Any:
    """Returns the space of an environment of Gymnasium whose observations nothing changes."""
    while isinstance(env, Wrapper) and not isinstance(env, ObservationWrapper):
        if not type(env).__module__.startswith("surreal_like."):
            return None
        env = env.env
    return env.read_space if isinstance(env, GymAdapter) else None


def _split(obs: nest.Nest) -> list[nest.Nest]:
    """Returns the observation of each stream."""
    count = len(next(iter(nest.leaves(obs))))
    return [nest.map(lambda leaf, at=stream: leaf[at], obs) for stream in range(count)]


def _equal(one: nest.Nest, other: nest.Nest) -> bool:
    return all(map(np.array_equal, nest.leaves(one), nest.leaves(other)))
