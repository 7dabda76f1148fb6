"""Batches of the samples in single chunks, where no replay server is in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from session.config import Config
from surreal_like.data.batch import Collate, Columns, split
from surreal_like.data.frames import stack_size
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.base import load_replay_class
from surreal_like.replay.n_step_view import View
from surreal_like.replay.sequence_view import Stacker, UnrollView
from surreal_like.replay.storage import ColumnStorage
from surreal_like.transform.reward import make_reward_transform


class ChunkSamples:
    """Makes the batch of the samples that a chunk has completed, in the order of the steps.

    Args:
        learner_config: of the experiment; its replay defines what a sample is. Where that is a
            gradient, it is the unroll that the gradient is made of.
        env_config: of the experiment.
        capacity: rows that are kept; 0: those of one chunk, which needs no other.
    """

    def __init__(self, learner_config: Config, env_config: Config, capacity: int = 0) -> None:
        self._learner_config = learner_config
        self._env_config = env_config
        self._unrolls = bool(load_replay_class(learner_config).overlap)
        self._collate: Collate = Stacker() if self._unrolls else split
        self._frames = stack_size(env_config) - 1
        self._capacity = capacity
        self._storage = ColumnStorage(max(1, capacity))

    def __call__(self, chunk: Chunk) -> Columns:
        """Returns the columns of a batch, in memory of its own."""
        view = self._view(chunk)
        if not self._capacity:
            chunk = self._with_frames(chunk)
            rows, streams = chunk.shape
            self._storage = ColumnStorage((self._frames + rows) * streams)
        numbers = self._storage.insert(chunk)
        ready, earlier = view.ready(self._storage, numbers, chunk.columns["step_type"])
        starts = np.sort(np.concatenate((earlier, numbers[ready])))
        columns = view.gather(self._storage, starts)
        return {**next(iter(self._collate(columns, 1))), **self._weights(len(starts))}

    def _view(self, chunk: Chunk) -> View:
        if not self._unrolls:
            return settings.make_view(self._learner_config, self._env_config)
        rows, streams = chunk.shape
        algo = self._learner_config.algo
        return UnrollView(
            rows - 1,
            streams,
            algo.gamma,
            transform=make_reward_transform(algo),
            frame_stack=self._frames + 1,
        )

    def _with_frames(self, chunk: Chunk) -> Chunk:
        """Returns rows that end otherwise as an unroll; one is returned as it is.

        The first frame of a whole episode takes the place of earlier ones.
        """
        if not self._unrolls or chunk.overlap:
            return chunk
        lead = {
            name: np.repeat(column[:1], self._frames, axis=0)
            for name, column in chunk.columns.items()
            if self._frames and name.partition("/")[0] == "obs"
        }
        return replace(chunk, overlap=1, lead_in=chunk.lead_in or lead)

    def _weights(self, count: int) -> Columns:
        return {} if self._unrolls else {"weights": np.ones(count, np.float32)}
