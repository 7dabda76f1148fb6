"""Buffer of the rows of N streams: raw writes per step, all other work per chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session import nest
from session.nest import Array
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.data.timestep import Flags, encode_ends
from surreal_like.errors import DataError

_ALL = slice(None)


class LeadIn:
    """Keeps the last frames of each chunk for the next one; needs all rows of a stream, in order.

    Args:
        frames: number kept of each stream: one less than a stack has.
        num_streams: number of streams.
    """

    def __init__(self, frames: int, num_streams: int) -> None:
        self._frames, self._num_streams = frames, num_streams
        self._kept: dict[str, Array] = {}

    def take(
        self,
        columns: Mapping[str, Array],
        first: Flags,
        length: int,
        streams: npt.NDArray[np.int64] | slice = _ALL,
    ) -> dict[str, Array]:
        """Returns the frames before the first row of a chunk, and keeps its last ones.

        Args:
            columns: columns of the chunk, which must not change later.
            first: True where an episode begins, bool ``[rows, N]``.
            length: rows of the chunk that the next one does not begin with.
            streams: numbers of the N streams of the chunk.

        Returns:
            Column of observations -> ``[frames, N, ...]``, the oldest first; where an episode
            begins less than so many rows before, its first frame is repeated.
        """
        if not self._frames:
            return {}
        wanted = self._find_before_next(first, length)
        found: dict[str, Array] = {}
        for name, column in columns.items():
            if name.partition("/")[0] == "obs":
                if name not in self._kept:
                    shape = (self._frames, self._num_streams, *column.shape[2:])
                    self._kept[name] = np.zeros(shape, column.dtype)
                kept = self._kept[name]
                found[name] = lead = kept[:, streams].copy()
                # Where an episode begins with the chunk, its first frame.
                lead[:, first[0]] = column[0, first[0]]
                kept[:, streams] = _take_rows(lead, column, wanted)
        return found

    def _find_before_next(self, first: Flags, length: int) -> npt.NDArray[np.int64]:
        """Returns the rows before the next chunk, ``[frames, N]``; negative: of the lead-in."""
        rows, lead = np.arange(len(first)), self._frames
        begun = np.where(first, rows[:, None], -lead).max(axis=0)
        before = length + np.arange(-lead, 0)
        wanted: npt.NDArray[np.int64] = np.maximum(before[:, None], begun)
        return wanted


def _take_rows(lead: Array, column: Array, wanted: npt.NDArray[np.int64]) -> Array:
    streams = np.arange(wanted.shape[1])
    rows: Array = column[np.maximum(wanted, 0), streams]
    earlier = wanted < 0
    if earlier.any():
        rows[earlier] = lead[wanted, streams][earlier]
    return rows


_REWARD = ArraySpec("float32", ())
_FLAG = ArraySpec("bool", ())
_dtype, _shape = attrgetter("dtype"), attrgetter("shape")


class Layout(NamedTuple):
    """Required dtype and shape of each row of a column."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class RowChecks:
    """Checks rows against the specs of a stream.

    Args:
        obs_spec, action_spec: specs of one stream.

    Attributes:
        opened: True once the very first row has fixed the extras.
    """

    def __init__(self, obs_spec: Mapping[str, Any], action_spec: Mapping[str, Any]) -> None:
        self.opened = False
        self._obs_specs: dict[str, ArraySpec] = nest.flatten(parse_obs_spec(obs_spec), "obs")
        self._action_spec = parse_action_spec(action_spec).array
        self._extras: dict[str, ArraySpec] = {}

    def open(self, leaves: Mapping[str, Array], streams: int) -> None:
        """Fixes names, dtypes and shapes of the extras by the very first row, of so many streams.

        Raises:
            DataError: an extra is no array of numbers ``[streams, ...]``.
        """
        self.opened = True
        self._extras = {
            name: _spec_of(name, leaf, streams)
            for name, leaf in leaves.items()
            if name.startswith("extras/")
        }

    def layout(self, streams: int) -> dict[str, Layout]:
        """Returns the dtypes and shapes of a row of so many streams, by column."""
        specs = {
            **self._obs_specs,
            "reward": _REWARD,
            "terminated": _FLAG,
            "truncated": _FLAG,
            "action": self._action_spec,
            **self._extras,
        }
        return {name: Layout(spec.dtype, (streams, *spec.dim)) for name, spec in specs.items()}

    def check(self, columns: Mapping[str, Array], first: Flags) -> None:
        """Checks the values of a chunk.

        Args:
            columns: columns ``[rows, N, ...]``.
            first: True where an episode begins, bool ``[rows, N]``.

        Raises:
            DataError: a value is NaN or out of its bounds; the message names it.
        """
        for name, spec in self._obs_specs.items():
            spec.validate(name, columns[name])
        # The environment clips or refuses actions outside their bounds.
        self._action_spec.validate("action", columns["action"], bounds=False)
        _REWARD.validate("reward", columns["reward"])
        if np.count_nonzero(columns["reward"][first]):
            raise DataError("reward: not 0 at the first row of an episode: no action came before")
        for name in self._extras:
            if columns[name].dtype.kind == "f" and np.isnan(columns[name]).any():
                where = np.argwhere(np.isnan(columns[name]))[0].tolist()
                raise DataError(f"{name}: NaN at {where} of {list(columns[name].shape)}")


