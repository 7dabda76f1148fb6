"""The stages that observations and rewards go through, in their fixed order, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surreal_like.replay.base import load_replay_class

_OFF = "off"
# Transformation of rewards -> the value that leaves them as they are.
_NEUTRAL = {"clip": 0.0, "scale": 1.0}


def pipeline(settings: Mapping[str, Any]) -> list[list[str]]:
    """Returns for each stage its name, its value or ``off``, and where it runs.

    Args:
        settings: settings of an experiment, by their dotted keys.
    """
    algo, model = "learner_config.algo", "learner_config.model"
    replay = {"type": settings["learner_config.replay.type"]}
    place = settings.get("learner_config.gradients_at")
    gives = load_replay_class({"replay": replay, "gradients_at": place}).gives()
    at = "agent, in its unroll" if gives == "gradients" else "replay, at sampling"
    proportion = settings.get("learner_config.replay.hindsight.proportion", 0.0)
    stack, steps = settings["env_config.frame_stack"] or 0, settings[f"{algo}.n_step"]
    changes = {name: settings[f"{algo}.reward_{name}"] for name in _NEUTRAL}
    rewards = [
        f"{name} {changes[name]:g}" for name, kept in _NEUTRAL.items() if changes[name] != kept
    ]
    seen = [f"torso {settings[f'{model}.torso']}"] if settings.get(f"{model}.torso") else []
    seen += ["normalize_obs"] if settings.get(f"{model}.normalize_obs") else []
    parts = [str(part["part"]) for part in settings["learner_config.parts"]]
    summed = steps > 1 and gives in ("rows", "sequences")
    return [
        ["relabel goals", f"proportion {proportion:g}" if proportion else _OFF, at],
        ["stack frames", f"{stack} frames" if stack > 1 else _OFF, f"agent; {at}"],
        ["each reward", ", ".join(rewards) or _OFF, at],
        [
            "sum of n steps",
            f"{steps} steps" if summed else _OFF,
            "learner, in the loss" if gives == "sequences" else at,
        ],
        [
            "observations",
            ", ".join(seen) or "bytes and one-hot codes",
            "network: agent and learner",
        ],
        ["bonus of parts", ", ".join(parts) or _OFF, "learner, before the update"],
    ]
