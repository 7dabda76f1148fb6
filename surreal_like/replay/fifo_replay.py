"""Replay whose unrolls are learned from once, the oldest first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from session.config import Config
from session.errors import ConfigError, SurrealError
from surreal_like.data.batch import Collate, Columns
from surreal_like.data.experience import Chunk
from surreal_like.data.unroll import UnrollBuffer
from surreal_like.errors import DataError
from surreal_like.replay import settings
from surreal_like.replay.base import Array, Replay
from surreal_like.replay.manifest import Manifest, check_chunk, manifest_of


class FIFOReplay(Replay):
    """A queue of whole unrolls for on-policy learners.

    An unroll has ``session_config.sender.flush_iteration`` steps (T) of all streams of one agent
    and is passed on as it came, without a copy. ``learner_config.replay.batch_size`` counts
    streams, ``capacity`` rows. A full queue makes agents wait, or loses its oldest unrolls where
    ``when_full`` is ``drop_oldest``; unrolls that were acted with parameters more than
    ``evict_rule.max_version_lag`` versions old are never learned from. What goes so is counted.

    Raises:
        ConfigError: a batch is no whole number of unrolls, or the queue is too short for one.
    """

    overlap = 1
    consumes = True

    def __init__(
        self, *, learner_config: Config, env_config: Config, session_config: Config
    ) -> None:
        super().__init__(
            learner_config=learner_config, env_config=env_config, session_config=session_config
        )
        replay = learner_config["replay"]
        self._num_envs: int = env_config["num_envs"]
        self._steps: int = session_config["sender"]["flush_iteration"]
        self._capacity = settings.shard_of(replay["capacity"], learner_config)
        self._drops_oldest = replay["when_full"] == "drop_oldest"
        self._max_lag: int = replay["evict_rule"]["max_version_lag"]
        self._manifest: Manifest | None = None
        # Each with the oldest version that it was acted with.
        self._unrolls: deque[tuple[Chunk, int]] = deque()
        self._size = self._inserted = self._sampled = self._evicted = 0
        self._draining = False
        self._check(replay["batch_size"])

    def _check(self, batch_size: int) -> None:
        if batch_size % self._num_envs:
            raise ConfigError(
                f"learner_config.replay.batch_size is {batch_size} streams, no multiple of "
                f"env_config.num_envs {self._num_envs}: batches are made of whole unrolls"
            )
        needed = batch_size * self._steps
        if needed > self._capacity:
            raise ConfigError(
                f"learner_config.replay.capacity leaves {self._capacity} rows to a shard, but one "
                f"batch is {batch_size} streams x {self._steps} steps = {needed} rows: sampling "
                "would never start; raise the capacity or lower the batch size"
            )

    def refusal(self, chunk: Chunk) -> str | None:
        """The rows that an agent leaves with are no whole unroll."""
        return "short unroll" if chunk.tail or not chunk.overlap else None

    def insert(self, experience: Chunk) -> None:
        """Takes in an unroll, as it is.

        Raises:
            DataError: it is not as long or wide as the others, or has other columns.
        """
        chunk = experience
        manifest = self._manifest
        shape = check_chunk(chunk, manifest)
        expected = (self._steps + 1, self._num_envs)
        if shape != expected:
            raise DataError(
                f"unroll of {shape[0] - 1} steps x {shape[1]} streams, expected "
                f"{self._steps} x {self._num_envs}"
            )
        if manifest is None:
            self._manifest = manifest_of(chunk.columns, axes=2)
        while self._drops_oldest and self._unrolls and self._size + chunk.size > self._capacity:
            self._evicted += self._take().size
        version = chunk.columns["version"]
        self._unrolls.append((chunk, int(version.min())))
        self._size += chunk.size
        self._inserted += chunk.size
        self.newest_version = max(self.newest_version, int(version.max()))

    def _take(self) -> Chunk:
        chunk, _ = self._unrolls.popleft()
        self._size -= chunk.size
        return chunk

    def evict(self) -> int:
        """Removes unrolls that are too old to be learned from; returns how many rows went."""
        if not self._max_lag:
            return 0
        limit = self.newest_version - self._max_lag
        # An agent may be behind another: the oldest in the queue need not be the oldest acted.
        gone = sum(chunk.size for chunk, version in self._unrolls if version < limit)
        if gone:
            self._unrolls = deque(unroll for unroll in self._unrolls if unroll[1] >= limit)
            self._size -= gone
            self._evicted += gone
        return gone

    def sample(self, batch_size: int) -> list[Chunk]:
        """The oldest unrolls, ``batch_size`` streams in all; they are not given again.

        Raises:
            SurrealError: there are fewer, or ``batch_size`` is no whole number of unrolls.
        """
        count, rest = divmod(batch_size, self._num_envs)
        if rest or count > len(self._unrolls):
            raise SurrealError(
                f"{batch_size} streams asked for, but there are {len(self._unrolls)} unrolls "
                f"of {self._num_envs}: ask can_sample() first"
            )
        taken = [self._take() for _ in range(count)]
        self._sampled += sum(chunk.size for chunk in taken)
        return taken

    def aggregate_batch(self, sample: Sequence[Chunk]) -> dict[str, Array]:
        """The unrolls side by side; see :meth:`UnrollBuffer.lay`."""
        buffer = UnrollBuffer(self.learner_config["algo"]["gamma"])
        return buffer.lay([chunk.columns for chunk in sample])

    def sample_columns(self, batch_size: int) -> dict[str, Array]:
        """The unrolls as they are, for the learner to lay them side by side."""
        return {
            f"{number}/{name}": column
            for number, chunk in enumerate(self.sample(batch_size))
            for name, column in chunk.columns.items()
        }

    @classmethod
    def collate(cls, learner_config: Mapping[str, Any]) -> Collate:
        """Lays the unrolls of each batch side by side, when it is its turn."""
        buffer = UnrollBuffer(learner_config["algo"]["gamma"])

        def lay(columns: Mapping[str, Array], batches: int) -> Iterator[Columns]:
            unrolls: dict[str, Columns] = {}
            for path, column in columns.items():
                number, _, name = path.partition("/")
                unrolls.setdefault(number, {})[name] = column
            each = list(unrolls.values())
            width = len(each) // batches
            for first in range(0, len(each), width):
                yield buffer.lay(each[first : first + width])

        return lay

    def rows_in(self, batch_size: int) -> int:
        """Rows of so many streams."""
        return batch_size * self._steps

    def batches_at_once(self, asked: int) -> int:
        """One: what waits at the learner grows older there."""
        return 1

    def start_sample_condition(self) -> bool:
        """Whether there is anything."""
        return bool(self._unrolls)

    def can_insert(self) -> bool:
        """Whether there is room for another unroll."""
        room = self._size + self._steps * self._num_envs <= self._capacity
        return room or self._drops_oldest or self._draining

    def can_sample(self, batch_size: int) -> bool:
        """Whether there are unrolls of so many streams that are young enough."""
        self.evict()
        return batch_size <= len(self._unrolls) * self._num_envs

    def drain(self) -> None:
        """From now on every unroll is taken, whether there is room or not."""
        self._draining = True

    def statistics(self) -> dict[str, float]:
        """Rows: kept, and since the start inserted, sampled, evicted; bytes."""
        return {
            "size": self._size,
            "sampleable": self._size,
            "inserted": self._inserted,
            "sampled": self._sampled,
            "evicted": self._evicted,
            "size_bytes": sum(chunk.size_bytes for chunk, _ in self._unrolls),
        }
