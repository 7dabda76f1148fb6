"""Declares the curriculum: its settings, and what chooses tasks."""

from __future__ import annotations

from session.addons import AddOn

_ROOM = "surreal_like.addons.curriculum"
ADD_ON = AddOn(
    keys={
        "env_config.curriculum": f"{_ROOM}.defaults:CURRICULUM",
        "env_config.eval_task": f"{_ROOM}.defaults:EVAL_TASK",
    },
    code=("env_config.curriculum",),
    hooks={"tasks": f"{_ROOM}.curriculum:find_curriculum"},
)
