"""From a file and a command line to one config: what wins, what is derived, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from session.errors import ConfigError, MissingExtra, SurrealError, UsageError
from session.folder import RunFolder
from surreal_like.errors import SpecError
from surreal_like.experiment import resolve as module
from surreal_like.experiment.find import algorithm_of
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.resolve_process import (
    main,
    only_one,
    resolve_elsewhere,
    try_all,
    try_in_process,
)
from tests.add_ons import needs

FILE = """\
algorithm: dqn
learner_config: {algo: {n_step: 2}}
env_config: {env_name: "toy:chain", num_envs: 4}
session_config: {agent: {num: 3}}
"""

TWO_MODES = "session_config.evaluator.mode=[eval_deterministic, eval_stochastic]"
ALGORITHM = """\
from surreal_like.algorithm.dqn import DQN


class Mine(DQN):
    mark = {mark!r}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(FILE)
    return path


def test_command_line_beats_file_beats_algorithm_beats_base(file: Path) -> None:
    words = ["session_config.agent.num=5", "learner_config.algo.gamma=0.5"]
    config = resolve(read_experiment(file, words))
    assert config.session_config.agent.num == 5
    assert config.learner_config.algo.gamma == 0.5
    assert config.learner_config.algo.n_step == 2
    assert config.learner_config.algo.huber_kappa == 1.0
    assert config.session_config.evaluator.num == 1


def test_a_mapping_replaces_a_mapping_and_a_dotted_key_changes_one(file: Path) -> None:
    file.write_text(FILE.replace("{agent: {num: 3}}", "{stop: {eval_return: 5, env_steps: 9}}"))
    one = resolve(read_experiment(file, ["session_config.stop.env_steps=7"])).session_config.stop
    assert (one.eval_return, one.env_steps) == (5, 7)
    whole = resolve(read_experiment(file, ["session_config.stop={env_steps: 7}"]))
    assert whole.session_config.stop.eval_return is None


def test_an_experiment_without_a_file() -> None:
    config = resolve(read_experiment(None, algorithm="dqn", env_name="toy:chain"))
    assert config.env_config.obs_spec == {"type": "float32", "dim": [8]}
    assert config.env_config.action_spec == {"type": "discrete", "dim": [2]}
    assert config.recorded["fingerprint"] == config.fingerprint()
    assert config.recorded.versions.python == ".".join(map(str, sys.version_info[:3]))


def test_settings_that_differ_from_the_defaults_are_recorded(file: Path) -> None:
    words = ["learner_config.algo.gamma=0.5", "learner_config.algo.huber_kappa=1.0"]
    words += ["learner_config.algo.learning_rate=0.125", "session_config.stop.env_steps=7"]
    config = resolve(read_experiment(file, words))
    changed = {"learner_config.algo.gamma": 0.5, "learner_config.algo.learning_rate.start": 0.125}
    assert changed.items() <= config.recorded.changed.items()
    # A default that was written down, the budget, and names.
    assert not {
        *("learner_config.algo.huber_kappa", "session_config.stop.env_steps", "algorithm"),
        *("env_config.env_name", "env_config.obs_spec.type"),
    } & {*config.recorded.changed}


@needs("sinks")
def test_a_sink_without_its_package_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = read_experiment(file, ["session_config.tensorplex.sinks=[csv, mlflow]"])
    monkeypatch.setattr("session.tensorplex.sinks.sink.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"sinks: mlflow needs .*\[mlflow\]"):
        resolve(config)


@needs("video")
def test_a_video_without_its_package_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_experiment(file, ["session_config.evaluator.video.every=2"])
    monkeypatch.setattr("surreal_like.addons.video.video.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"a video .*\[video\]"):
        resolve(config)


def test_a_recorded_config_is_an_experiment_again(file: Path, tmp_path: Path) -> None:
    config = resolve(read_experiment(file))
    config["run"] = {"started": 1.0}
    config.dump_file(tmp_path / "config.yaml")
    again = resolve(read_experiment(tmp_path / "config.yaml"))
    assert "run" not in again
    assert again.fingerprint() == config.fingerprint()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["session_config.agnet.num=1"], "did you mean session_config.agent"),
        (["env_config.num_envs=many"], "env_config.num_envs is 'many'"),
        (["env_config.vector=no"], "env_config.vector is 'no'"),
        (["session_config.stop.eval_return=1", "session_config.evaluator.num=0"], "no evaluator"),
        (["session_config.stop.above=1"], "a goal needs both"),
        (["session_config.evaluator.mode=[]"], "expected at least one mode"),
        ([TWO_MODES], "has 2 modes, but session_config.evaluator.num is 1: set num to 2, or"),
    ],
)
def test_what_is_wrong_in_any_case_is_found_without_the_algorithm(
    words: list[str], part: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "surreal_like.algorithm.registry", None)
    with pytest.raises(ConfigError, match=part):
        read_experiment(file, words)


