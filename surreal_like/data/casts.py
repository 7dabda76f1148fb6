"""Conversion of values from outside to a dtype: exact, or refused by name; answers of agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from session import nest
from surreal_like.errors import DataError

Array = npt.NDArray[Any]

_FLOAT32_MOST = float(np.finfo(np.float32).max)


def cast(name: str, value: Any, dtype: npt.DTypeLike, *, copy: bool = False) -> Array:
    """Returns values as an array of a dtype, the array itself if it has the dtype already.

    A float may be rounded to another float type. Every other number must be the same afterwards.

    Args:
        name: begins the error.
        value: array, number, or nested lists of numbers.
        copy: True: the result is a private array, contiguous in C order.

    Raises:
        DataError: the value is no array of numbers, or holds a number that the dtype cannot hold;
            the message has the number, its place, and the remedy.
    """
    wanted = np.dtype(dtype)
    given = value if isinstance(value, np.ndarray) else _as_array(name, value, wanted)
    if given.dtype == wanted:
        return np.array(given, order="C") if copy else given
    if wanted.char + given.dtype.char == "fd" and _small(given):
        # The usual case, without the cost of the general one.
        return given.astype(wanted, order="C")
    if given.dtype.kind not in "biuf":
        raise DataError(f"{name}: {given.dtype} given, expected numbers of {wanted}")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = given.astype(wanted, order="C")
        wrong = _change(given, converted)
    if np.count_nonzero(wrong):
        raise _misfit(name, given, wrong, wanted)
    return converted


def _small(given: Array) -> bool:
    return bool(np.count_nonzero(np.abs(given) <= _FLOAT32_MOST) == given.size)


def _as_array(name: str, value: Any, wanted: np.dtype[Any]) -> Array:
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(value).__name__
        raise DataError(f"{name}: a {kind} given, expected numbers of {wanted}: {error}") from error


def _change(given: Array, converted: Array) -> npt.NDArray[np.bool_]:
    """Returns where the conversion changed a number."""
    was_float, is_float = given.dtype.kind == "f", converted.dtype.kind == "f"
    if was_float and is_float:
        # A NaN or an infinity stays one; the checks of values name it.
        changed = np.isfinite(given) & ~np.isfinite(converted)
    elif is_float:
        changed = (converted.astype(given.dtype) != given) | _beyond(converted, given.dtype)
    elif was_float:
        changed = (converted != given) | _beyond(given, converted.dtype)
    else:
        changed = converted != given
    return np.asarray(changed)


def _beyond(floats: Array, whole: np.dtype[Any]) -> npt.NDArray[np.bool_]:
    """Returns where floats are above an integer type; their conversion to it is undefined."""
    above = 2.0 if whole.kind == "b" else float(np.iinfo(whole).max) + 1.0
    return np.asarray(floats.astype(np.float64) >= above)


def _misfit(name: str, given: Array, wrong: Any, wanted: np.dtype[Any]) -> DataError:
    where = tuple(np.argwhere(wrong)[0].tolist()) if given.ndim else ()
    value = given[where].item()
    shown = "NaN" if value != value else f"{value}"
    place = f" at {list(where)} of {list(given.shape)}" if where else ""
    if wanted.kind == "b":
        remedy = "give True, False, 0 or 1"
    elif wanted.kind != "f":
        limits = np.iinfo(wanted)
        remedy = f"give whole numbers from {limits.min} to {limits.max}, or declare another type"
    elif given.dtype.kind == "f":
        remedy = f"give numbers up to {np.finfo(wanted).max:.2g}"
    else:
        remedy = "it would lose digits; give a float if it may be rounded, or a smaller number"
    return DataError(f"{name}: {shown}{place} does not fit into {wanted}: {remedy}")


def unpack(answer: Any, dtype: np.dtype[Any]) -> tuple[Array, dict[str, Array]]:
    """Takes apart what an agent's ``act`` returned: ``actions``, or ``(actions, extras)``.

    Args:
        answer: extras are a nest of arrays ``[N, ...]``.
        dtype: dtype of the action spec.

    Returns:
        The actions, and the extras as columns. The columns are copies, because the agent may reuse
        its arrays; the actions can be the agent's own array.

    Raises:
        DataError: the dtype of the actions is of another kind.
    """
    actions, extras = answer if type(answer) is tuple else (answer, None)
    columns = {}
    if extras:
        columns = nest.flatten(nest.map(lambda leaf: np.array(_array(leaf)), extras), "extras")
    if type(actions) is np.ndarray and actions.dtype is dtype:
        return actions, columns
    actions = _array(actions)
    if not np.can_cast(actions.dtype, dtype, "same_kind"):
        raise DataError(f"action: {actions.dtype} given, expected {dtype}")
    return cast("action", actions, dtype), columns


def _array(value: Any) -> Array:
    """Returns the value as an array; tensors are recognised without importing torch."""
    detach = getattr(value, "detach", None)
    return np.asarray(value if detach is None else detach().cpu())
