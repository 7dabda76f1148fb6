"""Collects experience with a policy in this process, without sockets."""

from __future__ import annotations

from collections import deque
from typing import Any, Self

import torch

from session.config import Config
from session.errors import ConfigError
from session.nest import Nest
from session.process.seeding import component_seed
from surreal_like.agent.acting import Acting
from surreal_like.data.batch import Batch, Columns, make_batch
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.frames import stack_size
from surreal_like.env.base import Info, VectorEnv, VectorStep, VectorWrapper
from surreal_like.env.frame_stack import stack_frames
from surreal_like.env.vector import make_vector_env
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.writer import ChunkWriter
from surreal_like.policy.policy import Policy
from surreal_like.replay.base import load_replay_class
from surreal_like.replay.tuple_replay import ChunkSamples

BATCH_MODES = ("truncate_episodes", "complete_episodes")
# Rows of each stream after which an episode without a horizon is cut.
_LONGEST = 1_000_000


class RolloutWorker:
    """Steps environments with a policy, and gives batches as its algorithm learns from them.

    Args:
        policy: whose agent acts, with the weights of each moment.
        num_envs: environments that are stepped side by side.
        rollout_fragment_length: steps of each in one batch.
        batch_mode: `truncate_episodes`; or `complete_episodes`: each batch is one whole episode,
            however long, of one environment.
        horizon: steps after which an episode is cut; None: as the config says.

    Raises:
        ConfigError: there is no such batch mode, or it does not go with several environments.
    """

    def __init__(
        self,
        policy: Policy,
        num_envs: int = 1,
        rollout_fragment_length: int = 100,
        batch_mode: str = "truncate_episodes",
        horizon: int | None = None,
    ) -> None:
        if batch_mode not in BATCH_MODES:
            raise ConfigError(f"batch_mode is {batch_mode!r}, expected {' or '.join(BATCH_MODES)}")
        if batch_mode == "complete_episodes" and num_envs != 1:
            raise ConfigError(
                f"batch_mode is complete_episodes and num_envs is {num_envs}, but episodes of "
                "several environments end at different times: use num_envs=1, or truncate_episodes"
            )
        self._policy = policy
        config = policy.config.copy()
        if horizon is not None:
            config.env_config.limit_episode_length = horizon
        whole = batch_mode == "complete_episodes"
        sender = config.session_config.sender
        sender.flush_iteration = _LONGEST if whole else rollout_fragment_length
        sender.cut = "episodes" if whole else "steps"
        kind = load_replay_class(config.learner_config)
        seed = component_seed(config.session_config.seed, "rollout", 1)
        single = make_vector_env(config.env_config, num_envs=num_envs, seed=seed)
        self._recorder = _Recorder(config, single, 0 if whole else kind.overlap)
        # Frames are stacked outside the recorder: chunks hold each frame once.
        self._env = stack_frames(self._recorder, config.env_config)
        self._columns = ChunkSamples(config.learner_config, config.env_config, continues=not whole)
        self._acting = Acting(policy.agent)
        self._obs: Any = None

    def sample(self) -> Batch:
        """Steps until a batch is full, and returns it; its memory is its own.

        Where samples are longer than a fragment, it steps until at least one is complete.

        Raises:
            DataError: the environment or the agent gave a wrong array.
        """
        if self._obs is None:
            self._obs, _ = self._env.reset()
        columns = self._sample()
        while not columns:
            columns = self._sample()
        device = self._policy.learner.device if self._policy.learns else None
        return make_batch({k: torch.from_numpy(v).to(device) for k, v in columns.items()})

    def _sample(self) -> Columns:
        """Steps until a chunk is full; returns the samples that it has completed."""
        while not self._recorder.chunks:
            self._step()
        chunk = self._policy.postprocess(self._recorder.chunks.popleft())
        if self._policy.learns:
            self._policy.learner.env_steps += chunk.env_steps
        return self._columns(chunk)

    def _step(self) -> None:
        acting, recorder = self._acting, self._recorder
        # With the weights of the learner.
        acting.agent = self._policy.agent
        answer = acting.answer(self._obs, recorder.writer.first)
        recorder.version = acting.agent.version
        self._obs = self._env.step(answer)[0]
        if acting.hooked:
            acting.end_step(recorder.writer.finished)

    def pop_episodes(self) -> list[EpisodeSummary]:
        """Returns summaries of the episodes that ended since the last call: `return`, `length`."""
        return self._recorder.writer.pop_recent()

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Recorder(VectorWrapper):
    """Cuts the steps of environments into chunks, as `ExpSenderWrapper` does, and keeps them."""

    def __init__(self, config: Config, env: VectorEnv, overlap: int) -> None:
        super().__init__(env)
        self.chunks: deque[Chunk] = deque()
        self.version = self._sequence = 0
        self.writer = ChunkWriter(
            self.num_envs,
            obs_spec=self.obs_spec,
            action_spec=self.action_spec,
            settings=config.session_config.sender,
            overlap=overlap,
            send=self._keep,
        )
        self.writer.keep_frames(stack_size(config.env_config) - 1)

    def reset(self) -> tuple[Nest, Info]:
        """Begins an episode in every environment."""
        obs, info = self.env.reset()
        self.writer.begin(obs, info)
        return obs, info

    def step(self, actions: Any) -> VectorStep:
        """Writes the row at which the actions were taken, and steps."""
        actions, extras = self.writer.unpack(actions)
        self.writer.act(actions, extras, version=self.version, now=0.0, metrics={})
        step = self.env.step(actions)
        self.writer.observe(*step)
        return step

    def _keep(self, chunk: Chunk) -> None:
        self._sequence += 1
        chunk.sequence, chunk.stamps = self._sequence, {}
        self.chunks.append(chunk)
