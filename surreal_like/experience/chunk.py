"""Chunk, the unit of experience on the wire: a block of T consecutive rows of N streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np

from session.errors import DecodeError
from session.nest import Array
from session.wire import Message
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    STEPS_LIMIT,
    Count,
    Counts,
    Fields,
    Flag,
    ListOf,
    MapOf,
    Name,
    Number,
    Optional,
    Schema,
    Text,
)
from surreal_like.data.columns import GRADIENT as _GRADIENT
from surreal_like.data.timestep import FIRST
from surreal_like.errors import DataError

REQUIRED_COLUMNS: Mapping[str, type[np.generic]] = {
    "step_type": np.uint8,
    "reward": np.float32,
    "discount": np.float32,
    "version": np.int64,
}
LEAD_IN = "lead_in/"
# Column of a chunk that holds, in place of an unroll, the gradient that its agent has made of it.
GRADIENT = f"extras/{_GRADIENT}"
_STREAMS = 1 << 16
_OWN_NUMBERS = 1000
_NAME_CHARACTERS = 300
# Most environment steps of a row: between two turns of an agent the others take theirs.
_STEPS_PER_ROW = 100

# Episodes of a chunk that are checked together; a few are checked one by one in less time.
_MANY = 32
_RETURN, _LENGTH, _METRICS = map(itemgetter, ("return", "length", "metrics"))

_EPISODE = {
    "return": Number(),
    "length": Count(most=STEPS_LIMIT),
    # A metric of an environment may be NaN or infinite.
    "metrics": MapOf(Text(_NAME_CHARACTERS), Number(finite=False), _OWN_NUMBERS),
}
# Summaries of episodes, as :class:`surreal_like.data.episodes.EpisodeCounter` makes them.
EPISODES = ListOf(Fields(_EPISODE), _STREAMS)
# The same as replay passes them on; it marks those of joined machines.
MARKED_EPISODES = ListOf(Fields({**_EPISODE, "guest": Optional(Flag())}), _STREAMS)


def _are_plain(finished: list[dict[str, Any]]) -> bool:
    """Returns True for summaries that fit and have no metrics, in a third of the time."""
    if len(finished) > _STREAMS or any(map(_METRICS, finished)):
        return False
    returns, lengths = list(map(_RETURN, finished)), list(map(_LENGTH, finished))
    typed = set(map(type, returns)) == {float} and set(map(type, lengths)) == {int}
    counted = typed and min(lengths) >= 0 and max(lengths) <= STEPS_LIMIT
    return counted and bool(np.isfinite(returns).all()) and set(map(len, finished)) == {3}


def check_episodes(finished: list[dict[str, Any]]) -> None:
    """Raises DataError for summaries because of which replay would refuse a chunk."""
    if len(finished) >= _MANY and _are_plain(finished):
        return
    if EPISODES.fits(finished):
        return
    wrong = next((each for each in finished if not EPISODES.fits([each])), finished[0])
    names = wrong["metrics"]
    longest = max(map(len, names), default=0)
    raise DataError(
        f"an episode ended with a return of {wrong['return']} and {len(names)} numbers of its own "
        f"(info['metrics'] and update_tensorplex), whose names have up to {longest} characters; "
        f"expected a finite return, at most {_OWN_NUMBERS} numbers and {_NAME_CHARACTERS} "
        "characters"
    )


STAMPS = ("first", "stepped", "cut", "boot", "sent")
_COUNTED = {
    "seq": Count(1),
    "rows": Count(),
    "env_steps": Count(most=STEPS_LIMIT),
    "episodes": Count(most=STEPS_LIMIT),
}
_ACKED = {
    "acked": Optional(Count()),
    "acked_rows": Optional(Count()),
    "filled": Optional(Number(0.0)),
}
CHUNK = Schema(
    {
        **_COUNTED,
        "streams": Counts(_STREAMS),
        "policy": Name(),
        "finished": EPISODES,
        "tail": Flag(),
        "overlap": Count(0, 1),
        **{name: replace(each, optional=False) for name, each in _ACKED.items()},
        "stamps": Fields({name: Optional(Number()) for name in STAMPS}),
    },
    arrays=None,
    header_bytes=LARGE_HEADER_BYTES,
)
# Sent like a chunk, with the same fields on its sender.
GOODBYE = Schema({**_COUNTED, **_ACKED})


@dataclass(slots=True)
class Chunk:
    """T consecutive rows of each of an agent's N streams.

    Args:
        columns: name -> array ``[T, N, ...]``: ``step_type`` uint8, ``reward`` and ``discount``
            float32 (of the action before the row), ``version`` int64 (of the parameters it was
            acted with), ``obs`` or ``obs/...``, ``action`` or ``action/...``, ``extras/...``.
        sequence: 1, 2, 3, ... of this sender incarnation; 0 until its sender has numbered it.
        streams: one id per stream, ``[N]``, never reused by this incarnation after a cut.
        sender: agent name.
        incarnation: the agent's.
        policy: name of the policy that acted.
        rows: rows that the sender has cut into chunks so far, this chunk included.
        env_steps: environment steps of the sender so far.
        episodes: episodes that ended at the sender so far.
        finished: summaries of the episodes that ended in this chunk.
        tail: True if the last row of each stream has no action yet, and none will follow.
        overlap: rows at the end that the next chunk begins with, and counts: 1 in an unroll.
        lead_in: frames before the first row of an unroll whose observations are used in stacks of
            k, by column: ``[k-1, N, ...]``; they count in an earlier chunk. Where an episode begins
            less than k-1 rows before, its first frame is repeated.
        acked: highest number for which the sender has received an ack, from any replay.
        acked_rows: the sender's row count at that number.
        filled: unacked data of its sender as a share of its window; at 1 the sender waits.
        stamps: times of a traced chunk [s]: ``first``, ``cut``, ``sent``, and ``stepped``, which is
            ``first`` plus the time in its environments; empty if not traced.
        account: place of the sender in the ledger of the shard that has received it.
        joined: True if its sender is on a machine that has joined, as that shard says.
        steps: environment steps that are new in it, as that shard has counted them.
    """

    columns: Mapping[str, Array]
    sequence: int
    streams: list[int]
    sender: str = ""
    incarnation: int = 0
    policy: str = "default"
    rows: int = 0
    env_steps: int = 0
    episodes: int = 0
    finished: list[dict[str, Any]] = field(default_factory=list)
    tail: bool = False
    overlap: int = 0
    lead_in: Mapping[str, Array] = field(default_factory=dict)
    acked: int = 0
    acked_rows: int = 0
    filled: float = 0.0
    stamps: dict[str, float] = field(default_factory=dict)
    account: int = -1
    joined: bool = False
    steps: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """``(T, N)``."""
        length, streams = self.columns["step_type"].shape[:2]
        return length, streams

    @property
    def length(self) -> int:
        """Rows of each stream that count in this chunk, without those of the overlap."""
        return len(self.columns["step_type"]) - self.overlap

    @property
    def size(self) -> int:
        """Number of rows that count in this chunk, without those of the overlap."""
        return self.length * self.shape[1]

    def parts(self, streams: int) -> Iterator[Chunk]:
        """Yields chunks of so many of its streams each, whose columns are views."""
        total = self.shape[1]
        if total <= streams:
            yield self
            return
        for begin in range(0, total, streams):
            end = min(begin + streams, total)
            part = slice(begin, end)
            yield replace(
                self,
                columns={name: column[:, part] for name, column in self.columns.items()},
                streams=self.streams[part],
                lead_in={name: lead[:, part] for name, lead in self.lead_in.items()},
                steps=self.steps * end // total - self.steps * begin // total,
            )

    def count_steps(self) -> int:
        """Returns the environment steps in this chunk; a FIRST row is none."""
        return int(np.count_nonzero(self.columns["step_type"][: self.length] != FIRST))

    @property
    def size_bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def arrays(self) -> Mapping[str, Array]:
        """All columns, and the lead-in frames as ``lead_in/<column>``."""
        if not self.lead_in:
            return self.columns
        return {**self.columns, **{LEAD_IN + name: lead for name, lead in self.lead_in.items()}}

    def to_message(self) -> Message:
        """Returns the chunk as a message; sender and incarnation are the message's identity."""
        fields = {
            "seq": self.sequence,
            "streams": self.streams,
            "policy": self.policy,
            "rows": self.rows,
            "env_steps": self.env_steps,
            "episodes": self.episodes,
            "finished": self.finished,
            "tail": self.tail,
            "overlap": self.overlap,
            "acked": self.acked,
            "acked_rows": self.acked_rows,
            "filled": self.filled,
            "stamps": self.stamps,
        }
        return Message("chunk", fields, self.arrays)

    @classmethod
    def from_message(cls, message: Message) -> Chunk:
        """Returns the chunk of a message.

        Args:
            message: one that fits :data:`CHUNK`.

        Raises:
            DecodeError: a column is missing or has a wrong type or shape, or a number contradicts
                the columns.
        """
        chunk = cls._of(message, *_part_lead_in(message.arrays))
        columns, lead_in = chunk.columns, chunk.lead_in
        for name, dtype in REQUIRED_COLUMNS.items():
            if name not in columns or columns[name].dtype != dtype:
                raise DecodeError(f"chunk without a column '{name}' of {np.dtype(dtype)}")
        shape = columns["step_type"].shape
        if len(shape) != 2 or any(column.shape[:2] != shape for column in columns.values()):
            raise DecodeError(f"chunk with columns that do not all begin with [T, N] = {shape}")
        if not shape[1]:
            raise DecodeError("chunk of no stream")
        if chunk.overlap >= shape[0]:
            raise DecodeError(f"chunk of {shape[0]} rows with an overlap of {chunk.overlap}")
        if len(chunk.streams) != shape[1]:
            raise DecodeError(f"chunk of {shape[1]} streams with {len(chunk.streams)} stream ids")
        _check_lead_in(columns, lead_in, shape[1])
        return chunk

    @classmethod
    def unreadable(cls, message: Message) -> Chunk:
        """Returns a chunk without values for a message whose columns :meth:`from_message` refuses.

        Its row count is taken from the shape of the columns where they have one, else it is 0.

        Args:
            message: one that fits :data:`CHUNK`.

        Raises:
            DecodeError: its numbers contradict each other; no account can be kept of it.
        """
        columns, _ = _part_lead_in(message.arrays)
        first = [columns["step_type"]] if "step_type" in columns else []
        # Columns without bytes do not count: a shape alone is no proof that rows were received.
        known = (each for each in [*first, *columns.values()] if each.ndim >= 2 and each.nbytes)
        length, streams = next((each.shape[:2] for each in known), (0, 0))
        # A single zero, broadcast to the number of rows.
        rows = np.broadcast_to(np.uint8(0), (length, streams))
        chunk = cls._of(message, {"step_type": rows}, {})
        chunk.overlap = min(chunk.overlap, length)
        return chunk

    @classmethod
    def _of(
        cls, message: Message, columns: Mapping[str, Array], lead_in: Mapping[str, Array]
    ) -> Chunk:
        values = dict(message.fields)
        chunk = cls(columns, values.pop("seq"), lead_in=lead_in, **values)
        # A gradient is one row, of many environment steps.
        steps = 0 if GRADIENT in message.arrays else chunk.env_steps
        if not chunk.acked < chunk.sequence or not steps <= chunk.rows * _STEPS_PER_ROW:
            raise DecodeError(f"chunk {chunk.sequence} of a sender that counts wrongly")
        chunk.sender = message.sender.name
        chunk.incarnation = message.sender.incarnation
        return chunk


