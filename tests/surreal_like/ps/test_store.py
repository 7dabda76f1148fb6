"""The store keeps the newest publication of each policy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.data.parameters import Parameters
from surreal_like.ps.parameter_server import ParameterStore


def parameters(incarnation: int, version: int, policy: str = "default") -> Parameters:
    return Parameters(np.zeros(0, np.uint8), (), version, incarnation, 0, {}, policy)


def test_an_empty_store_has_nothing() -> None:
    store = ParameterStore()
    assert store.newest() is None
    assert store.order() == (0, 0)


def test_a_newer_version_replaces_an_older_one_and_never_the_reverse() -> None:
    store = ParameterStore()
    assert store.put(parameters(1, 2))
    assert not store.put(parameters(1, 2))
    assert not store.put(parameters(1, 1))
    assert store.order() == (1, 2)


def test_a_restarted_learner_wins_even_with_a_smaller_version() -> None:
    store = ParameterStore()
    store.put(parameters(1, 50))
    assert store.put(parameters(2, 3))
    assert not store.put(parameters(1, 51))
    assert store.order() == (2, 3)


def test_policies_are_kept_apart() -> None:
    store = ParameterStore()
    store.put(parameters(1, 5))
    store.put(parameters(1, 2, "other"))
    assert (store.order(), store.order("other")) == ((1, 5), (1, 2))


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1))
def test_the_newest_is_the_largest_that_ever_came(orders: list[tuple[int, int]]) -> None:
    store = ParameterStore()
    for index, (incarnation, version) in enumerate(orders):
        newer = (incarnation, version) > max(orders[:index], default=(0, 0))
        assert store.put(parameters(incarnation, version)) is newer
    assert store.order() == max(orders)
