"""Writes down what a learner learns from, so that its updates can be repeated bit for bit."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from session.checkpoint import read_state, save_one
from session.errors import CheckpointError, DecodeError
from session.nest import Array
from session.process.context import Context
from session.wire import Message
from session.wire.codec import encode
from session.wire.schema import (
    LARGE_HEADER_BYTES,
    ArrayOf,
    Count,
    Counts,
    ListOf,
    Nullable,
    Number,
    Row,
    Schema,
    Text,
)
from surreal_like.addons.recording.about import describe
from surreal_like.addons.recording.check import refuse_unrepeatable
from surreal_like.addons.recording.hooks import share_limit
from surreal_like.addons.recording.journal import Journal
from surreal_like.addons.recording.segments import Kind
from surreal_like.data.batch import Batch, Columns
from surreal_like.data.policy_names import PolicyId
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Content, write_content
from surreal_like.policies.config import policy_config
from surreal_like.replay.storage import SENDER

# Batches in one record: each record takes time of the learner.
_TOGETHER = 16
_MOST_THREADS = 4096
START = Schema(
    {
        "content": Text(200),
        "threads": Count(1, _MOST_THREADS),
        "torch": Text(200),
        "cpu": Text(200),
    }
)
BATCHES = Schema(
    {
        **dict.fromkeys(
            (
                *("iterations", "env_steps", "marks"),
                *("shards", "incarnations", "rows", "cuts", "checksums"),
            ),
            Counts(_TOGETHER),
        ),
        "returns": ListOf(Nullable(Row(Number(0.0), Number(), Number(0.0))), _TOGETHER),
    },
    {
        # How far the first rows lie behind the next row.
        "ages": ArrayOf("uint32", shape=(None, None)),
        "weights": ArrayOf("float32", shape=(None, None), optional=True),
        "replayed": ArrayOf("bool", shape=(None, None), optional=True),
    },
    header_bytes=LARGE_HEADER_BYTES,
)
HASH = Schema({"hash": Text(64)})
_ARRAYS = ("indices", "weights", "replayed")
_NONE = np.zeros(0, np.bool_)
# Of a larger batch each so many frames are in the checksum.
_WHOLE_BYTES, _FRAMES = 1 << 20, 16
_DIGITS = 32
# Parameters in a mark, of each end.
_MARKED = 32


def folder_of(recording: Path, policy: str) -> Path:
    """Returns the folder of a learner's journal, below that of the recording."""
    return recording / f"learner{PolicyId(policy).add('-{}')}"


class Taken(NamedTuple):
    """A batch that a learner has taken.

    Args:
        iterations: updates before it.
        env_steps: environment steps by which schedules go.
        marks: see :func:`mark_of`; before its update.
        shards: number of the shard that drew it.
        incarnations: incarnation of that.
        rows, cuts: number of the next row there, and of roll-backs before it, at the draw.
        checksums: see :func:`checksum_of`.
        returns: moments of returns, where rewards are normalized.
        indices: numbers of the first rows, ``[B]``; of unrolls one each, as inserted.
        weights: weights of the samples, ``[B]``; of unrolls 1 each.
        replayed: flags of the samples that were drawn before, ``[streams]``; empty without a queue.
    """

    iterations: int
    env_steps: int
    marks: int
    shards: int
    incarnations: int
    rows: int
    cuts: int
    checksums: int
    returns: Sequence[float] | None
    indices: Array
    weights: Array
    replayed: Array


class Flight:
    """The journal of a learner: where it began, each batch that it took, and hashes on the way.

    Args:
        context: context of the process.
        learner: the learner, with the state that it has restored.
        hash_every: updates between two hashes.
        limit_bytes: most bytes of its segments.
    """

    def __init__(
        self, context: Context, learner: Learner, *, hash_every: int, limit_bytes: float
    ) -> None:
        assert context.folder is not None  # the hook has looked
        policy = learner.policy_name
        self._context, self._learner, self._hash_every = context, learner, hash_every
        self._folder = folder_of(context.folder.recording, policy)
        self._journal = Journal(
            context,
            self._folder,
            describe(policy_config(context.config, policy), policy),
            limit_bytes=limit_bytes,
            unit="update",
        )
        self._begun = False
        self._hashed = -1
        # Those that are not in the journal yet.
        self._taken: list[Taken] = []

    def on_batch(self, batch: Batch) -> None:
        """Writes down a batch that will be learned from."""
        sampled, learner, taken = batch.origin, self._learner, self._taken
        if self._journal.stopped or sampled.place is None:
            return
        iteration = learner.iteration
        if not self._begun:
            self._begin()
        if iteration % self._hash_every == 0 and iteration != self._hashed:
            self._put_hash()
        columns, (rows, cuts, unrolls) = sampled.columns, sampled.place
        indices = np.array(unrolls, np.int64) if unrolls else columns["indices"].copy()
        weights = columns.get("weights")
        if len(taken) == _TOGETHER or (taken and len(taken[0].indices) != len(indices)):
            self._put_batches()
        taken.append(
            Taken(
                iteration,
                learner.env_steps,
                mark_of(learner),
                sampled.shard,
                sampled.incarnation,
                rows,
                cuts,
                checksum_of(columns),
                sampled.returns,
                indices,
                np.ones(len(indices), np.float32) if weights is None else weights.copy(),
                columns.get("replayed", _NONE).copy(),
            )
        )

    def _put_batches(self) -> None:
        if not self._taken:
            return
        self._journal.number = self._taken[0].iterations
        self._journal.put(Kind.BATCHES, encode(_message(self._taken)))
        self._journal.report()
        self._taken.clear()

    def _begin(self) -> None:
        """Writes the state from which the updates begin."""
        self._begun = True
        self._journal.number = self._learner.iteration
        content = f"{self._context.incarnation}"
        try:
            write_start(self._learner, self._folder / content)
        except CheckpointError as error:
            self._context.event("checkpoint_failed", str(error))
        fields = {"content": content, **machine()}
        self._journal.put(Kind.START, encode(Message("start", fields)))

    def _put_hash(self) -> None:
        self._put_batches()
        self._hashed = self._journal.number = self._learner.iteration
        fields = {"hash": hash_of(self._learner)}
        self._journal.put(Kind.HASH, encode(Message("hash", fields)))

    def close(self) -> None:
        """Writes the hash of the end, and what waits."""
        if self._begun and self._learner.iteration != self._hashed:
            self._put_hash()
        self._journal.close()


