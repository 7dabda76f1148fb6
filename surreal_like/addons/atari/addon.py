"""Declares the games of Atari."""

from __future__ import annotations

from session.addons import AddOn

_UNTRIED = ("breakout_ppo", "pong_apex", "pong_impala", "pong_rainbow")
ADD_ON = AddOn(
    environments={"atari": "surreal_like.addons.atari.kind:Atari"},
    files=("configs/pong_ppo.yaml", *(f"configs/untried/{name}.yaml" for name in _UNTRIED)),
)
