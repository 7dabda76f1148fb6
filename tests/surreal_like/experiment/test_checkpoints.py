"""Which checkpoint of which run is meant, and a run that goes on from it or starts with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from session.checkpoint import read_state, save_one
from session.config import Config
from session.errors import CheckpointError, ConfigError, SurrealError, UsageError
from session.folder import RunFolder
from session.process.clock import CountedClock
from surreal_like import train as train_run
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experiment.checkpoints import (
    checkpoint_of,
    go_back_to,
    start_with,
    whole_checkpoint,
)
from surreal_like.learner.saver import Saver
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.network.module import Module
from surreal_like.run.request import RunRequest
from surreal_like.run.resume import check_checkpoints
from tests.add_ons import needs
from tests.addons.scripts.test_loaded import OVERRIDES
from tests.session.made_run import made_line
from tests.surreal_like.learner.test_saver import SETTINGS, Line, make_learner, train, weights

pytestmark = pytest.mark.usefixtures("quick")


class Net(Module):
    """A network that can have a target."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(2, 1)


class Slow(Line):
    """A learner with a target network and another network that is not published."""

    def __init__(self, **configs: Config) -> None:
        super().__init__(**configs)
        self.net = Net().line
        self.own = Net()
        self.target = TargetNetwork(self.own)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.1)

    def module_dict(self) -> Mapping[str, torch.nn.Module]:
        """Return both."""
        return {"net": self.net, "own": self.own}

    def saveables(self) -> Mapping[str, Any]:
        """Return optimiser and target."""
        return {**super().saveables(), "target": self.target}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Return a run with checkpoints 5, 10 and 15, and the best of iteration 7."""
    folder = RunFolder(tmp_path / "run")
    folder.create()
    folder.config.write_text("algorithm: none\n")
    learner = make_learner(Slow)
    saver = Saver(learner, folder, {**SETTINGS, "keep_history": 3}, CountedClock())
    for version in (1, 2, 3):
        train(learner, 5)
        saver.save(version, 0, "id")
    flat = read_flat(learner.module_dict())
    manifest = manifest_of(named_tensors(learner.module_dict()))
    saver.save_best(flat, manifest, {"mean_return": 1.0, "iteration": 7})
    return folder


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "best"), (":best", "best"), (":latest", "15"), (":5", "5")],
)
def test_a_checkpoint_of_another_run(run: RunFolder, text: str, name: str) -> None:
    path = checkpoint_of(f"{run}{text}")
    assert path.name == name
    assert checkpoint_of(str(path)) == path


def test_a_run_without_a_best_checkpoint_has_the_latest(run: RunFolder) -> None:
    shutil.rmtree(run.checkpoints / "best")
    assert checkpoint_of(str(run)).name == "15"
    with pytest.raises(UsageError, match="has no checkpoint 'best'"):
        checkpoint_of(f"{run}:best")


@pytest.mark.parametrize(("evaluated", "name"), [(0, "15"), (5, "best")])
def test_a_run_of_which_only_the_start_was_evaluated_has_the_latest(
    run: RunFolder, evaluated: int, name: str
) -> None:
    run.progress.write_text(json.dumps(made_line(10 * evaluated, greedy=1.0)) + "\n")
    assert checkpoint_of(str(run)).name == name
    assert checkpoint_of(f"{run}:best").name == "best"


@pytest.mark.parametrize("damaged", ["progress.jsonl", "progress.jsonl and result.json"])
@pytest.mark.parametrize(("evaluated", "name"), [(0, "15"), (7, "best")])
def test_a_damaged_progress_does_not_give_the_policy_of_the_start(
    run: RunFolder, evaluated: int, name: str, damaged: str
) -> None:
    best = run.checkpoints / "best"
    state = {"iteration": evaluated, "mean_return": 1.0}
    save_one(best, state, lambda path: (path / "a").touch())
    run.progress.write_text("\0" * 900)
    result = {"status": "stopped", "eval": {"mean_return": 1.0, "iteration": evaluated}}
    run.result.write_text("" if "result" in damaged else json.dumps(result))
    assert checkpoint_of(str(run)).name == name


@pytest.mark.parametrize("file", ["params.safetensors", "optimizer.pt", "state.json"])
def test_an_older_checkpoint_is_used_with_a_warning(
    run: RunFolder, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage = run.checkpoints / "learner" / "15" / file
    damage.write_bytes(damage.read_bytes()[:-3] + b"abc")
    assert checkpoint_of(f"{run}:latest").name == "10"
    [said] = caplog.messages
    assert f"{run}/checkpoints/learner/15/{file} " in said
    assert said.endswith(f"; the older checkpoint {run}/checkpoints/learner/10 is used instead")
    with pytest.raises(CheckpointError, match=f"15/{file}"):
        checkpoint_of(f"{run}:15")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nowhere", "no run 'nowhere' to start from"),
        ("nowhere:latest", "no run 'nowhere' to start from"),
        ("{run}:7", "has no checkpoint '7'; it has 5, 10, 15, latest, best"),
        ("{run}:best-2", "has no checkpoint 'best-2'"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_one_clear_line(
    run: RunFolder, text: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        checkpoint_of(text.format(run=run))


def test_a_run_without_a_checkpoint_says_what_is_repeated(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    assert check_checkpoints(folder, [DEFAULT_POLICY]) == ""
    folder.progress.write_text(json.dumps(made_line(10, iteration=3892)) + '\n{"itera')
    said = "no checkpoint yet: begins anew, 3,892 updates repeated"
    assert check_checkpoints(folder, [DEFAULT_POLICY]) == said


def test_a_run_goes_on_from_the_checkpoints_of_each_of_its_policies(run: RunFolder) -> None:
    run.progress.write_text(json.dumps(made_line(10, iteration=3892)) + "\n")
    shutil.move(run.checkpoints / "learner", run.checkpoints / "left")
    assert check_checkpoints(run, ["left"]) == ""
    anew = "policy right begins anew: it has no checkpoint"
    assert check_checkpoints(run, ["left", "right"]) == anew
    newest = run.checkpoints / "left" / "15" / "state.json"
    newest.write_text("{")
    said = check_checkpoints(run, ["left", "right"])
    assert said.startswith("going on from the checkpoint before: ")
    assert str(newest) in said
    assert said.endswith(f"; {anew}")
    for path in run.checkpoints.glob("left/*/state.json"):
        path.write_text("{")
    with pytest.raises(CheckpointError, match=r"no checkpoint of run .* is whole.*/left away"):
        check_checkpoints(run, ["right", "left"])


def restore(folder: RunFolder) -> tuple[Slow, Mapping[str, Any]]:
    learner = make_learner(Slow)
    assert isinstance(learner, Slow)
    state = Saver(learner, folder, SETTINGS, CountedClock()).restore()
    assert state is not None
    return learner, state


def test_back_to_a_number(run: RunFolder) -> None:
    said: list[str] = []
    go_back_to(run, whole_checkpoint(run, 10), said.append, keep_history=2)
    assert len(said) == 1
    assert "15 is above 10, which the run goes on from; set aside as aside/15.1" in said[0]
    learner, state = restore(run)
    assert (learner.iteration, state["version"]) == (10, 2)


def test_back_to_the_best_parameters_with_new_optimisers(run: RunFolder) -> None:
    said: list[str] = []
    go_back_to(run, whole_checkpoint(run, "best"), said.append, keep_history=2)
    assert [line.partition(" is ")[0][-2:] for line in said] == ["15", "10"]
    learner, state = restore(run)
    assert learner.iteration == 7
    assert state["start_from"].endswith("best")
    assert learner.optimizer.state_dict()["state"] == {}
    assert weights(learner) == weights_of(run.checkpoints / "best")


def weights_of(path: Path) -> list[float]:
    learner = make_learner(Slow)
    learner.load(path / "params.safetensors")
    return weights(learner)


@pytest.mark.parametrize("name", ["best", "10"])
def test_a_new_run_starts_with_networks_only(run: RunFolder, tmp_path: Path, name: str) -> None:
    new = RunFolder(tmp_path / "new")
    new.create()
    source = whole_checkpoint(run, name)
    start_with(new, source)
    learner, state = restore(new)
    assert (learner.iteration, state["version"], state["env_steps"]) == (0, 0, 0)
    assert state["start_from"] == str(source)
    assert weights(learner) == weights_of(source)
    assert learner.optimizer.state_dict()["state"] == {}
    ours, theirs = learner.target.module.state_dict(), learner.own.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpoint": "best"}, "--checkpoint belongs to --resume"),
        ({"resume": True, "start_from": "x"}, "with --resume choose with --checkpoint"),
        ({"parts": ["torso"]}, "--parts belongs to --from RUN"),
        ({"start_from": "nowhere"}, "no run 'nowhere' to start from"),
        pytest.param(
            *({"launcher": "kubernetes", "start_from": "{run}"}, "on a volume of the cluster"),
            marks=needs("kubernetes"),
        ),
    ],
)
def test_what_cannot_be_is_refused(run: RunFolder, options: dict[str, Any], said: str) -> None:
    options = {key: str(value).format(run=run) for key, value in options.items()}
    settings = {"launcher": "local", **options}
    with pytest.raises(UsageError, match=said):
        RunRequest(algorithm="dqn", env="toy:chain", **settings).read_start()


@pytest.mark.slow
def test_runs_from_other_runs(tmp_path: Path) -> None:
    def serial(name: str, iterations: int, **options: Any) -> RunFolder:
        overrides = {
            **OVERRIDES,
            "session_config.stop": {"iterations": iterations, "eval_episodes": 4},
            "session_config.checkpoint.period": 10,
            **options.pop("overrides", {}),
        }
        ended = train_run(
            algorithm="dqn",
            env="toy:chain",
            overrides=overrides,
            launcher="serial",
            folder=tmp_path / name,
            **options,
        )
        assert ended.exit_code == 0, ended.result
        return RunFolder(ended.folder)

    first = serial("first", 30)
    assert whole_checkpoint(first, "latest").name == "30"
    second = serial("second", 1, start_from=f"{first}:20")
    assert Config.load_file(second.config).session_config.checkpoint.start_from.endswith("/20")
    assert '"restored"' in second.events.read_text()
    other = {"learner_config.model.hidden_sizes": [8]}
    with pytest.raises(ConfigError, match=r"cannot start from .*20: parameters do not fit"):
        serial("third", 1, start_from=f"{first}:20", overrides=other)
    with pytest.raises(ConfigError, match=r"cannot start from .*20: --parts: no network has .*'x'"):
        serial("third", 1, start_from=f"{first}:20", parts=["x"])
    third = serial("third", 1, start_from=f"{first}:20", parts=["torso"])
    assert '"torso of ' in third.events.read_text()
    again = serial("first", 40, resume=True, checkpoint=20)
    numbers = [path.name for path in again.checkpoints.glob("learner/[0-9]*")]
    # Ten updates were made again.
    assert sorted(numbers) == ["20", "30"]
    assert read_state(whole_checkpoint(again, "latest"))["grew_from"] == 20
    with pytest.raises(SurrealError, match="has no checkpoint '17'"):
        serial("first", 50, resume=True, checkpoint=17)
