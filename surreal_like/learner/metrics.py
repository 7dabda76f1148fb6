"""Metrics of updates: checks, means over several, and tensors for histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from session.errors import describe_code
from surreal_like.dataflow.items import Trained, columns_of
from surreal_like.errors import DataError

Metrics = dict[str, Any]


def check_metrics(returned: object, learn: Callable[..., object]) -> Metrics:
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
                wrong = f"{name!r}: {_show(value)}"
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


def _show(value: object) -> str:
    shape = getattr(value, "shape", None)
    kind = f"a {type(value).__name__}"
    return f"{value!r}" if isinstance(value, str) else kind if shape is None else f"{kind} {shape}"


def place_of(learn: Callable[..., object]) -> str:
    """Returns name, file and line of an author's function."""
    code = getattr(learn, "__code__", None)
    return describe_code(code) if code is not None else repr(learn)


def recent_means(updates: Iterable[Mapping[str, Any]]) -> dict[str, float | None]:
    """Combines the metrics of several updates to one number for each name.

    Of a whole number, which is a count, the newest value; of other values the mean over the finite
    ones, None if there are none.
    """
    values: dict[str, list[Any]] = {}
    for metrics in updates:
        for name, value in metrics.items():
            values.setdefault(name, []).append(value)
    return {name: _combine(each) for name, each in values.items()}


def _combine(values: list[Any]) -> float | None:
    if isinstance(values[-1], int):
        return values[-1]
    finite = [number for number in _numbers(values) if math.isfinite(number)]
    if not finite:
        return None
    # Relative to the first value, so that the mean of equal numbers is exact; parts of the values,
    # because a sum of finite numbers may be infinite.
    first, count = finite[0], len(finite)
    return first + math.fsum(number / count - first / count for number in finite)


def _numbers(values: list[Any]) -> list[float]:
    if all(isinstance(value, torch.Tensor) for value in values):
        # Copied from the device once, not once for each update.
        stacked: list[float] = torch.stack(values).detach().reshape(-1).tolist()
        return stacked
    return [float(value) for value in values]


# Of a larger tensor evenly spaced numbers are taken: the histogram of all looks the same.
_MOST = 65_536
# These columns say which row it is.
_LABELS = ("indices", "version")


def summaries_of(attributes: Mapping[str, Any], update: Trained) -> dict[str, torch.Tensor]:
    """Returns tensors by tag, such as ``parameters/policy/torso.0.weight`` and ``batch/rewards``.

    Args:
        attributes: attributes of a learner; those that are modules count, under their names.
        update: the newest one, to which the gradients belong.
    """
    found: dict[str, torch.Tensor] = {}
    for key, module in attributes.items():
        if isinstance(module, nn.Module):
            for name, parameter in module.named_parameters():
                if parameter.requires_grad and parameter.grad is not None:
                    found[f"parameters/{key}/{name}"] = parameter.detach()
                    found[f"gradients/{key}/{name}"] = parameter.grad
    for name, column in columns_of(update.batch).items():
        if name not in _LABELS and isinstance(column, torch.Tensor):
            found[f"batch/{name}"] = column
    if update.priorities is not None:
        found["batch/priorities"] = update.priorities
    return found


def thin(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Returns at most 65,536 evenly spaced numbers of a tensor, ``[M]``, in memory of the CPU."""
    flat = tensor.detach().reshape(-1)
    return flat[:: -(-len(flat) // _MOST) or 1].cpu().numpy()
