"""The band between inserting and sampling, and the settings that are refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.errors import ConfigError
from surreal_like.replay.limiter import Limiter
from tests.examples import examples


def test_without_a_relation_only_the_minimum_counts() -> None:
    limiter = Limiter(10)
    for inserted, may in [(4, False), (5, False), (1, True), (1000, True)]:
        limiter.insert(inserted)
        assert limiter.can_sample(10**6) is may
        assert limiter.can_insert()
    limiter.sample(10**6)
    assert limiter.can_sample()
    limiter.evict(1005)
    assert not limiter.can_sample()


# After so many rows inserted and sampled: may 4 more be inserted, may 8 more be sampled?
@pytest.mark.parametrize(
    ("inserted", "sampled", "insert", "sample"),
    [
        (0, 0, True, False),
        (9, 0, True, False),  # below the minimum: inserts only
        (10, 0, True, True),
        (10, 8, True, True),
        (10, 16, True, False),  # 2 x 10 - 16 = 4 is at the lower end, 20 - 16
        (16, 0, False, True),  # 2 x 16 = 32, 4 more would be 40, above 20 + 16
        (14, 0, True, True),
        (15, 0, False, True),
        (114, 200, True, True),
        (114, 208, True, True),
        (114, 217, True, False),
    ],
)
def test_the_band(inserted: int, sampled: int, insert: bool, sample: bool) -> None:
    limiter = Limiter(10, 2.0, chunk_rows=4, request_rows=8)
    limiter.tolerance = 16
    limiter.insert(min(inserted, 10))
    while limiter.inserted < inserted or limiter.sampled < sampled:
        if limiter.inserted < inserted and (limiter.can_insert() or limiter.sampled == sampled):
            limiter.insert(min(4, inserted - limiter.inserted))
        else:
            limiter.sample(min(8, sampled - limiter.sampled))
    assert (limiter.can_insert(), limiter.can_sample()) == (insert, sample)


@settings(max_examples=examples(200))
@given(
    min_size=st.integers(1, 100),
    ratio=st.sampled_from([0.25, 1.0, 4.0, 32.0]),
    chunk=st.integers(1, 50),
    request=st.integers(1, 300),
    narrow=st.booleans(),
    choices=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=300),
)
def test_never_a_deadlock_and_the_ratio_holds(
    min_size: int,
    ratio: float,
    chunk: int,
    request: int,
    narrow: bool,
    choices: list[tuple[bool, float]],
) -> None:
    limiter = Limiter(min_size, ratio, chunk_rows=chunk, request_rows=request)
    if narrow:
        limiter.tolerance = ratio * chunk + request
    for insert_first, share in choices:
        may_insert, may_sample = limiter.can_insert(), limiter.can_sample()
        assert may_insert or may_sample
        if may_insert and (insert_first or not may_sample):
            limiter.insert(round(share * chunk))
        else:
            limiter.sample(request)
        if limiter.sampled:
            due = ratio * (limiter.inserted - min_size)
            assert abs(due - limiter.sampled) <= limiter.tolerance


class History:
    """The twin: goes through all that has happened whenever it is asked, in exact numbers."""

    def __init__(self, limiter: Limiter, chunk: int, request: int) -> None:
        self.chunk, self.request = chunk, request
        self.ratio = Fraction(limiter.samples_per_insert)
        self.least, self.tolerance = limiter.min_size, Fraction(limiter.tolerance)
        self.events: list[tuple[str, int]] = []

    def now(self) -> tuple[Fraction, int]:
        """How many samples are owed beyond those of the start, and the rows that are there."""
        owed, size = -self.ratio * self.least, 0
        for what, rows in self.events:
            if what == "insert":
                owed, size = min(owed + self.ratio * rows, self.tolerance), size + rows
            elif what == "sample":
                owed -= rows
            else:
                size -= rows
        return owed, size

    def allowed(self) -> tuple[bool, bool]:
        owed, size = self.now()
        if size < self.least:
            return True, False
        if not self.ratio:
            return True, True
        insert = owed + self.ratio * self.chunk <= self.tolerance
        return insert, owed - self.request >= -self.tolerance


@settings(max_examples=examples(400))
@given(
    min_size=st.integers(1, 10),
    ratio=st.sampled_from([0.0, 0.25, 1.0, 4.0]),
    chunk=st.integers(1, 4),
    request=st.integers(1, 8),
    narrow=st.booleans(),
    choices=st.lists(
        st.tuples(st.sampled_from(["insert", "insert", "sample", "evict"]), st.integers(1, 4)),
        min_size=50,
        max_size=80,
    ),
)
def test_the_limiter_is_its_twin(
    min_size: int,
    ratio: float,
    chunk: int,
    request: int,
    narrow: bool,
    choices: list[tuple[str, int]],
) -> None:
    limiter = Limiter(min_size, ratio, chunk_rows=chunk, request_rows=request)
    if narrow:
        limiter.tolerance = ratio * chunk + request
    twin = History(limiter, chunk, request)
    for what, rows in choices:
        insert, sample = twin.allowed()
        assert (limiter.can_insert(), limiter.can_sample()) == (insert, sample)
        if what == "evict":
            rows = min(rows, limiter.size)
        elif what == "insert":
            rows = min(rows, chunk) if insert else 0
        else:
            rows = request if sample else 0
        getattr(limiter, what)(rows)
        twin.events.append((what, rows))


def test_the_tolerance_is_chosen() -> None:
    assert Limiter(1000, 8.0, chunk_rows=100, request_rows=256).tolerance == 2112
    assert Limiter(100_000, 8.0, chunk_rows=100, request_rows=256).tolerance == 80_000


def test_the_tolerance_widens() -> None:
    chosen = Limiter(1, 1.0, chunk_rows=10, request_rows=10)
    chosen.expect(chunk_rows=100)
    assert chosen.tolerance == 220
    chosen.expect(request_rows=50)
    assert chosen.tolerance == 300
    chosen.expect(chunk_rows=1, request_rows=1)
    assert chosen.tolerance == 300


def test_a_ring_that_is_refilled_and_never_sampled_from_is_refused() -> None:
    limiter = Limiter(80)
    limiter.insert(50)
    limiter.require_start(199, 100)
    with pytest.raises(ConfigError, match="after 200 rows only 50 of the 100 rows kept"):
        limiter.require_start(200, 100)
    limiter.insert(30)
    limiter.evict(30)
    limiter.require_start(300, 100)  # it had started: a dip is no deadlock


def test_rows_lost_to_eviction_are_inserted_again_without_owing_samples() -> None:
    limiter = Limiter(10, 1.0, chunk_rows=5, request_rows=5)
    limiter.insert(30)
    assert not limiter.can_insert()
    limiter.evict(25)  # too few to sample from: inserts must go on
    assert not limiter.can_sample()
    for _ in range(10):
        assert limiter.can_insert()
        limiter.insert(5)
        limiter.evict(5)
    limiter.insert(5)
    sampled = 0
    while limiter.can_sample():
        limiter.sample(5)
        sampled += 5
    assert sampled == 40  # twice the tolerance, not what ten refills would owe


def test_restored_limiter_decides_the_same() -> None:
    saved, restored = (Limiter(10, 2.0, chunk_rows=4, request_rows=8) for _ in range(2))
    saved.insert(15)
    saved.sample(3)
    restored.restore(saved.state())
    for _ in range(20):
        assert (saved.can_insert(), saved.can_sample()) == (
            restored.can_insert(),
            restored.can_sample(),
        )
        for limiter in (saved, restored):
            if limiter.can_insert():
                limiter.insert(4)
            else:
                limiter.sample(8)
    assert saved.state() == restored.state()
