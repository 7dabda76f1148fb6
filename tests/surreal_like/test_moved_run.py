"""A run with modules of its author's own, looked at from elsewhere, and moved."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from main.cli import main
from session.folder import RunFolder
from surreal_like import load_policy, train
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.experiment.user_code import own_modules

SMALL = {
    "learner_config.replay": {"min_size": 64, "batch_size": 16, "capacity": 2000},
    "learner_config.model": {"torso": "moved_torso:Small", "hidden_sizes": [8]},
    "env_config.num_envs": 4,
    "session_config.import_path": ["mine"],
    "session_config.sender.flush_iteration": 8,
    "session_config.stop": {"env_steps": 400, "eval_episodes": 4},
}
FILES = {
    "mine/moved_package/__init__.py": "",
    "mine/moved_package/world.py": (
        "from moved_package.rules import LENGTH\nfrom surreal_like.env.toy import TOYS\n\n"
        "def make():\n    return TOYS['chain'](length=LENGTH)\n"
    ),
    "mine/moved_package/rules.py": "LENGTH = 5\n",
    "mine/moved_torso.py": (
        "from surreal_like.network import Torso\n\nclass Small(Torso):\n    pass\n"
    ),
    "mine.py": ("from surreal_like.algorithm.dqn import DQN\n\nclass Mine(DQN):\n    pass\n"),
}


def forget() -> None:
    """Lets Python look for the modules again."""
    for name in [each for each in sys.modules if each.startswith(("moved_", "_algorithm_mine"))]:
        del sys.modules[name]
    # Python remembers where a relative folder was when it was looked into last.
    sys.path_importer_cache.pop("mine", None)
    sys.path_importer_cache.pop("apart", None)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a run that has been moved; where it was made nothing is left, and nobody stands."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    there, here = tmp_path / "there", tmp_path / "here"
    for name, text in FILES.items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text(text)
    here.mkdir()
    forget()
    with monkeypatch.context() as patch:
        patch.chdir(there)
        run = train(
            algorithm="mine.py",
            env="moved_package.world:make",
            overrides=SMALL,
            launcher="serial",
            folder="r",
        )
        assert run.ok
    shutil.move(there / "r", here / "moved")
    shutil.rmtree(there)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "there" not in path])
    forget()
    yield here / "moved"
    forget()


@pytest.mark.slow
def test_a_moved_run_has_all_that_it_needs(elsewhere: Path) -> None:
    kept = {path.relative_to(elsewhere / "code").as_posix() for path in elsewhere.glob("code/**/*")}
    assert kept >= {"mine.py", "moved_torso.py", "moved_package/world.py", "moved_package/rules.py"}
    assert evaluate(elsewhere, episodes=2, checkpoint="latest")["episodes"] == 2
    again = {**SMALL, "session_config.stop": {"env_steps": 3000, "eval_episodes": 4}}
    del again["session_config.import_path"]
    run = train(resume=True, folder=elsewhere, launcher="serial", overrides=again)
    assert run.ok
    config = RunFolder(elsewhere).read_config()
    assert config.algorithm == "mine.py"
    assert config.session_config.import_path == ["mine"]


def test_modules_that_are_missing_may_be_named(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "code").rename("apart")
    (elsewhere / "code").mkdir()
    shutil.copy("apart/mine.py", elsewhere / "code")
    words = ["evaluate", str(elsewhere), "--episodes", "2", "--checkpoint", "latest"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "No module named 'moved_" in said
    assert "--import-path FOLDER" in said
    assert said.count("\n") == 1
    forget()
    assert main([*words, "--import-path", "apart"]) == 0
    assert load_policy(elsewhere, "latest", import_path=["apart"]).config.algorithm == "mine.py"


def test_only_modules_of_these_folders_are_the_users(tmp_path: Path) -> None:
    assert own_modules([str(tmp_path)]) == {}
    # All of this library, and of what it uses, lies below the root.
    assert not [name for name in own_modules(["/"]) if "numpy" in name or "session" in name]
