"""Declares hindsight: a view of replay, and its settings."""

from __future__ import annotations

from session.addons import AddOn

_ROOM = "surreal_like.addons.hindsight"
ADD_ON = AddOn(
    keys={"learner_config.replay.hindsight": f"{_ROOM}.defaults:HINDSIGHT"},
    code=("learner_config.replay.hindsight.reward",),
    elsewhere={
        "her": "dqn, sac, td3 or ddpg with learner_config.replay.hindsight.proportion=0.8",
    },
    hooks={
        "check": f"{_ROOM}.view:check_hindsight",
        "view": f"{_ROOM}.view:make_hindsight_view",
    },
    needs=("episodes",),
    files=("configs/bitflip_dqn.yaml", "configs/fetchreach_sac.yaml"),
)
