"""Runs of every algorithm of discrete actions under masks: an illegal action ends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import SurrealError
from session.folder import RunFolder
from surreal_like import load_policy
from surreal_like.addons.analysis import export as exporting
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.analysis.export import export
from surreal_like.addons.analysis.run_curves import EventCurves
from surreal_like.algorithm.catalog import describe_algorithms
from surreal_like.run.train import Run
from tests.add_ons import needs
from tests.runs.command import ROOT
from tests.surreal_like.algorithm.unrolls import play

ENV = "tests.surreal_like.env.masked:Masked"
ROWS: dict[str, Any] = {
    "learner_config__replay__min_size": 50,
    "learner_config__replay__samples_per_insert": 2.0,
}
SEQUENCES: dict[str, Any] = {
    "learner_config__replay__min_size": 10,
    "learner_config__replay__sequence": {"length": 4, "burn_in": 2, "period": 2},
    "learner_config__replay__samples_per_insert": 1.0,
}
KIND = "learner_config__algo__distribution"
LSTM = {"learner_config__model__memory": "lstm"}
SEVERAL = {"env_config__env_args": {"nums": [3, 2]}}
CUT = {"env_config__env_args": {"cut": True}}
AT_LEARNER = {"learner_config__gradients_at": "learner", "learner_config__replay__capacity": 1000}
PRIORITIES: dict[str, Any] = {
    "learner_config__replay__type": "PrioritizedReplay",
    "learner_config__replay__priority__initial": "acting",
}
QUICK = ("dqn", "ppo")
# Algorithms of add-ons.
ADD_ONS = {"a3c": "gradients", "bc": "offline", "r2d2": "r2d2"}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", ROWS),
    "dqn cut, not double": ("dqn", {**ROWS, **CUT, "learner_config__algo__double": False}),
    "dqn by priorities": ("dqn", {**ROWS, **PRIORITIES}),
    "dqn stacks": ("dqn", {**ROWS, "env_config__frame_stack": 2}),
    "dqn noisy": ("dqn", {**ROWS, "learner_config__model__noisy": 0.5}),
    "c51": ("dqn", {**ROWS, **CUT, KIND: {"kind": "categorical", "v_max": 200.0}}),
    "qr": (
        "dqn",
        {**ROWS, **CUT, KIND: {"kind": "quantile"}, "learner_config__algo__double": False},
    ),
    "r2d2": ("r2d2", {**SEQUENCES, **CUT}),
    "pqn": ("pqn", CUT),
    "pqn memory": ("pqn", LSTM),
    "ppo": ("ppo", {"learner_config__algo__kl__coefficient": 0.1}),
    "ppo several": ("ppo", {**SEVERAL, **CUT}),
    "ppo memory": ("ppo", LSTM),
    "impala": ("impala", {"learner_config__model__normalize_obs": True}),
    "impala memory, several": ("impala", {**LSTM, **SEVERAL}),
    "a3c": ("a3c", {}),
    "a3c at the learner": ("a3c", AT_LEARNER),
    "bc several": ("bc", {**ROWS, **SEVERAL, **CUT}),
}


def trained(name: str, folder: Path) -> Run:
    algorithm, changed = RUNS[name]
    words = {"session_config__import_path": [str(ROOT)], **changed}
    return play(folder, algorithm, ENV, env_steps=600, **words)


def test_every_algorithm_of_discrete_actions_is_trained_here() -> None:
    wanted = {name for name, each in describe_algorithms().items() if "discrete" in each.actions}
    assert {algorithm for algorithm, _ in RUNS.values()} >= wanted


def losses(run: Run) -> dict[str, float]:
    """Returns the largest size of each loss, and of the mean values, by tag."""
    events = EventCurves(RunFolder(run.folder).tensorboard)
    tags = [tag for tag in events.tags() if "loss" in tag or tag.endswith(("mean_q", "td_error"))]
    found = {tag: [x for curve in events.curves(tag).values() for x in curve.y] for tag in tags}
    return {tag: max(map(abs, each)) for tag, each in found.items()}


def _marks(name: str) -> list[pytest.MarkDecorator]:
    """Returns the marks of a run: two are quick tests, which stand for all."""
    slow = [] if name in QUICK else [pytest.mark.slow]
    return slow + [needs(each) for word, each in ADD_ONS.items() if word in name]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in RUNS])
def test_no_illegal_action_is_ever_taken(name: str, tmp_path: Path) -> None:
    # The environment ends the run with an error at the first one.
    run = trained(name, tmp_path / "run")
    assert run.ok
    assert run.result["iteration"] > 0
    found = losses(run)
    assert found
    # Values of masked actions are -1e9: targets made of them would be seen.
    assert all(each < 1e5 for each in found.values()), found
    assert evaluate(run.folder, checkpoint="latest", episodes=5)["episodes"] == 5


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "informs"), [("ppo", True), ("dqn", False)])
def test_several_agents_take_legal_actions_only(
    algorithm: str, informs: bool, tmp_path: Path
) -> None:
    words: dict[str, Any] = {
        "session_config__import_path": [str(ROOT)],
        "env_config__env_args": {"informs": informs},
        **(ROWS if algorithm == "dqn" else {}),
    }
    run = play(tmp_path / "run", algorithm, f"{ENV}Game", env_steps=600, **words)
    assert run.ok
    assert run.result["iteration"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo several", pytest.param("r2d2", marks=needs("r2d2"))])
def test_an_exported_policy_never_chooses_a_masked_action(name: str, tmp_path: Path) -> None:
    run = trained(name, tmp_path / "run")
    found = export(run.folder, tmp_path / "policy.pt2", format="pt2", checkpoint="latest")
    assert found.inputs[:2] == ("obs/action_mask", "obs/observation")
    policy = load_policy(run.folder, "latest")
    probe = exporting._probe(policy)
    actions, *_ = exporting._read_pt2(found.path)(probe)
    nums = policy.config.env_config.action_spec.dim
    columns = actions.reshape(len(actions), -1) + np.cumsum([0, *nums[:-1]])
    masks = probe["obs/action_mask"]
    assert np.take_along_axis(masks, columns, 1).all()
    assert not masks.all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_continuous_actions_have_no_mask(name: str, tmp_path: Path) -> None:
    with pytest.raises(SurrealError, match="continuous actions, which have no mask"):
        play(
            tmp_path / "run",
            name,
            "tests.surreal_like.env.masked:MaskedBox",
            env_steps=100,
            session_config__import_path=[str(ROOT)],
        )
