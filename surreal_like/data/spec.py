"""Specs of one observation and one action, in the form in which configs hold them.

An observation spec is `{type: float32, dim: [4]}`; a nested observation is a mapping of such
specs, a tuple a mapping with the keys "0", "1", ...; a discrete one adds its count, as in
`{type: int64, dim: [], num: 500}`. It may add `low` and `high`, which are then checked, and
`critic_only: true`, if only value functions see this part.
An action spec is one of

    {type: discrete, dim: [2]}                           two actions, 0 and 1
    {type: multi_discrete, dim: [3, 2]}                  two choices, of three and of two
    {type: continuous, dim: [3], low: ..., high: ...}    shape [3]; without bounds: unbounded

Bounds are one number for all entries or a nested list of the shape of `dim`, infinite where
there is none. Neither torch nor gymnasium is imported here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from session import nest
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.errors import DataError, SpecError

OBS_TYPES = ("float32", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "bool")
ACTION_TYPES = ("discrete", "multi_discrete", "continuous")

# Of an array that has bounds or counts, which are as large.
_MOST_NUMBERS = 1 << 26

# Lowest and highest values; None where there are none.
Bounds: TypeAlias = tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]


@dataclass(frozen=True, slots=True, eq=False)
class ArraySpec:
    """Spec of an array without leading dimensions: [T, N, *dim], [N, *dim] and [*dim] fit it.

    type: name of the dtype; dim: the shape; dtype: the numpy dtype.
    low, high: bounds, inclusive, that broadcast to `dim`; None where there are none.
    num: values are whole numbers from 0 to below this, [*dim]; None if not discrete.
    """

    type: str
    dim: tuple[int, ...]
    low: npt.NDArray[Any] | None = None
    high: npt.NDArray[Any] | None = None
    num: npt.NDArray[np.int64] | None = None
    dtype: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.type))

    def zeros(self, *leading: int) -> npt.NDArray[Any]:
        """Returns an array of zeros, [*leading, *dim]."""
        return np.zeros((*leading, *self.dim), self.dtype)

    def validate(self, name: str, array: npt.NDArray[Any], *, bounds: bool = True) -> None:
        """Checks dtype, trailing shape, finiteness, count and, with `bounds`, low and high.

        Raises DataError that begins with `name` and has the place of the first wrong value.
        """
        if not isinstance(array, np.ndarray) or array.dtype != self.dtype:
            given = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
            raise DataError(f"{name}: {given} given, its spec says {self.type}")
        rank = len(self.dim)
        if array.ndim < rank or array.shape[array.ndim - rank :] != self.dim:
            raise DataError(
                f"{name}: shape {list(array.shape)} given, its spec says {_ends(self.dim)}"
            )
        self.check_values(name, array, bounds=bounds)

    def check_values(self, name: str, array: npt.NDArray[Any], *, bounds: bool = True) -> None:
        """Does the part of :meth:`validate` for an array of the right dtype and shape."""
        if self.dtype.kind == "f":
            finite = np.isfinite(array)
            if np.count_nonzero(finite) < array.size:
                _refuse(name, array, ~finite, "expected a finite number")
        if self.num is not None:
            wrong = (array < 0) | (array >= self.num)
            if np.count_nonzero(wrong):
                _refuse(name, array, wrong, "expected 0 to below {}", self.num)
        if bounds and self.low is not None:
            wrong = array < self.low
            if np.count_nonzero(wrong):
                _refuse(name, array, wrong, "expected at least {}", self.low)
        if bounds and self.high is not None:
            wrong = array > self.high
            if np.count_nonzero(wrong):
                _refuse(name, array, wrong, "expected at most {}", self.high)


def _refuse(
    name: str,
    array: npt.NDArray[Any],
    wrong: npt.NDArray[np.bool_],
    expected: str,
    bound: npt.NDArray[Any] | None = None,
) -> None:
    """Raises DataError for the first wrong value, with the bound of its place."""
    where = tuple(np.argwhere(wrong)[0].tolist())
    value = array[where].item()
    shown = "NaN" if value != value else value
    place = f" at {list(where)} of {list(array.shape)}" if where else ""
    if bound is not None:
        expected = expected.format(np.broadcast_to(bound, array.shape)[where].item())
    raise DataError(f"{name}: {shown}{place}, {expected}")


@dataclass(frozen=True, slots=True, eq=False)
class ActionSpec:
    """Spec of an action: `type` is discrete, multi_discrete or continuous, `dim` as configured.

    array: the ArraySpec of one action: int64 of shape [] or [choices], or float32 of shape `dim`.
    low, high: bounds as configured, float64 of shape `dim`; None where there are none. Those of
        `array` are the nearest float32 numbers, which may lie outside, see `inner_bounds`.
    """

    type: str
    dim: tuple[int, ...]
    array: ArraySpec
    low: npt.NDArray[np.float64] | None = None
    high: npt.NDArray[np.float64] | None = None

    @property
    def inner_bounds(self) -> Bounds:
        """The bounds of actions that are made, float32: no action lies outside of `low`, `high`."""
        return inner_bounds(self.low, self.high)


def make_clip(env_config: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Returns what the environments of a run do with actions outside their bounds.

    With `clip_action` it clips continuous actions; otherwise it leaves actions as they are.
    """
    low, high = parse_action_spec(env_config["action_spec"]).inner_bounds
    if not env_config["clip_action"] or (low is None and high is None):
        return lambda actions: actions
    return lambda actions: np.clip(actions, low, high)