def check_row(leaves: Mapping[str, Any], layout: Mapping[str, Layout]) -> None:
    """Raises DataError for the first field of a row with a wrong dtype or shape."""
    for name, (dtype, shape) in layout.items():
        leaf = leaves.get(name)
        wrong = not isinstance(leaf, np.ndarray) or leaf.shape != shape or leaf.dtype != dtype
        if wrong:
            raise _wrong(name, leaf, shape, dtype)
    if len(leaves) != len(layout):
        unknown = sorted(set(leaves) - set(layout))
        raise DataError(f"{', '.join(unknown)}: given now, but not in the first row")


class RowBuffer:
    """Collects rows and cuts them into the columns of a chunk, which it does not use again.

    A row is an observation, and the action taken at it. The beginnings of episodes follow from
    the ends before them. Rows are only kept until they are cut: joining the bytes of 100 rows at
    once costs a small part of writing each row into its place.

    Args:
        length: T, rows per stream when it is full.
        num_envs: N.
        obs_spec, action_spec: specs of one stream; rows are checked against them.

    Attributes:
        checks: checks rows against the specs.
        rows: rows per stream that wait to be cut; those beyond ``length`` also begin the next one.
        version: version of the parameters that act at the next row.
    """

    def __init__(
        self,
        length: int,
        num_envs: int,
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
    ) -> None:
        self.rows = 0
        self.length = length
        self.version = 0
        self._num_envs = num_envs
        self.checks = RowChecks(obs_spec, action_spec)
        self._layout: dict[str, Layout] = {}
        self._rows: list[Mapping[str, Array]] = []
        self._first = np.ones(num_envs, np.bool_)
        self._versions: list[tuple[int, int]] = [(0, 0)]

    @property
    def overlap(self) -> int:
        """Rows beyond ``length``, which will be written again, with their actions."""
        return max(self.rows - self.length, 0)

    def begin_version(self, version: int) -> None:
        """Sets the version of the parameters that act from the next row on."""
        self.version = version
        self._versions.append((self.rows, version))

    def begin(self) -> None:
        """Begins an episode in every stream with the next row; only on an empty buffer."""
        self._first = np.ones(self._num_envs, np.bool_)

    def write(self, leaves: Mapping[str, Array]) -> None:
        """Adds one row of every stream; neither the mapping nor its arrays may change afterwards.

        Args:
            leaves: column -> ``[N, ...]``: ``obs`` or ``obs/...``, ``reward`` (of the action before
                this row), ``terminated``, ``truncated``, ``action`` (taken at this row) and
                ``extras/...``, of which the first row fixes names, dtypes and shapes.

        Raises:
            DataError: a field of the first row of a chunk is missing or has a wrong dtype or
                shape; the message names it. Later rows are checked when they are cut.
        """
        if not self.rows:
            self._open(leaves)
            check_row(leaves, self._layout)
        self._rows.append(leaves)
        self.rows += 1

    def write_end(self, leaves: Mapping[str, Array]) -> None:
        """Writes a row at which no action was taken: missing action and extras are zero.

        Only after a row with an action. Raises as :meth:`write`.
        """
        self._open({})
        zeros = {
            name: np.zeros(shape, dtype)
            for name, (dtype, shape) in self._layout.items()
            if name == "action" or name.startswith("extras/")
        }
        self.write({**zeros, **leaves})

    def _open(self, leaves: Mapping[str, Array]) -> None:
        """Fixes the layout by the very first row, which defines the extras."""
        if not self.checks.opened:
            self.checks.open(leaves, self._num_envs)
            self._layout = self.checks.layout(self._num_envs)

    def _columns(self) -> dict[str, Array]:
        """All rows as columns ``[rows, N, ...]``."""
        rows = self._rows
        try:
            if set(map(len, rows)) != {len(self._layout)}:
                raise ValueError("a row has more or fewer fields")
            columns = zip(*map(itemgetter(*self._layout), rows), strict=True)
            return {
                name: _column(leaves, layout)
                for (name, layout), leaves in zip(self._layout.items(), columns, strict=True)
            }
        except (AttributeError, KeyError, TypeError, ValueError):
            for leaves in rows:
                check_row(leaves, self._layout)
            raise

    def cut(self) -> dict[str, Array]:
        """Returns the rows as the columns of a chunk, ``[rows, N, ...]``, and empties the buffer.

        Raises:
            DataError: a value is NaN or out of its bounds, or an episode begins where it ends.
        """
        columns, count, overlap = self._columns(), self.rows, self.overlap
        self._rows, self.rows = [], 0
        last = columns["terminated"] | columns["truncated"]
        first = np.concatenate((self._first[None], last[:-1]))
        columns = encode_ends(columns, first)
        columns["version"] = self._version_column(count)
        self.checks.check(columns, first)
        self._first = last[count - overlap - 1]
        self._versions = [(0, self.version)]
        return columns

    def pop_rows(self) -> Iterator[tuple[Mapping[str, Array], Flags, int]]:
        """Yields each row, where episodes begin at it, and its version; empties the buffer."""
        rows, self._rows, self.rows = self._rows, [], 0
        versions, self._versions = self._versions, [(0, self.version)]
        for number, leaves in enumerate(rows):
            yield leaves, self._first, [each for at, each in versions if at <= number][-1]
            self._first = leaves["terminated"] | leaves["truncated"]

    def _version_column(self, count: int) -> npt.NDArray[np.int64]:
        column = np.empty((count, self._num_envs), np.int64)
        column.fill(self._versions[0][1])
        for row, version in self._versions[1:]:
            column[row:] = version
        return column