def _part_lead_in(arrays: Mapping[str, Array]) -> tuple[Mapping[str, Array], dict[str, Array]]:
    """Returns the columns, and the lead-in frames by the column that they belong to."""
    lead_in = {
        name.removeprefix(LEAD_IN): array
        for name, array in arrays.items()
        if name.startswith(LEAD_IN)
    }
    if not lead_in:
        return arrays, lead_in
    return {name: arrays[name] for name in arrays if not name.startswith(LEAD_IN)}, lead_in


def _check_lead_in(
    columns: Mapping[str, Array], lead_in: Mapping[str, Array], streams: int
) -> None:
    """Raises DecodeError unless all observation columns have the same number of frames."""
    if not lead_in:
        return
    observed = {name for name in columns if name.partition("/")[0] == "obs"}
    frames = next(iter(lead_in.values())).shape[:1]
    fits = lead_in.keys() == observed and all(
        lead.dtype == columns[name].dtype
        and lead.shape == (*frames, streams, *columns[name].shape[2:])
        for name, lead in lead_in.items()
    )
    if not fits:
        shapes = {name: f"{lead.dtype} {list(lead.shape)}" for name, lead in lead_in.items()}
        raise DecodeError(
            f"chunk with lead-in frames {shapes}, which do not fit its observations "
            f"{sorted(observed)} of {streams} streams"
        )


