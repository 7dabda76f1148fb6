"""What a learner saves comes back whole; what was cut short is passed over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import sections_of
from session.errors import CheckpointError
from session.folder import RunFolder
from session.process.clock import CountedClock
from surreal_like.data.batch import Batch
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Saver
from surreal_like.learner.updates import choose_device
from surreal_like.network.files import load_parameters
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from tests.session.damage import seal_again

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


def make_learner(kind: type[Line] = Line) -> Line:
    return kind(**sections_of(BASE_CONFIG.copy()))


def train(learner: Line, updates: int) -> None:
    for _ in range(updates):
        learner.learn(Batch())
        learner.iteration += 1


def weights(learner: Line) -> list[float]:
    return [
        float(value)
        for value in torch.cat([p.detach().flatten() for p in learner.net.parameters()])
    ]


def restore(learner: Line, folder: RunFolder) -> tuple[Mapping[str, Any] | None, list[str]]:
    """Give the state that a learner goes on from, and what was said of others."""
    said: list[str] = []
    state = Saver(learner, folder, SETTINGS, CountedClock(), said.append).restore()
    return state, said


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
    state, complaints = restore(two, folder)
    assert complaints == []
    assert state is not None
    assert (state["iteration"], state["version"], state["env_steps"]) == (5, 3, 100)
    train(two, 5)
    # The optimiser's moments and the random numbers too: else these would differ.
    assert weights(two) == weights(one)
    assert two.iteration == 10


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

    def refuse(*_: object) -> None:
        raise CheckpointError("no space")

    learner.iteration = 10
    with monkeypatch.context() as patched:
        patched.setattr("surreal_like.learner.saver.write_content", refuse)
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
    seal_again(path)
    again = make_learner()
    _, complaints = restore(again, folder)
    assert again.iteration == 5
    assert "does not fit" in complaints[0]


def saved_best(learner: Line, saver: Saver, score: float) -> None:
    modules = learner.module_dict()
    manifest = manifest_of(named_tensors(modules))
    saver.save_best(read_flat(modules), manifest, {"mean_return": score})


@pytest.mark.parametrize(("keep", "names"), [(0, []), (1, ["best"]), (2, ["best", "best-2"])])
def test_so_many_best_are_kept(folder: RunFolder, keep: int, names: list[str]) -> None:
    learner = make_learner()
    saver = Saver(learner, folder, {**SETTINGS, "keep_best": keep}, CountedClock())
    for score in (1.0, 2.0, 3.0):
        saved_best(learner, saver, score)
    assert sorted(path.name for path in folder.checkpoints.glob("best*")) == names
    assert saver.best_return == 3.0
    again = Saver(make_learner(), folder, {**SETTINGS, "keep_best": keep}, CountedClock())
    again.restore()
    assert again.best_return == (3.0 if keep else None)


class Wide(Line):
    """Another network."""

    def __init__(self, **configs: Config) -> None:
        super().__init__(**configs)
        self.net = torch.nn.Linear(3, 1)


def test_what_is_of_another_network_is_set_aside_and_the_run_begins_anew(
    folder: RunFolder,
) -> None:
    one = make_learner()
    saver = Saver(one, folder, SETTINGS, CountedClock())
    for number in (150, 200):
        one.iteration = number
        saver.save(1, 0, "id")
    saved_best(one, saver, 5.0)
    two, said = make_learner(Wide), list[str]()
    saver = Saver(two, folder, SETTINGS, CountedClock(), said.append)
    assert saver.restore() is None
    assert saver.best_return is None
    assert ["set aside as" in line and "do not fit" in line for line in said] == [True] * 3
    for number in (50, 100):
        two.iteration = number
        saver.save(1, 0, "id")
    there = (folder.checkpoints / "learner").glob("[0-9]*")
    assert sorted(path.name for path in there) == ["100", "50"]
    saved_best(two, saver, 1.0)
    load_parameters(two.module_dict(), folder.checkpoints / "best" / "params.safetensors")


class Own(Line):
    """An author's learner that saves in a format of its own."""

    def save(self, file_path: str | Path) -> None:
        torch.save(self.net.state_dict(), file_path)

    def load(self, file_path: str | Path) -> None:
        self.net.load_state_dict(torch.load(file_path, weights_only=True))


