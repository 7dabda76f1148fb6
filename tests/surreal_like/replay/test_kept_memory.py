"""A shard that is killed between any two stores goes on with every row that it has acked."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from session.addons import add_ons
from session.errors import UsageError
from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_accounts import AckTracker
from surreal_like.replay.kept_memory import KeptMemory
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.storage import Rows
from surreal_like.replay.table import Table
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

ABOUT = {"part": 1}
CAPACITY = 20
# Words that a process was just writing when it was killed: so many random choices of them.
MIXTURES = 200
KINDS: dict[str, dict[str, Any]] = {
    "uniform": {"type": "UniformReplay"},
    "prioritized": {"type": "PrioritizedReplay"},
    "by age": {"type": "UniformReplay", "age": {"max_versions": 1000}},
    "stacks": {"type": "PrioritizedReplay"},
}
if "r2d2" in add_ons():
    SEQUENCE = {"length": 2, "burn_in": 0, "period": 2}
    KINDS["sequence"] = {"type": "SequenceReplay", "sequence": SEQUENCE}
ENVS = {"stacks": {"frame_stack": 2}}
# The others are slow.
QUICK = (("uniform", 2), ("prioritized", 4), ("stacks", 1))


class Shard:
    """A replay with its accounts in kept memory, as the server has them; or without."""

    def __init__(self, kind: str, path: str = "") -> None:
        replay = {"capacity": CAPACITY, "min_size": 1, "batch_size": 4, **KINDS[kind]}
        made = load_replay_class({"replay": replay})(
            **configs(algo={"n_step": 2}, env=ENVS.get(kind), **replay)
        )
        assert isinstance(made, Table)
        self.table = made
        self.ledger = AckTracker()
        self.memory = KeptMemory(path, ABOUT) if path else None
        if self.memory is None:
            return
        self.table.keep_in(self.memory.zeros)
        if self.memory.committed is not None:
            self.ledger.unpack(self.memory.committed["ledger"])
            self.table.adopt(self.memory.committed["replay"])

    def commit(self) -> None:
        if self.memory is not None:
            self.memory.commit({"ledger": self.ledger.pack(), "replay": self.table.counts()})

    def insert(self, chunk: Chunk) -> None:
        if self.ledger.admit(chunk):
            self.table.insert_chunk(chunk)
            self.ledger.count_inserted(chunk)

    @property
    def rows(self) -> Rows:
        return np.arange(self.table.storage.oldest, self.table.storage.next_number)

    def content(self) -> dict[str, Any]:
        """Returns everything that a batch depends on, by row."""
        storage, rows = self.table.storage, self.rows
        found: dict[str, Any] = {"rows": rows.tolist(), "limiter": self.table.limiter.state()}
        if len(rows):
            places = storage.locate(rows)
            before, there = storage.step_back(places)
            for name in storage.names:
                found[name] = storage.take(name, places).tolist()
            found["next"] = storage.distance(places).tolist()
            found["before"] = np.where(there, storage.number(before), -1).tolist()
        found["sampleable"] = self.table.selector.list_rows().tolist()
        found["mass"] = self.table.mass
        found["totals"] = self.ledger.totals()
        return found


@pytest.fixture
def path() -> Iterator[str]:
    file = os.memfd_create("test")
    yield f"/proc/{os.getpid()}/fd/{file}"
    os.close(file)


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def put(path: str, content: bytes) -> None:
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(content)


def record(path: str, work: Callable[[], object]) -> list[bytes]:
    """Returns the memory after each line of ours that has changed it, and before the first."""
    found = [read(path)]

    def look(frame: FrameType, event: str, argument: Any) -> Any:
        if "/replay/" not in frame.f_code.co_filename:
            return None
        content = read(path)
        if content != found[-1]:
            found.append(content)
        return look

    sys.settrace(look)
    try:
        work()
    finally:
        sys.settrace(None)
    content = read(path)
    if content != found[-1]:
        found.append(content)
    return found


def mixtures(one: bytes, two: bytes, random: Random) -> Iterator[bytes]:
    """Yields what a store may leave that is cut: some of its words, of 8 bytes each."""
    size = max(len(one), len(two))
    before, after = (
        np.frombuffer(each.ljust(size, b"\0"), np.uint64).copy() for each in (one, two)
    )
    changed = np.flatnonzero(before != after)
    if len(changed) < 2:
        return
    for _ in range(MIXTURES):
        mixed = before.copy()
        part = changed[[random.random() < 0.5 for _ in changed]]
        mixed[part] = after[part]
        yield mixed.tobytes()


def chunks(number: int) -> Chunk:
    """The chunk of this number: four steps of two streams, with an end in every third."""
    texts = ("MMTF", "MMMM") if number % 3 else ("MMMM", "MUFM")
    return chunk_of(*texts, sequence=number, first_id=100 * number)


def cut(shard: Shard) -> None:
    """Makes a shard go on as one that has just started: no stream goes on."""
    shard.table.storage._streams.restore([])


def check_goes_on(shard: Shard, twin: Shard, next_chunk: int) -> None:
    """Inserts chunks into both, and compares; draws from both."""
    cut(shard)
    cut(twin)
    for each in (shard, twin):
        each.table.reseed(5)
        for number in range(next_chunk, next_chunk + 3):
            each.insert(chunks(number))
    assert shard.content() == twin.content()
    for _ in range(10):
        samples = [each.table.sample_columns(4) for each in (shard, twin)]
        assert samples[0].keys() == samples[1].keys()
        for name, column in samples[0].items():
            np.testing.assert_array_equal(column, samples[1][name])


def twin_of(kind: str, last: int, priorities: npt.NDArray[Any] | None = None) -> Shard:
    """Returns a shard without kept memory that has got the chunks up to a number."""
    twin = Shard(kind)
    for number in range(1, last + 1):
        twin.insert(chunks(number))
    return twin


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        pytest.param(kind, before, marks=() if (kind, before) in QUICK else pytest.mark.slow)
        for kind in KINDS
        for before in (0, 1, 2, 4)
    ],
)
def test_a_kill_between_any_two_stores_of_an_insert_loses_nothing(
    kind: str, before: int, path: str
) -> None:
    # With 4 chunks of 8 rows before it, the insert evicts, and goes over the end of the ring.
    shard = Shard(kind, path)
    for number in range(1, before + 1):
        shard.insert(chunks(number))
        shard.commit()
    shard.commit()

    def work() -> None:
        shard.insert(chunks(before + 1))
        shard.commit()

    states = record(path, work)
    assert len(states) > 8
    random, whole = Random(before), 0
    for one, two in zip(states, [*states[1:], states[-1]], strict=True):
        for content in (one, *list(mixtures(one, two, random))[: MIXTURES // 20], two):
            put(path, content)
            again = Shard(kind, path)
            handled = again.ledger.totals()["inserted"] // 8
            assert handled in (before, before + 1)
            whole += handled > before
            twin = twin_of(kind, handled)
            cut(twin)
            # The insert may have made room already.
            twin.table._remove_before(again.table.storage.oldest)
            expected, found = twin.content(), again.content()
            if handled == before:
                # Those of before are not completed by a chunk that is not there.
                assert again.rows.tolist() == twin.rows.tolist()
            expected["limiter"]["size"] = found["limiter"]["size"]
            expected["limiter"].pop("balance"), found["limiter"].pop("balance")
            assert found == expected
            check_goes_on(again, twin, handled + 1)
    assert whole > 0


def refuse(shard: Shard) -> None:
    chunk = chunks(3)
    assert shard.ledger.admit(chunk)
    shard.ledger.count_dropped(chunk, "wrong values")


def leave(shard: Shard) -> None:
    shard.ledger.goodbye(("agent-0", 1), {"rows": 16, "seq": 3})


def set_priorities(shard: Shard) -> None:
    rows = shard.table.selector.list_rows()
    shard.table.update_priorities(rows, np.linspace(2.0, 3.0, len(rows), dtype=np.float32))


@pytest.mark.parametrize("change", [refuse, leave, set_priorities])
def test_a_kill_in_other_changes_leaves_what_was_or_what_is(
    change: Callable[[Shard], None], path: str
) -> None:
    shard = Shard("prioritized", path)
    for number in (1, 2):
        shard.insert(chunks(number))
    shard.commit()

    def masses(of: Shard) -> npt.NDArray[np.float64]:
        return of.table.selector.state()["masses"]  # type: ignore[no-any-return]

    def work() -> None:
        change(shard)
        shard.commit()

    was, totals = masses(shard), [shard.ledger.totals()]
    states = record(path, work)
    totals.append(shard.ledger.totals())
    assert len(states) > 2
    for one, two in itertools.pairwise(states):
        for content in (one, *mixtures(one, two, Random(1)), two):
            put(path, content)
            again = Shard("prioritized", path)
            assert again.ledger.totals() in totals
            assert ((masses(again) == was) | (masses(again) == masses(shard))).all()
            assert again.table.mass == pytest.approx(masses(again).sum())
    assert again.content() == shard.content()


def test_batches_between_two_commits_count(path: str) -> None:
    shard = Shard("uniform", path)
    shard.insert(chunks(1))
    shard.commit()
    for _ in range(3):
        shard.table.sample_columns(4)
    again = Shard("uniform", path)
    assert again.table.limiter.state() == shard.table.limiter.state()


def test_a_process_that_has_done_nothing_may_be_killed_too(path: str) -> None:
    shard = Shard("prioritized", path)
    shard.insert(chunks(1))
    shard.commit()
    for _ in range(3):
        again = Shard("prioritized", path)
        assert again.content() == shard.content()
        again.ledger.acks()
        again.commit()


def test_two_processes_cannot_use_one_memory(path: str) -> None:
    memory = KeptMemory(path, ABOUT)
    child = os.fork()
    if not child:
        try:
            KeptMemory(path, ABOUT)
        except UsageError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert memory.committed is None


def test_a_flipped_bit_in_the_state_removes_everything(path: str) -> None:
    shard = Shard("uniform", path)
    shard.insert(chunks(1))
    shard.commit()
    content = read(path)
    place = int.from_bytes(content[16:24], "little")
    for at in (*range(24), *range(place, place + 200)):
        damaged = bytearray(content)
        damaged[at] ^= 4
        put(path, bytes(damaged))
        found = KeptMemory(path, ABOUT).committed
        assert found is None or 16 <= at < 24


def test_content_of_another_part_is_removed(path: str) -> None:
    shard = Shard("uniform", path)
    shard.insert(chunks(1))
    shard.commit()
    other = KeptMemory(path, {"part": 2})
    assert other.committed is None
    assert not other.zeros("columns/reward", (CAPACITY,), np.float32).any()


def test_a_state_may_grow(path: str) -> None:
    memory = KeptMemory(path, ABOUT)
    for length in (10, 100_000, 20, 3_000_000, 30):
        memory.commit({"text": "x" * length})
        found = KeptMemory(path, ABOUT).committed
        assert found == {"text": "x" * length}


def test_there_must_be_such_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        KeptMemory(str(tmp_path / "none"), ABOUT)
