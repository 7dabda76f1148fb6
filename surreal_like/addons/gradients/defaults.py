"""Setting of gradients at agents, ``learner_config.gradients_at``, and the replay it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from session.addons import load
from session.config.key import Key
from session.errors import ConfigError

GRADIENTS_AT = Key(
    "learner",
    "Place where gradients are computed: learner; or agent, from its own unrolls: then the plan "
    "has async_gradients, and FIFOReplay holds gradients.",
    one_of=("learner", "agent"),
)


def choose_replay(learner_config: Mapping[str, Any], kind: type[Any]) -> Any:
    """Returns GradientReplay if agents make gradients, else None.

    Raises:
        ConfigError: the replay of the config cannot hold gradients.
    """
    if learner_config.get("gradients_at") != "agent":
        return None
    # Only now: without gradients no process imports it.
    of_gradients = load("surreal_like.addons.gradients.replay:GradientReplay")
    if not issubclass(of_gradients, kind):
        raise ConfigError(
            f"learner_config.gradients_at is agent, but learner_config.replay.type is "
            f"{kind.__name__}: gradients need a FIFOReplay; set gradients_at to learner"
        )
    return of_gradients