def test_an_authors_own_format_is_none_of_the_runs(folder: RunFolder) -> None:
    one = make_learner(Own)
    train(one, 5)
    path = Saver(one, folder, SETTINGS, CountedClock()).save(1, 0, "id")
    load_parameters(make_learner().module_dict(), path / "params.safetensors")
    two = make_learner(Own)
    assert restore(two, folder)[1] == []
    assert weights(two) == weights(one)


def test_by_default_soon_for_the_first_time_and_then_every_minute(folder: RunFolder) -> None:
    clock, learner = CountedClock(), make_learner()
    saver = Saver(learner, folder, BASE_CONFIG.session_config.checkpoint, clock)
    due_at = []
    for _ in range(200_000):
        clock.advance()
        learner.iteration += 1
        if saver.due():
            due_at.append(round(clock.now()))
            saver.save(1, 0, "id")
    assert due_at == [10, 70, 130, 190]


def test_what_takes_long_to_save_is_saved_less_often(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, learner = CountedClock(), make_learner()
    saver = Saver(learner, folder, BASE_CONFIG.session_config.checkpoint, clock)

    def two_seconds(*given: object) -> None:
        for _ in range(2000):
            clock.advance()

    monkeypatch.setattr("surreal_like.learner.saver.write_content", two_seconds)
    learner.iteration = 1
    saver.save(1, 0, "id")
    learner.iteration = 2
    for _ in range(197_000):
        clock.advance()
    assert not saver.due()
    for _ in range(3_000):
        clock.advance()
    assert saver.due()


def saver_of(learner: Line, folder: RunFolder, generation: int) -> Saver:
    run = {"generation": generation, "load_from": "checkpoints/donor"} if generation else {}
    return Saver(learner, folder, SETTINGS, CountedClock(), run=run)


def save_at(folder: RunFolder, generation: int, iteration: int) -> Line:
    learner = make_learner()
    train(learner, iteration)
    saver_of(learner, folder, generation).save(iteration, 10 * iteration, "run", {"times": {}})
    return learner


@pytest.fixture
def donor(folder: RunFolder) -> Line:
    """A donor, 3 updates old, whose checkpoint was copied."""
    donor = save_at(folder, 0, 3)
    (folder.checkpoints / "learner" / "3").rename(folder.checkpoints / "donor")
    return donor


@pytest.mark.parametrize("iteration", [2, 3, 5])
def test_a_learner_of_an_older_generation_goes_on_from_the_donor(
    folder: RunFolder, donor: Line, iteration: int
) -> None:
    save_at(folder, 0, iteration)
    learner = make_learner()
    random = torch.get_rng_state()
    saver = saver_of(learner, folder, 1)
    state = saver.restore()
    assert state is not None
    assert (state["iteration"], state["donor"]) == (3, folder.checkpoints / "donor")
    assert learner.iteration == 3
    assert weights(learner) == weights(donor)
    assert torch.equal(torch.get_rng_state(), random)
    # The first checkpoint of a generation takes the place of all older ones.
    saver.save(3, 30, "run", {"times": {}})
    left = [each for each in (folder.checkpoints / "learner").iterdir() if each.name.isdigit()]
    assert [each.name for each in left] == ["3"]
    # Then its own checkpoints count.
    state = saver_of(make_learner(), folder, 1).restore()
    assert state is not None
    assert "donor" not in state
    assert state["generation"] == 1
    assert "donor" in (saver_of(make_learner(), folder, 2).restore() or {})


def test_a_larger_iteration_of_an_older_generation_is_not_newer(
    folder: RunFolder, donor: Line
) -> None:
    save_at(folder, 1, 3)
    learners = folder.checkpoints / "learner"
    (learners / "3").rename(folder.path / "kept")
    save_at(folder, 0, 5)
    # Killed between the first save of the generation and the removal of older ones.
    (folder.path / "kept").rename(learners / "3")
    state = saver_of(make_learner(), folder, 1).restore()
    assert state is not None
    assert (state["iteration"], state["generation"]) == (3, 1)
    assert not (learners / "5").exists()


def test_a_damaged_copy_of_the_donor_is_an_error(folder: RunFolder, donor: Line) -> None:
    (folder.checkpoints / "donor" / "params.safetensors").unlink()
    with pytest.raises(CheckpointError, match="donor"):
        saver_of(make_learner(), folder, 1).restore()
