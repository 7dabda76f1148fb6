"""Episodes of Minari as those of a recording."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from session import nest
from session.nest import Array
from surreal_like.addons.recording.writer import is_written
from surreal_like.data.casts import cast
from surreal_like.errors import DataError

_log = logging.getLogger(__name__)
# The parts of a tuple have these names in HDF5.
_PART = re.compile(r"(?<![^/])_index_(?=\d+(/|$))")


@dataclass(slots=True)
class Conversion:
    """Converts episodes of Minari to the arguments of :meth:`RecordingWriter.add`.

    Args:
        read_obs, read_actions: convert observations and actions, with an axis of time.
        dim: shape of an action of ours.
        infos: paths of the infos that become extras.

    Attributes:
        rounded: names of what did not fit into float32 without rounding.
        left_out: paths of the other infos.
    """

    read_obs: Callable[[Any], Any]
    read_actions: Callable[[Any], Array]
    dim: tuple[int, ...]
    infos: list[str]
    rounded: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)

    def __call__(self, episode: Mapping[str, Any]) -> dict[str, Any]:
        given = np.asarray(episode["rewards"])
        rewards, steps = cast("rewards", given, np.float32), len(given)
        self._compare("rewards", given, rewards)
        observations = self.read_obs(episode["observations"])
        nest.map(
            lambda *both: self._compare("observations", *both),
            episode["observations"],
            observations,
        )
        if {len(each) for each in nest.leaves(observations)} == {steps}:
            raise DataError(
                f"{steps:,} observations for {steps:,} actions: the one after the last action is "
                "missing"
            )
        actions = self.read_actions(episode["actions"])
        actions = actions.reshape(len(actions), *self.dim)
        self._compare("actions", episode["actions"], actions)
        terminated, truncated = (
            np.asarray(episode[name], np.bool_) for name in ("terminations", "truncations")
        )
        if early := np.flatnonzero((terminated | truncated)[:-1]).tolist():
            raise DataError(f"it ends at step {early[0]:,} of {steps:,}, and goes on")
        infos = _flatten_infos(episode["infos"], steps)
        self.left_out |= infos.keys() - set(self.infos)
        return {
            "observations": observations,
            "actions": actions,
            "rewards": rewards,
            "terminated": bool(terminated[-1:].any()),
            "truncated": bool(truncated[-1:].any()),
            "extras": nest.unflatten({name: infos[name] for name in self.infos}),
        }

    def _compare(self, name: str, given: Any, kept: Array) -> None:
        """Notes whether floats were rounded."""
        given = np.asarray(given)
        if given.dtype.kind == "f" and np.any(given.reshape(kept.shape) != kept):
            self.rounded.add(name)

    def warn(self, path: str | Path) -> None:
        """Warns of what is not as it was in the dataset."""
        if self.rounded:
            names = ", ".join(sorted(self.rounded))
            _log.warning("%s: %s: rounded to float32, which cannot hold all digits", path, names)
        if self.left_out:
            names = ", ".join(sorted(self.left_out))
            _log.warning("%s: infos left out, which are no numbers of all steps: %s", path, names)


def find_common_infos(episodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the paths of the infos that all episodes have as rows of numbers of one form.

    Without one it reads as few episodes as it can.
    """
    first: dict[str, Any] = {}
    for number, episode in enumerate(episodes):
        infos = _flatten_infos(episode["infos"], len(episode["rewards"]))
        forms = {
            name: (rows.dtype, rows.shape[1:]) for name, rows in infos.items() if rows is not None
        }
        first = dict(first.items() & forms.items()) if number else forms
        if not first:
            break
    return sorted(first)


def _flatten_infos(infos: Any, steps: int, prefix: str = "") -> dict[str, Array | None]:
    """Returns path -> rows of numbers, ``[T, ...]``; None for what is no such array."""
    if isinstance(infos, Mapping):
        found: dict[str, Array | None] = {}
        for key, value in infos.items():
            found |= _flatten_infos(value, steps, f"{prefix}/{key}" if prefix else str(key))
        return found
    if not prefix:
        return {}
    rows = np.asarray(infos)
    fits = is_written(rows.dtype) and rows.ndim and len(rows) in (steps, steps + 1)
    return {_PART.sub("", prefix): rows[len(rows) - steps :] if fits else None}
