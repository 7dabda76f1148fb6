"""Declares the games of Atari."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(
    environments={"atari": "surreal_like.addons.atari.kind:Atari"},
    files=("configs/pong_ppo.yaml",),
)
