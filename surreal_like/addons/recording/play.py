"""Records the episodes that trained policies play."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.config import Config
from session.errors import UsageError
from session.nest import Array, Nest
from session.process.seeding import component_seed, seed_all
from surreal_like.addons.analysis.evaluate import TrainedPolicies
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.evaluation import Evaluation, num_streams
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.rows import Rows
from surreal_like.env.actions import random_action
from surreal_like.policies.assignment import parts_of
from surreal_like.policies.config import policy_configs


def record(
    trained: TrainedPolicies,
    out: str | Path,
    *,
    episodes: int = 100,
    seed: int | None = None,
    deterministic: bool = True,
    epsilon: float = 0.0,
) -> dict[str, Any]:
    """Plays episodes in the environment of training, and writes them to a new recording.

    Args:
        trained: the policies.
        out: folder of the recording.
        episodes: number of episodes; divided evenly among at most 100 copies of the environment.
        seed: seed of the environments; None: derived from the run's.
        deterministic: the best actions, or actions drawn from the policy.
        epsilon: probability that an action is replaced by a random legal one.

    Returns:
        ``mean_return``, of raw rewards, ``episodes`` and ``checkpoint``.

    Raises:
        UsageError: ``out`` holds a recording, or the environment cannot be recorded.
    """
    if episodes < 1:
        raise UsageError(f"cannot record {episodes} episodes: ask for at least one")
    if not 0.0 <= epsilon <= 1.0:
        raise UsageError(f"epsilon is {epsilon:g}, expected 0 to 1")
    config, run = trained.config, secrets.token_hex(6)
    # The agents of a copy do not all end at the same time.
    copies = 1 if parts_of(config) else num_streams(config.session_config, episodes)
    if seed is None:
        seed = component_seed(config.session_config.seed, "record", 1)
    configs, played = policy_configs(config), Evaluation(episodes, copies)
    quotas = [episodes // copies + (copy < episodes % copies) for copy in range(copies)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(seed_all(seed))

        def make(name: str, acting: Acting) -> RecordedPolicy:
            env = configs[name].env_config
            writer = RecordingWriter(
                out,
                obs_spec=frame_spec(env.obs_spec.to_dict(), stack_size(env)),
                action_spec=env.action_spec.to_dict(),
                environment=str(env.env_name),
                algorithm=str(configs[name].algorithm),
                policy=name,
                run=run,
                sender="player",
            )
            stack.callback(writer.close)
            return RecordedPolicy(
                name, acting, writer, env, epsilon=epsilon, quotas=quotas, seed=seed
            )

        player = trained.make_player(
            config,
            deterministic=deterministic,
            num_envs=copies,
            seed=seed,
            evaluation=False,
            make=make,
        )
        stack.callback(player.close)
        player.reset()
        while not played.over:
            player.step(played)
        # The rows at which the last episodes ended.
        player.step(played)
    found = played.summary()
    return {
        "mean_return": found["mean_return"],
        "episodes": found["episodes"],
        "checkpoint": trained.checkpoint,
    }


@dataclass(slots=True)
class _Steps:
    """Steps of an episode that goes on."""

    observations: list[Nest] = field(default_factory=list)
    actions: list[Array] = field(default_factory=list)
    rewards: list[np.float32] = field(default_factory=list)


class RecordedPolicy(ActingPolicy):
    """Acts, and writes the episodes of all its streams.

    Args:
        policy, acting: see :class:`ActingPolicy`.
        writer: takes the episodes.
        env_config: config of the environment.
        epsilon: probability that an action is replaced by a random legal one.
        quotas: episodes of the streams of each copy; those after them are not written.
        seed: seed of the random actions.
    """

    def __init__(
        self,
        policy: str,
        acting: Acting,
        writer: RecordingWriter,
        env_config: Config,
        *,
        epsilon: float,
        quotas: Sequence[int],
        seed: int,
    ) -> None:
        super().__init__(policy, acting)
        self._writer, self._quotas, self._epsilon = writer, quotas, epsilon
        self._frames = stack_size(env_config)
        self._spec = env_config.action_spec
        self._random = np.random.default_rng(seed)
        self._open: dict[int, _Steps] = {}
        self._written: dict[int, int] = {}

    def act(self, rows: Rows) -> npt.NDArray[Any]:
        actions = np.array(super().act(rows))
        ends = rows.terminated | rows.truncated
        for row, stream in enumerate(rows.streams.tolist()):
            if rows.first[row] and ends[row]:
                raise UsageError(
                    "this environment resets within its step, so that the last observation of an "
                    "episode is not known: record its training (session_config.record.what=all)"
                )
            if rows.first[row]:
                self._open[stream] = _Steps()
            steps = self._open[stream]
            if not rows.first[row]:
                steps.rewards.append(rows.reward[row])
            obs = nest.map(partial(self._newest, row), rows.obs)
            steps.observations.append(obs)
            if ends[row]:
                self._finish(stream, steps, terminated=bool(rows.terminated[row]))
                continue
            if self._random.random() < self._epsilon:
                actions[row] = random_action(self._spec, self._random, obs)
            steps.actions.append(np.array(actions[row]))
        return actions

    def _newest(self, row: int, leaf: Array) -> Array:
        """Returns a copy of an observation, of a stack its newest frame."""
        return np.array(leaf[row][-1] if self._frames > 1 else leaf[row])

    def _finish(self, stream: int, steps: _Steps, *, terminated: bool) -> None:
        count = self._written[stream] = self._written.get(stream, 0) + 1
        if count <= self._quotas[stream % len(self._quotas)]:
            self._writer.add(
                nest.stack(steps.observations),
                np.stack(steps.actions),
                np.array(steps.rewards),
                terminated=terminated,
                truncated=not terminated,
                versions=self.acting.agent.version,
            )
