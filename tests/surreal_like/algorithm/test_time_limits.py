"""Learners of rows bootstrap a time limit, and no termination: the clock that an observation hides.

Those of unrolls play it in tests of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surreal_like.env.toy import Clock
from surreal_like.replay.view.n_step import NStepView, Transitions
from tests.surreal_like.algorithm.unrolls import GAMMA, play

SHARED: dict[str, Any] = {
    "learner_config__replay__batch_size": 32,
    "learner_config__replay__min_size": 200,
    "learner_config__replay__samples_per_insert": 16.0,
    "learner_config__algo__gamma": GAMMA,
    "learner_config__algo__learning_rate": 3e-3,
}
CRITIC: dict[str, Any] = {
    "learner_config__algo__critic_learning_rate": 3e-3,
    "learner_config__algo__tau": 0.05,
    "learner_config__algo__random_steps": 1000,
    "env_config__env_args": {"continuous": True},
}
NOISE: dict[str, Any] = {"learner_config__algo__noise__sigma": 0.5}
SETTINGS: dict[str, dict[str, Any]] = {
    # A loss that is linear in large errors would learn the median, which knows of no limit.
    "dqn": {
        **SHARED,
        "learner_config__algo__epsilon": {"steps": 2000, "end": 0.2},
        "learner_config__algo__huber_kappa": 0.0,
    },
    "ddpg": {**SHARED, **CRITIC, **NOISE},
    "sac": {
        **SHARED,
        **CRITIC,
        "learner_config__algo__temperature": {"start": 0.05, "learning_rate": 0.0},
    },
}


def final(folder: Path, name: str, n_step: int) -> tuple[float, float]:
    """The return in the end, and the value that was learned."""
    words = {**SETTINGS[name], "learner_config__algo__n_step": n_step}
    steps = 3000 if name == "dqn" else 6000
    run = play(folder, name, "toy:clock", env_steps=steps, **words)
    last = run.progress()[-1]
    return run.result["eval"]["mean_return"], last["learn"]["mean_q"]


@pytest.mark.parametrize(
    ("name", "n_step"),
    [
        ("dqn", 1),
        pytest.param("dqn", 3, marks=pytest.mark.slow),
        pytest.param("ddpg", 1, marks=pytest.mark.slow),
        pytest.param("sac", 1, marks=pytest.mark.slow),
    ],
)
def test_a_time_limit_is_bootstrapped(name: str, n_step: int, tmp_path: Path) -> None:
    returned, mean_q = final(tmp_path / "run", name, n_step)
    assert returned == Clock().optimal_return
    assert mean_q > 0.75 / (1.0 - GAMMA)


@pytest.mark.slow
def test_an_agent_that_takes_it_for_a_termination_is_trapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the test above can fail."""
    transitions = NStepView.transitions

    def trapped(*arguments: Any) -> Transitions:
        found = transitions(*arguments)
        return found._replace(discounts=found.discounts * ~(found.ended & ~found.terminated))

    monkeypatch.setattr(NStepView, "transitions", trapped)
    returned, mean_q = final(tmp_path / "run", "dqn", 1)
    assert returned == 0.75 * Clock().optimal_return
    assert mean_q < 0.75 / (1.0 - GAMMA)
