"""The command line, called in this process, in an empty folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import surreal_like
from main.cli import main
from tests.add_ons import skip_lacking

CONFIG = """\
algorithm: dqn
learner_config:
  replay: {min_size: 64, capacity: 2000, batch_size: 16}
  model: {hidden_sizes: [16]}
env_config: {env_name: "toy:chain", num_envs: 4}
session_config:
  sender: {flush_iteration: 8}
  stop: {env_steps: 400, eval_episodes: 4}
"""


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return a function that runs `surreal-like`; the current folder has `small.yaml`.

    It skips the test at a command of an add-on that this tree lacks.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(CONFIG)

    # Python remembers where "." was when it was looked into last.
    sys.path_importer_cache.pop(".", None)

    def run(*argv: str) -> Said:
        skip_lacking(argv)
        capsys.readouterr()
        code = main(list(argv))
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def train_small(top: Path, name: str, **changes: object) -> Path:
    """Train `small.yaml` in a folder, and return the run's folder, which has this name."""
    (top / "small.yaml").write_text(CONFIG)
    words: dict[str, Any] = {"launcher": "serial", "folder": top / name, "overrides": changes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        ended = surreal_like.train(top / "small.yaml", **words)
    assert ended.ok
    return ended.folder


@pytest.fixture(scope="module")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of `small.yaml` that has ended; tests damage copies of it."""
    return train_small(tmp_path_factory.mktemp("ended"), "run")
