"""Unrolls that are drawn again: distinct, by their age, the newest only."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from surreal_like.experience.chunk import Chunk
from surreal_like.replay.age_selector import AgeRule
from surreal_like.replay.unroll_queue import Unroll, UnrollQueue
from surreal_like.replay.unroll_ring import UnrollRing
from tests.surreal_like.replay.chunks import columns_of

CHI_SQUARE_5 = 20.52  # 0.999 quantile with 5 degrees of freedom


def unroll(number: int, version: int = 0) -> Unroll:
    columns = columns_of(("FMM",))
    columns["version"][:] = version
    return Unroll.of(Chunk(columns, number, [0], overlap=1))


def numbers_of(unrolls: list[Unroll]) -> list[int]:
    return [unroll.chunk.sequence for unroll in unrolls]


def test_the_newest_are_kept_and_each_draw_is_distinct() -> None:
    ring = UnrollRing(4)
    for number in range(10):
        ring.add([unroll(number)])
    for _ in range(50):
        drawn = ring.draw(3, 0)
        assert len(set(numbers_of(drawn))) == 3
        assert set(numbers_of(drawn)) <= {6, 7, 8, 9}
        assert all(each.replayed for each in drawn)
    assert sorted(numbers_of(ring.draw(4, 0))) == [6, 7, 8, 9]
    assert ring.draw(0, 0) == []
    ring.bound(2)
    assert sorted(numbers_of(ring.draw(2, 0))) == [8, 9]


@pytest.mark.parametrize("half_life", [0.0, 1.5])
def test_pairs_are_drawn_one_after_the_other_by_weight(half_life: float) -> None:
    rule = AgeRule(half_life_versions=half_life)
    ring = UnrollRing(8, rule, seed=3)
    versions = [3, 5, 5, 8]
    ring.add(unroll(number, version) for number, version in enumerate(versions))
    newest, draws = 9, 12_000
    weights = [0.5 ** ((newest - v) / half_life) if half_life else 1.0 for v in versions]
    expected: dict[frozenset[int], float] = {}
    for one, other in permutations(range(4), 2):  # the definition: first one, then another
        share = weights[one] / sum(weights) * weights[other] / (sum(weights) - weights[one])
        pair = frozenset((one, other))
        expected[pair] = expected.get(pair, 0.0) + share
    counts = dict.fromkeys(expected, 0)
    for _ in range(draws):
        counts[frozenset(numbers_of(ring.draw(2, newest)))] += 1
    chi_square = sum(
        (counts[pair] - draws * share) ** 2 / (draws * share) for pair, share in expected.items()
    )
    assert chi_square < CHI_SQUARE_5


def test_what_is_too_old_is_not_drawn() -> None:
    ring = UnrollRing(8, AgeRule(max_versions=2))
    ring.add(unroll(number, number) for number in range(6))
    assert (ring.drawable(5), ring.drawable(7), ring.drawable(8)) == (3, 1, 0)
    for _ in range(20):
        assert set(numbers_of(ring.draw(2, 5))) <= {3, 4, 5}


def test_restarted_with_the_same_seed_it_draws_the_same() -> None:
    rings = [UnrollRing(50, seed=seed) for seed in (1, 2)]
    for ring in rings:
        ring.add(unroll(number) for number in range(50))
        ring.reseed(7)
    assert numbers_of(rings[0].draw(20, 0)) == numbers_of(rings[1].draw(20, 0))


def test_a_queue_is_in_order_and_loses_what_is_told_of() -> None:
    queue = UnrollQueue(3)
    for number, version in enumerate([4, 2, 4]):
        assert queue.can_push()
        assert queue.push(unroll(number, version)) == 0
    assert not queue.can_push()
    assert queue.push(unroll(3, 5)) == 0  # on drain more is taken than there is room for
    assert (queue.drop_older(4), len(queue)) == (1, 3)
    assert numbers_of(queue.pop(2)) == [0, 2]
    losing = UnrollQueue(2, drops_oldest=True)
    assert [losing.push(unroll(number)) for number in range(4)] == [0, 0, 1, 1]
    assert losing.can_push()
    assert numbers_of(losing.pop(2)) == [2, 3]


def test_the_version_of_an_unroll_is_its_oldest() -> None:
    columns = columns_of(("FMM",))
    columns["version"][:] = np.array([[5], [4], [6]])
    assert Unroll.of(Chunk(columns, 1, [0], overlap=1)).version == 4
