"""Samples of single chunks, without a replay server; a replay of one namedtuple per transition.

:class:`TupleReplay` is a simple but slow base for an author's own replay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session import nest
from session.config import Config
from session.nest import Array
from surreal_like.data.batch import Collate, Columns
from surreal_like.data.casts import cast
from surreal_like.data.frames import stack_size
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.base import Replay, load_replay_class, to_columns
from surreal_like.replay.select.selector import Sample
from surreal_like.replay.storage import (
    BlockStorage,
    ColumnStorage,
    Manifest,
    check_chunk,
    manifest_of,
)
from surreal_like.replay.table import Table
from surreal_like.replay.view.n_step import NStepView, View, make_n_step_view
from surreal_like.replay.view.sequence import Stacker, make_unroll_view

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
        self._cutter = Cutter(make_n_step_view(learner_config, env_config))

    def insert_chunk(self, chunk: Chunk) -> None:
        """Calls ``insert`` with each transition that the chunk completes."""
        for exp_tuple in self._cutter.cut(chunk):
            self.insert(exp_tuple)

    def aggregate_batch(self, sample: Sequence[Any]) -> dict[str, Any]:
        """Returns the batch of some tuples: nests of numpy arrays ``[B, ...]``."""
        infos = [one.info for one in sample]
        return {
            "obs": nest.stack([one.obs[0] for one in sample]),
            "obs_next": nest.stack([one.obs[1] for one in sample]),
            "actions": nest.stack([one.action for one in sample]),
            "rewards": cast("rewards", [one.reward for one in sample], np.float32),
            "dones": cast("dones", [one.done for one in sample], np.float32),
            "discounts": _of_infos("discount", infos, np.float32),
            "version": _of_infos("version", infos, np.int64),
            "extras": nest.stack([info["extras"] for info in infos]),
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
        self._fill(columns, roots, self._infos(sample, rows))
        return columns

    def _infos(self, sample: Any, rows: int) -> list[dict[str, Any]] | None:
        """Returns ``info`` of each row; None unless the sample has one tuple for each row."""
        known = isinstance(sample, Sequence) and len(sample) == rows
        if not known or not all(isinstance(one, ExpTuple) for one in sample):
            return None
        return [one.info for one in sample]

    def _fill(
        self, columns: dict[str, Array], roots: set[str], infos: list[dict[str, Any]] | None
    ) -> None:
        """Adds ``discounts``, ``version`` and ``extras`` if they were left out."""
        rows = len(columns["rewards"])
        if "discounts" not in roots:
            columns["discounts"] = self._discounts(columns["dones"], infos)
        if infos is None:
            columns.setdefault("version", np.full(rows, self.newest_version, np.int64))
            return
        if "version" not in roots:
            columns["version"] = _of_infos("version", infos, np.int64)
        if "extras" not in roots:
            columns |= to_columns({"extras": nest.stack([info["extras"] for info in infos])})

    def _discounts(self, dones: Array, infos: list[dict[str, Any]] | None) -> Array:
        if infos is not None:
            return _of_infos("discount", infos, np.float32)
        if self._cutter.view.n > 1:
            raise DataError(
                f"{type(self).__name__}.aggregate_batch() left 'discounts' out: with n_step > 1 "
                "they differ from row to row; take them from info['discount']"
            )
        return (self._gamma * (1.0 - dones)).astype(np.float32)


def _of_infos(key: str, infos: Sequence[Mapping[str, Any]], dtype: type[np.generic]) -> Array:
    return cast(key, [info[key] for info in infos], dtype)


@dataclass(frozen=True, slots=True)
class _Carry:
    """Newest rows of one sender, which the next chunk may complete."""

    header: Chunk
    columns: Mapping[str, Array]
    done: npt.NDArray[np.bool_]


class Cutter:
    """Cuts chunks into transitions, which may begin in one chunk and end in another.

    Args:
        view: defines a transition.
    """

    def __init__(self, view: NStepView) -> None:
        self.view = view
        self._manifest: Manifest | None = None
        self._carries: dict[str, _Carry] = {}

    def cut(self, chunk: Chunk) -> Iterator[ExpTuple]:
        """Returns the transitions that the chunk completes, in order of time."""
        self.view.check(chunk)
        _, streams = check_chunk(chunk, self._manifest)
        self._manifest = manifest_of(chunk.columns, axes=2)
        columns, done = dict(chunk.columns), np.zeros((0, streams), np.bool_)
        carry = self._carries.get(chunk.sender)
        if carry is not None and _follows(chunk, carry.header):
            done = carry.done
            for name, column in columns.items():
                columns[name] = np.concatenate([carry.columns[name], column])
        storage = ColumnStorage(columns["step_type"].size)
        numbers = storage.insert(replace(chunk, columns=columns))
        ready, _ = self.view.ready(storage, numbers, columns["step_type"])
        fresh = ready.copy()
        fresh[: len(done)] &= ~done
        if carry is None or _order(chunk) > _order(carry.header):  # else it came late, stays alone
            self._carries[chunk.sender] = _carry(chunk, columns, ready, self.view.waiting)
        return self._tuples(storage, numbers[fresh])

    def _tuples(self, storage: ColumnStorage, numbers: npt.NDArray[np.int64]) -> Iterator[ExpTuple]:
        columns = self.view.gather(storage, numbers)
        transitions = self.view.transitions(storage, numbers)
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


def _carry(
    chunk: Chunk, columns: Mapping[str, Array], done: npt.NDArray[np.bool_], rows: int
) -> _Carry:
    newest = {name: column[-rows:].copy() for name, column in columns.items()}
    return _Carry(replace(chunk, columns={}), newest, done[-rows:].copy())


def _order(chunk: Chunk) -> tuple[int, int]:
    return (chunk.incarnation, chunk.sequence)


def _follows(chunk: Chunk, header: Chunk) -> bool:
    return (
        not header.tail
        and chunk.incarnation == header.incarnation
        and chunk.sequence == header.sequence + 1
        and list(chunk.streams) == list(header.streams)
    )


class ChunkSamples:
    """Makes the batch of the samples that a chunk has completed, in the order of the steps.

    Args:
        learner_config: config of the experiment; its replay defines what a sample is. Where that
            is a gradient, it is the unroll that the gradient is made of.
        env_config: config of the experiment.
        steps: number of steps of each chunk, where chunks continue each other and samples may begin
            in one and end in a later one; 0: the samples of each chunk are whole.
        streams: number of streams of each chunk.
    """

    def __init__(
        self, learner_config: Config, env_config: Config, *, steps: int = 0, streams: int = 1
    ) -> None:
        self._configs = learner_config, env_config
        self._kind = kind = load_replay_class(learner_config)
        self._unrolls = bool(kind.overlap)
        self._collate: Collate = Stacker() if self._unrolls else kind.collate(learner_config)
        self._frames = stack_size(env_config) - 1
        self._continues = bool(steps) and not self._unrolls
        if self._continues:
            self._view = self._make_view((steps, streams))
            self._storage = ColumnStorage((steps + self._view.waiting) * streams)

    def __call__(self, chunk: Chunk) -> Columns:
        """Returns the columns of a batch, in memory of its own; none if no sample is complete."""
        if not self._continues:
            chunk = self._complete(chunk)
            rows, streams = chunk.shape
            self._view = self._make_view((rows - 1, streams))
            size, lead = rows * streams, self._frames * streams
            self._storage = (
                BlockStorage(lead + size, lead) if self._unrolls else ColumnStorage(size)
            )
        numbers = self._storage.insert(chunk)
        ready, earlier = self._view.ready(self._storage, numbers, chunk.columns["step_type"])
        starts = np.sort(np.concatenate((earlier, numbers[ready])))
        if not len(starts):
            return {}
        columns = next(iter(self._collate(self._view.gather(self._storage, starts), 1)))
        return dict(columns) if self._unrolls else {**columns, **Sample.of(starts).columns}

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