def test_other_algorithms_are_looked_at_for_unknown_keys_only(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    known = module.defaults

    def look(algorithm: str) -> Config:
        looked.append(algorithm)
        return known(algorithm)

    monkeypatch.setattr(module, "defaults", look)
    with pytest.raises(ConfigError, match="gamma"):
        resolve(read_experiment(file, ["learner_config.algo.gamma=[1]"]))
    assert looked == ["dqn"]
    with pytest.raises(ConfigError, match=r"dqn has no .*clip: it is an option of .*ppo"):
        resolve(read_experiment(file, ["learner_config.algo.clip=0.1"]))
    # Once each, besides its own defaults.
    assert len(looked[2:]) == len(set(looked[2:]))


@pytest.mark.parametrize("section", ["env_config", "learner_config", "session_config", "policies"])
@pytest.mark.parametrize("value", ["gym:CartPole-v1", "[a]", "5", "true"])
@pytest.mark.parametrize("by_word", [False, True])
def test_a_section_that_is_no_mapping_is_named(
    tmp_path: Path, section: str, value: str, by_word: bool
) -> None:
    path, words = tmp_path / "a.yaml", []
    if by_word:
        words.append(f"{section}={value}")
    path.write_text("algorithm: dqn\n" + ("" if by_word else f"{section}: {value}\n"))
    with pytest.raises(ConfigError, match=rf"^{section} is .*expected a mapping"):
        read_experiment(path, words)


def test_a_section_that_is_empty_has_no_settings(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("algorithm: dqn\nenv_config:\nlearner_config:\npolicies:\n")
    assert read_experiment(path, ["env_config.env_name=toy:chain"]).learner_config == {}
    with pytest.raises(ConfigError, match=r"write env_config\.env_name"):
        read_experiment(path)
    path.write_text("algorithm: [dqn]\n")
    with pytest.raises(ConfigError, match=r"algorithm is .*expected a name"):
        read_experiment(path)


@needs("mirror")
@pytest.mark.parametrize("words", [[], ["session_config.mirror=null"]])
def test_null_switches_a_text_off_that_is_empty_by_default(file: Path, words: list[str]) -> None:
    given = ["session_config.mirror=file:///bucket", *words]
    config = resolve(read_experiment(file, given))
    assert config.session_config.mirror == ("" if words else "file:///bucket")


def test_modes_are_one_or_a_list_and_may_wait_for_evaluators(file: Path) -> None:
    def modes(*words: str) -> list[str]:
        return list(resolve(read_experiment(file, words)).session_config.evaluator.mode)

    assert modes() == ["eval_deterministic"]
    assert modes("session_config.evaluator.mode=eval_stochastic") == ["eval_stochastic"]
    for num in (0, 2, 3):
        words = (TWO_MODES, f"session_config.evaluator.num={num}")
        assert modes(*words) == ["eval_deterministic", "eval_stochastic"]


def test_given_specs_are_checked_and_completed(file: Path) -> None:
    with pytest.raises(SpecError, match=r"\[5\]"):
        resolve(read_experiment(file, ["env_config.obs_spec={type: float32, dim: [5]}"]))
    words = ["env_config.obs_spec={dim: [8]}"]
    assert resolve(read_experiment(file, words)).env_config.obs_spec.type == "float32"


def test_specs_stand_in_for_an_environment_that_is_not_installed(
    file: Path, without_box2d: None
) -> None:
    lander = ["env_config.env_name=gym:LunarLander-v3"]
    with pytest.raises(MissingExtra, match="box2d"):
        resolve(read_experiment(file, lander))
    with pytest.raises(MissingExtra, match="--specs gym:LunarLander-v3"):
        resolve(read_experiment(file, lander), must_be_installed=False)
    words = [
        *lander,
        "env_config.obs_spec={type: float32, dim: [8]}",
        "env_config.action_spec={type: discrete, dim: [4]}",
    ]
    with pytest.raises(MissingExtra):
        resolve(read_experiment(file, words))
    config = resolve(read_experiment(file, words), must_be_installed=False)
    assert config.env_config.action_spec.dim == [4]


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("broken_env", "raise OSError('no screen')", "OSError: no screen"),
        ("ending_env", "raise SystemExit('no display')", "SystemExit: no display"),
    ],
)
def test_an_environment_whose_constructor_raises_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str, said: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{name}.py").write_text(f"def build():\n    {body}\n")
    words = [f"env_config.env_name={name}:build", f"session_config.import_path=[{tmp_path}]"]
    with pytest.raises(ConfigError, match=f"{name}:build cannot be built: {said}"):
        resolve(read_experiment(file, words))


