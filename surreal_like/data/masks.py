"""Masks of actions: the part `action_mask` of an observation, 1 where an action is legal, else 0.

An observation that is a mapping may have this part. It is no feature: networks use it only to
leave illegal actions out. Its shape is [number of actions], of several choices [sum of the numbers
of all choices]; a stack of frames has a mask of each, of which the newest counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surreal_like.data.spec import is_leaf, parse_action_spec
from surreal_like.errors import SpecError

MASK = "action_mask"

Spec = Mapping[str, Any]


def has_mask(obs_spec: Spec) -> bool:
    """Returns True if observations of this spec have a mask."""
    part = None if is_leaf(obs_spec) else obs_spec.get(MASK)
    return isinstance(part, Mapping) and is_leaf(part)


def feature_spec(obs_spec: Spec) -> Spec:
    """Returns the spec without the mask; the same object if it has none."""
    return {k: x for k, x in obs_spec.items() if k != MASK} if has_mask(obs_spec) else obs_spec


def mask_spec(action_spec: Spec) -> dict[str, Any]:
    """Returns the spec of a mask of such actions, for an environment that gives none."""
    return {"type": "int8", "dim": [sum(action_spec["dim"])]}


def check_mask(obs_spec: Spec, action_spec: Spec, env_name: str, *, stacks: bool = False) -> None:
    """Checks that a mask, if there is one, fits the actions.

    Args:
        obs_spec, action_spec: specs in the form of `env_config`.
        env_name: environment that the error names.
        stacks: allows a mask of each frame of a stack.

    Raises:
        SpecError: the actions are continuous, the shape differs, or there is nothing but the mask.
    """
    if not has_mask(obs_spec):
        return
    actions, dim = parse_action_spec(action_spec), list(obs_spec[MASK]["dim"])
    where = f"{env_name} has observations with {MASK}"
    if actions.type == "continuous":
        raise SpecError(
            f"{where}, but continuous actions, which have no mask: give this part another name, or "
            "leave it out by env_config.obs_keys"
        )
    wanted = [sum(actions.dim)]
    if dim != wanted and not (stacks and len(dim) == 2 and dim[1:] == wanted):
        raise SpecError(
            f"{where} of shape {dim}, expected {wanted}, a number for each of the {wanted[0]} "
            f"actions of {actions.type} {list(actions.dim)}: change its shape or its name"
        )
    if len(obs_spec) == 1:
        raise SpecError(f"{where} and nothing else: add a part that a network can learn from")
