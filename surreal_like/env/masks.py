"""Checks of the masks that environments give, and of the actions that are taken under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.data.masks import MASK, check_mask, has_mask
from surreal_like.data.spec import parse_action_spec
from surreal_like.errors import DataError

Array = npt.NDArray[Any]
Flags = npt.NDArray[np.bool_]


class MaskGuard:
    """Refuses masks without a legal action, and masked actions, of rows that take an action.

    Args:
        action_spec: action spec in the form of `env_config`.
        place: returns the words for a row in errors, from its number; None: its stream.
    """

    def __init__(
        self, action_spec: Mapping[str, Any], place: Callable[[int], str] | None = None
    ) -> None:
        nums = parse_action_spec(action_spec).dim
        self._starts = np.array([0, *np.cumsum(nums)[:-1]])
        self._place = place or (lambda row: f"in stream {row}")
        self._legal: Flags | None = None

    def observe(self, obs: Mapping[str, Array], ended: Flags) -> None:
        """Keeps the masks of rows, for the actions that follow.

        Args:
            obs: observations with the part `action_mask`, `[n, sum of the numbers of actions]`.
            ended: rows whose episode has ended, which take no action, `[n]`.

        Raises:
            DataError: a row has no legal action, or none for one of several choices.
        """
        self._legal = obs[MASK] != 0
        possible = np.logical_or.reduceat(self._legal, self._starts, axis=1).all(1) | ended
        if not possible.all():
            row = int(possible.argmin())
            raise DataError(
                f"obs/{MASK}: {_text(obs[MASK][row])} {self._place(row)} leaves no legal action, "
                "but the episode goes on: mark a legal one with 1, or end the episode"
            )

    def check(self, actions: Array, ended: Flags) -> None:
        """Checks the actions `[n]` or `[n, choices]` under the kept masks, before they are taken.

        Raises:
            DataError: an action is masked.
        """
        if self._legal is None:
            return
        columns = actions.reshape(len(actions), -1) + self._starts
        allowed = np.take_along_axis(self._legal, columns, 1).all(1) | ended
        if not allowed.all():
            row = int(allowed.argmin())
            parts = np.split(self._legal[row], self._starts[1:])
            legal = [part.nonzero()[0].tolist() for part in parts]
            raise DataError(
                f"action: {actions[row].tolist()} {self._place(row)} is masked by obs/{MASK}, "
                f"legal are {_text(legal if actions.ndim > 1 else legal[0])}: choose by the mask"
            )


def make_guard(
    obs_spec: Mapping[str, Any],
    action_spec: Mapping[str, Any],
    place: Callable[[int], str] | None = None,
) -> MaskGuard | None:
    """Returns the guard of an environment of these specs; None if it has no masks.

    Raises:
        SpecError: the mask does not fit the actions.
    """
    if not has_mask(obs_spec):
        return None
    check_mask(obs_spec, action_spec, "the environment")
    return MaskGuard(action_spec, place)


def _text(numbers: Any) -> str:
    text = str(numbers.tolist() if isinstance(numbers, np.ndarray) else numbers)
    return text if len(text) <= 100 else f"{text[:97]}..."
