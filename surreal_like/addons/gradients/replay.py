"""The replay of gradients that agents have made of their unrolls, and its view."""

from __future__ import annotations

import numpy as np

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.columns import GRADIENT_ROWS
from surreal_like.data.timestep import Flags
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT as _COLUMN
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.kinds import FIFOReplay
from surreal_like.replay.settings import SHARE
from surreal_like.replay.storage import ColumnStorage, Empty, Rows
from surreal_like.replay.unrolls import UnrollPlan, make_plan
from surreal_like.replay.view.n_step import View

_ROWS = f"extras/{GRADIENT_ROWS}"


class GradientReplay(FIFOReplay):
    """A queue of gradients, in place of the unrolls that agents have made them of.

    ``learner_config.replay.batch_size``, ``capacity`` and all counts are of gradients; none is
    given again. Otherwise it is a FIFOReplay.

    Raises:
        ConfigError: a share of a batch is to be replayed, or there is no room for a batch.
    """

    @classmethod
    def gives(cls) -> str:
        return "gradients"

    @classmethod
    def make_view(cls, learner_config: Config, env_config: Config, shape: tuple[int, int]) -> View:
        """Makes the view of gradients."""
        return GradientView()

    def make_plan(self) -> UnrollPlan:
        """Makes the sizes of the queue."""
        return plan_gradients(self.learner_config, self.session_config)


class GradientView(View):
    """Gives rows as they are; each is a gradient."""

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses gradients of no row with an action: an agent ended as an unroll began."""
        rows = chunk.columns.get(_ROWS)
        return "empty unroll" if rows is not None and not rows.any() else None

    def check(self, chunk: Chunk) -> None:
        """Raises DataError unless the chunk is one gradient, float32 ``[1, 1, P]`` and finite."""
        gradient = chunk.columns.get(_COLUMN)
        if gradient is None or chunk.shape != (1, 1) or chunk.overlap:
            raise DataError(
                f"chunk {list(chunk.shape)} from {chunk.sender}, expected one gradient in a column "
                f"{_COLUMN!r} [1, 1, P]: learner_config.gradients_at must be agent everywhere"
            )
        if gradient.dtype != np.float32 or gradient.ndim != 3:
            raise DataError(
                f"gradient from {chunk.sender}: {gradient.dtype} {list(gradient.shape)}, expected "
                "float32 [1, 1, P]"
            )
        if not np.isfinite(gradient).all():
            raise DataError(f"gradient from {chunk.sender}: holds a NaN or an infinity")

    def ready(self, storage: ColumnStorage, numbers: Rows, step_type: Array) -> tuple[Flags, Rows]:
        """Flags the new row."""
        return np.ones(numbers.shape, np.bool_), np.zeros(0, np.int64)

    def ready_rows(self, storage: ColumnStorage) -> Flags:
        """Flags all rows."""
        return np.ones(len(storage), np.bool_)

    def versions(self, storage: ColumnStorage, numbers: Rows) -> Rows:
        """Returns the versions of the rows."""
        versions: Rows = storage.take("version", storage.locate(numbers))
        return versions

    def gather(
        self, storage: ColumnStorage, numbers: Rows, empty: Empty | None = None
    ) -> dict[str, Array]:
        """Returns ``version`` and all ``extras/...``, ``[B, ...]``.

        Raises:
            DataError: a row has been evicted.
        """
        storage.require(numbers)
        rows = storage.locate(numbers)
        return {
            name: storage.take(name, rows, empty if name == _COLUMN else None)
            for name in storage.names
            if name == "version" or name.startswith("extras/")
        }


def plan_gradients(learner_config: Config, session_config: Config) -> UnrollPlan:
    """Returns the plan of a shard of gradients: unrolls of one step of one stream.

    Raises:
        ConfigError: a share of a batch is to be replayed, or there is no room for a batch.
    """
    if share := learner_config["replay"]["replay_proportion"]:
        raise ConfigError(
            f"{SHARE} is {share:g}, but gradients that agents have made "
            "(learner_config.gradients_at) are used once: set it to 0"
        )
    return make_plan(learner_config, session_config, 1, 1, after=0)
