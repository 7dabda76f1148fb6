"""The class that a kind of replay extends."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from session import nest
from session.clock import Clock, WallClock
from session.config import Config
from session.loggerplex.client import Log, early_log
from session.nest import Array
from session.tensorplex.client import TensorplexClient
from surreal_like.data.batch import Collate, split
from surreal_like.data.chunk import Chunk
from surreal_like.errors import unwritten
from surreal_like.replay.storage import Empty

if TYPE_CHECKING:
    from session.context import Context


class Replay:
    """Keeps experience and gives batches of it.

    An author overrides :meth:`insert`, :meth:`sample` and :meth:`aggregate_batch`, and where it
    matters :meth:`evict` and :meth:`start_sample_condition`. A server calls the methods below them
    (:meth:`insert_chunk`, :meth:`sample_columns`, :meth:`can_insert`, ...), which by default come
    down to the former.

    Args:
        learner_config: the experiment's ``learner_config``.
        env_config: its ``env_config``.
        session_config: its ``session_config``.

    Attributes:
        overlap: 1 if chunks are whole unrolls that end with the row after them, else 0.
        takes_priorities: whether :meth:`update_priorities` does anything; the learner asks.
        consumes: whether a row is sampled only once.
        log: records what the replay does.
        tensorplex: metrics, ``tensorplex.add_scalar(tag, value, step)``.
        clock: where times come from.
        newest_version: the newest parameter version known of, for whatever goes by age.
        env_steps: environment steps of the whole run, as far as the learner has told.
        iteration: updates of the learner, as it has told; schedules go by these two.
        empty: makes columns of a batch, as :func:`numpy.empty` does, but in memory shared with the
            learner that is answered just now; None where there is none. It saves a copy to use it.
    """

    overlap: int = 0
    takes_priorities: bool = False
    consumes: bool = False

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        self.learner_config = learner_config
        self.env_config = env_config
        self.session_config = session_config
        self.clock: Clock = WallClock()
        self.empty: Empty | None = None
        # What is recorded here waits until this replay is attached.
        self.log: Log = early_log("replay")
        self.tensorplex = TensorplexClient.early("replay/0")
        self.newest_version = 0
        self.env_steps = 0
        self.iteration = 0

    # -- what an author writes -------------------------------------------------------------------

    def insert(self, experience: Any) -> None:
        """Takes in a :class:`Chunk`, evicting what there is no room for.

        Raises:
            DataError: it does not fit to what is here; nothing has been changed then.
        """
        raise unwritten(self, "insert(experience)", "your_own_replay.md")

    def sample(self, batch_size: int) -> Any:
        """Chooses what a batch will hold."""
        raise unwritten(self, "sample(batch_size)", "your_own_replay.md")

    def aggregate_batch(self, sample: Any) -> Mapping[str, Any]:
        """What ``learn()`` gets of what :meth:`sample` chose: numpy arrays ``[B, ...]``, or nests.

        Keys: ``obs``, ``obs_next``, ``actions``, ``rewards``, ``discounts``, ``dones``,
        ``weights``, ``indices``, ``extras``; see :class:`surreal_like.data.batch.Batch`.
        """
        raise unwritten(self, "aggregate_batch(sample)", "your_own_replay.md")

    def evict(self) -> int:
        """Removes experience although there is room for it; returns how many rows went."""
        return 0

    def start_sample_condition(self) -> bool:
        """Whether there is enough to sample from."""
        return True

    # -- what a server calls ---------------------------------------------------------------------

    def attach(self, context: Context) -> None:
        """Becomes part of a running process: its log, metrics and clock."""
        self.log = self.log.join(context.log)
        self.tensorplex = self.tensorplex.join(context.tensorplex)
        self.clock = context.clock

    def check_start(self, row_bytes: int) -> None:
        """Called before a run is started: raises ConfigError if the settings must deadlock.

        Args:
            row_bytes: bytes of a row as far as they are known, links of storage included; extras of
                the algorithm come on top.
        """

    def refusal(self, chunk: Chunk) -> str | None:
        """Why a chunk in good order is not taken in, in a word or two; None if it is."""
        return None

    def insert_chunk(self, chunk: Chunk) -> None:
        """Takes in a chunk as it came over the wire."""
        self.insert(chunk)

    def sample_columns(self, batch_size: int) -> dict[str, Array]:
        """One batch, its nests spelled out as columns (``obs/image``) for the wire."""
        return to_columns(self.aggregate_batch(self.sample(batch_size)))

    @property
    def mass(self) -> float:
        """What the share of this shard in all samples is in proportion to."""
        return float(self.statistics().get("sampleable", 0.0))

    def rows_in(self, batch_size: int) -> int:
        """Rows that the batch of this size which was just sampled counts as."""
        return batch_size

    def undo_sample(self) -> None:
        """The batch which was just sampled could not be given: a replay that gives each row only
        once puts it back.
        """

    def batches_at_once(self, asked: int) -> int:
        """How many of the batches that one request asks for are given in one reply."""
        return asked

    def can_insert(self) -> bool:
        """Whether the next chunk may be read now."""
        return True

    def can_sample(self, batch_size: int) -> bool:
        """Whether a request for so many rows may be answered now."""
        return self.start_sample_condition()

    def needed_rows(self, batch_size: int) -> int:
        """Sampleable rows without which no such request can be answered, 0 where that is unknown.

        What a run that stands still says that the learner waits for.
        """
        return 0

    def drain(self) -> None:
        """From now on every chunk is taken, whatever the limiter says."""

    def update_priorities(self, indices: Array, priorities: Array) -> None:
        """New priorities of rows; a replay that samples without priorities ignores them."""

    def on_learner(
        self, *, version: int, least_mass: float, env_steps: int = 0, iteration: int = 0
    ) -> None:
        """What a request of the learner says.

        Args:
            version: the newest that it has published.
            least_mass: the smallest mass of any row in the other shards, infinity if none has any.
            env_steps: environment steps of the whole run, as far as it knows.
            iteration: its updates, fewer than before if it went back to a checkpoint.
        """
        self.newest_version = max(self.newest_version, version)
        self.env_steps, self.iteration = env_steps, iteration

    def reseed(self, seed: int) -> None:
        """Chooses by another seed from now on: every shard and every start has its own."""

    def statistics(self) -> dict[str, float]:
        """Numbers for metrics and the heartbeat."""
        return {}

    def state(self) -> dict[str, Any]:
        """Everything that is kept, as arrays and plain values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what :meth:`state` gave."""

    def reset(self) -> None:
        """Forgets everything, as if it had just been made."""
        kept = self.log, self.tensorplex, self.clock
        type(self).__init__(
            self,
            learner_config=self.learner_config,
            env_config=self.env_config,
            session_config=self.session_config,
        )
        self.log, self.tensorplex, self.clock = kept

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """How the learner makes batches of what :meth:`sample_columns` gave for several of them."""
        return split

    # -- scripts and notebooks -------------------------------------------------------------------

    def start_threads(self) -> Thread:
        """Serves this replay from a thread in the background, and returns that thread.

        A process of a run does not call this: ``main.replay`` serves in its own loop.
        """
        # The server imports this module, and a replay without a server needs no sockets.
        server = importlib.import_module("surreal_like.replay.server")
        thread: Thread = server.serve_in_background(self)
        return thread


def to_columns(batch: Mapping[str, Any]) -> dict[str, Array]:
    """Spells the nests of a batch out: ``{"obs": {"image": a}}`` becomes ``{"obs/image": a}``."""
    columns: dict[str, Array] = {}
    for name, value in batch.items():
        if type(value) is np.ndarray:
            columns[name] = value
            continue
        for path, leaf in nest.flatten(value, name).items():
            columns[path] = np.asarray(leaf)
    return columns
