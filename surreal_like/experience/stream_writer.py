"""The writer of chunks of streams that do not have their rows at the same time.

:class:`ChunkWriter` writes a row of all its streams at once. Here each stream gathers its own rows,
whatever the others do. Streams that are full at about the same time leave as one chunk: messages of
a single stream would cost the sender and replay more than their rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from session.config import Config
from session.nest import Array, Nest
from surreal_like.data.episodes import EpisodeSummary
from surreal_like.data.spec import parse_action_spec
from surreal_like.data.timestep import encode_ends
from surreal_like.env.joint_vector import Rows
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_buffer import Layout, LeadIn, RowChecks, check_row
from surreal_like.experience.writer import check_sender, flush_seconds, unpack

Indices = npt.NDArray[np.int64]

_NO_COLUMNS: Mapping[str, Array] = MappingProxyType({})


class StreamWriter:
    """Writes rows of some of N streams at a time, and cuts them into chunks.

    Args:
        num_streams: N.
        obs_spec, action_spec: specs of one stream.
        settings: ``session_config.sender``.
        overlap: rows at the end of a chunk that the next one begins with: 1 for whole unrolls.
        send: takes each chunk; its numbers are those of this chunk alone.
        group: number of unrolls in each chunk, of any streams, except in the last ones, whose
            `tail` is set; 0: chunks hold those that are full at about the same time.

    Raises:
        ConfigError: the settings do not go together.
    """

    def __init__(
        self,
        num_streams: int,
        *,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        settings: Config,
        overlap: int,
        send: Callable[[Chunk], None],
        group: int = 0,
    ) -> None:
        check_sender(settings, num_streams, overlap)
        self._send, self._overlap, self._group = send, overlap, group
        self._length: int = settings.flush_iteration
        self._flush_seconds = flush_seconds(settings, overlap)
        self._checks = RowChecks(obs_spec, action_spec)
        self._action_dtype = parse_action_spec(action_spec).array.dtype
        self._layouts: dict[int, Mapping[str, Layout]] = {}
        self._columns: dict[str, Array] = {}
        self._counts: Indices = np.zeros(num_streams, np.int64)
        self._ids_left: Iterator[int] = itertools.count()
        self._ids: Indices = self._new_ids(num_streams)
        self._row: Rows | None = None
        self._given: Mapping[str, Array] = {}
        self._lead_in = LeadIn(0, num_streams)
        self._episodes: list[EpisodeSummary] = []
        self._first_at = 0.0
        # Full streams that wait for others, so that they leave as one chunk: their columns and ids.
        self._full: list[tuple[dict[str, Array], dict[str, Array], list[int]]] = []
        # Steps for which they may still wait.
        self._patience = 0

    def _new_ids(self, count: int) -> Indices:
        return np.array(list(itertools.islice(self._ids_left, count)), np.int64)

    @property
    def between_chunks(self) -> bool:
        """True while no row waits to be sent."""
        return not (self._full or self._counts.any())

    def keep_frames(self, frames: int) -> None:
        """Sends so many frames before the first row of each unroll along, see :class:`LeadIn`."""
        self._lead_in = LeadIn(frames if self._overlap else 0, len(self._counts))

    def add_episodes(self, episodes: list[EpisodeSummary]) -> None:
        """Adds episodes that ended; they are sent with the next chunk."""
        self._episodes += episodes

    def observe(
        self,
        rows: Rows | None,
        episodes: list[EpisodeSummary],
        columns: Mapping[str, Array] = _NO_COLUMNS,
    ) -> None:
        """Begins rows with the outcome of the last actions.

        Args:
            rows: the newest rows, None without any; those before have been completed by
                :meth:`act`.
            episodes: see :meth:`add_episodes`.
            columns: further columns of the rows, ``[n, ...]``.
        """
        self._row, self._given = rows, columns
        self._episodes += episodes
        self._patience -= 1
        if self._full and self._patience < 0 and not self._group:
            self._send_full()
        if rows is not None:
            self._cut_unrolls(rows, columns)

    def write_last(self, rows: Rows, columns: Mapping[str, Array], *, version: int) -> None:
        """Writes rows at which episodes end, and no action is taken: action and extras are zero.

        Args:
            rows: rows of streams whose next row comes with the next :meth:`observe`.
            columns: further columns of the rows, ``[n, ...]``.
            version: version of the parameters that would act.

        Raises:
            DataError: see :meth:`act`.
        """
        self._cut_unrolls(rows, columns)
        self._write_end({**_leaves(rows), **columns}, rows.streams, version)
        self._cut_rows(rows.streams)

    def _cut_unrolls(self, rows: Rows, columns: Mapping[str, Array]) -> None:
        """Cuts the unrolls that these rows complete, which are written again for the next ones."""
        if not self._overlap or not self._columns:
            return
        full = self._counts[rows.streams] == self._length
        if full.any():
            self._write_end_of({**_leaves(rows), **columns}, rows.streams, full)
            self._cut_full(rows.streams[full], self._length + 1)

    def _cut_rows(self, streams: Indices) -> None:
        """Cuts streams that are full, unless the row after them belongs to the chunk."""
        if self._overlap:
            return
        full = self._counts[streams] == self._length
        if full.any():
            self._cut_full(streams[full], self._length)

    def unpack(self, answer: Any) -> tuple[Array, dict[str, Array]]:
        """Takes apart what an agent's ``act`` returned, see :func:`unpack`."""
        return unpack(answer, self._action_dtype)

    def act(self, actions: Array, extras: Mapping[str, Array], *, version: int, now: float) -> None:
        """Completes the newest rows, and cuts the streams that are full.

        Args:
            actions: ``[n, ...]``.
            extras: column -> ``[n, ...]``.
            version: version of the parameters that chose the actions.
            now: seconds; the age of a chunk counts from its first row.

        Raises:
            DataError: a field is NaN or has a wrong dtype, shape or value; the message names it.
        """
        rows, self._row = self._row, None
        assert rows is not None  # observed before
        if self.between_chunks:
            self._first_at = now
        leaves = {**_leaves(rows), **self._given, "action": actions, **extras}
        leaves["version"] = np.full(len(rows.streams), version)
        self._write(rows.streams, leaves)
        self._cut_rows(rows.streams)

    def _write(self, streams: Indices, leaves: Mapping[str, Array]) -> None:
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

    def _write_end_of(
        self, leaves: Mapping[str, Array], streams: Indices, chosen: npt.NDArray[np.bool_]
    ) -> None:
        """Writes the chosen rows, at which no action was taken."""
        streams = streams[chosen]
        # The version of the row before: no action was taken at this one.
        version = self._columns["version"][self._counts[streams] - 1, streams]
        self._write_end({name: leaf[chosen] for name, leaf in leaves.items()}, streams, version)

    def _write_end(self, leaves: dict[str, Array], streams: Indices, version: int | Array) -> None:
        """Writes rows at which no action was taken: action and extras are zero."""
        count = len(streams)
        for name, column in self._columns.items():
            if name not in leaves:
                leaves[name] = np.zeros((count, *column.shape[2:]), column.dtype)
        leaves["version"] = np.full(count, version)
        self._write(streams, leaves)

    def _open(self, leaves: Mapping[str, Array]) -> None:
        """Makes the columns by the very first rows, which define the extras."""
        self._checks.open(leaves, len(leaves["reward"]))
        shape = self._length + self._overlap, len(self._counts)
        self._columns = {
            name: np.zeros((*shape, *leaf.shape[1:]), leaf.dtype) for name, leaf in leaves.items()
        }

    def flush_due(self, now: float) -> bool:
        """Returns True if rows have waited long enough."""
        seconds = self._flush_seconds
        return bool(seconds) and now - self._first_at >= seconds and not self.between_chunks

    def flush(self) -> None:
        """Cuts all rows whose actions have been taken."""
        self._send_full()
        for count in np.unique(self._counts[self._counts > 0]).tolist():
            self._cut(np.flatnonzero(self._counts == count), count)

    def end(self) -> None:
        """Ends all streams: the newest rows, at which no action will be taken, and the rest."""
        rows, self._row = self._row, None
        if rows is not None and self._columns:
            # An episode that has just begun has nothing to complete.
            waiting = ~rows.first | (self._counts[rows.streams] > 0)
            if waiting.any():
                self._write_end_of({**_leaves(rows), **self._given}, rows.streams, waiting)
        self._send_full()
        for count in np.unique(self._counts[self._counts > 0]).tolist():
            self._cut(np.flatnonzero(self._counts == count), count, tail=True)
        self._ids = self._new_ids(len(self._ids))

    def _cut_full(self, streams: Indices, rows: int) -> None:
        """Cuts full streams, which wait for others until the first could be a quarter full again.

        They leave at once if these are all streams.
        """
        if not self._full:
            self._patience = self._length // 4
        self._full.append((*self._take(streams, rows), self._ids[streams].tolist()))
        if self._group:
            self._send_groups()
        elif self._patience <= 0 or sum(len(ids) for *_, ids in self._full) == len(self._counts):
            self._send_full()

    def _send_full(self) -> None:
        if self._full:
            # Replay takes no part of a group: it counts it like unrolls that end early.
            self._send_chunk(*self._take_full(), tail=self._group > 0)

    def _take_full(self) -> tuple[dict[str, Array], dict[str, Array], list[int]]:
        columns, lead_in, ids = zip(*self._full, strict=True)
        self._full = []
        return _join(columns), _join(lead_in), list(itertools.chain(*ids))

    def _send_groups(self) -> None:
        """Sends full unrolls in groups; those beyond wait for the next ones."""
        count = sum(len(ids) for *_, ids in self._full)
        if count < self._group:
            return
        columns, lead_in, ids = self._take_full()
        for begin in range(0, count, self._group):
            part = slice(begin, begin + self._group)
            group = _select(columns, part), _select(lead_in, part), ids[part]
            if len(ids[part]) == self._group:
                self._send_chunk(*group)
            else:
                self._full = [group]

    def _cut(self, streams: Indices, rows: int, *, tail: bool = False) -> None:
        self._send_chunk(*self._take(streams, rows), self._ids[streams].tolist(), tail=tail)

    def _take(self, streams: Indices, rows: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns columns, and frames before them, of streams that begin anew."""
        self._counts[streams] = 0
        columns = {name: each[:rows].take(streams, axis=1) for name, each in self._columns.items()}
        length = min(rows, self._length)
        return columns, self._lead_in.take(columns, columns["first"], length, streams)

    def _send_chunk(
        self,
        columns: dict[str, Array],
        lead_in: dict[str, Array],
        ids: list[int],
        *,
        tail: bool = False,
    ) -> None:
        first, steps = columns.pop("first"), columns.pop("steps")
        columns = encode_ends(columns, first)
        self._checks.check(columns, first)
        overlap = max(len(steps) - self._length, 0)
        chunk = Chunk(columns, 0, ids, tail=tail, overlap=overlap, lead_in=lead_in)
        chunk.finished, self._episodes = self._episodes, []
        chunk.env_steps = int(steps[: chunk.length].sum())
        chunk.stamps = {"first": self._first_at}
        self._send(chunk)


def _join(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Returns columns of all streams of the parts, side by side."""
    return {name: np.concatenate([each[name] for each in parts], axis=1) for name in parts[0]}


def _select(columns: dict[str, Array], streams: slice) -> dict[str, Array]:
    return {name: column[:, streams] for name, column in columns.items()}


def _own(count: int) -> dict[str, Layout]:
    """Returns the layout of the columns that only this writer has."""
    numbers = dict.fromkeys(("steps", "version"), Layout(np.dtype(np.int64), (count,)))
    return {**numbers, "first": Layout(np.dtype(np.bool_), (count,))}


def _leaves(rows: Rows) -> dict[str, Array]:
    obs: Nest = rows.obs
    parts = {"obs": obs} if type(obs) is np.ndarray else nest.flatten(obs, "obs")
    flags = {"terminated": rows.terminated, "truncated": rows.truncated, "first": rows.first}
    return {**parts, "reward": rows.reward, "steps": rows.steps, **flags}