def _column(leaves: tuple[Any, ...], layout: Layout) -> Array:
    """Joins the leaves of a column, ``[len(leaves), N, ...]``.

    Raises AttributeError, TypeError or ValueError if one does not fit the layout.
    """
    count, (dtype, shape) = len(leaves), layout
    # Counted in C: a loop over the rows would cost more than all else. A length takes a third of
    # the time of a shape, and together with the bytes of all rows it is enough for a single axis:
    # a leaf with further axes of length 1 holds the same numbers.
    sizes: list[Any] = list(map(len if len(shape) == 1 else _shape, leaves))
    size = shape[0] if len(shape) == 1 else shape
    if list(map(_dtype, leaves)).count(dtype) + sizes.count(size) < 2 * count:
        raise ValueError("a row of another dtype or shape")
    try:
        joined = bytearray().join(leaves)
    except TypeError:
        # A view that is not contiguous has no buffer to join.
        return np.stack(leaves)
    column = np.ndarray((count, *shape), dtype, joined)
    if column.nbytes != len(joined):
        raise ValueError("a row with more axes")
    return column


def _spec_of(name: str, leaf: Array, num_envs: int) -> ArraySpec:
    """Returns the spec of an extra from its first row."""
    if leaf.shape[:1] != (num_envs,) or leaf.dtype.kind not in "biuf":
        raise DataError(
            f"{name}: {leaf.dtype} {list(leaf.shape)} given, expected numbers [{num_envs}, ...]"
        )
    return ArraySpec(leaf.dtype.name, leaf.shape[1:])


def _wrong(name: str, leaf: object, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DataError:
    if isinstance(leaf, np.ndarray):
        given = f"{leaf.dtype} {list(leaf.shape)}"
    else:
        given = "nothing" if leaf is None else f"a {type(leaf).__name__}"
    return DataError(f"{name}: {given} given, expected {dtype} {list(shape)}")