def inner_bounds(low: npt.NDArray[Any] | None, high: npt.NDArray[Any] | None) -> Bounds:
    """Returns the outermost float32 numbers that do not lie outside of bounds of any float type."""
    return _round(low, np.less, np.inf), _round(high, np.greater, -np.inf)


def _single(bound: npt.NDArray[Any] | None) -> npt.NDArray[np.float32] | None:
    with np.errstate(over="ignore"):
        return None if bound is None else bound.astype(np.float32)


def _round(
    bound: npt.NDArray[Any] | None, outside: np.ufunc, inwards: float
) -> npt.NDArray[np.float32] | None:
    nearest = _single(bound)
    if bound is None or nearest is None:
        return None
    # One that is too large for float32 is no bound for it.
    moved = outside(nearest, bound) & np.isfinite(nearest)
    return np.where(moved, np.nextafter(nearest, np.float32(inwards)), nearest)


def is_leaf(spec: Mapping[str, Any]) -> bool:
    """Returns True if a mapping is the spec of one array; else it is a nest of specs."""
    return isinstance(spec.get("type"), str) or isinstance(spec.get("dim"), list | tuple)


def keep_parts(parts: Sequence[str], keep: Sequence[str]) -> list[str]:
    """Returns the parts of observations that stay, in their order.

    Raises ConfigError for parts to keep that are not there.
    """
    unknown = [key for key in keep if key not in parts]
    if not unknown:
        return [key for key in parts if key in keep]
    has = ", ".join(map(str, parts)) or "no parts with names"
    near = did_you_mean(str(unknown[0]), map(str, parts), lead="; ")
    raise ConfigError(f"env_config.obs_keys is {list(keep)}, but the observations have {has}{near}")


def is_bounded(spec: ArraySpec) -> bool:
    """Returns True if every element has a finite lowest and highest value."""
    return (
        spec.low is not None
        and spec.high is not None
        and bool(np.isfinite([spec.low, spec.high]).all())
    )


def parse_obs_spec(spec: Mapping[str, Any], where: str = "env_config.obs_spec") -> nest.Nest:
    """Parses an observation spec in config form to a nest of ArraySpec. Raises SpecError."""
    if is_leaf(spec):
        return _obs_leaf(spec, where)
    if not spec:
        raise SpecError(f"{where} is empty: {_EXAMPLE}")
    for key, child in spec.items():
        if not isinstance(child, Mapping):
            raise SpecError(f"{where}.{key} is {child!r}: {_EXAMPLE}")
    children = {str(key): parse_obs_spec(child, f"{where}.{key}") for key, child in spec.items()}
    if all(key == str(i) for i, key in enumerate(sorted(children, key=_by_number))):
        return tuple(children[str(i)] for i in range(len(children)))
    return children


def parse_action_spec(spec: Mapping[str, Any]) -> ActionSpec:
    """Parses an action spec in config form. Raises SpecError."""
    where = "env_config.action_spec"
    kind = _member(spec, "type", ACTION_TYPES, where)
    known = {"type", "dim", "low", "high"} if kind == "continuous" else {"type", "dim"}
    _refuse_unknown(spec, known, where)
    dim = _dim(spec, where)
    if kind == "continuous":
        low, high = (
            _bound_of(spec, key, dim, np.dtype(np.float64), where) for key in ("low", "high")
        )
        array = ArraySpec("float32", dim, _single(low), _single(high))
        return ActionSpec(kind, dim, array, low, high)
    if not dim or min(dim) < 1 or (kind == "discrete" and len(dim) != 1):
        raise SpecError(f"{where}.dim is {list(dim)}: expected the count of actions, as in [2]")
    if kind == "discrete":
        return ActionSpec(kind, dim, ArraySpec("int64", (), num=np.array(dim[0])))
    return ActionSpec(kind, dim, ArraySpec("int64", (len(dim),), num=np.array(dim)))


