"""Checks the result of an author's `learn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from session.errors import describe_code
from surreal_like.errors import DataError

Metrics = dict[str, Any]


def checked_metrics(returned: object, learn: Callable[..., object]) -> Metrics:
    """Returns the metrics of one update; empty if nothing was returned.

    Args:
        returned: result of ``learn``.
        learn: the method, for the message.

    Raises:
        DataError: not a mapping of names to numbers; names the method, its file and line.
    """
    if returned is None:
        return {}
    wrong = f"a {type(returned).__name__}"
    if isinstance(returned, Mapping):
        metrics = dict(returned)
        for name, value in metrics.items():
            if type(name) is not str or not _is_number(value):
                wrong = f"{name!r}: {_shown(value)}"
                break
        else:
            return metrics
    raise DataError(
        f"learn() returned {wrong}, expected nothing or a mapping of names to numbers, in "
        f"{place_of(learn)}"
    )


def _is_number(value: object) -> bool:
    if isinstance(value, int | float | np.number):
        return True
    return isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_complex()


def _shown(value: object) -> str:
    shape = getattr(value, "shape", None)
    kind = f"a {type(value).__name__}"
    return f"{value!r}" if isinstance(value, str) else kind if shape is None else f"{kind} {shape}"


def place_of(learn: Callable[..., object]) -> str:
    """Returns name, file and line of an author's function."""
    code = getattr(learn, "__code__", None)
    return describe_code(code) if code is not None else repr(learn)
