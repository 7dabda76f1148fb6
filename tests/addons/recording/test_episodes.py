"""Episodes are put together from the chunks of a shard, whatever is missing between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_like.addons.recording.episodes import Episode, EpisodeReader
from surreal_like.experience.chunk import Chunk
from tests.examples import examples
from tests.surreal_like.replay.chunks import chunk_of

Found = tuple[str, int, int, list[int], str, bool]


def read(chunks: Sequence[Chunk]) -> list[Episode]:
    """All episodes of the chunks of a shard."""
    reader = EpisodeReader()
    found = [episode for chunk in chunks for episode in reader.read(chunk)]
    return [*found, *reader.end()]


def ids(episode: Episode) -> list[int]:
    """Ids of the rows of an episode."""
    found: list[int] = episode.observations["position"][:, 0].astype(int).tolist()
    return found


def describe(episode: Episode) -> Found:
    stream = episode.sender, episode.incarnation, episode.stream
    return (*stream, ids(episode), episode.end, episode.begun)


def spans(texts: str | Sequence[str]) -> list[tuple[int, str, bool]]:
    """Steps, end and beginning of the episodes of one stream, of chunks in the given order."""
    parts = [texts] if isinstance(texts, str) else texts
    chunks = [chunk_of(text, sequence=n) for n, text in enumerate(parts, 1)]
    return [(len(each), each.end, each.begun) for each in read(chunks)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("FMMT", [(3, "terminated", True)]),
        ("FMMU", [(3, "truncated", True)]),
        ("FMMM", [(3, "cut", True)]),
        ("FTFU", [(1, "terminated", True), (1, "truncated", True)]),
        (["FM", "MT"], [(3, "terminated", True)]),
        (["FMT", "FMT"], [(2, "terminated", True)] * 2),
        (["F", "M", "M", "T"], [(3, "terminated", True)]),
        ("MMTFM", [(2, "terminated", False), (1, "cut", True)]),
        # No step: a single row before a gap, or after it.
        ("TFT", [(1, "terminated", True)]),
        (["FMT", "F"], [(2, "terminated", True)]),
        ("F", []),
    ],
    ids=str,
)
def test_rows_of_a_stream_are_divided_at_the_ends_of_episodes(
    texts: str | Sequence[str], expected: list[tuple[int, str, bool]]
) -> None:
    assert spans(texts) == expected


def test_an_episode_has_what_its_rows_have() -> None:
    first = chunk_of("FM", first_id=20, rewards=[0, 5])
    second = chunk_of("MT", first_id=30, sequence=2, rewards=[-1, 2])
    (episode,) = read([first, second])
    np.testing.assert_array_equal(
        episode.observations["position"], [[20, -20], [21, -21], [30, -30], [31, -31]]
    )
    assert episode.observations["image"].shape == (4, 2, 2)
    assert episode.actions.tolist() == [20, 21, 30]
    assert episode.rewards.tolist() == [5, -1, 2]
    assert episode.rewards.dtype == np.float32
    assert episode.versions.tolist() == [2, 2, 3]
    assert episode.extras["id"].tolist() == [20, 21, 30]
    assert (len(episode), episode.total_reward, episode.complete) == (3, 6.0, True)
    assert (episode.terminated, episode.truncated) == (True, False)


def test_rows_of_the_overlap_count_once_and_end_what_is_cut() -> None:
    def unroll(text: str, sequence: int, first_id: int) -> Chunk:
        return replace(chunk_of(text, sequence=sequence, first_id=first_id), overlap=1)

    chunks = [unroll("FMM", 1, 0), unroll("MMM", 2, 2), unroll("MMT", 3, 4)]
    assert [ids(each) for each in read(chunks)] == [[0, 1, 2, 3, 4, 5, 6]]
    # The row behind the last chunk ends the episode.
    assert read(chunks)[0].end == "terminated"
    assert [ids(each) for each in read(chunks[:2])] == [[0, 1, 2, 3, 4]]
    # A chunk between is missing: the row that both would have is there twice.
    assert [(ids(each), each.end) for each in read([chunks[0], chunks[2]])] == [
        ([0, 1, 2], "cut"),
        ([4, 5, 6], "terminated"),
    ]


def test_a_tail_ends_its_streams() -> None:
    chunks = [
        chunk_of("FMM", "FMT", tail=True),
        chunk_of("MMT", "FMM", sequence=2, streams=[2, 3], first_id=10),
    ]
    found = [describe(each)[2:] for each in read(chunks)]
    assert found == [
        (0, [0, 2, 4], "cut", True),
        (1, [1, 3, 5], "terminated", True),
        (2, [10, 12, 14], "terminated", False),
        (3, [11, 13, 15], "cut", True),
    ]


@dataclass
class Stream:
    """All rows of a stream, and which of them each chunk has."""

    letters: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    # Number of a chunk, its first row, and the row after its last one.
    spans: list[tuple[int, int, int]] = field(default_factory=list)
    tail: int = 0


class Player:
    """A sender whose streams end at random, each chunk of which has some of them.

    Its streams have all their rows before they are cut into chunks, so that a chunk can end with
    a row of the next one.
    """

    def __init__(self, name: str, incarnation: int, random: Random, overlap: int) -> None:
        self.name, self.incarnation, self.random = name, incarnation, random
        self.streams: dict[int, Stream] = {}
        self.chunks: list[Chunk] = []
        self.overlap = overlap
        self.given: set[int] = set()
        self._ids = iter(range(10**6))
        self._open: list[int] = []
        self._next = 0

    def play(self, chunks: int) -> None:
        """Makes so many chunks."""
        for _ in range(chunks):
            while len(self._open) < 4:
                self._open.append(self._next)
                self.streams[self._next] = Stream(letters=self._letters(), ids=[])
                self.streams[self._next].ids = [next(self._ids) for _ in range(200)]
                self._next += 1
            self._cut(sorted(self.random.sample(self._open, self.random.choice([1, 2, 4]))))

    def _letters(self) -> list[str]:
        letters: list[str] = [self.random.choice("FM")]
        while len(letters) < 200:
            ended = letters[-1] in "TU"
            letters.append("F" if ended else self.random.choice("MMMTU"))
        return letters

    def _cut(self, numbers: list[int]) -> None:
        sequence, steps = len(self.chunks) + 1, self.random.randint(1, 5)
        tail = self.random.random() < 0.15
        overlap = 0 if tail else self.overlap
        columns = []
        for number in numbers:
            stream = self.streams[number]
            begin = stream.spans[-1][2] if stream.spans else 0
            stream.spans.append((sequence, begin, begin + steps))
            columns.append(self._rows(stream, begin, begin + steps + overlap))
            if tail:
                self._open.remove(number)
        joined = {name: np.stack([each[name] for each in columns], axis=1) for name in columns[0]}
        self.chunks.append(
            Chunk(
                joined,
                sequence,
                numbers,
                sender=self.name,
                incarnation=self.incarnation,
                tail=tail,
                overlap=overlap,
            )
        )

    @staticmethod
    def _rows(stream: Stream, begin: int, end: int) -> dict[str, Any]:
        texts = "".join(stream.letters[begin:end])
        rows = {name: column[:, 0] for name, column in chunk_of(texts).columns.items()}
        own = np.array(stream.ids[begin:end])
        rows["obs/position"] = np.stack([own, -own], axis=-1).astype(np.float32)
        return {**rows, "action": own, "extras/id": own * 1.0, "version": own // 7}

    def expected(self) -> Iterator[Found]:
        """The episodes of the chunks that were given, by looking at each row."""
        for number, stream in self.streams.items():
            there = [span for span in stream.spans if span[0] in self.given]
            runs: list[list[int]] = []
            for before, span in pairwise([None, *there]):
                assert span is not None
                between = range(before[0], span[0]) if before else ()
                if before is None or not self.given.issuperset(between):
                    runs.append([])
                runs[-1].extend(range(span[1], span[2]))
            for index, run in enumerate(runs):
                last = run[-1] + 1
                # The row of the overlap is there, also where the next chunk is not.
                chunk = self.chunks[next(s for s in there if s[2] == last)[0] - 1]
                rows = [*run, last] if chunk.overlap else run
                yield from self._divide(number, stream, rows, index)

    def _divide(self, number: int, stream: Stream, rows: list[int], index: int) -> Iterator[Found]:
        part: list[int] = []
        for row in rows:
            part.append(row)
            letter = stream.letters[row]
            if letter in "TU" or row == rows[-1]:
                if len(part) > 1:
                    end = {"T": "terminated", "U": "truncated"}.get(letter, "cut")
                    own = [stream.ids[each] for each in part]
                    begun = stream.letters[part[0]] == "F"
                    yield self.name, self.incarnation, number, own, end, begun
                part = []


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32), st.sampled_from([0, 1]), st.sampled_from([0.0, 0.2, 0.6]))
def test_episodes_are_those_of_a_look_at_each_row(seed: int, overlap: int, gaps: float) -> None:
    random = Random(seed)
    players = [
        Player(name, incarnation, random, overlap)
        for name, incarnation in (("agent-0", 1), ("agent-0", 2), ("agent-1", 1))
    ]
    given_chunks: list[Chunk] = []
    for player in players:
        player.play(random.randint(1, 12))
    waiting = [list(player.chunks) for player in players]
    while any(waiting):
        which = random.choice([n for n, chunks in enumerate(waiting) if chunks])
        chunk = waiting[which].pop(0)
        if random.random() >= gaps:
            given_chunks.append(chunk)
            players[which].given.add(chunk.sequence)
    episodes = read(given_chunks)
    expected = [found for player in players for found in player.expected()]
    assert sorted(map(describe, episodes)) == sorted(expected)
    for episode in episodes:
        own = np.array(ids(episode))
        assert episode.actions.tolist() == own[:-1].tolist()
        assert episode.versions.tolist() == (own[:-1] // 7).tolist()
        assert episode.extras["id"].tolist() == own[:-1].tolist()
        assert episode.observations["position"][:, 1].tolist() == (-own).tolist()
        assert episode.rewards.tolist() == [1.0] * len(episode)
