"""The class that a kind of replay extends."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from session import nest
from session.addons import collect
from session.addons.hooks import REPLAY
from session.config import Config
from session.config.named_code import load_named
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.nest import Array
from session.process.clock import Clock, WallClock
from session.process.reporting import Reporting
from surreal_like.data.batch import Collate, split
from surreal_like.errors import unwritten

if TYPE_CHECKING:
    from session.process.context import Context
    from surreal_like.experience.chunk import Chunk
    from surreal_like.replay.kept_memory import Zeros
    from surreal_like.replay.storage import Empty


class Replay(Reporting):
    """Keeps experience and gives batches of it.

    An author overrides :meth:`insert`, :meth:`sample` and :meth:`aggregate_batch`, and where it
    matters :meth:`evict` and :meth:`start_sample_condition`. A server calls the methods below them
    (:meth:`insert_chunk`, :meth:`sample_columns`, :meth:`can_insert`, ...), which by default come
    down to the former.

    Args:
        learner_config: the experiment's ``learner_config``.
        env_config: the ``env_config``.
        session_config: the ``session_config``.

    Attributes:
        overlap: 1 if agents cut whole unrolls that end with the row after them, else 0.
        takes_priorities: whether :meth:`update_priorities` has an effect; the learner reads it.
        consumes: whether a row is sampled only once.
        relabels: whether it can give rows the goals of later rows.
        iterates: whether it can collect and train in turns.
        reads_values: whether it can make first priorities of the values that agents send.
        clock: source of times.
        newest_version: the newest parameter version known, for rules by age.
        env_steps: environment steps of the whole run, as the learner last reported.
        iteration: updates of the learner, as it last reported; schedules go by these two.
        last: whether the newest batch was the last one of its training iteration; None without
            iterations.
        least_mass: the smallest mass of any row in the other shards, as it last reported.
        empty: creates columns of a batch, as :func:`numpy.empty` does, but in memory shared with
            the learner whose request is being answered; None where there is none. Saves a copy.
    """

    overlap: int = 0
    takes_priorities: bool = False
    consumes: bool = False
    relabels: bool = False
    iterates: bool = False
    reads_values: bool = False

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        self._require_turns(learner_config.get("replay") or {})
        self.learner_config = learner_config
        self.env_config = env_config
        self.session_config = session_config
        self.clock: Clock = WallClock()
        self.empty: Empty | None = None
        super().__init__(session_config, "replay", 0, "replay/0")
        self.newest_version = self.since = 0
        self.env_steps = self._most_steps = 0
        self.iteration = 0
        self.least_mass = math.inf
        self.last: bool | None = None
        self._steps_given = 0

    def _require_turns(self, replay: Mapping[str, Any]) -> None:
        """Raises ConfigError if it should collect and train in turns, and cannot do that."""
        length = (replay.get("iteration") or {}).get("unroll_length", 0)
        if length and not self.iterates:
            raise ConfigError(
                f"learner_config.replay.iteration.unroll_length is {length:g}, but "
                f"{type(self).__name__} has no iterations: set it to 0; algorithms that learn "
                "from unrolls, with algo.synchronous, learn in turns without it"
            )

    # -- overridden by an author -----------------------------------------------------------------

    def insert(self, experience: Any) -> None:
        """Inserts a :class:`Chunk`, evicting old experience where room is needed.

        Raises:
            DataError: it does not fit to the rows here; nothing is changed then.
        """
        raise unwritten(self, "insert(experience)", "your_own_replay.md")

    def sample(self, batch_size: int) -> Any:
        """Chooses the content of a batch."""
        raise unwritten(self, "sample(batch_size)", "your_own_replay.md")

    def aggregate_batch(self, sample: Any) -> Mapping[str, Any]:
        """Makes the batch for ``learn()`` from a sample: numpy arrays ``[B, ...]``, or nests.

        Keys: ``obs``, ``obs_next``, ``actions``, ``rewards``, ``discounts``, ``dones``,
        ``weights``, ``indices``, ``extras``; see :class:`surreal_like.data.batch.Batch`.
        """
        raise unwritten(self, "aggregate_batch(sample)", "your_own_replay.md")

    def evict(self) -> int:
        """Removes experience although there is room for it; returns how many rows were removed."""
        return 0

    def start_sample_condition(self) -> bool:
        """Returns True if there is enough to sample from."""
        return True

    @classmethod
    def gives(cls) -> str:
        """Returns the content of a batch: rows, unrolls, sequences or gradients."""
        return "unrolls" if cls.overlap else "rows"

    @classmethod
    def steps_of_sample(cls, learner_config: Mapping[str, Any]) -> tuple[int, int]:
        """Returns the steps of a sample: those before the learned ones, and the learned ones."""
        return 0, learner_config["algo"]["n_step"]

    # -- called by a server ----------------------------------------------------------------------

    def attach(self, context: Context) -> None:
        """Connects to a running process: its log, metrics and clock."""
        seconds = self.session_config.tensorplex.update_schedule
        self.report_by(context, context.tensorplex, seconds)
        self.clock = context.clock

    def check_start(self, row_bytes: int) -> None:
        """Raises ConfigError if the settings must deadlock; called before a run starts.

        Args:
            row_bytes: bytes of a row as far as they are known, links of storage included; extras of
                the algorithm are not included.
        """

    def refusal(self, chunk: Chunk) -> str | None:
        """Returns why a valid chunk is not inserted, in a word or two; None if it is inserted."""
        return None

    def insert_chunk(self, chunk: Chunk) -> None:
        """Inserts a chunk as received from the wire."""
        try:
            self.insert(chunk)
        except (AttributeError, TypeError) as error:
            raise TypeError(
                f"{type(self).__name__}.insert(experience): {error}; it gets a Chunk "
                "(for single transitions extend surreal_like.TupleReplay)"
            ) from error

    def sample_columns(self, batch_size: int) -> dict[str, Array]:
        """Returns one batch, its nests flattened to columns (``obs/image``) for the wire."""
        return to_columns(self.aggregate_batch(self.sample(batch_size)))

    @property
    def mass(self) -> float:
        """Weight of this shard: its share of all samples is in proportion to this."""
        return float(self.statistics().get("sampleable", 0.0))

    def rows_in(self, batch_size: int) -> int:
        """Returns how many sampled rows to count for the batch of this size just sampled."""
        return batch_size

    @property
    def drawn(self) -> Sequence[int]:
        """Rows that were inserted before each unroll of the newest batch; none of other batches."""
        return ()

    def steps_of_batch(self, taken: int) -> int:
        """Returns the environment steps that a reply with the newest batch reports.

        Where each row is given once, they are those of the rows in the batch; else those of all
        rows that may be drawn.

        Args:
            taken: steps of all chunks that this process has taken.
        """
        if not self.consumes:
            return taken
        given, self._steps_given = self._steps_given, taken
        return taken - given

    def undo_sample(self) -> None:
        """Reverts the newest sample, which could not be sent.

        A replay that gives each row only once puts its rows back.
        """

    def batches_at_once(self, asked: int) -> int:
        """Returns how many of the requested batches one reply contains."""
        return asked

    def can_insert(self) -> bool:
        """Returns True if the next chunk may be read now; not called once the server drains."""
        return True

    def can_sample(self, batch_size: int) -> bool:
        """Returns True if a request for ``batch_size`` rows may be answered now."""
        return self.start_sample_condition()

    def needed_rows(self, batch_size: int) -> int:
        """Returns how many sampleable rows such a request needs, 0 where that is unknown.

        A run without progress reports it as what the learner waits for.
        """
        return 0

    def update_priorities(self, indices: Array, priorities: Array) -> None:
        """Sets new priorities of rows; a replay that samples without priorities ignores them.

        Args:
            indices: numbers of the rows, ``[B]`` int64.
            priorities: 0 or above, ``[B]``.

        Raises:
            SurrealError: a priority is negative or not a number; nothing is changed then.
        """

    def on_learner(
        self,
        *,
        version: int,
        least_mass: float,
        env_steps: int = 0,
        iteration: int = 0,
        since: int = 0,
    ) -> None:
        """Stores the progress that a request of the learner reports.

        Args:
            version: the newest parameter version that it has published.
            least_mass: the smallest mass of any row in the other shards, infinity if none has any.
            env_steps: environment steps of the whole run, as far as it knows.
            iteration: the updates; fewer than before if it went back to a checkpoint.
            since: version before which a replay that gives rows once has none to give.
        """
        self.newest_version = max(self.newest_version, version)
        self.env_steps, self.iteration, self.since = env_steps, iteration, since
        self.least_mass = least_mass
        self._most_steps = max(self._most_steps, env_steps)

    @property
    def run_steps(self) -> int:
        """Step at which curves are drawn: the most ``env_steps`` so far, also after a roll-back."""
        return self._most_steps

    def reseed(self, seed: int) -> None:
        """Uses another random seed from now on: every shard and every start has its own."""

    def statistics(self) -> dict[str, float]:
        """Returns numbers for metrics and the heartbeat.

        The server reports each as a curve ``.core/<name>``. It calls this often, so it is cheap,
        and it reads without a reset: a total is since the start, and no call changes a number.
        All are of this shard; ``size``, ``inserted``, ``sampled`` and ``evicted`` are rows.
        """
        return {}

    def count_unlearned(self) -> dict[str, int]:
        """Returns the rows that a queue has taken and not given, by fate; else nothing.

        See :data:`surreal_like.experience.row_accounts.UNLEARNED`.
        """
        return {}

    def state(self) -> dict[str, Any]:
        """Returns everything that is kept, as arrays and plain values."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave."""

    @property
    def keeps(self) -> bool:
        """True if its rows can lie in memory that outlives its process."""
        return False

    def keep_in(self, zeros: Zeros) -> None:
        """Makes arrays in memory that outlives the process; called before the first row.

        Args:
            zeros: creates an array, or returns that of a former process.
        """

    def counts(self) -> dict[str, Any]:
        """Returns the plain values from which :meth:`adopt` goes on with these arrays."""
        return {}

    def adopt(self, counts: Mapping[str, Any]) -> None:
        """Goes on where a process was when it called :meth:`counts`; its arrays are here."""

    def fence(self, accounts: Collection[int]) -> None:
        """Draws no row of some senders any more.

        Args:
            accounts: places of the senders in the ledger of this shard.
        """

    def forget_senders(self) -> None:
        """Handles a new ledger, in which the accounts of the present rows are not."""

    def roll_back(self, end: int) -> int:
        """Removes the rows that came late; returns how many were removed.

        Args:
            end: number that the first of them has, as ``inserted`` of :meth:`statistics` counts
                them; a queue removes all that it holds.
        """
        return 0

    def reset(self) -> None:
        """Removes everything, as in a new replay."""
        kept = self.log, self.tensorplex, self._report_due, self.clock
        type(self).__init__(
            self,
            learner_config=self.learner_config,
            env_config=self.env_config,
            session_config=self.session_config,
        )
        self.log, self.tensorplex, self._report_due, self.clock = kept

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Returns the function that makes batches, in the learner, of :meth:`sample_columns`."""
        return split

    # -- scripts and notebooks -------------------------------------------------------------------

    def start_threads(self) -> Thread:
        """Serves this replay from a thread in the background, and returns that thread.

        A process of a run does not call this: ``main.replay`` serves in its own loop.
        """
        # The server imports this module, and a replay without a server needs no sockets.
        server = importlib.import_module("surreal_like.replay.batch_server")
        thread: Thread = server.serve_in_background(self)
        return thread


def to_columns(batch: Mapping[str, Any]) -> dict[str, Array]:
    """Flattens the nests of a batch: ``{"obs": {"image": a}}`` becomes ``{"obs/image": a}``."""
    columns: dict[str, Array] = {}
    for name, value in batch.items():
        if type(value) is np.ndarray:
            columns[name] = value
            continue
        for path, leaf in nest.flatten(value, name).items():
            columns[path] = np.asarray(leaf)
    return columns


# Names in a config -> their classes; others are those of add-ons.
_KINDS = {
    name: f"surreal_like.replay.kinds:{name}"
    for name in ("FIFOReplay", "PrioritizedReplay", "UniformReplay")
}
_OLD_PLACE = "surreal_like.replay."


def load_replay_class(learner_config: Mapping[str, Any]) -> type[Replay]:
    """Returns the class of ``learner_config.replay.type``; default :class:`UniformReplay`.

    It is one of the core's or of an add-on's, by its name, or one of your own:
    ``package.module:Class`` or ``file.py:Class``. An add-on may put another in its place.

    Raises:
        ConfigError: there is no such class, or it cannot be replaced.
    """
    kind = _class_of((learner_config.get("replay") or {}).get("type", "UniformReplay"))
    others = (choose(learner_config, kind) for choose in REPLAY)
    return next(filter(None, others), kind)


def _class_of(given: object) -> type[Replay]:
    name = str(given)
    if name.startswith(_OLD_PLACE):
        # Configs of earlier runs have the path of the file.
        name = name.rpartition(":")[2]
    kinds = _KINDS | collect("replays")
    path = str(kinds.get(name, name))
    if ":" not in path:
        hint = did_you_mean(name, kinds, otherwise=f"there is {', '.join(sorted(kinds))}")
        raise ConfigError(
            f"learner_config.replay.type is '{name}': {hint}; your own is given as "
            "package.module:Class or file.py:Class"
        )
    kind = load_named(path, "learner_config.replay.type")
    if not isinstance(kind, type) or not issubclass(kind, Replay):
        raise ConfigError(
            f"learner_config.replay.type is '{name}', which is no class that extends "
            "surreal_like.Replay"
        )
    return kind
