"""Validation of actions: dtype, shape, NaN, range and bounds are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from surreal_like.data.spec import parse_action_spec
from surreal_like.errors import DataError

Outside: TypeAlias = Literal["clip", "refuse", "pass"]


class ActionValidator:
    """Checks actions and returns a private array of them.

    leading: the shape in front of one action: () for an Env, (N,) for a VectorEnv.
    outside: treatment of a continuous action outside its bounds.
    """

    def __init__(
        self,
        action_spec: Mapping[str, Any],
        leading: tuple[int, ...] = (),
        *,
        outside: Outside = "pass",
    ) -> None:
        spec = parse_action_spec(action_spec)
        self._spec = spec.array
        self._shape = (*leading, *spec.array.dim)
        self._continuous = spec.type == "continuous"
        self._kinds = "fiu" if self._continuous else "iu"
        self._counts = np.array(0 if self._continuous else spec.array.num, np.uint64)
        bounded = spec.array.low is not None or spec.array.high is not None
        self._outside = outside if bounded else "pass"
        zeros = spec.array.zeros()
        self._idle = np.clip(zeros, spec.array.low, spec.array.high) if bounded else zeros

    def __call__(
        self, actions: Any, ignored: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[Any]:
        """Returns int64 or float32 [*leading, *dim].

        ignored: [N], streams whose action is ignored; they get a valid one.
        Raises DataError that names the mistake, and the stream.
        """
        given = np.asarray(actions)
        if given.shape != self._shape:
            raise DataError(
                f"action: shape {list(given.shape)} given, expected {list(self._shape)}"
            )
        if given.dtype.kind not in self._kinds:
            raise DataError(f"action: {given.dtype} given, expected {self._spec.type}")
        checked = given.astype(self._spec.dtype)
        if ignored is not None:
            checked[ignored] = self._idle
        if self._continuous:
            self._check_continuous(checked)
        else:
            # A negative number is huge as an unsigned one: one comparison finds both.
            wrong = checked.view(np.uint64) >= self._counts
            if np.count_nonzero(wrong):  # a fraction of the cost of any()
                self._refuse(checked, wrong, f"0 to below {self._counts}")
        return checked

    def _check_continuous(self, actions: npt.NDArray[Any]) -> None:
        """Refuses NaN; clips, refuses or passes values outside the bounds, in place."""
        wrong = np.isnan(actions)
        if np.count_nonzero(wrong):
            self._refuse(actions, wrong, "a number")
        if self._outside == "clip":
            np.clip(actions, self._spec.low, self._spec.high, out=actions)
        elif self._outside == "refuse":
            wrong = actions != np.clip(actions, self._spec.low, self._spec.high)
            if np.count_nonzero(wrong):
                low, high = self._spec.low, self._spec.high
                self._refuse(actions, wrong, f"a value between {low} and {high} (or clip_action)")

    def _refuse(
        self, actions: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], expected: str
    ) -> None:
        where = np.argwhere(wrong)[0].tolist()
        value = actions[tuple(where)].item()
        shown = "NaN" if value != value else value
        place = f" in stream {where[0]}" if len(self._shape) > len(self._spec.dim) else ""
        raise DataError(f"action: {shown}{place}, expected {expected}")
