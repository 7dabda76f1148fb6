"""Nests: mapped, flattened to paths and back, stacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from session import nest

EXAMPLES: list[tuple[Any, str, dict[str, int]]] = [
    (1, "", {"": 1}),
    (1, "obs", {"obs": 1}),
    ({"image": 1, "goal": 2}, "", {"image": 1, "goal": 2}),
    ({"image": 1, "goal": 2}, "obs", {"obs/image": 1, "obs/goal": 2}),
    (({"x": 1}, 2), "", {"0/x": 1, "1": 2}),
    ({"1": 1, "2": 2}, "obs", {"obs/1": 1, "obs/2": 2}),
    (tuple(range(12)), "a", {f"a/{index}": index for index in range(12)}),
    ({}, "extras", {}),
]
keys = st.text("ab0", min_size=1, max_size=2)
nests = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, min_size=1, max_size=3).filter(lambda d: set(d) != {"0"})
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(("tree", "prefix", "flat"), EXAMPLES)
def test_flatten_and_back(tree: Any, prefix: str, flat: dict[str, int]) -> None:
    assert nest.flatten(tree, prefix) == flat
    assert list(nest.flatten(tree, prefix)) == list(flat)
    assert nest.unflatten(flat, prefix) == tree


@given(nests, st.sampled_from(["", "obs", "a/b"]))
def test_unflatten_undoes_flatten(tree: Any, prefix: str) -> None:
    flat = nest.flatten(tree, prefix)
    assert nest.unflatten(flat, prefix) == tree
    if prefix:
        assert nest.unflatten({"other": 1, "obstacle/x": 2, **flat}, prefix) == tree
    assert list(flat.values()) == nest.leaves(tree)


def test_order_of_the_paths_does_not_matter_for_tuples() -> None:
    flat = {"obs/10": 10, **{f"obs/{index}": index for index in range(9, -1, -1)}}
    assert nest.unflatten(flat, "obs") == tuple(range(11))


@pytest.mark.parametrize(
    "tree",
    [{"a/b": 1}, {"": 1}, {3: 1}, {"0": 1, "1": 2}, {"a": {}}, {"a": ()}, ()],
)
def test_flatten_refuses_what_would_not_come_back(tree: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot be a key|as a tuple|would be lost"):
        nest.flatten(tree)


def test_unflatten_refuses_a_leaf_that_is_a_branch() -> None:
    with pytest.raises(ValueError, match="'obs' is both a leaf and a branch"):
        nest.unflatten({"obs": 1, "obs/x": 2}, "obs")


def test_map_walks_several_nests() -> None:
    one, two = ({"x": 1, "y": 2}, 3), ({"y": 20, "x": 10}, 30)
    assert nest.map(lambda a, b: a + b, one, two) == ({"x": 11, "y": 22}, 33)
    assert nest.map(str, 5) == "5"


@pytest.mark.parametrize("other", [1, (1,), (1, 2, 3), {"x": 1}, ({"x": 1}, 2), ((1, 2), 2)])
def test_map_refuses_other_shapes(other: Any) -> None:
    with pytest.raises(ValueError, match="nests differ in shape"):
        nest.map(lambda a, b: a, (1, 2), other)


def test_stack_adds_an_axis() -> None:
    steps = [{"image": np.full((2, 2), index), "goal": (np.float32(index),)} for index in range(3)]
    rows = nest.stack(steps)
    assert rows["image"].shape == (3, 2, 2)
    assert rows["goal"][0].tolist() == [0, 1, 2]
    assert nest.stack(steps, axis=-1)["image"].shape == (2, 2, 3)
