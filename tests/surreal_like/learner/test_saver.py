"""What a learner saves comes back whole; what was cut short is passed over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.clock import CountedClock
from session.config import Config
from session.default_configs import BASE_CONFIG
from session.errors import CheckpointError
from session.folder import RunFolder
from surreal_like.data.batch import Batch
from surreal_like.learner.base import Learner, choose_device
from surreal_like.learner.saver import Saver
from surreal_like.network.files import load_parameters
from surreal_like.network.flat import manifest_of, named_tensors, read_flat

SETTINGS = {"keep_history": 2, "keep_best": 1, "period": 10, "seconds": 5.0}


class Line(Learner):
    """Learns one weight."""

    def __init__(self, **configs: Config) -> None:
        super().__init__(**configs)
        self.net = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.1)

    def learn(self, batch: Batch) -> Mapping[str, float]:
        self.optimizer.zero_grad()
        loss = self.net(torch.rand(4, 2)).square().mean()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        return {"net": self.net}

    def saveables(self) -> Mapping[str, Any]:
        return {"optimizer": self.optimizer}


def make_learner() -> Line:
    config = BASE_CONFIG.copy()
    return Line(
        learner_config=config.learner_config,
        env_config=config.env_config,
        session_config=config.session_config,
    )


def train(learner: Line, updates: int) -> None:
    for _ in range(updates):
        learner.learn(Batch())
        learner.iteration += 1


def weights(learner: Line) -> list[float]:
    return [
        float(value)
        for value in torch.cat([p.detach().flatten() for p in learner.net.parameters()])
    ]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    return folder


def test_a_restored_learner_goes_on_as_if_nothing_had_happened(folder: RunFolder) -> None:
    one = make_learner()
    train(one, 5)
    Saver(one, folder, SETTINGS, CountedClock()).save(3, 100, "id")
    train(one, 5)
    two = make_learner()
    state, complaints = Saver(two, folder, SETTINGS, CountedClock()).restore()
    assert complaints == []
    assert state is not None
    assert (state["iteration"], state["version"], state["env_steps"]) == (5, 3, 100)
    train(two, 5)
    # The optimiser's moments and the random numbers too: else these would differ.
    assert weights(two) == weights(one)
    assert two.iteration == 10


@pytest.mark.parametrize("name", ["params.safetensors", "optimizer.pt", "state.json"])
def test_a_checkpoint_cut_short_falls_back_one_generation(folder: RunFolder, name: str) -> None:
    learner = make_learner()
    saver = Saver(learner, folder, SETTINGS, CountedClock())
    train(learner, 5)
    saver.save(1, 0, "id")
    train(learner, 5)
    newest = saver.save(2, 0, "id")
    (newest / name).write_bytes((newest / name).read_bytes()[:-9])
    again = make_learner()
    state, complaints = Saver(again, folder, SETTINGS, CountedClock()).restore()
    assert state is not None
    assert again.iteration == 5
    assert len(complaints) == 1
    assert str(newest / name) in complaints[0]


def test_garbage_of_the_right_size_is_refused_too(folder: RunFolder) -> None:
    learner = make_learner()
    path = Saver(learner, folder, SETTINGS, CountedClock()).save(1, 0, "id") / "optimizer.pt"
    path.write_bytes(b"x" * path.stat().st_size)
    state, complaints = Saver(make_learner(), folder, SETTINGS, CountedClock()).restore()
    assert state is None
    assert "optimizer.pt" in complaints[0]


def test_due_by_iterations_and_by_seconds(folder: RunFolder) -> None:
    clock, learner = CountedClock(), make_learner()
    saver = Saver(learner, folder, SETTINGS, clock)
    assert not saver.due()
    learner.iteration = 9
    assert not saver.due()
    learner.iteration = 10
    assert saver.due()
    saver.save(1, 0, "id")
    assert not saver.due()
    learner.iteration = 11
    for _ in range(5001):
        clock.advance()
    assert saver.due()


def test_what_the_disk_refused_is_not_tried_again_within_a_second(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, learner = CountedClock(), make_learner()
    saver = Saver(learner, folder, SETTINGS, clock)

    def refuse(path: Path) -> None:
        raise CheckpointError("no space")

    learner.iteration = 10
    with monkeypatch.context() as patched:
        patched.setattr(learner, "save", refuse)
        with pytest.raises(CheckpointError):
            saver.save(1, 0, "id")
    learner.iteration = 20
    assert not saver.due()
    for _ in range(1000):
        clock.advance()
    assert saver.due()
    saver.save(1, 0, "id")
    learner.iteration = 30
    assert saver.due()


def test_the_best_are_the_parameters_that_were_played(folder: RunFolder) -> None:
    learner = make_learner()
    flat, manifest = (
        read_flat(learner.module_dict()),
        manifest_of(named_tensors(learner.module_dict())),
    )
    played = weights(learner)
    train(learner, 3)
    Saver(learner, folder, SETTINGS, CountedClock()).save_best(flat, manifest, {"mean_return": 1.0})
    load_parameters(learner.module_dict(), folder.checkpoints / "best" / "params.safetensors")
    assert weights(learner) == played


def test_best_parameters_of_another_size_are_refused(folder: RunFolder) -> None:
    learner = make_learner()
    manifest = manifest_of(named_tensors(learner.module_dict()))
    saver = Saver(learner, folder, SETTINGS, CountedClock())
    with pytest.raises(CheckpointError, match="do not fit"):
        saver.save_best(np.zeros(3, np.uint8), manifest, {})


def test_parameters_of_another_network_are_refused(tmp_path: Path) -> None:
    learner = make_learner()
    learner.save(tmp_path / "file")
    with pytest.raises(Exception, match="do not fit this network"):
        load_parameters({"net": torch.nn.Linear(3, 1)}, tmp_path / "file")


def test_an_unknown_device_is_one_clear_line() -> None:
    with pytest.raises(Exception, match=r"learner_config\.device 'gpu7' cannot be used") as caught:
        choose_device("gpu7")
    assert "\n" not in str(caught.value)


def test_state_of_another_format_falls_back_one_generation(folder: RunFolder) -> None:
    learner = make_learner()
    saver = Saver(learner, folder, SETTINGS, CountedClock())
    train(learner, 5)
    saver.save(1, 0, "id")
    train(learner, 5)
    path = saver.save(2, 0, "id")
    rest = torch.load(path / "optimizer.pt", weights_only=True)
    rest["saveables"]["optimizer"] = {"other": 1}
    torch.save(rest, path / "optimizer.pt")
    state = json.loads((path / "state.json").read_text())
    state["files"]["optimizer.pt"] = (path / "optimizer.pt").stat().st_size
    (path / "state.json").write_text(json.dumps(state))
    again = make_learner()
    _, complaints = Saver(again, folder, SETTINGS, CountedClock()).restore()
    assert again.iteration == 5
    assert "does not fit" in complaints[0]
