"""Reads recordings: the chunks of all shards in the order in which each accepted them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from session import nest
from session.errors import ConfigError, DecodeError, UsageError
from session.file_limit import raise_file_limit
from session.folder import RunFolder
from session.process.component import split_name
from session.wire import Message
from surreal_like.addons.recording.about import ABOUT
from surreal_like.addons.recording.episodes import Episode, EpisodeReader
from surreal_like.addons.recording.segments import (
    Damage,
    Head,
    Kind,
    Segment,
    list_segments,
)
from surreal_like.addons.recording.sources import SOURCES
from surreal_like.data.columns import manifest_of
from surreal_like.experience.chunk import CHUNK, GRADIENT, REQUIRED_COLUMNS, Chunk
from surreal_like.replay.chunk_validator import ChunkValidator

# Sender, its incarnation, and the number of a chunk.
_Key = tuple[str, int, int]
# First parts of the names of columns that the specs have.
_OF_SPECS = ("obs", "action")


class StoredRecord(NamedTuple):
    """A record in its file."""

    segment: Segment
    head: Head


class Shard:
    """The segments of one shard of a recording.

    Args:
        folder: the folder that holds them.

    Attributes:
        name: name of the shard.
        about: what its segments say of themselves.
        abouts: the first message of each segment.
        segments: those that can be read.
        damages: what is left out.

    Raises:
        SegmentError: a file is of another format; names both.
        UsageError: its segments are of several runs, or have several specs; names both.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.segments: list[Segment] = []
        self.damages: list[Damage] = []
        self.about: dict[str, Any] = {}
        self.abouts: list[Message] = []
        self._validator: ChunkValidator | None = None
        # A mapped file stays open.
        raise_file_limit()
        for path in list_segments(folder):
            if path.stat().st_size:
                self._add(Segment(path))

    def _add(self, segment: Segment) -> None:
        if segment.damage is not None:
            self.damages.append(segment.damage)
        if not segment.heads:
            if segment.damage is None:
                self.damages.append(Damage(segment.path, "has no record: it is left out"))
            return
        about = segment.read(segment.heads[0])
        if isinstance(about, Damage):
            self.damages.append(about)
            return
        if complaint := ABOUT.complaint(about) or _complain_of(about.fields["specs"]):
            self.damages.append(Damage(segment.path, f"its first record is wrong: {complaint}"))
            return
        if self.segments:
            refuse_other(self.segments[0].path, self.about, segment.path, about.fields)
        self.about = about.fields
        self.segments.append(segment)
        self.abouts.append(about)

    @cached_property
    def stored_chunks(self) -> list[StoredRecord]:
        """The chunks that count, in the order in which they were accepted."""
        found: list[StoredRecord] = []
        # A process that goes on, or a roll-back, takes back the rows from its number on.
        limit: float = math.inf
        for segment in reversed(self.segments):
            for head in reversed(segment.heads):
                if head.kind in (Kind.GO_ON, Kind.CUT):
                    limit = min(limit, head.number)
                elif head.kind is Kind.BEGIN:
                    limit = math.inf
                elif head.kind is Kind.CHUNK and head.number < limit:
                    found.append(StoredRecord(segment, head))
        return found[::-1]

    def refusal(self, chunk: Chunk) -> str | None:
        """Returns why a chunk does not have the rows of this shard; None if it has."""
        try:
            validator = self._validator or _make_validator(self.about["specs"], chunk)
        except ValueError as error:
            return str(error)
        validator.suspect(chunk.sender)
        wrong = validator.refusal(chunk)
        if wrong is None:
            self._validator = validator
        return None if wrong is None else wrong[1]


def _make_validator(specs: dict[str, Any], chunk: Chunk) -> ChunkValidator:
    """Returns a validator of chunks that have the same further columns as this one.

    Raises:
        ValueError: the names of these are no nest.
    """
    further = {
        name: form
        for name, form in manifest_of(chunk.columns, axes=2).items()
        if name.partition("/")[0] not in _OF_SPECS
    }
    nest.unflatten(further, "extras")
    shared = {name: (np.dtype(each), ()) for name, each in REQUIRED_COLUMNS.items()}
    return ChunkValidator(specs, further | shared)


