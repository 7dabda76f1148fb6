"""Batches of the samples in single chunks, where no replay server is in between."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from session.config import Config
from surreal_like.data.batch import Collate, Columns
from surreal_like.data.frames import stack_size
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.base import Replay, load_replay_class
from surreal_like.replay.storage import ColumnStorage, Rows
from surreal_like.replay.table import Table
from surreal_like.replay.view.n_step import View
from surreal_like.replay.view.sequence import Stacker, UnrollView
from surreal_like.transform.reward import make_reward_transform


class ChunkSamples:
    """Makes the batch of the samples that a chunk has completed, in the order of the steps.

    Args:
        learner_config: of the experiment; its replay defines what a sample is. Where that is a
            gradient, it is the unroll that the gradient is made of.
        env_config: of the experiment.
        steps: of each chunk, where chunks continue each other and samples may begin in one and end
            in a later one; 0: the samples of each chunk are whole.
        streams: of each chunk.
    """

    def __init__(
        self, learner_config: Config, env_config: Config, *, steps: int = 0, streams: int = 1
    ) -> None:
        self._learner_config = learner_config
        self._env_config = env_config
        self._kind = load_replay_class(learner_config)
        self._unrolls = bool(self._kind.overlap)
        self._collate: Collate = Stacker() if self._unrolls else self._kind.collate(learner_config)
        self._frames = stack_size(env_config) - 1
        self._continues = bool(steps) and not self._unrolls
        self._view: View | None = None
        if self._continues:
            self._view = _row_view(self._kind, learner_config, env_config)
            self._storage = ColumnStorage((steps + self._view.waiting) * streams)

    def __call__(self, chunk: Chunk) -> Columns:
        """Returns the columns of a batch, in memory of its own; none if no sample is complete."""
        if self._view is None or not self._continues:
            self._view = self._view_of(chunk)
            chunk = self._with_frames(chunk)
            rows, streams = chunk.shape
            self._storage = ColumnStorage((self._frames + rows) * streams)
        numbers = self._storage.insert(chunk)
        ready, earlier = self._view.ready(self._storage, numbers, chunk.columns["step_type"])
        starts = np.sort(np.concatenate((earlier, numbers[ready])))
        if not len(starts):
            return {}
        columns = self._view.gather(self._storage, starts)
        return {**next(iter(self._collate(columns, 1))), **self._of_rows(starts)}

    def _view_of(self, chunk: Chunk) -> View:
        if not self._unrolls:
            return _row_view(self._kind, self._learner_config, self._env_config)
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

    def _of_rows(self, starts: Rows) -> Columns:
        if self._unrolls:
            return {}
        return {"weights": np.ones(len(starts), np.float32), "indices": starts}


def _row_view(kind: type[Replay], learner_config: Config, env_config: Config) -> View:
    """Returns the view of a replay of rows or of sequences; goals stay those of the rows."""
    if not issubclass(kind, Table):
        return settings.make_view(learner_config, env_config)
    # Only for its view, which a kind may override: it gets no storage, selector and limiter.
    table = kind.__new__(kind)
    table.learner_config, table.env_config = learner_config.copy(), env_config
    table.learner_config.replay.hindsight.proportion = 0.0
    table.make_view()
    return table.view
