"""Checks of batched environments: all copies are played, each with actions of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.nest import Nest
from surreal_like.env.actions import random_action
from surreal_like.env.batched import BatchedVector, FirstStream
from surreal_like.env.findings import Played, Report, StopChecking, ValueChecks


def play_copies(
    report: Report,
    values: ValueChecks,
    env: FirstStream,
    action_spec: Mapping[str, Any],
    rng: np.random.Generator,
    steps: int,
    until: float,
) -> Played:
    """Plays random steps; returns the statistics of all copies.

    Args:
        report: collects the findings.
        values: checks of the values.
        env: the first stream of the copies.
        action_spec: spec of the actions.
        rng: generator of the actions.
        steps: steps of each copy.
        until: time after which no step is begun [s].
    """
    vector, taken, ends, repeated = env.vector, 0, 0, 0
    seconds: list[float] = []
    # Also gives the copies the task of the environment.
    obs = _begin(report, env, values)
    for _ in range(steps):
        actions = _actions(vector, action_spec, rng, obs)
        began = time.monotonic()
        with report.guard("step()"):
            obs, rewards, terminated, truncated, info = vector.step(actions)
        seconds.append(time.monotonic() - began)
        last = terminated | truncated
        for row in _rows(obs):
            values.observe(row)
        for reward in rewards:
            values.reward(reward)
        if last.any() and "final_obs" in info:
            for row, first in zip(_rows(info["final_obs"]), _rows(obs, last), strict=True):
                values.observe(row)
                repeated += _equal(row, first)
        taken, ends = taken + len(last), ends + int(np.count_nonzero(last))
        if time.monotonic() > until:
            break
    if ends and repeated == ends:
        report.add(
            "advice",
            "final_obs",
            f"equals the first observation of the next episode in all {ends} ends: give the last "
            "one of the episode that has ended, unless observations are always the same",
        )
    copies = vector.num_envs
    return Played(taken, steps * copies, ends, seconds, f"random steps of {copies} copies")


def check_masked_reset(report: Report, env: FirstStream, action_spec: Mapping[str, Any]) -> None:
    """Adds a finding if a reset of the first copy changes the observations of others.

    Args:
        report: collects it.
        env: the first stream of copies that their caller resets with a mask.
        action_spec: spec of the actions.
    """
    vector, rng = env.vector, np.random.default_rng(0)
    obs = _begin(report, env)
    mask: npt.NDArray[np.bool_] = np.arange(vector.num_envs) == 0
    with report.guard("reset_mask"):
        # Away from the beginning, to which a reset of all would lead.
        obs = vector.step(_actions(vector, action_spec, rng, obs))[0]
        after = vector.read(vector.reset_streams(mask)[0], len(mask))
    if not all(map(_equal, _rows(obs, ~mask), _rows(after, ~mask))):
        text = (
            "reset(options={'reset_mask': mask}) changed observations of copies that are not in "
            "the mask: leave them as they are"
        )
        report.add("error", "reset_mask", text)


def _begin(report: Report, env: FirstStream, values: ValueChecks | None = None) -> Nest:
    with report.guard("reset()"):
        obs = env.reset_all()[0]
        if values is not None:
            for row in _rows(obs):
                values.observe(row)
        return obs
    raise StopChecking


def _actions(
    vector: BatchedVector, spec: Mapping[str, Any], rng: np.random.Generator, obs: Nest
) -> npt.NDArray[Any]:
    return np.stack([random_action(spec, rng, row) for row in _rows(obs)])


def _rows(obs: Nest, chosen: npt.NDArray[np.bool_] | None = None) -> list[Nest]:
    """Returns the observation of each copy, or of those that are chosen."""
    count = len(next(iter(nest.leaves(obs))))
    streams = range(count) if chosen is None else np.flatnonzero(chosen).tolist()
    return [nest.map(lambda leaf, at=stream: leaf[at], obs) for stream in streams]


def _equal(one: Nest, other: Nest) -> bool:
    return all(map(np.array_equal, nest.leaves(one), nest.leaves(other)))
