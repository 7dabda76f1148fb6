"""The queue of gradients that agents have made of their unrolls; each is one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from session.config import Config
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.batch import Collate, split
from surreal_like.errors import DataError
from surreal_like.experience.chunk import GRADIENT as _COLUMN
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import settings
from surreal_like.replay.column_spec import parse_columns
from surreal_like.replay.fifo_replay import FIFOReplay
from surreal_like.replay.n_step_view import Flags, View
from surreal_like.replay.storage import LINK_BYTES, ColumnStorage, Empty
from surreal_like.replay.stream_table import Rows
from surreal_like.replay.unroll_plan import plan_unrolls

# Columns below `extras/`: the gradient, float32 [P]; the number of its rows with an action, int64.
GRADIENT = _COLUMN.removeprefix("extras/")
ROWS = "rows"
_ROWS = f"extras/{ROWS}"


class GradientView(View):
    """Gives rows as they are; each is a gradient."""

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


class GradientReplay(FIFOReplay):
    """A queue of gradients, in place of the unrolls that agents have made them of.

    ``learner_config.replay.batch_size``, ``capacity`` and all counts are of gradients; none is
    given again. Otherwise it is a FIFOReplay.

    Raises:
        ConfigError: a share of a batch is to be replayed, or there is no room for a batch.
    """

    def make_view(self) -> None:
        if share := self.learner_config["replay"]["replay_proportion"]:
            raise ConfigError(
                f"learner_config.replay.replay_proportion is {share:g}, but gradients that agents "
                "have made (learner_config.gradients_at) are used once: set it to 0"
            )
        # As unrolls of one step of one stream.
        self._env = Config({"num_envs": 1})
        self._session = Config(
            {
                "sender": {"flush_iteration": 1},
                "max_message_bytes": self.session_config["max_message_bytes"],
            }
        )
        self._plan = plan_unrolls(self.learner_config, self._env, self._session)
        self._lead, self._rows_each = 0, 1
        # Else the first gradient, which may be wrong, would decide about all.
        self._manifest = parse_columns(self.learner_config["gradient_columns"]) or None
        self.view = GradientView()

    @classmethod
    def gives(cls) -> str:
        return "gradients"

    def refusal(self, chunk: Chunk) -> str | None:
        """Refuses gradients of no row with an action: an agent ended as an unroll began."""
        rows = chunk.columns.get(_ROWS)
        return "empty unroll" if rows is not None and not rows.any() else None

    def check_start(self, row_bytes: int) -> None:
        self._plan.within_bytes(row_bytes)
        settings.require_messages(
            self._env, self._session, row_bytes=row_bytes - LINK_BYTES, rows=self._plan.batch
        )

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns the function that makes batches."""
        return split