def machine() -> dict[str, Any]:
    """Returns what the results of torch depend on, besides its input."""
    return {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _message(taken: Sequence[Taken]) -> Message:
    columns = list(zip(*taken, strict=True))
    fields = dict(zip(Taken._fields, map(list, columns), strict=True))
    indices, weights, replayed = (np.stack(fields.pop(name)) for name in _ARRAYS)
    arrays = {"ages": (np.array(fields["rows"])[:, None] - indices).astype(np.uint32)}
    if (weights != 1.0).any():
        arrays["weights"] = weights
    if replayed.size:
        arrays["replayed"] = replayed
    fields["returns"] = [each if each is None else list(each) for each in fields["returns"]]
    return Message("batches", fields, arrays)


def batches_of(message: Message) -> Iterator[Taken]:
    """Yields the batches of a record that fits :data:`BATCHES`.

    Raises:
        DecodeError: its parts are of different lengths.
    """
    fields, ages = message.fields, message.arrays["ages"]
    weights = message.arrays.get("weights", np.ones(ages.shape, np.float32))
    replayed = message.arrays.get("replayed", np.zeros((len(ages), 0), np.bool_))
    columns = [fields[name] for name in Taken._fields if name not in _ARRAYS]
    if len({len(each) for each in (*columns, ages, weights, replayed)}) > 1:
        raise DecodeError("its parts are of different lengths")
    indices = np.array(fields["rows"], np.int64)[:, None] - ages
    yield from map(Taken._make, zip(*columns, indices, weights, replayed, strict=True))


def checksum_of(columns: Columns) -> int:
    """Returns the CRC-32 of a batch; of large columns only some rows are in it."""
    parts = [
        column if column.nbytes <= _WHOLE_BYTES else np.ascontiguousarray(column[::_FRAMES])
        for name, column in sorted(columns.items())
        if name != SENDER
    ]
    try:
        return zlib.crc32(b"".join([part.data for part in parts]))
    except BufferError:
        return zlib.crc32(b"".join([part.tobytes() for part in parts]))


def mark_of(learner: Learner) -> int:
    """Returns the CRC-32 of some parameters of each optimizer, the first and the last ones.

    Nearly each difference in learning changes it at once, and it takes no time. It is 0 on a GPU,
    for which learning would have to wait.
    """
    if learner.device.type != "cpu":
        return 0
    mark = 0
    for optimizer in learner.optimizers.values():
        flat: Array = optimizer.parameters.numpy()
        mark = zlib.crc32(flat[-_MARKED:].data, zlib.crc32(flat[:_MARKED].data, mark))
    return mark


def hash_of(learner: Learner) -> str:
    """Returns a hash of all parameters, and of what a checkpoint has beside them."""
    digest = hashlib.sha256()
    for name, array in tensors_of(learner):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:_DIGITS]


def tensors_of(learner: Learner) -> Iterator[tuple[str, Array]]:
    """Yields the tensors of a learner's parameters and optimizers by name, in a fixed order."""
    content = Content.of(learner)
    for name in sorted(content.tensors):
        yield name, content.tensors[name].cpu().numpy()
    yield from _arrays("", content.rest["saveables"])


def _arrays(name: str, state: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(state, torch.Tensor):
        yield name, state.detach().cpu().numpy()
    elif isinstance(state, Mapping):
        for key in sorted(state, key=str):
            yield from _arrays(f"{name}/{key}".removeprefix("/"), state[key])
    elif isinstance(state, list | tuple):
        for index, each in enumerate(state):
            yield from _arrays(f"{name}/{index}", each)
    elif isinstance(state, int | float):
        yield name, np.array(state)


def write_start(learner: Learner, folder: Path) -> None:
    """Writes the state of a learner into a new folder.

    Raises:
        CheckpointError: the disk reported an error.
    """
    numbers = {"iteration": learner.iteration, "env_steps": learner.env_steps}
    save_one(folder, numbers, partial(write_content, learner))


def read_start(learner: Learner, folder: Path) -> None:
    """Restores what :func:`write_start` has written, or a checkpoint of the run.

    Raises:
        CheckpointError: it is damaged, or does not fit.
    """
    numbers = read_state(folder)
    Content.read(learner, folder).give(learner)
    learner.iteration, learner.env_steps = numbers["iteration"], numbers["env_steps"]


def make_flight(context: Context, learner: Learner) -> Flight | None:
    """Returns what writes down the batches of a learner, or None if nothing is to be."""
    session: Any = context.config.session_config
    if session.flight.keep == "none" or context.folder is None:
        return None
    refuse_unrepeatable(policy_config(context.config, learner.policy_name))
    return Flight(
        context,
        learner,
        hash_every=session.flight.hash_every,
        limit_bytes=share_limit(context),
    )