def _complain_of(specs: dict[str, Any]) -> str | None:
    """Returns what is wrong with the specs of a segment."""
    if not all(specs.values()):
        return f"its specs are {specs}"
    try:
        ChunkValidator(specs)
    except (ConfigError, TypeError, ValueError) as error:
        return str(error)
    return None


def chunk_of(message: Message) -> Chunk:
    """Returns the chunk of a message.

    Raises:
        DecodeError: the message is no chunk.
    """
    if reason := CHUNK.complaint(message):
        raise DecodeError(reason)
    return Chunk.from_message(message)


def is_shard(folder: Path) -> bool:
    """Returns True for the folder of a shard; others beside it are those of learners."""
    return folder.name.partition("-")[0] == "replay"


def refuse_other(path: Path, about: dict[str, Any], other: Path, others: dict[str, Any]) -> None:
    """Refuses parts of a recording that do not belong together.

    Raises:
        UsageError: they are of two runs, or their rows have other specs.
    """
    if about["run"]["id"] != others["run"]["id"]:
        raise UsageError(
            f"{path} is of run {about['run']['id']}, {other} of run {others['run']['id']}: "
            "a recording is of one run, so move one of them to another folder"
        )
    same_policy = about["run"]["policy"] == others["run"]["policy"]
    if same_policy and about["specs"] != others["specs"]:
        raise UsageError(
            f"the rows of {path} have the specs {about['specs']}, those of {other} "
            f"{others['specs']}"
        )


def open_shards(path: str | Path) -> tuple[Path, list[Shard]]:
    """Returns the folder of a recording, and all its shards, those without a segment last.

    Errors are those of `Recording`.
    """
    if not Path(path).is_dir():
        raise UsageError(f"{path}: there is no such folder, so it has no recording")
    run = RunFolder(path)
    place = run.recording if run.recording.is_dir() else run.path
    below = [place] if list_segments(place) else sorted(place.glob("*"))
    folders = [each for each in below if is_shard(each) and list_segments(each)]
    shards = sorted(map(Shard, folders), key=lambda shard: not shard.segments)
    damages = [damage for shard in shards for damage in shard.damages]
    readable = [shard for shard in shards if shard.segments]
    if not readable and damages:
        raise UsageError(f"{path} has no recording that can be read: {damages[0]}")
    if not readable:
        raise UsageError(
            f"{path} has no recording: train with session_config.record.what=all, play with "
            "surreal-like record, or write own logs with surreal_like.RecordingWriter"
        )
    first = readable[0]
    for other in readable[1:]:
        refuse_other(first.segments[0].path, first.about, other.segments[0].path, other.about)
    return place, shards


def list_policies(shards: Sequence[Shard]) -> list[str]:
    """Returns the names of the policies of which shards are."""
    return sorted({shard.about["run"]["policy"] for shard in shards if shard.segments})


def _of_policy(shards: Iterable[Shard], policy: str) -> list[Shard]:
    """Returns the shards of a policy, and those of which nothing says which policy they are of."""
    return [
        shard for shard in shards if not shard.segments or shard.about["run"]["policy"] == policy
    ]


