"""Functions of curricula that tests name by dotted path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surreal_like.addons.curriculum.curriculum import CurriculumProgress


def by_steps(progress: CurriculumProgress, task: Mapping[str, Any]) -> dict[str, Any] | None:
    """Doubles `length` with each 1000 steps, up to 4."""
    length = min(4, 1 << (progress.env_steps // 1000))
    return {"length": length} if length > task.get("length", 0) else None


def raises(progress: CurriculumProgress, task: Mapping[str, Any]) -> dict[str, Any]:
    """Divides by zero."""
    return {"length": 1 / progress.env_steps}


def raises_later(progress: CurriculumProgress, task: Mapping[str, Any]) -> dict[str, Any] | None:
    """Divides by zero once there are steps."""
    return {"length": 1 // (progress.env_steps == 0)} if not task or progress.env_steps else None
