"""Columns that a replay keeps, and the check that a chunk has exactly those."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.errors import DataError
from surreal_like.experience.chunk import REQUIRED_COLUMNS, Chunk

# Column name -> dtype, and shape without [T, N].
Manifest = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


def manifest_of(columns: Mapping[str, npt.NDArray[Any]], *, axes: int) -> Manifest:
    """The manifest of columns whose first ``axes`` axes count rows."""
    return {name: (column.dtype, column.shape[axes:]) for name, column in columns.items()}


def parse_columns(columns: Mapping[str, Any]) -> Manifest:
    """Returns the manifest of columns as a config has them: name -> `{type: float32, dim: [4]}`."""
    return {name: (np.dtype(each["type"]), tuple(each["dim"])) for name, each in columns.items()}


def row_bytes(manifest: Manifest) -> int:
    """Bytes of one row."""
    return sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in manifest.values())


def check_chunk(chunk: Chunk, manifest: Manifest | None) -> tuple[int, int]:
    """Returns T and N if the chunk has the columns of the manifest (None: any, in good order).

    Raises:
        DataError: it does not; the message names the column.
    """
    columns = chunk.columns
    missing = [name for name in REQUIRED_COLUMNS if name not in columns]
    if missing:
        raise DataError(f"chunk from {chunk.sender}: column '{missing[0]}' is missing")
    shape = columns["step_type"].shape
    if len(shape) != 2 or not shape[0] or not shape[1] == len(chunk.streams) > 0:
        raise DataError(
            f"chunk from {chunk.sender}: column 'step_type' is {list(shape)}, expected [T, N] "
            f"with T > 0 and N = {len(chunk.streams)}, one for each stream"
        )
    if manifest is None:
        manifest = manifest_of(columns, axes=2)
    elif columns.keys() != manifest.keys():
        raise DataError(f"chunk from {chunk.sender}: {_difference(manifest, columns)}")
    for name, (dtype, trailing) in manifest.items():
        column = columns[name]
        if column.dtype != dtype or column.shape != shape + trailing:
            raise DataError(
                f"chunk from {chunk.sender}: column '{name}' is {column.dtype} "
                f"{list(column.shape)}, this replay keeps {dtype} {[*shape, *trailing]}; "
                "all senders must send the same columns"
            )
    return shape


def _difference(manifest: Manifest, columns: Iterable[str]) -> str:
    missing = sorted(manifest.keys() - set(columns))
    unknown = sorted(set(columns) - manifest.keys())
    found = [f"column '{name}' is missing" for name in missing]
    found += [f"column '{name}' is unknown here" for name in unknown]
    return ", ".join(found) + f"; this replay keeps {', '.join(manifest)}"
