"""The stages of data, in order, with where each runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from main.cli.plan import pipeline
from surreal_like.run.request import RunRequest
from tests.add_ons import needs

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
AT_REPLAY = "replay, at sampling"
ATARI = (
    *("env_config.env_name=atari:Pong", "env_config.frame_stack=4"),
    "learner_config.algo.reward_clip=1.0",
)
STAGES = [
    *("relabel goals", "stack frames", "each reward"),
    *("sum of n steps", "scale of rewards", "observations", "bonus of parts"),
]


def stages(config: str, *words: str) -> dict[str, list[str]]:
    file = next(CONFIGS.rglob(f"{config}.yaml"))
    found = RunRequest(file, overrides=words).explain()
    rows = pipeline({path: value for path, (value, _) in found.items()})
    assert [name for name, *_ in rows] == STAGES
    return {name: rest for name, *rest in rows}


@pytest.mark.parametrize(
    ("config", "words", "stage", "expected"),
    [
        pytest.param(
            *("fetchreach_sac", (), "relabel goals", ["proportion 0.8", AT_REPLAY]),
            marks=needs("hindsight"),
        ),
        ("cartpole_dqn", (), "relabel goals", ["off", AT_REPLAY]),
        pytest.param(
            *("cartpole_dqn", ATARI, "stack frames", ["4 frames", f"agent; {AT_REPLAY}"]),
            marks=needs("atari"),
        ),
        pytest.param(
            *("cartpole_dqn", ATARI, "each reward", ["clip 1", AT_REPLAY]), marks=needs("atari")
        ),
        ("cartpole_dqn", (), "each reward", ["off", AT_REPLAY]),
        ("cartpole_dqn", (), "sum of n steps", ["3 steps", AT_REPLAY]),
        pytest.param(
            *("memory_r2d2", (), "sum of n steps", ["5 steps", "learner, in the loss"]),
            marks=needs("r2d2"),
        ),
        pytest.param(
            *("cartpole_a3c", (), "sum of n steps", ["off", "agent, in its unroll"]),
            marks=needs("gradients"),
        ),
        ("doorkey_ppo", (), "observations", ["normalize_obs", "network: agent and learner"]),
        pytest.param(
            *("cartpole_ppo", ("learner_config.parts=[{part: rnd}]",), "bonus of parts"),
            ["rnd", "learner, before the update"],
            marks=needs("rnd"),
        ),
        (
            "cartpole_ppo",
            ("learner_config.algo.reward_clip=1", "learner_config.algo.reward_scale=0.5"),
            "each reward",
            ["clip 1, scale 0.5", AT_REPLAY],
        ),
        (
            "cartpole_ppo",
            ("learner_config.algo.normalize_rewards=true",),
            "scale of rewards",
            ["normalize_rewards", "replay counts, learner divides"],
        ),
        (
            "cartpole_ppo",
            ("learner_config.algo.reward_function=my.py:root",),
            "each reward",
            ["my.py:root", AT_REPLAY],
        ),
    ],
)
def test_stages_have_their_values_and_places(
    config: str, words: tuple[str, ...], stage: str, expected: list[Any]
) -> None:
    """T1: the pipeline that `plan --explain` ends with."""
    assert stages(config, *words)[stage] == expected
