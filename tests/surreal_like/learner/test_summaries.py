"""Histograms of a learner: which, how often, and that they do not change what is learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.tensorplex.groups import place_of_title
from surreal_like import train
from surreal_like.algorithm.dqn import DQNLearner
from surreal_like.dataflow.items import Trained
from surreal_like.learner.metrics import summaries_of, thin
from tests.session.tensorplex.reading import read
from tests.surreal_like.algorithm.test_dqn import make_batch, make_learner

STOP = {"session_config.stop": {"iterations": 25, "eval_episodes": 2}}


def run(folder: Path, algorithm: str, every: int) -> Any:
    """Tags and points of the histograms of a short run, and its parameters."""
    overrides: dict[str, Any] = {
        **STOP,
        "session_config.tensorplex.debug_summaries": every,
        "learner_config.replay.min_size": 64,
    }
    if algorithm == "ppo":
        del overrides["learner_config.replay.min_size"]
    train(
        algorithm=algorithm, env="toy:clock", overrides=overrides, launcher="serial", folder=folder
    )
    reader = read(folder / "tensorboard")
    saved = [path.read_bytes() for path in sorted(folder.glob("checkpoints/*/*.safetensors"))]
    tags = reader.Tags()["histograms"]
    places = {title: place_of_title(title) for title in tags}
    assert {place.component for place in places.values()} <= {"learner"}
    short = {title: place.tag.removeprefix("learner/") for title, place in places.items()}
    return {short[title]: reader.Histograms(title) for title in tags}, saved


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "some"),
    [
        ("dqn", {"parameters/q_network/head.weight", "batch/priorities", "batch/obs"}),
        ("ppo", {"gradients/network/value_head.bias", "batch/advantages", "batch/value_targets"}),
    ],
)
def test_they_are_reported_every_so_many_updates(
    tmp_path: Path, algorithm: str, some: set[str]
) -> None:
    found, saved = run(tmp_path / "with", algorithm, every=10)
    assert some <= set(found)
    assert all(len(points) == 2 for points in found.values())
    assert not {"batch/indices", "batch/version"} & set(found)
    without, same = run(tmp_path / "without", algorithm, every=0)
    assert not without
    assert saved
    assert saved == same


def test_gradients_and_errors_are_those_of_the_newest_update() -> None:
    learner, batch = make_learner(), make_batch()
    learner.learn(batch)
    errors = torch.rand(6)
    found = learner.summaries(Trained(batch, {}, priorities=errors))
    parameters = dict(learner.q_network.named_parameters())
    assert torch.equal(found["batch/priorities"], errors)
    assert torch.equal(found["batch/rewards"], batch.rewards)
    for name, parameter in parameters.items():
        assert torch.equal(found[f"parameters/q_network/{name}"], parameter)
        assert parameter.grad is not None
        assert torch.equal(found[f"gradients/q_network/{name}"], parameter.grad)
    # The target network is not trained.
    modules = {tag.split("/")[1] for tag in found if not tag.startswith("batch/")}
    assert modules == {"q_network"}
    norm = torch.cat([p.grad.reshape(-1) for p in parameters.values() if p.grad is not None]).norm()
    assert norm > 0.0


def test_an_algorithm_may_add_its_own() -> None:
    class Own(DQNLearner):
        def summaries(self, update: Trained) -> dict[str, torch.Tensor]:
            return {"mine": torch.ones(3), **super().summaries(update)}

    learner, sent = make_learner(), {}
    own = Own(
        learner_config=learner.learner_config,
        env_config=learner.env_config,
        session_config=learner.session_config,
    )
    own.env_steps = 77
    own.tensorplex.add_histogram = (  # type: ignore[method-assign]
        lambda tag, values, global_step: sent.update({tag: (np.array(values), global_step)})
    )
    own.report_summaries(Trained(make_batch(), {}))
    assert sent["mine"][0].tolist() == [1.0, 1.0, 1.0]
    assert {step for _, step in sent.values()} == {77}
    assert "batch/rewards" in sent


def test_only_modules_that_are_trained_count() -> None:
    frozen = torch.nn.Linear(2, 2)
    for each in frozen.parameters():
        each.requires_grad_(False)
    attributes = {"frozen": frozen, "unused": torch.nn.Linear(2, 2), "name": "x"}
    found = summaries_of(attributes, Trained(make_batch(), {}))
    assert {tag.split("/")[0] for tag in found} == {"batch"}


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
def test_large_tensors_are_thinned_evenly(size: int) -> None:
    numbers = thin(torch.arange(size, dtype=torch.float32))
    assert len(numbers) <= 65_536
    assert len(numbers) >= min(size, 32_768)
    gaps = set(np.diff(numbers))
    assert len(gaps) <= 1
    # Up to the end.
    assert not size or size - numbers[-1] <= max(gaps, default=1.0)
