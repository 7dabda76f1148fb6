"""Scripts of the trained policies: their pictures, what is chosen, and what is compared."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import docs.generate  # noqa: F401 - it puts the folder of benchmarks on the path
from session.errors import MissingExtra, UsageError
from session.folder import RunFolder
from surreal_like import load_policy, train

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
    from docs.images import zoo

    def refuse(error: UsageError) -> None:
        def play(*args: Any, **options: Any) -> None:
            raise error

        monkeypatch.setattr(zoo, "play", play)

    refuse(UsageError("it has no pictures to show"))
    assert zoo.film("bitflip_dqn", tmp_path) is None
    refuse(MissingExtra.named("a video", "video"))
    with pytest.raises(MissingExtra):
        zoo.film("cartpole_pqn", tmp_path)