def compare(given: Any, derived: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Checks specs that a user gave against those of the environment; returns the complete ones.

    what: `obs_spec` or `action_spec`. The user may add keys that the environment does not give
    (bounds); keys that the user leaves out are filled in. Raises SpecError that shows both sides.
    """
    mine, theirs = plain(given), plain(derived)
    merged: dict[str, Any] = theirs
    if mine:
        merged = _merge(mine, theirs, f"env_config.{what}", (mine, theirs))
    return merged


def plain(spec: Any) -> Any:
    """Returns the same values in plain dicts, lists and numbers, for files and messages."""
    if isinstance(spec, Mapping):
        return {str(key): plain(value) for key, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [plain(value) for value in spec]
    if isinstance(spec, np.ndarray | np.generic):
        return plain(spec.tolist())
    return spec


_EXAMPLE = "expected something like {type: float32, dim: [4]}"


def _obs_leaf(spec: Mapping[str, Any], where: str) -> ArraySpec:
    _refuse_unknown(spec, {"type", "dim", "low", "high", "num", "critic_only"}, where)
    kind = _member(spec, "type", OBS_TYPES, where)
    dim, dtype = _dim(spec, where), np.dtype(kind)
    num = spec.get("num")
    if num is not None and (dtype.kind not in "iu" or np.min(num) < 1):
        raise SpecError(f"{where}.num is {num}: expected a count of 1 or more and a whole type")
    counts = None if num is None else _shaped(num, dim, np.dtype(np.int64), f"{where}.num")
    low, high = (_bound_of(spec, key, dim, dtype, where) for key in ("low", "high"))
    return ArraySpec(kind, dim, low, high, counts)


def _member(spec: Mapping[str, Any], key: str, allowed: tuple[str, ...], where: str) -> str:
    value = spec.get(key)
    if value not in allowed:
        raise SpecError(f"{where}.{key} is {value!r}: expected one of {', '.join(allowed)}")
    return str(value)


def _refuse_unknown(spec: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in sorted(set(spec) - known):
        hint = did_you_mean(key, known, otherwise=f"known are {', '.join(sorted(known))}")
        raise SpecError(f"{where} has no key {key!r}: {hint}")


def _dim(spec: Mapping[str, Any], where: str) -> tuple[int, ...]:
    dim = spec.get("dim")
    whole = isinstance(dim, list | tuple) and all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in dim
    )
    if dim is None or not whole:
        raise SpecError(f"{where}.dim is {dim!r}: expected a list of whole numbers, as in [4]")
    return tuple(dim)


def _bound_of(
    spec: Mapping[str, Any], key: str, dim: tuple[int, ...], dtype: np.dtype[Any], where: str
) -> npt.NDArray[Any] | None:
    value = spec.get(key)
    return None if value is None else _shaped(value, dim, dtype, f"{where}.{key}")


def _shaped(value: Any, dim: tuple[int, ...], dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    if math.prod(dim) > _MOST_NUMBERS:
        raise SpecError(f"{where} has the shape {list(dim)}: most are {_MOST_NUMBERS:,} numbers")
    try:
        return np.broadcast_to(np.array(value, dtype), dim)
    except (ValueError, TypeError, OverflowError) as error:
        raise SpecError(
            f"{where} is {value!r}: expected {dtype} numbers, one or of shape {list(dim)}"
        ) from error


def _merge(given: Any, derived: Any, where: str, whole: tuple[Any, Any]) -> dict[str, Any]:
    """Merges both specs recursively; if they differ, the error shows both of `whole`."""
    both_nests = not is_leaf(given) and not is_leaf(derived)
    if is_leaf(given) != is_leaf(derived) or (both_nests and set(given) != set(derived)):
        _differ(where, whole)
    if both_nests:
        return {k: _merge(given[k], derived[k], f"{where}.{k}", whole) for k in derived}
    for key in given:
        if key in derived and not _equal(key, given[key], derived[key]):
            _differ(f"{where}.{key}", whole)
    return {**derived, **{key: given[key] for key in given if key not in derived}}


def _equal(key: str, given: Any, derived: Any) -> bool:
    """True if equal as written; bounds also as float32, where one number may stand for all."""
    if given == derived or key not in ("low", "high"):
        return bool(given == derived)
    try:
        mine, theirs = np.array(given, np.float32), np.array(derived, np.float32)
        return mine.ndim in (0, theirs.ndim) and bool(np.all(np.equal(mine, theirs)))
    except (ValueError, TypeError):
        return False


def _differ(where: str, whole: tuple[Any, Any]) -> None:
    given, derived = (json.dumps(spec) for spec in whole)
    key = ".".join(where.split(".")[:2])
    raise SpecError(
        f"{where} differs from the environment: given {given}, the environment has {derived}; "
        f"leave {key} out to take the environment's"
    )


def _ends(dim: tuple[int, ...]) -> str:
    return f"[..., {', '.join(map(str, dim))}]" if dim else "[...]"


def _by_number(key: str) -> int:
    return int(key) if key.isdecimal() else -1
