"""Samples of single chunks, without a replay server; a replay of one namedtuple per transition.

:class:`TupleReplay` is a simple but slow base for an author's own replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from session import nest
from session.config import Config
from session.nest import Array
from surreal_like.data.batch import Collate, Columns
from surreal_like.data.casts import cast
from surreal_like.data.columns import Manifest, manifest_of, recorded_columns
from surreal_like.data.frames import stack_size
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.replay import Replay, load_replay_class, to_columns
from surreal_like.replay.select.selector import Sample
from surreal_like.replay.storage import ColumnStorage, Rows
from surreal_like.replay.table import Table
from surreal_like.replay.unrolls import BlockStorage
from surreal_like.replay.view.n_step import View, make_n_step_view
from surreal_like.replay.view.unroll import Stacker, make_unroll_view

# Fields that every batch needs.
_NEEDED = ("obs", "obs_next", "actions", "rewards", "dones")


class ExpTuple(NamedTuple):
    """One transition, over ``learner_config.algo.n_step`` steps or fewer.

    Attributes:
        obs: the pair (obs, obs_next), nests of arrays without a batch axis.
        action: nest of arrays.
        reward: discounted sum of the rewards.
        done: True if it ends in a termination; a time limit does not end the value of obs_next.
        info: ``discount`` (factor of the value of obs_next, gamma included), ``terminated``,
            ``truncated``, ``version`` (of the parameters it was acted with), ``extras``.
    """

    obs: tuple[Any, Any]
    action: Any
    reward: float
    done: bool
    info: dict[str, Any]


class TupleReplay(Replay):
    """Base of a replay that keeps :class:`ExpTuple` in a structure of its own.

    An author overrides ``insert(exp_tuple)`` and ``sample(batch_size) -> list[ExpTuple]``, and
    where it matters ``aggregate_batch(list)``, ``evict`` and ``start_sample_condition``. ``sample``
    is called once for each batch, with ``learner_config.replay.batch_size``.
    """

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        self._gamma = float(learner_config["algo"]["gamma"])
        self._n_step_view = make_n_step_view(learner_config, env_config)
        self._sender_rows = SenderRows(self._n_step_view, recorded_columns(learner_config))

    def insert_chunk(self, chunk: Chunk) -> None:
        """Calls ``insert`` with each transition that the chunk completes."""
        for exp_tuple in self._make_tuples(*self._sender_rows.complete(chunk)):
            self.insert(exp_tuple)

    def _make_tuples(self, storage: ColumnStorage, numbers: Rows) -> Iterator[ExpTuple]:
        columns = self._n_step_view.gather(storage, numbers)
        transitions = self._n_step_view.transitions(storage, numbers)
        for i in range(len(numbers)):
            row = {name: column[i] for name, column in columns.items()}
            info = {
                "discount": float(row["discounts"]),
                "terminated": bool(transitions.terminated[i]),
                "truncated": bool(transitions.ended[i] & ~transitions.terminated[i]),
                "version": int(row["version"]),
                "extras": nest.unflatten(row, "extras"),
            }
            yield ExpTuple(
                (nest.unflatten(row, "obs"), nest.unflatten(row, "obs_next")),
                nest.unflatten(row, "actions"),
                float(row["rewards"]),
                info["terminated"],
                info,
            )

    def aggregate_batch(self, sample: Sequence[Any]) -> dict[str, Any]:
        """Returns the batch of some tuples: nests of numpy arrays ``[B, ...]``."""
        infos = [one.info for one in sample]
        return {
            "obs": nest.stack([one.obs[0] for one in sample]),
            "obs_next": nest.stack([one.obs[1] for one in sample]),
            "actions": nest.stack([one.action for one in sample]),
            "rewards": cast("rewards", [one.reward for one in sample], np.float32),
            "dones": cast("dones", [one.done for one in sample], np.float32),
            **{name: make(infos) for name, make in _OF_INFOS.items()},
        }

    def batches_at_once(self, asked: int) -> int:
        """One, so that each call of ``sample`` is for the rows of one batch."""
        return 1

    def sample_columns(self, batch_size: int) -> dict[str, Array]:
        """Returns one batch for the wire; adds fields that ``aggregate_batch`` left out.

        Raises:
            DataError: a field was left out that cannot be derived.
        """
        sample = self.sample(batch_size)
        columns = to_columns(self.aggregate_batch(sample))
        roots = {name.partition("/")[0] for name in columns}
        missing = [name for name in _NEEDED if name not in roots]
        if missing:
            raise DataError(f"{type(self).__name__}.aggregate_batch() left {missing[0]!r} out")
        rows = len(columns["rewards"])
        columns.setdefault("weights", np.ones(rows, np.float32))
        columns.setdefault("indices", np.full(rows, -1, np.int64))
        infos = self._infos(sample, rows)
        if infos is not None:
            left_out = {name: make(infos) for name, make in _OF_INFOS.items() if name not in roots}
            return columns | to_columns(left_out)
        if "discounts" not in roots:
            columns["discounts"] = self._discounts(columns["dones"])
        columns.setdefault("version", np.full(rows, self.newest_version, np.int64))
        return columns

    def _infos(self, sample: Any, rows: int) -> list[dict[str, Any]] | None:
        """Returns ``info`` of each row; None unless the sample has one tuple for each row."""
        known = isinstance(sample, Sequence) and len(sample) == rows
        if not known or not all(isinstance(one, ExpTuple) for one in sample):
            return None
        return [one.info for one in sample]

    def _discounts(self, dones: Array) -> Array:
        if self._n_step_view.n > 1:
            raise DataError(
                f"{type(self).__name__}.aggregate_batch() left 'discounts' out: with n_step > 1 "
                "they differ from row to row; take them from info['discount']"
            )
        return (self._gamma * (1.0 - dones)).astype(np.float32)


# Column or nest of a batch -> makes it of the `info` of its tuples.
_OF_INFOS: Mapping[str, Callable[[Sequence[Mapping[str, Any]]], Any]] = {
    "discounts": lambda infos: cast("discount", [one["discount"] for one in infos], np.float32),
    "version": lambda infos: cast("version", [one["version"] for one in infos], np.int64),
    "extras": lambda infos: nest.stack([one["extras"] for one in infos]),
}


class SenderRows:
    """Keeps the newest rows of each sender, of which its next chunk may complete samples.

    Args:
        view: makes samples.
        manifest: columns of a row; None: those of the first chunk.
    """

    def __init__(self, view: View, manifest: Manifest | None = None) -> None:
        self._view = view
        self._manifest = manifest
        # Sender -> incarnation and number of its newest chunk, and the rows.
        self._senders: dict[str, tuple[tuple[int, int], ColumnStorage]] = {}

    def complete(self, chunk: Chunk) -> tuple[ColumnStorage, Rows]:
        """Adds a chunk; returns where its rows are, and the first rows of the completed samples."""
        self._view.check(chunk)
        steps, streams = chunk.shape
        room, order = (steps + self._view.waiting) * streams, (chunk.incarnation, chunk.sequence)
        newest, storage = self._senders.get(chunk.sender, (None, None))
        late = newest is not None and order <= newest
        if storage is None or late or storage.capacity < room:
            larger = ColumnStorage(room, manifest=self._manifest)
            if storage is not None and not late:
                larger.restore(storage.state())
            storage = larger
        starts = find_complete(self._view, storage, chunk)
        if not late:  # a chunk that comes late stays alone
            self._senders[chunk.sender] = order, storage
        self._manifest = manifest_of(chunk.columns, axes=2)
        return storage, starts


def find_complete(view: View, storage: ColumnStorage, chunk: Chunk) -> Rows:
    """Stores a chunk; returns the first rows of the samples that it completes, in their order."""
    numbers = storage.insert(chunk)
    ready, earlier = view.ready(storage, numbers, chunk.columns["step_type"])
    return np.sort(np.concatenate((earlier, numbers[ready])))


class ChunkSamples:
    """Makes the batch of the samples that a chunk has completed, in the order of the steps.

    Args:
        learner_config: config of the experiment; its replay defines what a sample is. Where that
            is a gradient, it is the unroll that the gradient is made of.
        env_config: config of the experiment.
        continues: whether chunks continue each other, so that samples may begin in one and end in a
            later one; otherwise the samples of each chunk are whole.
    """

    def __init__(
        self, learner_config: Config, env_config: Config, *, continues: bool = False
    ) -> None:
        self._configs = learner_config, env_config
        self._kind = kind = load_replay_class(learner_config)
        self._unrolls = bool(kind.overlap)
        self._collate: Collate = Stacker() if self._unrolls else kind.collate(learner_config)
        self._frames = stack_size(env_config) - 1
        self._rows: SenderRows | None = None
        if continues and not self._unrolls:
            self._view = self._make_view((0, 0))
            self._rows = SenderRows(self._view)

    def __call__(self, chunk: Chunk) -> Columns:
        """Returns the columns of a batch, in memory of its own; none if no sample is complete."""
        if self._rows is None:
            whole = self._complete(chunk)
            if not whole.length:
                # The only step of an unroll has failed.
                return {}
            storage, starts = self._store_alone(whole)
        else:
            storage, starts = self._rows.complete(chunk)
        if not len(starts):
            return {}
        columns = next(iter(self._collate(self._view.gather(storage, starts), 1)))
        return dict(columns) if self._unrolls else {**columns, **Sample.of(starts).columns}

    def _store_alone(self, chunk: Chunk) -> tuple[ColumnStorage, Rows]:
        rows, streams = chunk.shape
        self._view = self._make_view((rows - 1, streams))
        size, lead = rows * streams, self._frames * streams
        storage = BlockStorage(lead + size, lead) if self._unrolls else ColumnStorage(size)
        return storage, find_complete(self._view, storage, chunk)

    def _make_view(self, shape: tuple[int, int]) -> View:
        """Makes the view of chunks of T steps of N streams; goals stay those of the rows."""
        if self._unrolls:
            return make_unroll_view(*self._configs, shape)
        if issubclass(self._kind, Table):
            return self._kind.make_view(*self._configs, shape)
        return make_n_step_view(*self._configs)

    def _complete(self, chunk: Chunk) -> Chunk:
        """Returns rows that end otherwise as an unroll; one is returned as it is.

        The first frame of a whole episode takes the place of earlier ones.
        """
        if not self._unrolls or chunk.overlap:
            return chunk
        lead = {
            name: np.repeat(column[:1], self._frames, axis=0)
            for name, column in chunk.columns.items()
            if self._frames and name.partition("/")[0] == "obs"
        }
        return replace(chunk, overlap=1, lead_in=chunk.lead_in or lead)
