"""Checks the columns and values of chunks before they are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from session import nest
from session.nest import Array
from surreal_like.data.bounds import UNUSUAL, bound, reward_bounds, within
from surreal_like.data.columns import Manifest
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.masks import MASK
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.data.timestep import FIRST, LAST, StepType
from surreal_like.env.masks import MaskGuard, make_guard
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk

_LAST_STEP_TYPE = max(int(kind) for kind in StepType)
# The bits of 1.0 as an unsigned integer: floats from 0 to 1 are not above it, all others are.
_BITS_OF_ONE = 0x3F800000

_EVERY = 16
# Kinds of dtypes.
_NUMBERS = "iuf"
# Publications that an agent may know before replay hears of them from the learner.
_VERSIONS_AHEAD = 1000

WRONG_COLUMNS = "wrong columns"
WRONG_VALUES = "wrong values"


class ChunkValidator:
    """Checks chunks against the specs of a run; without specs it checks what all runs share.

    Args:
        env_config: the run's, with ``obs_spec`` and ``action_spec``.
        columns: all columns of a row; None: not known, further ones may be there.
        most: most steps and streams of a chunk, 0 where there is no bound.

    Attributes:
        newest_version: newest version of the parameters that is known; 0: unknown.
        large: called once for each sender with values above 1e12, with its name and a description.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        columns: Manifest | None = None,
        *,
        most: tuple[int, int] = (0, 0),
    ) -> None:
        self.newest_version = 0
        self.large: Callable[[str, str], None] = lambda sender, detail: None
        self._checks_all = False
        self._warned: set[str] = set()
        self._suspects: set[str] = set()
        self._guests: set[str] = set()
        self._specs: dict[str, ArraySpec] = {}
        self._shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        if env_config["obs_spec"]:
            spec = frame_spec(env_config["obs_spec"], stack_size(env_config))
            self._specs |= nest.flatten(parse_obs_spec(spec), "obs")
        if env_config["action_spec"]:
            self._specs["action"] = parse_action_spec(env_config["action_spec"]).array
        for name, each in self._specs.items():
            self._shapes[name] = (each.dtype, each.dim)
        self._most, self._width = most, 1
        self._guard: MaskGuard | None = None
        if env_config["obs_spec"] and env_config["action_spec"]:
            self._guard = make_guard(spec, env_config["action_spec"], self._place)
        self._known = columns is not None
        self._shapes |= columns or {}
        self._counts = {
            name: int(each.num.min()) for name, each in self._specs.items() if each.num is not None
        }
        self._limits = {name: bound(each) for name, each in self._specs.items()}
        # Actions beyond their bounds are stored as agents chose them, and clipped when done.
        if env_config.get("clip_action", True) or "action" in self._counts:
            self._limits.pop("action", None)
        low, high = (np.array(each, np.float32) for each in reward_bounds(env_config))
        self._limits["reward"] = ArraySpec("float32", (), low, high)
        self._floats = ["reward", *(n for n, s in self._specs.items() if s.dtype.kind == "f")]

    def suspect(self, sender: str) -> None:
        """Checks every chunk of this sender from now on."""
        self._suspects.add(sender)

    def suspect_all(self) -> None:
        """Checks every chunk from now on, and refuses values above 1e12."""
        self._checks_all = True

    def distrust(self, sender: str) -> None:
        """Checks every chunk of a sender of another machine by all rules that agents keep."""
        self.suspect(sender)
        self._guests.add(sender)

    def refusal(self, chunk: Chunk) -> tuple[str, str] | None:
        """Returns why a chunk is refused, in a word or two and in detail; None if it is not."""
        due = self._checks_all or chunk.sequence % _EVERY == 1
        if not due and chunk.sender not in self._suspects:
            return None
        wrong = self._wrong(chunk, guest=chunk.sender in self._guests)
        if wrong is not None:
            self.suspect(chunk.sender)
        return wrong

    def _wrong(self, chunk: Chunk, *, guest: bool) -> tuple[str, str] | None:
        columns = chunk.columns
        wrong = self._wrong_column(columns)
        if wrong is not None:
            return WRONG_COLUMNS, wrong
        fits = self._values_fit(columns)
        wrong = None if fits else self._wrong_value(columns)
        if wrong is None and guest:
            wrong = self._beyond(chunk)
        if wrong is None and not fits:
            # At last: of rows that are refused no value is reported.
            wrong = self._large_value(chunk)
        return None if wrong is None else (WRONG_VALUES, wrong)

    def _wrong_column(self, columns: Mapping[str, Array]) -> str | None:
        for name, (dtype, shape) in self._shapes.items():
            column = columns.get(name)
            if column is None:
                return f"column '{name}' is missing"
            if column.dtype != dtype or column.shape[2:] != shape:
                found, wanted = list(column.shape[2:]), list(shape)
                return f"column '{name}' has rows of {column.dtype} {found}, not {dtype} {wanted}"
        unknown = columns.keys() - self._shapes.keys() if self._known else ()
        return f"column '{min(unknown)}' is unknown here" if unknown else None

    def _values_fit(self, columns: Mapping[str, Array]) -> bool:
        """Returns False if a value may be wrong: fast, and sometimes False for correct values."""
        if _largest(columns["step_type"]) > _LAST_STEP_TYPE:
            return False
        if _largest(columns["discount"].view(np.uint32)) > _BITS_OF_ONE:
            return False
        # A sum that overflows says that a value may be wrong; numpy would warn of it, too.
        with np.errstate(over="ignore", invalid="ignore"):
            for name in self._floats:
                flat = columns[name].ravel()
                if not np.dot(flat, flat) <= UNUSUAL**2:
                    return False
        for name, count in self._counts.items():
            column = columns[name]
            if column.dtype.kind == "i":
                # As unsigned integers, negative values are above all counts.
                column = column.view(f"u{column.dtype.itemsize}")
            if _largest(column) >= count:
                return False
        return True

    def _large_value(self, chunk: Chunk) -> str | None:
        """Reports a value above 1e12, once for each sender; describes it if such are refused."""
        for name in self._floats:
            largest = float(np.abs(chunk.columns[name]).max(initial=0.0))
            if largest <= UNUSUAL:
                continue
            text = f"{name}: {largest:.3g}, above {UNUSUAL:g}"
            if self._checks_all:
                return text
            if chunk.sender not in self._warned:
                self._warned.add(chunk.sender)
                self.large(chunk.sender, text)
        return None

    def _wrong_value(self, columns: Mapping[str, Array]) -> str | None:
        """Describes the first wrong value; None if all values are correct."""
        types, discounts = columns["step_type"], columns["discount"]
        if int(types.max()) > _LAST_STEP_TYPE:
            return f"step_type: {int(types.max())}, expected at most {_LAST_STEP_TYPE}"
        if not np.all((discounts >= 0) & (discounts <= 1)):
            return "discount: a value outside of 0 to 1"
        if not np.isfinite(columns["reward"]).all():
            return "reward: a value that is not finite"
        try:
            for name, spec in self._specs.items():
                # The sender checks the bounds of its own environment.
                spec.validate(name, columns[name], bounds=False)
        except DataError as error:
            return str(error)
        return None

    def _beyond(self, chunk: Chunk) -> str | None:
        """Describes the first way in which no agent makes rows; None if there is none."""
        try:
            self._check_size(chunk)
            for name, column in (*chunk.columns.items(), *chunk.lead_in.items()):
                if name == "version":
                    self._check_versions(column)
                elif name == "action":
                    self._check_actions(chunk, column)
                elif name in self._limits:
                    self._limits[name].check_values(name, column)
                elif column.dtype.kind in _NUMBERS:
                    within(column.dtype).check_values(name, column)
            _check_ends(chunk)
        except DataError as error:
            return str(error)
        return None

    def _place(self, row: int) -> str:
        return f"at {list(divmod(row, self._width))}"

    def _check_size(self, chunk: Chunk) -> None:
        for found, most, what in zip(
            (chunk.length, chunk.shape[1]), self._most, ("steps", "streams"), strict=True
        ):
            if 0 < most < found:
                raise DataError(f"chunk of {found} {what}, expected at most {most}")

    def _check_actions(self, chunk: Chunk, actions: Array) -> None:
        """Checks the actions of rows that take one, and that one is legal while episodes go on."""
        last = chunk.columns["step_type"] == LAST
        idle = last.copy()
        if chunk.overlap or chunk.tail:
            idle[-1] = True
        spec = self._limits.get("action", within(actions.dtype))
        taken = actions.copy()
        taken[idle] = np.clip(taken[idle], spec.low, spec.high)
        spec.check_values("action", taken)
        if self._guard is not None:
            rows, self._width = last.size, last.shape[1]
            masks = chunk.columns[f"obs/{MASK}"].reshape(rows, -1)
            self._guard.observe({MASK: masks}, last.reshape(-1))
            self._guard.check(actions.reshape(rows, *actions.shape[2:]), idle.reshape(-1))

    def _check_versions(self, versions: Array) -> None:
        least, most = int(versions.min()), int(versions.max())
        known = self.newest_version
        if least < 0 or (known and most > known + _VERSIONS_AHEAD):
            wrong = least if least < 0 else most
            raise DataError(f"version: {wrong}, the newest one of this run is {known}")


def _check_ends(chunk: Chunk) -> None:
    """Raises DataError unless episodes begin, end and continue as :func:`encode_ends` says."""
    types, discounts, rewards = (
        chunk.columns[name] for name in ("step_type", "discount", "reward")
    )
    first, last = types == FIRST, types == LAST
    for wrong, what in (
        (first[1:] != last[:-1], "step_type: an episode ends, or begins, without the other"),
        ((discounts != 1) & ((discounts != 0) | ~last), "discount: not 1, and no termination"),
        (first & (rewards != 0), "reward: not 0 at the first row of an episode"),
    ):
        if np.count_nonzero(wrong):
            raise DataError(f"{what}, at {np.argwhere(wrong)[0].tolist()} of {list(types.shape)}")


def _largest(column: Array) -> Any:
    return np.maximum.reduce(column, axis=None)
