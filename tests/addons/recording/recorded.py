"""Replay shards that are recorded: of one process, and a recorder alone with a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.wire import Identity, Message
from session.wire.codec import decode, encode
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.recorder import Recorder
from surreal_like.experience.chunk import Chunk
from tests.surreal_like.replay.chunks import chunk_of

OBS = {"image": {"type": "uint8", "dim": [2, 2]}, "position": {"type": "float32", "dim": [2]}}
ACTION = {"type": "discrete", "dim": [1 << 20]}


def config_of(run: str = "a-run", **changes: Any) -> Config:
    """A config of which a recorder reads; the rows are those of ``chunk_of``."""
    whole = BASE_CONFIG.copy()
    whole.algorithm = "dqn"
    whole.env_config.update({"env_name": "toy:none", "obs_spec": OBS, "action_spec": ACTION})
    whole.env_config.update(changes)
    whole["run"] = Config({"id": run})
    return whole


class FakeReplay:
    """A replay that counts the rows that it gets, and removes late ones."""

    def __init__(self, inserted: int = 0) -> None:
        self.inserted = inserted

    def statistics(self) -> dict[str, float]:
        return {"inserted": self.inserted}


class Recorded:
    """The recorder of one process of a shard.

    Args:
        folder: folder of the run.
        goes_on: True if it goes on with the rows of the process before.
        inserted: number of these.
        name: name of the shard.
        gigabytes: limit.
    """

    def __init__(
        self,
        folder: Path,
        *,
        goes_on: bool = False,
        inserted: int = 0,
        name: str = "replay-0",
        limit_bytes: float = 1e9,
        config: Config | None = None,
    ) -> None:
        self.folder = RunFolder(folder)
        self.replay: Any = FakeReplay(inserted)
        self.events: list[str] = []
        context: Any = SimpleNamespace(
            folder=self.folder,
            name=name,
            config=config or config_of(),
            clock=CountedClock(),
            wire=SimpleNamespace(identity=Identity(name, 1)),
            event=lambda kind, detail="", **_: self.events.append(f"{kind} {detail}"),
        )
        replay: Any = self.replay
        self.recorder = Recorder(context, replay, goes_on=goes_on, limit_bytes=limit_bytes)

    def accept(self, chunk: Chunk) -> None:
        """A chunk comes by the wire, and is inserted."""
        message = receive(chunk)
        self.replay.inserted += chunk.size
        self.recorder.accept(Chunk.from_message(message), message.frames)

    def roll_back(self, end: int) -> None:
        self.replay.inserted = end
        self.recorder.cut()

    @property
    def path(self) -> Path:
        return self.folder.recording


def receive(chunk: Chunk) -> Message:
    """The message of a chunk, as it arrives."""
    message = chunk.to_message()
    message.sender = Identity(chunk.sender, chunk.incarnation)
    return decode(as_bytes(encode(message)), 1 << 30)


def as_bytes(frames: Sequence[Any]) -> list[bytes]:
    """Frames as they arrive."""
    return [bytes(each) for each in frames]


def numbered(sequence: int, *, sender: str = "agent-0", steps: int = 3, **given: Any) -> Chunk:
    """A chunk whose rows have ids that follow from its sender and number."""
    first = 1000 * sequence + 100_000 * int(sender[-1])
    made = chunk_of("M" * steps, sequence=sequence, sender=sender, first_id=first, **given)
    made.rows = sequence * steps
    return made


def write_shard(folder: Path, chunks: Sequence[Chunk], **given: Any) -> Recorded:
    """Records chunks as one process of a shard."""
    shard = Recorded(folder, **given)
    for chunk in chunks:
        shard.accept(chunk)
    shard.recorder.close()
    return shard


def keys(path: Path, policy: str | None = None) -> list[tuple[str, int, int]]:
    """Sender, incarnation and number of the chunks of a recording, in their order."""
    recording = Recording(path, policy)
    found = [(chunk.sender, chunk.incarnation, chunk.sequence) for _, chunk in recording.chunks()]
    assert not recording.damages
    return found


def assert_same_rows(found: Chunk, expected: Chunk) -> None:
    """Compares chunks as they came."""
    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(found.columns[name], column, strict=True)
    names = ("sequence", "streams", "sender", "incarnation", "rows", "tail", "overlap", "policy")
    for name in names:
        assert getattr(found, name) == getattr(expected, name), name