class Recording:
    """A recording, of one policy.

    Iterating it gives the episodes, in the order in which they ended in each shard.

    Args:
        path: folder of a run that was recorded, a folder that ``surreal-like record`` has written,
            or the folder of one shard.
        policy: name of the policy, where the recording is of several.

    Attributes:
        path: the folder with the folders of the shards.
        shards: those of the policy; those of which nothing can be read come last.

    Raises:
        UsageError: there is no recording, or it is not of one run; or it has no such policy.
        SegmentError: a file is of another format.
    """

    def __init__(self, path: str | Path, policy: str | None = None) -> None:
        self.path, shards = open_shards(path)
        names = list_policies(shards)
        if policy is None and len(names) > 1:
            raise UsageError(f"{path} is of the policies {', '.join(names)}: name one of them")
        if policy is not None and policy not in names:
            raise UsageError(f"{path} has no policy {policy}, it has {', '.join(names)}")
        self.policy = policy or names[0]
        self.shards = _of_policy(shards, self.policy)
        self._damages: dict[Damage, None] = {}

    @property
    def run(self) -> dict[str, Any]:
        """The run: ``id``, ``algorithm``, ``environment``, and ``policy``."""
        found: dict[str, Any] = self.shards[0].about["run"]
        return found

    @property
    def specs(self) -> dict[str, Any]:
        """``obs_spec`` and ``action_spec`` of a row."""
        found: dict[str, Any] = self.shards[0].about["specs"]
        return found

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for shard in self.shards for segment in shard.segments)

    @property
    def damages(self) -> list[Damage]:
        """Parts that are left out, as far as they were read."""
        known = [damage for shard in self.shards for damage in shard.damages]
        return [*known, *self._damages]

    def check(self) -> None:
        """Reads what the chunks do not need, so that :attr:`damages` has all damage."""
        others = [each for each in sorted(self.path.glob("*")) if not is_shard(each)]
        journals = _of_policy(map(Shard, filter(list_segments, others)), self.policy)
        self._damages |= dict.fromkeys(damage for each in journals for damage in each.damages)
        for shard in (*self.shards, *journals):
            counted = set(shard.stored_chunks)
            for segment in shard.segments:
                for head in segment.heads:
                    if StoredRecord(segment, head) not in counted:
                        found = segment.read(head)
                        if isinstance(found, Damage):
                            self._damages[found] = None

    def __iter__(self) -> Iterator[Episode]:
        return self.episodes()

    def episodes(
        self, look: Callable[[Shard, Chunk], object] = lambda shard, chunk: None
    ) -> Iterator[Episode]:
        """Yields the episodes; those that are not complete say so.

        Args:
            look: called with each chunk before its episodes.
        """
        seen: set[_Key] = set()
        for shard in self.shards:
            reader = EpisodeReader()
            for chunk in self._read_shard(shard, seen):
                look(shard, chunk)
                yield from reader.read(chunk)
            yield from reader.end()

    def chunks(self) -> Iterator[tuple[Shard, Chunk]]:
        """Yields the chunks with their shards, one shard after the other."""
        seen: set[_Key] = set()
        for shard in self.shards:
            for chunk in self._read_shard(shard, seen):
                yield shard, chunk

    def parts(self, count: int) -> Iterator[tuple[int, Chunk]]:
        """Yields the chunks with the numbers of their parts, of so many parts, in order."""
        total = sum(len(shard.stored_chunks) for shard in self.shards)
        for number, (_, chunk) in enumerate(self.chunks()):
            yield number * count // total, chunk

    def part(self, index: int, count: int) -> Iterator[Chunk]:
        """Yields the chunks of a part, from 0 on, of so many parts."""
        return (chunk for number, chunk in self.parts(count) if number == index)

    def _read_shard(self, shard: Shard, seen: set[_Key]) -> Iterator[Chunk]:
        """Yields the chunks of a shard, and adds them to those that were seen.

        A chunk is sent again to a shard that has lost it, and to another one.
        """
        for segment, head in shard.stored_chunks:
            chunk = self._read(shard, segment, head)
            if chunk is None:
                continue
            # What sends recorded rows sends the same in each part of a run.
            again = split_name(chunk.sender)[0] in SOURCES
            key = chunk.sender, 0 if again else chunk.incarnation, chunk.sequence
            if key not in seen:
                seen.add(key)
                yield chunk

    def _read(self, shard: Shard, segment: Segment, head: Head) -> Chunk | None:
        """Returns the chunk of a record, or notes why it is left out."""
        message = segment.read(head)
        if not isinstance(message, Damage):
            try:
                chunk = chunk_of(message)
                reason = shard.refusal(chunk)
                if reason is None:
                    return chunk
            except DecodeError as error:
                reason = str(error)
            what = f"the chunk of row {head.number:,} is wrong: {reason}"
            if GRADIENT in message.arrays:
                # One line for all of them.
                what = "it holds gradients of agents in place of rows: they are left out"
            message = Damage(segment.path, what)
        self._damages[message] = None
        return None


def load_recording(path: str | Path, policy: str | None = None) -> Recording:
    """Opens a recording, an iterable of episodes; see :class:`Recording`."""
    return Recording(path, policy)
