"""Columns of a row: their names, dtypes and shapes, in memory and as a config has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# Of a gradient of an agent, below `extras/`: float32 [P]; number of its rows with an action, int64.
GRADIENT, GRADIENT_ROWS = "gradient", "rows"

# Column name -> dtype, and shape without [T, N].
Manifest = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


def manifest_of(columns: Mapping[str, npt.NDArray[Any]], *, axes: int) -> Manifest:
    """The manifest of columns whose first ``axes`` axes count rows."""
    return {name: (column.dtype, column.shape[axes:]) for name, column in columns.items()}


def parse_columns(columns: Mapping[str, Any]) -> Manifest:
    """Returns the manifest of columns as a config has them: name -> `{type: float32, dim: [4]}`."""
    return {name: (np.dtype(each["type"]), tuple(each["dim"])) for name, each in columns.items()}


def plain_columns(manifest: Manifest) -> dict[str, Any]:
    """Returns the columns of a manifest as a config has them."""
    return {name: {"type": str(dtype), "dim": [*dim]} for name, (dtype, dim) in manifest.items()}


def recorded_columns(learner_config: Mapping[str, Any]) -> Manifest | None:
    """Returns the columns that were recorded of the agent before the start; None: there are none.

    They are those of a row, or of a gradient where agents make gradients.
    """
    replay = learner_config["replay"]
    columns = learner_config.get("gradient_columns") or replay.get("columns")
    return parse_columns(columns) if columns else None


def row_bytes(manifest: Manifest) -> int:
    """Bytes of one row."""
    return sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in manifest.values())
