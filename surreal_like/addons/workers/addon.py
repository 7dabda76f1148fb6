"""Declares worker processes: a way to step the environments of an agent."""

from __future__ import annotations

from session.addons import AddOn

_ROOM = "surreal_like.addons.workers"
ADD_ON = AddOn(
    keys={"env_config.workers": f"{_ROOM}.defaults:WORKERS"},
    vectors={"process": f"{_ROOM}.subprocess_vector:SubprocessVector"},
)
