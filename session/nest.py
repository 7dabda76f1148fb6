"""Nested arrays: a nest is a leaf, or a tuple or dict (text keys) of nests.

A leaf is any value that is neither tuple nor mapping, mostly an array. Flattened, each leaf has a
path such as `obs/image` or `obs/0/goal`, which is the name of a column of experience.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Nest: TypeAlias = Any


def map(fn: Callable[..., Any], *nests: Nest) -> Nest:
    """Calls `fn` with the corresponding leaves of all nests; returns a nest of the same shape.

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
    """Returns path -> leaf, in the order of the nest; a bare leaf has the path `prefix`.

    Raises ValueError if unflattening would be ambiguous: keys that are empty or have a slash, a
    dict whose keys are exactly "0", "1", ..., an empty tuple, an empty dict inside the nest.
    """
    flat: dict[str, Any] = {}
    if not (isinstance(nest, Mapping) and not nest):
        _flatten(nest, prefix, flat)
    return flat


def unflatten(flat: Mapping[str, Any], prefix: str = "") -> Nest:
    """Restores the nest from the result of `flatten(nest, prefix)`; ignores other paths.

    Returns an empty dict if no path is under `prefix`. Raises ValueError if a path is both a leaf
    and a branch.
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
    """Returns the leaves in the order of the nest."""
    if isinstance(nest, Mapping):
        return [leaf for child in nest.values() for leaf in leaves(child)]
    if isinstance(nest, tuple):
        return [leaf for child in nest for leaf in leaves(child)]
    return [nest]


def _keys(nest: Nest) -> set[str] | int | None:
    """Structure that corresponding nests must share: set of keys, length, or None for a leaf."""
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
    """Returns the paths under `prefix`, relative to it."""
    start = f"{prefix}/" if prefix else ""
    return [path[len(start) :] for path in flat if path.startswith(start) and path != prefix]


def _counts(children: Mapping[str, Any]) -> bool:
    """True if the keys are exactly "0", "1", ... in any order."""
    return set(children) == {str(index) for index in range(len(children))}
