"""Checks of an environment of several agents: random joint steps, made as a run makes them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from surreal_like.data.masks import MASK
from surreal_like.env.actions import random_action
from surreal_like.env.findings import (
    COMPARED_STEPS,
    Played,
    Report,
    StopChecking,
    Trace,
    ValueChecks,
    check_bounds,
    compare_copies,
    report_not_compared,
    report_played,
)
from surreal_like.env.joint import (
    AecJointEnv,
    JointEnv,
    Specs,
    Turn,
    group_by_specs,
    propose_policies,
)
from surreal_like.env.joint_vector import JointStep, JointVector, Part
from surreal_like.env.pettingzoo_tests import run_tests
from surreal_like.env.wrappers import horizon
from surreal_like.errors import DataError

_SHOWN = 6
_SLOW_REMEDY = "session_config.agent.num is the number of processes that step them"


class _CheckedEnv(JointEnv):
    """Passes an environment on, and checks the values of its turns.

    Args:
        inner: the environment.
        report: collects the findings.
        specs: agent -> its specs.

    Attributes:
        seconds: duration of each step.
        masks: agent -> mapping with the `action_mask` that it has now, if it has one.
    """

    def __init__(self, inner: JointEnv, report: Report, specs: Mapping[str, Specs]) -> None:
        super().__init__(inner.env)
        self.seconds: list[float] = []
        self.masks: dict[str, Mapping[str, Any]] = {}
        self._inner, self._report = inner, report
        self._values = {a: ValueChecks(report, each[0], a) for a, each in specs.items()}
        self._read = {a: inner.reader_of(a, each[0]) for a, each in specs.items()}

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        """See the base class."""
        return self._inner.spaces_of(agent)

    def reset(self, seed: int | None = None) -> list[Turn]:
        """See the base class."""
        with self._report.guard("reset()"):
            return self._check(self._inner.reset(seed))
        raise StopChecking

    def step(self, actions: Mapping[str, Any]) -> list[Turn]:
        """See the base class."""
        began = time.monotonic()
        turns = self._inner.step(actions)
        self.seconds.append(time.monotonic() - began)
        if self._inner.differs:
            self._report.add("advice", "rewards", self._inner.differs)
        for agent, reward in self._inner.rewards.items():
            if agent in self._values:
                self._values[agent].reward(reward)
        return self._check(turns)

    def cut(self) -> list[Turn]:
        """See the base class."""
        return self._check(self._inner.cut())

    def _check(self, turns: list[Turn]) -> list[Turn]:
        self.rewards, self.over = self._inner.rewards, self._inner.over
        for turn in turns:
            if turn.agent not in self._values:
                raise DataError(
                    f"agent {turn.agent}: it is not in `possible_agents`, which names all agents"
                )
            with self._report.guard(f"{turn.agent} obs"):
                obs = self._read[turn.agent](turn)
            self._values[turn.agent].observe(obs)
            self._check_mask(turn)
        if not self._report.ok:
            raise StopChecking
        return turns

    def _check_mask(self, turn: Turn) -> None:
        given = [each for each in (turn.info, turn.obs) if isinstance(each, Mapping)]
        self.masks[turn.agent] = {k: v for each in given for k, v in each.items() if k == MASK}
        over = turn.terminated or turn.truncated
        if not over and not all(map(np.any, self.masks[turn.agent].values())):
            text = f"its {MASK} is all zeros, but it must act: allow an action, or end it"
            self._report.add("error", f"agent {turn.agent}", text)


@dataclass(slots=True)
class JointCheck:
    """Checks of one environment of several agents.

    Args:
        report: collects the findings.
        build: builds the environment.
        config: `env_config`.
        seed: seed of the environment and of the random actions.
        until: time at which no further step is begun.
        single: True if there is one object only, which is not closed.
    """

    report: Report
    build: Callable[[], JointEnv]
    config: Mapping[str, Any]
    seed: int
    until: float
    single: bool = False
    specs: dict[str, Specs] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)

    def run(self, steps: int) -> None:
        """Runs all checks, in the order in which an author would look for mistakes."""
        with contextlib.ExitStack() as stack:
            env = self._build(stack)
            self._check_specs(env)
            played = self._play(env, steps)
            report_played(self.report, played, self.config.get("num_envs") or 8, _SLOW_REMEDY)
        if not self.report.ok:
            return
        if self.single:
            report_not_compared(self.report)
            return
        self.until = max(self.until, time.monotonic() + 1.0)
        compare_copies(self.report, self._trace, "the seed that reset() gets")
        run_tests(self.report, self.build)

    def _build(self, stack: contextlib.ExitStack) -> JointEnv:
        with self.report.guard("constructor"):
            env = self.build()
            if not self.single:
                stack.enter_context(contextlib.closing(env))
            return env
        raise StopChecking

    def _check_specs(self, env: JointEnv) -> None:
        agents = env.possible_agents
        if not agents:
            text = "it has no `possible_agents`: give it the names of all agents that may appear"
            self.report.add("error", "agents", text)
            raise StopChecking
        turns = "one after the other (AEC)" if isinstance(env, AecJointEnv) else "all at once"
        self.report.add("ok", "agents", f"{_list(agents)}, which act {turns}")
        with self.report.guard("specs"):
            self.specs = {agent: env.specs_of(agent) for agent in agents}
            groups = group_by_specs(self.specs)
            for specs, names in groups:
                text = ValueChecks(self.report, specs[0]).describe(specs[1])
                self.report.add("ok", "specs" if len(groups) == 1 else _list(names), text)
                check_bounds(self.report, specs[1])
        self.parts = {names[0]: Part(specs, names) for specs, names in groups}
        if len(groups) > 1:
            text = f"the specs of agents differ: write {propose_policies(self.specs)}"
            self.report.add("advice", "policies", text)

    def _vector(self, env: JointEnv, seed: int) -> JointVector:
        policies = {agent: name for name, part in self.parts.items() for agent in part.agents}
        limit = horizon(self.config.get("limit_episode_length")) or 0
        return JointVector(
            [env], [seed], self.parts, deal=lambda: policies.__getitem__, horizon=limit
        )

    def _play(self, env: JointEnv, steps: int) -> Played:
        """Plays random joint steps; returns their statistics."""
        checked = _CheckedEnv(env, self.report, self.specs)
        vector, rng, ends = self._vector(checked, self.seed), np.random.default_rng(self.seed), 0
        with self.report.guard("step()"):
            step = vector.reset()
            while vector.env_steps < steps and not self._late(vector.env_steps):
                step = vector.step(self._actions(step, checked.masks, rng))
                ends += len(step.episodes)
        absent = [agent for agent in self.specs if agent not in checked.masks]
        if absent:
            text = f"{_list(absent)} had no observation in {vector.env_steps} steps"
            self.report.add("advice", "absent", text)
        return Played(vector.env_steps, steps, ends, checked.seconds, "random joint steps")

    def _late(self, steps: int) -> bool:
        return steps > 0 and time.monotonic() > self.until

    def _actions(
        self, step: JointStep, masks: Mapping[str, Mapping[str, Any]], rng: np.random.Generator
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns random actions, of those that masks allow, for the newest rows."""
        actions = {}
        for name, rows in step.rows.items():
            action_spec, agents = self.parts[name].specs[1], self.parts[name].agents
            drawn = [random_action(action_spec, rng, masks[agents[each]]) for each in rows.streams]
            actions[name] = np.stack(drawn)
        return actions

    def _trace(self, beside: bool) -> Trace:
        """Returns observations and rewards of the same actions; steps a copy in between."""
        with contextlib.ExitStack() as stack:
            seeds = [self.seed, self.seed + 1] if beside else [self.seed]
            envs = [_CheckedEnv(self._build(stack), self.report, self.specs) for _ in seeds]
            vectors = [self._vector(*pair) for pair in zip(envs, seeds, strict=True)]
            generators = [np.random.default_rng(self.seed) for _ in seeds]
            newest = [vector.reset() for vector in vectors]
            seen = _seen(newest[0])
            for _ in range(COMPARED_STEPS):
                for number, vector in enumerate(vectors):
                    masks = envs[number].masks
                    actions = self._actions(newest[number], masks, generators[number])
                    newest[number] = vector.step(actions)
                seen += _seen(newest[0])
                if time.monotonic() > self.until:
                    break
            return seen


def _seen(step: JointStep) -> Trace:
    """Returns observations and rewards of the rows of a step."""
    return [
        ([np.array(leaf) for leaf in nest.leaves(rows.obs)], float(rows.reward.sum()))
        for rows in step.rows.values()
    ]


def _list(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} others" if more > 0 else "")
