"""Settings of hindsight: ``learner_config.replay.hindsight``."""

from __future__ import annotations

from session.config.key import SHARE, Key, section

HINDSIGHT = section(
    "Goals relabelled in hindsight, in UniformReplay and PrioritizedReplay: a sampled row gets a "
    "goal that was achieved later, and the reward for that goal.",
    {
        "proportion": Key(
            0.0,
            "Probability that a sampled row is relabelled; 0: off.",
            within=SHARE,
        ),
        "strategy": Key(
            "future",
            "Goal of a row: future (achieved at a later row), final (at the newest row of the "
            "episode) or episode (at any row after the first).",
            one_of=("future", "final", "episode"),
        ),
        "reward": Key(
            "env",
            "Reward for a goal: env (compute_reward of the environment) or "
            "package.module:function of (achieved, desired, info).",
        ),
        "achieved": Key("achieved_goal", "Part of the observations with the achieved goal."),
        "desired": Key("desired_goal", "Part of the observations with the desired goal."),
        "check_rows": Key(
            1000,
            "First rows whose stored and computed rewards are compared; 0: none.",
            unit="rows",
        ),
    },
)
