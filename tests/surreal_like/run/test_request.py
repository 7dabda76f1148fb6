"""What a user asks for: the same from a command line and from keywords, and what excludes what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from main.cli.arguments import EXPERIMENT, FOLDER, Option, Parser, request_of
from session.config import Config
from session.errors import UsageError
from surreal_like.run.request import RunRequest
from tests.add_ons import needs

pytestmark = pytest.mark.usefixtures("quick")

_EXPERIMENT = {"algorithm": "dqn", "env_config": {"env_name": "toy:chain"}}


def parsed(*words: str) -> RunRequest:
    parser = Parser("train", "", EXPERIMENT, *FOLDER, Option("--on", default="local"))
    return request_of(parser.parse_args(words))


def test_a_command_line_and_keywords_are_one_request(tmp_path: Path) -> None:
    file = tmp_path / "it.yaml"
    Config(_EXPERIMENT).dump_file(file)
    ours = parsed(
        *(str(file), "env_config.num_envs=3", "session_config.seed=1", "--seed", "7"),
        *("--agents", "2", "--on", "tmux", "--folder", "there", "--from", "RUN:best"),
        *("--parts", "torso,head"),
    )
    theirs = RunRequest(
        file,
        "tmux",
        {"env_config.num_envs": 3, "session_config.seed": 1},
        "there",
        seed=7,
        agents=2,
        start_from="RUN:best",
        parts=["torso", "head"],
    )
    assert ours.read() == theirs.read()
    user = ours.read()
    assert (user.env_config.num_envs, user.session_config.agent.num) == (3, 2)
    # A field replaces the override of the same setting.
    assert user.session_config.seed == 7
    assert user.session_config.checkpoint.start_from == "RUN:best"
    assert user.session_config.checkpoint.parts == ["torso", "head"]
    assert (ours.launcher, ours.folder, ours.name) == (theirs.launcher, theirs.folder, theirs.name)


def test_what_is_resumed_without_an_experiment_is_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seconds, name in enumerate(("old-20250101-000000", "new-20250101-000000"), start=1):
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        Config(
            {**_EXPERIMENT, "learner_config": {}, "session_config": {"seed": seconds}}
        ).dump_file(path / "config.yaml")
        os.utime(path / "config.yaml", (seconds, seconds))
    request = RunRequest(resume=True)
    # A run that begins afterwards is not meant.
    os.utime(tmp_path / "runs" / "old-20250101-000000" / "config.yaml", (9, 9))
    assert Path(request.folder or "").name == "new-20250101-000000"
    assert request.read().session_config.seed == 2
    # To resume, the run whose networks it began with is not needed.
    assert request.read().session_config.checkpoint.start_from == ""


def test_a_serial_run_cannot_be_joined() -> None:
    with pytest.raises(UsageError, match="leave --host out"):
        RunRequest(launcher="serial", host="192.0.2.7", algorithm="dqn", env="toy:chain")


@pytest.mark.parametrize(
    ("launcher", "trial", "words"),
    [
        ("serial", "", "--on serial does not start several learners on one machine: use local or"),
        pytest.param("kubernetes", "", "--on kubernetes does not start", marks=needs("kubernetes")),
        ("local", "t0001", "a trial of a tuning has one learner"),
    ],
)
def test_several_learners_are_processes_of_one_machine_and_of_one_run(
    launcher: str, trial: str, words: str
) -> None:
    overrides = {"session_config.learner.num": 2}
    request = RunRequest(None, launcher, overrides, algorithm="dqn", env="toy:chain", trial=trial)
    with pytest.raises(UsageError, match=f"session_config.learner.num is 2, but .*{words}"):
        request.resolve()
