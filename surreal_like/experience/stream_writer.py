"""The writer of chunks of streams that do not have their rows at the same time.

:class:`ChunkWriter` writes a row of all its streams at once. Here each stream gathers its own rows,
whatever the others do. Streams that are full at about the same time leave as one chunk: messages of
a single stream would cost the sender and replay more than their rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
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
from surreal_like.experience.row_buffer import Layout, RowChecks, check_row
from surreal_like.experience.writer import check_sender, flush_seconds, unpack

Indices = npt.NDArray[np.int64]


class StreamWriter:
    """Writes rows of some of N streams at a time, and cuts them into chunks.

    Args:
        num_streams: N.
        obs_spec, action_spec: specs of one stream.
        settings: ``session_config.sender``.
        overlap: rows at the end of a chunk that the next one begins with: 1 for whole unrolls.
        send: takes each chunk; its numbers are those of this chunk alone.

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
    ) -> None:
        check_sender(settings, num_streams, overlap)
        self._send, self._overlap = send, overlap
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
        self._episodes: list[EpisodeSummary] = []
        self._first_at = 0.0
        # Full streams that wait for others, so that they leave as one chunk: their columns and ids.
        self._full: list[tuple[dict[str, Array], list[int]]] = []
        # Steps for which they may still wait.
        self._patience = 0

    def _new_ids(self, count: int) -> Indices:
        return np.array(list(itertools.islice(self._ids_left, count)), np.int64)

    @property
    def between_chunks(self) -> bool:
        """True while no row waits to be sent."""
        return not (self._full or self._counts.any())

    def observe(self, rows: Rows | None, episodes: list[EpisodeSummary]) -> None:
        """Begins rows with the outcome of the last actions.

        Args:
            rows: the newest rows, None without any; those before have been completed by
                :meth:`act`.
            episodes: episodes that ended; they are sent with the next chunk.
        """
        self._row = rows
        self._episodes += episodes
        self._patience -= 1
        if self._full and self._patience < 0:
            self._send_full()
        if rows is None or not self._overlap or not self._columns:
            return
        full = self._counts[rows.streams] == self._length
        if full.any():
            streams = rows.streams[full]
            self._write_end(rows, full)
            self._cut_full(streams, self._length + 1)

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
        leaves = {**_leaves(rows), "action": actions, **extras}
        leaves["version"] = np.full(len(rows.streams), version)
        self._write(rows.streams, leaves)
        if self._overlap:
            return
        full = self._counts[rows.streams] == self._length
        if full.any():
            self._cut_full(rows.streams[full], self._length)

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

    def _write_end(self, rows: Rows, chosen: npt.NDArray[np.bool_]) -> None:
        """Writes rows at which no action was taken: action and extras are zero."""
        leaves = {name: leaf[chosen] for name, leaf in _leaves(rows).items()}
        count = int(np.count_nonzero(chosen))
        for name, column in self._columns.items():
            if name not in leaves:
                leaves[name] = np.zeros((count, *column.shape[2:]), column.dtype)
        streams = rows.streams[chosen]
        # The version of the row before: no action was taken at this one.
        leaves["version"] = self._columns["version"][self._counts[streams] - 1, streams]
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
                self._write_end(rows, waiting)
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
        self._full.append((self._take(streams, rows), self._ids[streams].tolist()))
        if self._patience <= 0 or sum(len(ids) for _, ids in self._full) == len(self._counts):
            self._send_full()

    def _send_full(self) -> None:
        if not self._full:
            return
        parts = [columns for columns, _ in self._full]
        ids = [each for _, ids in self._full for each in ids]
        self._full = []
        columns = {name: np.concatenate([p[name] for p in parts], axis=1) for name in parts[0]}
        self._send_chunk(columns, ids)

    def _cut(self, streams: Indices, rows: int, *, tail: bool = False) -> None:
        self._send_chunk(self._take(streams, rows), self._ids[streams].tolist(), tail=tail)

    def _take(self, streams: Indices, rows: int) -> dict[str, Array]:
        self._counts[streams] = 0
        return {name: each[:rows].take(streams, axis=1) for name, each in self._columns.items()}

    def _send_chunk(self, columns: dict[str, Array], ids: list[int], *, tail: bool = False) -> None:
        first, steps = columns.pop("first"), columns.pop("steps")
        columns = encode_ends(columns, first)
        self._checks.check(columns, first)
        overlap = max(len(steps) - self._length, 0)
        chunk = Chunk(columns, 0, ids, tail=tail, overlap=overlap)
        chunk.finished, self._episodes = self._episodes, []
        chunk.env_steps = int(steps[: chunk.length].sum())
        chunk.stamps = {"first": self._first_at}
        self._send(chunk)


def _own(count: int) -> dict[str, Layout]:
    """Returns the layout of the columns that only this writer has."""
    numbers = dict.fromkeys(("steps", "version"), Layout(np.dtype(np.int64), (count,)))
    return {**numbers, "first": Layout(np.dtype(np.bool_), (count,))}


def _leaves(rows: Rows) -> dict[str, Array]:
    obs: Nest = rows.obs
    parts = {"obs": obs} if type(obs) is np.ndarray else nest.flatten(obs, "obs")
    flags = {"terminated": rows.terminated, "truncated": rows.truncated, "first": rows.first}
    return {**parts, "reward": rows.reward, "steps": rows.steps, **flags}
