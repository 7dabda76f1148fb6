"""Scripts of the trained policies: their pictures, what is chosen, and what is compared."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

import docs.generate  # noqa: F401 - it puts the folder of benchmarks on the path
from session.errors import MissingExtra, UsageError
from session.folder import RunFolder
from surreal_like import load_policy, train
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import read_tensors

pytestmark = pytest.mark.usefixtures("quick")

ZOO = importlib.import_module("zoo")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A small run in which one policy plays all agents."""
    overrides = {
        "learner_config.model.hidden_sizes": [16],
        "env_config.env_args": {"limit": 12},
        "session_config.launcher.snapshot": False,
        "session_config.stop": {"env_steps": 300, "eval_episodes": 2},
    }
    folder = tmp_path_factory.mktemp("shared") / "run"
    train(
        algorithm="ppo",
        env="toy:multi_cartpole",
        overrides=overrides,
        launcher="serial",
        folder=folder,
    )
    return RunFolder(folder)


def test_a_shared_policy_is_written_and_plays(shared: RunFolder, tmp_path: Path) -> None:
    assert ZOO.write(shared, "best", tmp_path / "new") == "float32"
    assert load_policy(tmp_path / "new").checkpoint == "best"
    score = ZOO.played(tmp_path / "new", "best", 3)
    assert score["episodes"] == 3
    assert ZOO.merit(score) == score["mean_return"]


def test_weights_that_halves_cannot_hold_are_refused(
    shared: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(shutil.copytree(shared.path, tmp_path / "run"))
    best = run.checkpoints / "best"
    tensors = read_tensors(best / PARAMETERS)
    name = next(name for name, tensor in tensors.items() if tensor.dim() > 1)
    tensors[name][0, 0] = 1e5
    (best / PARAMETERS).write_bytes(safetensors.torch.save(tensors))
    monkeypatch.setattr(ZOO, "HALVES_ABOVE_BYTES", 0)
    monkeypatch.setattr(ZOO, "whole_checkpoint", lambda *words: best)
    with pytest.raises(SystemExit, match=f"{name} has values that are not finite as torch.float16"):
        ZOO.write(run, "best", tmp_path / "new")


def test_a_policy_stays_until_the_new_one_is_whole(
    shared: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ZOO.rows()["multi_cartpole_ppo"]
    (tmp_path / row.name).mkdir()
    (tmp_path / row.name / "card.yaml").write_text("of before")
    monkeypatch.setattr(ZOO, "PLACE", tmp_path)
    monkeypatch.setattr(ZOO, "trained_run", lambda *words: shared)
    score = {"mean_return": 1.0}
    answers = [score, score, score]
    monkeypatch.setattr(ZOO, "played", lambda *words: answers.pop())
    with pytest.raises(IndexError):
        ZOO.make(row, [1, 2, 3], tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == [row.name]
    assert (tmp_path / row.name / "card.yaml").read_text() == "of before"


def test_only_what_cannot_be_drawn_has_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("PIL", reason="the extra video is not installed")
    # By name: there is a folder of that name beside the module.
    zoo = importlib.import_module("docs.images.zoo")

    def refuse(error: UsageError) -> None:
        def play(*args: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(zoo, "play", play)

    refuse(UsageError("it has no pictures to show"))
    assert zoo.film("bitflip_dqn", tmp_path) is None
    refuse(MissingExtra.named("a video", "video"))
    with pytest.raises(MissingExtra):
        zoo.film("cartpole_pqn", tmp_path)


def score(**numbers: Any) -> dict[str, Any]:
    usual = {"mean_return": 500.0, "std_return": 0.0, "min_return": 500.0, "max_return": 500.0}
    return {**usual, "episodes": 20, **numbers}


SPREAD = score(mean_return=497.7, std_return=10.96, min_return=361.0, episodes=1000)
BOTH = score(mean_return=900.0, std_return=90.0, min_return=700.0, max_return=1000.0)
GAME = score(mean_return=0.0, min_return=0.0, max_return=0.0, policies={"main": 0.94})


def test_on_the_same_processor_all_numbers_are_the_same() -> None:
    kept = score(policies={"left": 500.0})
    assert ZOO.differences(kept, kept, kept, same=True) == ""
    other = kept | {"min_return": 499.0, "policies": {"left": 499.9}}
    said = ZOO.differences(kept, other, kept, same=True)
    assert said == "min_return 499.0, was 500.0, policies {'left': 499.9}, was {'left': 500.0}"


@pytest.mark.parametrize(
    ("whole", "mean", "differs"),
    [
        (SPREAD, 490.5, False),  # four standard errors of 20 episodes are 9.8
        (SPREAD, 489.0, True),
        (score(), 490.5, False),  # 2 % of the mean, where none of 1,000 was another
        (score(), 489.0, True),
    ],
)
def test_on_another_one_as_much_is_allowed_as_all_episodes_spread(
    whole: dict[str, Any], mean: float, differs: bool
) -> None:
    said = ZOO.differences(score(), score(mean_return=mean), whole, same=False)
    assert said == (f"mean return {mean}, was 500" if differs else "")


@pytest.mark.parametrize(
    ("whole", "before", "now", "said"),
    [
        (BOTH, {"left": 396.6, "right": 500.0}, {"left": 390.0, "right": 480.0}, ""),
        (
            BOTH,
            {"left": 300.0, "right": 500.0},
            {"left": 500.0, "right": 300.0},
            "mean return left 500.0, was 300, mean return right 300.0, was 500",
        ),
        (score(), {"left": 500.0}, {"left": 450.0}, "mean return left 450.0, was 500"),
        (BOTH, {"left": 500.0}, {}, "mean return left None, was 500"),
        (GAME, {"main": 1.0}, {"main": 0.95}, ""),
        (GAME, {"main": 1.0}, {"main": 0.8}, "mean return main 0.8, was 1"),
    ],
)
def test_each_policy_is_compared_by_itself(
    whole: dict[str, Any], before: dict[str, float], now: dict[str, float], said: str
) -> None:
    kept, found = score(policies=before), score(policies=now)
    assert ZOO.differences(kept, found, whole, same=False) == said


def test_the_middle_seed_is_that_of_the_sum_of_all_policies() -> None:
    assert ZOO.merit(score()) == 500.0
    assert ZOO.merit(score(policies={"left": 1.0, "right": 2.0})) == 3.0
