"""Validation of actions: dtype, shape, NaN, range and bounds are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from surreal_like.data.casts import cast
from surreal_like.data.spec import Bounds, inner_bounds, parse_action_spec
from surreal_like.env.masks import MaskGuard
from surreal_like.errors import DataError

_INT64 = np.dtype(np.int64)

Outside: TypeAlias = Literal["clip", "refuse", "pass"]


class ActionValidator:
    """Checks actions and returns a private array of them.

    leading: the shape in front of one action: () for an Env, (N,) for a VectorEnv; None: [n], as
        many rows as `ignored` has.
    outside: treatment of a continuous action outside its bounds. Clipped and accepted actions are
        float32 numbers that lie inside, also if float32 cannot hold the bounds.
    bounds: of the environment, in its own dtype; None: those of the spec.
    masks: knows the masks of the rows; None: they have none.
    """

    def __init__(
        self,
        action_spec: Mapping[str, Any],
        leading: tuple[int, ...] | None = (),
        *,
        outside: Outside = "pass",
        bounds: Bounds | None = None,
        masks: MaskGuard | None = None,
    ) -> None:
        spec = parse_action_spec(action_spec)
        self._spec = spec.array
        self._shape = None if leading is None else (*leading, *spec.array.dim)
        self._masks = masks
        self._continuous = spec.type == "continuous"
        self._kinds = "fiu" if self._continuous else "iu"
        self._counts = np.array(0 if self._continuous else spec.array.num, np.uint64)
        exact = (spec.low, spec.high) if bounds is None else bounds
        self._exact = [None if end is None else end.astype(np.float64) for end in exact]
        self._inner = inner_bounds(*exact)
        bounded = any(end is not None and np.isfinite(end).any() for end in exact)
        self._outside = outside if bounded else "pass"
        # Of a discrete action, or of one in each stream; 0: of others.
        single = not self._continuous and not spec.array.dim
        self._most = int(self._counts) if single else 0
        zeros = spec.array.zeros()
        self._idle = np.clip(zeros, *self._inner) if bounded else zeros

    def __call__(
        self, actions: Any, ignored: npt.NDArray[np.bool_] | None = None
    ) -> npt.NDArray[Any]:
        """Returns int64 or float32 [*leading, *dim].

        ignored: [N], streams whose action is ignored; they get a valid one.
        Raises DataError that names the mistake, and the stream.
        """
        given, wanted = np.asarray(actions), self._shape
        if wanted is None:
            wanted = (0 if ignored is None else len(ignored), *self._spec.dim)
        if given.shape != wanted:
            raise DataError(f"action: shape {list(given.shape)} given, expected {list(wanted)}")
        if given.dtype.kind not in self._kinds:
            raise DataError(f"action: {given.dtype} given, expected {self._spec.type}")
        if self._outside == "refuse":
            self._check_bounds(given, ignored)
        checked = cast("action", given, self._spec.dtype, copy=True)
        if ignored is not None and 1 in ignored.tobytes():
            checked[ignored] = self._idle
        if self._continuous:
            self._check_continuous(checked)
        else:
            # A negative number is huge as an unsigned one: one comparison finds both.
            wrong = checked.view(np.uint64) >= self._counts
            if 1 in wrong.tobytes():  # a fraction of the cost of any()
                self._refuse(checked, wrong, f"0 to below {self._counts}")
        if self._masks is not None and ignored is not None:
            self._masks.check(checked, ignored)
        return checked

    def singles(self, actions: Any, ignored: npt.NDArray[np.bool_]) -> Any:
        """Returns the actions [N] that reach the Envs: discrete ones as ints, others as arrays.

        Arguments and errors are those of a call.
        """
        plain = type(actions) is np.ndarray and actions.dtype is _INT64
        if plain and self._most and self._masks is None and actions.shape == self._shape:
            # What agents give, without the cost of the general case.
            ints = actions.tolist()
            if min(ints) >= 0 and max(ints) < self._most:
                return ints
        checked = self(actions, ignored)
        return checked.tolist() if checked.ndim == 1 else checked

    def _check_continuous(self, actions: npt.NDArray[Any]) -> None:
        """Refuses NaN; clips or passes values outside the bounds, in place."""
        wrong = np.isnan(actions)
        if np.count_nonzero(wrong):
            self._refuse(actions, wrong, "a number")
        if self._outside != "pass":
            np.clip(actions, *self._inner, out=actions)

    def _check_bounds(self, given: npt.NDArray[Any], ignored: npt.NDArray[np.bool_] | None) -> None:
        """Refuses values outside the bounds; a float32 is compared with bounds of float32."""
        single = given.dtype.kind == "f" and given.dtype.itemsize <= 4
        low, high = (e if e is None or not single else e.astype(np.float32) for e in self._exact)
        wrong = ~np.isnan(given) & (given != np.clip(given, low, high))
        if ignored is not None:
            wrong[ignored] = False
        if np.count_nonzero(wrong):
            low, high = self._exact
            self._refuse(given, wrong, f"a value between {low} and {high} (or clip_action)")

    def _refuse(
        self, actions: npt.NDArray[Any], wrong: npt.NDArray[np.bool_], expected: str
    ) -> None:
        where = np.argwhere(wrong)[0].tolist()
        value = actions[tuple(where)].item()
        shown = "NaN" if value != value else value
        place = f" in stream {where[0]}" if wrong.ndim > len(self._spec.dim) else ""
        raise DataError(f"action: {shown}{place}, expected {expected}")


def random_action(
    action_spec: Mapping[str, Any], rng: np.random.Generator, obs: Any = None
) -> npt.NDArray[Any]:
    """Returns a valid action, uniform within its bounds, or within +-1 where it has none.

    obs: observation of one environment, whose part `action_mask` leaves illegal actions out.
    """
    parsed = parse_action_spec(action_spec)
    spec, ends = parsed.array, parsed.inner_bounds
    mask = obs.get("action_mask") if isinstance(obs, Mapping) else None
    if spec.num is not None and mask is not None:
        parts = np.split(np.asarray(mask) != 0, np.cumsum(parsed.dim)[:-1])
        drawn = [(rng.random(len(part)) * part).argmax() for part in parts]
        return np.array(drawn, np.int64).reshape(spec.dim)
    if spec.num is not None:
        return np.asarray(rng.integers(0, spec.num, spec.dim), np.int64)
    low = np.full(spec.dim, -np.inf) if ends[0] is None else ends[0]
    high = np.full(spec.dim, np.inf) if ends[1] is None else ends[1]
    low = np.where(np.isfinite(low), low, np.minimum(-1.0, high - 1.0))
    high = np.where(np.isfinite(high), high, np.maximum(1.0, low + 1.0))
    # Between bounds that are all but equal float32 may have no number.
    return rng.uniform(low, np.maximum(low, high)).astype(np.float32)
