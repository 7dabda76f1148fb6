"""Buffer of the rows of N streams that do not have their rows at the same time.

:class:`RowBuffer` keeps a row of all streams at once. Here each stream gathers its own rows,
whatever the others do. Streams that are full at about the same time leave together: messages of a
single stream would cost the sender and replay more than their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from session.nest import Array
from surreal_like.data.timestep import Flags
from surreal_like.experience.row_buffer import Layout, LeadIn, RowChecks, check_row

Indices = npt.NDArray[np.int64]


class StreamRows(NamedTuple):
    """Rows of some streams, for a chunk.

    Args:
        columns: columns ``[rows, n, ...]``, with ``first`` and ``steps``.
        lead_in: see :meth:`LeadIn.take`.
        streams: numbers of the streams.
    """

    columns: dict[str, Array]
    lead_in: dict[str, Array]
    streams: Indices

    def select(self, streams: slice) -> StreamRows:
        """Returns those of a part of the streams."""
        columns = {name: column[:, streams] for name, column in self.columns.items()}
        lead_in = {name: column[:, streams] for name, column in self.lead_in.items()}
        return StreamRows(columns, lead_in, self.streams[streams])


class FullStreams:
    """Lets streams that are full wait for others, so that they leave together.

    They wait until the first could be a quarter full again, or until all streams are full.

    Args:
        num_streams: number of all streams.
        length: T.
        group: number of unrolls in each part that leaves, of any streams, except in the last one;
            0: those that are there.
    """

    def __init__(self, num_streams: int, length: int, group: int) -> None:
        self._num_streams, self._length, self._group = num_streams, length, group
        self._parts: list[StreamRows] = []
        # Steps for which they may still wait.
        self._patience = 0

    def __bool__(self) -> bool:
        """True while one waits."""
        return bool(self._parts)

    def add(self, part: StreamRows) -> Iterator[StreamRows]:
        """Adds full streams; yields what leaves now."""
        if not self._parts:
            self._patience = self._length // 4
        self._parts.append(part)
        count = sum(len(each.streams) for each in self._parts)
        if not self._group:
            if self._patience <= 0 or count == self._num_streams:
                yield self._join()
        elif count >= self._group:
            whole = self._join()
            for begin in range(0, count, self._group):
                group = whole.select(slice(begin, begin + self._group))
                if len(group.streams) < self._group:
                    self._parts = [group]
                else:
                    yield group

    def wait(self) -> Iterator[StreamRows]:
        """Waits one step longer; yields what leaves now."""
        self._patience -= 1
        if self._parts and self._patience < 0 and not self._group:
            yield self._join()

    def take(self) -> Iterator[StreamRows]:
        """Yields all that wait, as one part."""
        if self._parts:
            yield self._join()

    def _join(self) -> StreamRows:
        parts, self._parts = self._parts, []
        return StreamRows(
            _join([each.columns for each in parts]),
            _join([each.lead_in for each in parts]),
            np.concatenate([each.streams for each in parts]),
        )


class StreamBuffer:
    """Collects rows of some of N streams at a time, and cuts them into the columns of chunks.

    Args:
        length: T, rows of a stream when it is full.
        overlap: rows beyond them that also begin the next chunk.
        num_streams: N.
        checks: checks rows against the specs of a stream.
        lead_in: keeps the frames before the first rows of chunks.
        send: takes the rows of each chunk; and True if they are the last ones of their streams, or
            less than a group.
        group: number of unrolls in each chunk, of any streams, except in the last ones; 0: chunks
            hold those that are full at about the same time.
    """

    def __init__(
        self,
        length: int,
        overlap: int,
        num_streams: int,
        *,
        checks: RowChecks,
        lead_in: LeadIn,
        send: Callable[[StreamRows, bool], None],
        group: int = 0,
    ) -> None:
        self._length, self._overlap = length, overlap
        self._counts: Indices = np.zeros(num_streams, np.int64)
        self._checks, self._lead_in, self._send = checks, lead_in, send
        self._layouts: dict[int, Mapping[str, Layout]] = {}
        self._columns: dict[str, Array] = {}
        self._full = FullStreams(num_streams, length, group)
        # What the parts that are no whole group are.
        self._incomplete = group > 0

    @property
    def between_chunks(self) -> bool:
        """True while no row waits to be cut."""
        return not (self._full or self._counts.any())

    def begin(self, streams: Indices, leaves: Mapping[str, Array]) -> None:
        """Begins a step, with rows that wait for their actions; they complete unrolls.

        Args:
            streams: numbers of n streams.
            leaves: column -> ``[n, ...]``, as :meth:`write` takes them without an action.
        """
        for part in self._full.wait():
            self._send(part, False)
        self._cut_unrolls(streams, leaves)

    def write(self, streams: Indices, leaves: Mapping[str, Array], version: int) -> None:
        """Adds a row of each of these streams, and cuts those that are full.

        Args:
            streams: numbers of n streams.
            leaves: column -> ``[n, ...]``, as :meth:`RowBuffer.write` takes them, and ``first``
                and ``steps``; the arrays are copied.
            version: version of the parameters that acted.

        Raises:
            DataError: a field is missing or has a wrong dtype or shape; the message names it.
        """
        self._add(streams, leaves, version)
        self._cut_rows(streams)

    def write_last(self, streams: Indices, leaves: dict[str, Array], version: int) -> None:
        """Writes rows at which episodes end, of streams whose next rows come in the same step.

        Arguments and errors are those of :meth:`write`; there is no action.
        """
        self._cut_unrolls(streams, leaves)
        self._add_end(streams, leaves, version)
        self._cut_rows(streams)

    def end(self, streams: Indices, leaves: dict[str, Array]) -> None:
        """Cuts all rows, at the end of all streams; arguments are those of :meth:`begin`."""
        if leaves and self._columns:
            # An episode that has just begun has nothing to complete.
            self._add_ends(streams, leaves, ~leaves["first"] | (self._counts[streams] > 0))
        self.flush(last=True)

    def flush(self, *, last: bool = False) -> None:
        """Cuts all rows whose actions have been taken; ``last``: no others follow."""
        for part in self._full.take():
            # Replay takes no part of a group: it counts it like unrolls that end early.
            self._send(part, self._incomplete)
        for count in np.unique(self._counts[self._counts > 0]).tolist():
            self._send(self._take(np.flatnonzero(self._counts == count), count), last)

    def _add(self, streams: Indices, leaves: Mapping[str, Array], version: int | Array) -> None:
        leaves = {**leaves, "version": np.full(len(streams), version)}
        if not self._columns:
            self._open(leaves)
        layout = self._layouts.get(len(streams))
        if layout is None:
            layout = {**self._checks.layout(len(streams)), **_own(len(streams))}
            self._layouts[len(streams)] = layout
        check_row(leaves, layout)
        at = self._counts[streams]
        for name, column in self._columns.items():
            column[at, streams] = leaves[name]
        self._counts[streams] = at + 1

    def _open(self, leaves: Mapping[str, Array]) -> None:
        """Makes the columns by the very first rows, which define the extras."""
        self._checks.open(leaves, len(leaves["reward"]))
        shape = self._length + self._overlap, len(self._counts)
        self._columns = {
            name: np.zeros((*shape, *leaf.shape[1:]), leaf.dtype) for name, leaf in leaves.items()
        }

    def _add_ends(self, streams: Indices, leaves: Mapping[str, Array], chosen: Flags) -> None:
        """Writes the chosen rows, at which no action was taken."""
        if chosen.any():
            streams = streams[chosen]
            # The version of the row before.
            before = self._columns["version"][self._counts[streams] - 1, streams]
            row = {name: leaf[chosen] for name, leaf in leaves.items()}
            self._add_end(streams, row, before)

    def _add_end(self, streams: Indices, leaves: dict[str, Array], version: int | Array) -> None:
        """Writes rows at which no action was taken: action and extras are zero."""
        zeros = {
            name: np.zeros((len(streams), *column.shape[2:]), column.dtype)
            for name, column in self._columns.items()
            if name not in leaves
        }
        self._add(streams, {**zeros, **leaves}, version)

    def _cut_unrolls(self, streams: Indices, leaves: Mapping[str, Array]) -> None:
        """Cuts the unrolls that these rows complete, which are written again for the next ones."""
        if self._overlap and self._columns:
            full = self._counts[streams] == self._length
            self._add_ends(streams, leaves, full)
            self._cut_full(streams[full], self._length + 1)

    def _cut_rows(self, streams: Indices) -> None:
        """Cuts streams that are full, unless the row after them belongs to the chunk."""
        if not self._overlap:
            self._cut_full(streams[self._counts[streams] == self._length], self._length)

    def _cut_full(self, streams: Indices, rows: int) -> None:
        if len(streams):
            for part in self._full.add(self._take(streams, rows)):
                self._send(part, False)

    def _take(self, streams: Indices, rows: int) -> StreamRows:
        """Returns rows of streams, which begin anew, and the frames before them."""
        self._counts[streams] = 0
        columns = {name: each[:rows].take(streams, axis=1) for name, each in self._columns.items()}
        length = min(rows, self._length)
        lead_in = self._lead_in.take(columns, columns["first"], length, streams)
        return StreamRows(columns, lead_in, streams)


def _join(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Returns columns of all streams of the parts, side by side."""
    return {name: np.concatenate([each[name] for each in parts], axis=1) for name in parts[0]}


def _own(count: int) -> dict[str, Layout]:
    """Returns the layout of the columns that only these rows have."""
    numbers = dict.fromkeys(("steps", "version"), Layout(np.dtype(np.int64), (count,)))
    return {**numbers, "first": Layout(np.dtype(np.bool_), (count,))}