# -- in a process of its own ----------------------------------------------------------------------


def test_another_process_gives_the_same_config(file: Path) -> None:
    user = read_experiment(file, ["env_config.obs_spec={dim: [8]}"])
    assert resolve_elsewhere(user) == resolve(user)


def test_request_and_answer_go_through_files(file: Path) -> None:
    codes: list[int] = []

    def run(*paths: str) -> str:
        codes.append(main(paths))
        return ""

    user = read_experiment(file)
    other = user.copy()
    other.algorithm = "dqnn"
    found, error, again = try_in_process(run, [user, other, user])
    assert found == again == resolve(user)
    assert isinstance(error, UsageError)
    assert "did you mean dqn" in str(error)
    assert try_in_process(run, [user, other, user], seconds=0.0) == [resolve(user)]
    assert codes == [2, 0]


def test_an_environment_is_built_once_for_experiments_that_share_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    build = module._specs

    def count(config: Config, **own: bool) -> Any:
        built.append(config.env_config.num_envs)
        return build(config, **own)

    monkeypatch.setattr(module, "_specs", count)
    words: list[list[str]] = [["learner_config.algo.gamma=0.5"], ["env_config.num_envs=8"], []]
    users = [read_experiment(file, each) for each in words]
    found = [each for each in try_all(users) if isinstance(each, Config)]
    assert built == [4, 8]
    assert found == [resolve(user) for user in users]


def test_a_process_that_left_no_answer_is_quoted() -> None:
    with pytest.raises(SurrealError, match="Segmentation fault"):
        try_in_process(lambda *paths: "first line\nSegmentation fault\n", [])
    with pytest.raises(SurrealError, match="no word"):
        try_in_process(lambda *paths: "", [])


def test_infinite_bounds_survive_the_way() -> None:
    def run(asked: str, answer: str) -> str:
        config = {"env_config": {"obs_spec": {"high": [float("inf"), 1.0]}}}
        Path(answer).write_text(json.dumps({"answers": [config]}))
        return ""

    assert only_one(try_in_process(run, [])).env_config.obs_spec.high == [float("inf"), 1.0]


# -- the user's own algorithm ---------------------------------------------------------------------


def test_a_run_keeps_to_its_own_copy_of_the_algorithm(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(ALGORITHM.format(mark="edited since"))
    config = Config({"algorithm": f"{mine}:Mine"})
    folder = RunFolder(tmp_path / "run")
    assert vars(algorithm_of(config, folder))["mark"] == "edited since"
    folder.code.mkdir(parents=True)
    (folder.code / "mine.py").write_text(ALGORITHM.format(mark="as it was"))
    assert vars(algorithm_of(config, folder))["mark"] == "as it was"
    assert vars(algorithm_of(config, None))["mark"] == "edited since"
