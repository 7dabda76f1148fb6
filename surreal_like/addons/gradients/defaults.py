"""Setting of gradients at agents: ``learner_config.gradients_at``."""

from __future__ import annotations

from session.config.key import Key

GRADIENTS_AT = Key(
    "learner",
    "Place where gradients are computed: learner; or agent, from its own unrolls: then the plan "
    "has async_gradients, and FIFOReplay holds gradients.",
    one_of=("learner", "agent"),
)
