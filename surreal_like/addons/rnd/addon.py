"""Declares the bonus for what is new: a part of plans."""

from __future__ import annotations

from session.addons import AddOn

ADD_ON = AddOn(
    parts={"rnd": "surreal_like.addons.rnd.bonus:add_rnd_bonus"},
    elsewhere={"rnd": "ppo with learner_config.parts=[{part: rnd}]"},
    files=("configs/chain_rnd.yaml",),
)
