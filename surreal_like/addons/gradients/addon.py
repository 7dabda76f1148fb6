"""Declares gradients at agents: the algorithm A3C, and what an agent sends in place of unrolls."""

from __future__ import annotations

from session.addons import AddOn
from surreal_like.algorithm.catalog import CORES, EVERY_ACTION, Registration

ADD_ON = AddOn(
    keys={"learner_config.gradients_at": "surreal_like.addons.gradients.defaults:GRADIENTS_AT"},
    algorithms={
        "a3c": Registration(
            "surreal_like.addons.gradients.a3c:A3C",
            EVERY_ACTION,
            "unrolls",
            memory=CORES,
            central_critic=True,
        )
    },
    elsewhere={
        "a2c": "a3c with learner_config.gradients_at=learner learner_config.algo.synchronous=true",
    },
    replays={"GradientReplay": "surreal_like.addons.gradients.replay:GradientReplay"},
    hooks={
        "agent": "surreal_like.addons.gradients.maker:send_gradients",
        "replay": "surreal_like.addons.gradients.defaults:choose_replay",
    },
    files=tuple(f"configs/{name}_a3c.yaml" for name in ("cartpole", "memory", "target")),
)
