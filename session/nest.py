"""Nested arrays: a nest is a leaf, or a tuple or dict (text keys) of nests.

A leaf is whatever is neither tuple nor mapping, mostly an array. Flattened, each leaf has a path
such as `obs/image` or `obs/0/goal`, and such a path is the name of a column of experience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Nest: TypeAlias = Any


def map(fn: Callable[..., Any], *nests: Nest) -> Nest:
    """Calls `fn` with the leaves at the same place of all nests; gives a nest of that shape.

    Raises ValueError if the nests differ in shape.
    """
    first = nests[0]
    keys = _keys(first)
    if any(_keys(nest) != keys for nest in nests[1:]):
        raise ValueError(f"nests differ in shape: {', '.join(_outline(nest) for nest in nests)}")
    if keys is None:
        return fn(*nests)
    if isinstance(first, Mapping):
        return {key: map(fn, *(nest[key] for nest in nests)) for key in first}
    return tuple(map(fn, *children) for children in zip(*nests, strict=True))


def flatten(nest: Nest, prefix: str = "") -> dict[str, Any]:
    """Gives path -> leaf, in the order of the nest; a bare leaf has the path `prefix`.

    Raises ValueError where the way back would be ambiguous: keys that are empty or hold a slash, a
    dict whose keys are exactly "0", "1", ..., an empty tuple, an empty dict inside the nest.
    """
    flat: dict[str, Any] = {}
    if not (isinstance(nest, Mapping) and not nest):
        _flatten(nest, prefix, flat)
    return flat


def unflatten(flat: Mapping[str, Any], prefix: str = "") -> Nest:
    """Gives back the nest that `flatten(nest, prefix)` was given; other paths are ignored.

    Without any path under `prefix` it is an empty dict. Raises ValueError if a path is a leaf and
    a branch.
    """
    if prefix in flat:
        if _below(flat, prefix):
            raise ValueError(f"{prefix!r} is both a leaf and a branch")
        return flat[prefix]
    heads = dict.fromkeys(path.split("/", 1)[0] for path in _below(flat, prefix))
    children = {head: unflatten(flat, f"{prefix}/{head}" if prefix else head) for head in heads}
    if children and _counts(children):
        return tuple(children[str(index)] for index in range(len(children)))
    return children


def stack(nests: Sequence[Nest], axis: int = 0) -> Nest:
    """Stacks the leaves of equal nests along a new axis. Raises ValueError if shapes differ."""
    return map(lambda *leaves: np.stack(leaves, axis), *nests)


def leaves(nest: Nest) -> list[Any]:
    """The leaves in the order of the nest."""
    if isinstance(nest, Mapping):
        return [leaf for child in nest.values() for leaf in leaves(child)]
    if isinstance(nest, tuple):
        return [leaf for child in nest for leaf in leaves(child)]
    return [nest]


def _keys(nest: Nest) -> set[str] | int | None:
    """What two nests that are walked together must share: the keys, the length, or being a leaf."""
    if isinstance(nest, Mapping):
        return set(nest)
    return len(nest) if isinstance(nest, tuple) else None


def _outline(nest: Nest) -> str:
    keys = _keys(nest)
    if keys is None:
        return "a leaf"
    return f"a tuple of {keys}" if isinstance(keys, int) else f"a dict of {sorted(keys)}"


def _flatten(nest: Nest, path: str, flat: dict[str, Any]) -> None:
    if isinstance(nest, Mapping):
        children = dict(nest)
        bad = [key for key in children if not isinstance(key, str) or not key or "/" in key]
        if bad:
            raise ValueError(
                f"{path!r}: {bad[0]!r} cannot be a key: it is no text, empty, or has a /"
            )
        if children and _counts(children):
            raise ValueError(f"{path!r}: a dict with keys 0, 1, ... would come back as a tuple")
    elif isinstance(nest, tuple):
        children = {str(index): child for index, child in enumerate(nest)}
    else:
        flat[path] = nest
        return
    if not children:
        raise ValueError(f"{path!r} is empty, it would be lost")
    for key, child in children.items():
        _flatten(child, f"{path}/{key}" if path else key, flat)


def _below(flat: Mapping[str, Any], prefix: str) -> list[str]:
    """The paths under `prefix`, without it."""
    start = f"{prefix}/" if prefix else ""
    return [path[len(start) :] for path in flat if path.startswith(start) and path != prefix]


def _counts(children: Mapping[str, Any]) -> bool:
    """Whether the keys are exactly "0", "1", ... in any order."""
    return set(children) == {str(index) for index in range(len(children))}