def postprocess_chunk(chunk: Chunk, postprocess: Callable[[Chunk], Chunk]) -> Chunk:
    """Returns a chunk with the columns that an agent's ``postprocess`` made of it.

    Args:
        chunk: the chunk as it was cut.
        postprocess: may replace ``reward`` and add or replace ``extras/...``; at the first row of
            an episode, before which no action was taken, the reward stays 0.

    Raises:
        DataError: another column was changed or left out, or a new one has a wrong name, shape or
            dtype, or holds a NaN; the message names it.
    """
    before = chunk.columns
    fixed = {name for name in before if name != "reward" and not name.startswith("extras/")}
    for name in fixed:
        # What is changed in place would not be noticed below.
        before[name].flags.writeable = False
    given = postprocess(chunk)
    where = "postprocess()"
    if not isinstance(given, Chunk):
        raise DataError(f"{where} returned a {type(given).__name__}, expected the chunk")
    after = given.columns
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            raise DataError(f"{where} left the column {name} out")
        column = after[name]
        if name in fixed:
            if column is not before[name]:
                raise DataError(f"{where} changed {name}; it may change reward and extras/...")
            continue
        if name != "reward" and not name.startswith("extras/"):
            raise DataError(f"{where} gave a column {name!r}: write extras/{name}")
        _check_new(f"{where}: {name}", column, chunk.shape, reward=name == "reward")
    first = after["step_type"] == FIRST
    if np.count_nonzero(after["reward"][first]):
        after = {**after, "reward": np.where(first, np.float32(0.0), after["reward"])}
    return replace(chunk, columns=after)


def _check_new(what: str, column: object, shape: tuple[int, int], *, reward: bool) -> None:
    if not isinstance(column, np.ndarray):
        raise DataError(f"{what} is a {type(column).__name__}, expected an array")
    fits = column.shape == shape if reward else column.shape[:2] == shape
    if not fits or column.dtype.kind not in "biuf" or (reward and column.dtype != np.float32):
        expected = "float32" if reward else "numbers"
        wanted = list(shape) if reward else f"[{shape[0]}, {shape[1]}, ...]"
        raise DataError(
            f"{what} is {column.dtype} {list(column.shape)}, expected {expected} {wanted}"
        )
    # As of the columns that come from the environment and from act().
    if not np.isfinite(column).all() if reward else np.isnan(column).any():
        raise DataError(f"{what} holds a NaN{' or an infinity' if reward else ''}")
