"""Settings that name code of the user: a file or a module of the present folder, each alike."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from main.cli import main
from session.config import Config
from session.config.named_code import check_no_import, load_named, place_of, split_place
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from surreal_like import evaluate, train
from surreal_like.addons.tuning.tune_file import read_tune_file
from surreal_like.algorithm.dqn import DQN
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.run.request import RunRequest
from tests.add_ons import needs
from tests.leftovers import ROOT

# One class or function of each kind, as a user writes them, all in one file.
OWN = """
import numpy as np
from surreal_like import Env, PrioritizedReplay, Wrapper
from surreal_like.algorithm.dqn import DQN
from surreal_like.dataflow import Operator, replay, train_one_step
from surreal_like.network import Torso

class Echo(Env):
    obs_spec = {"type": "float32", "dim": [1]}
    action_spec = {"type": "discrete", "dim": [2]}

    def reset(self):
        self.seen = self.rng.integers(0, 2, 1).astype("float32")
        return self.seen, {}

    def step(self, action):
        return self.seen, float(action == self.seen[0]), True, False, {}

class Doubled(Wrapper):
    pass

class Stored(PrioritizedReplay):
    pass

class Small(Torso):
    pass

class Mine(DQN):
    pass

def plan(learner):
    return replay(learner).for_each(train_one_step(learner))

def part(learner):
    return Operator("part", lambda batch: batch)

def reward(achieved, desired, info):
    return np.zeros(len(achieved), np.float32)

def explore(settings):
    return settings
"""
# Setting -> the words of the command line that name the code, {} in place of the file or module.
SETTINGS = {
    "algorithm": "algorithm={}:Mine",
    "environment": "env_config.env_name={}:Echo",
    "wrapper": "env_config.wrappers=[{{wrapper: '{}:Doubled'}}]",
    "wrapper as text": "env_config.wrappers=['{}:Doubled']",
    "replay": "learner_config.replay.type={}:Stored",
    "network": "learner_config.model.torso={}:Small",
    "model": "learner_config.model={}:Small",
    "part": "learner_config.parts=[{{part: '{}:part'}}]",
    "plan": "learner_config.execution_plan={}:plan",
}
# Packages of the library, and of a checkout that is installed in place.
TAKEN = ("main", "session", "surreal_like", "tests", "json")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an empty present folder, and forget afterwards what was imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", ".")])
    before = set(sys.modules)
    sys.path_importer_cache.pop(".", None)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("own_code", "_algorithm_")):
            del sys.modules[name]
    sys.path_importer_cache.pop(".", None)


def experiment(*words: str) -> Config:
    return read_experiment(None, words, algorithm="dqn", env_name="toy:chain")


@pytest.mark.parametrize("place", ["own_code", "deeper/own_code.py"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_setting_takes_a_file_and_a_module_of_the_present_folder(
    setting: str, place: str, folder: Path
) -> None:
    (folder / "deeper").mkdir()
    (folder / place).with_suffix(".py").write_text(OWN)
    config = resolve(experiment(SETTINGS[setting].format(place)))
    # Only a module has to be searched: by the other processes of the run, too.
    assert config.session_config.import_path == ([] if place.endswith(".py") else ["."])


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_name_that_the_file_lacks_is_refused_alike(setting: str, folder: Path) -> None:
    (folder / "own_code.py").write_text("x = 1")
    with pytest.raises(ConfigError, match=r"own_code\.py.* has no |no Algorithm 'Mine'") as error:
        resolve(experiment(SETTINGS[setting].format("own_code.py")))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_module_that_is_nowhere_is_refused_with_both_remedies(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"No module named 'own_code'.*file\.py.*import_path=\["):
        resolve(experiment(SETTINGS[setting].format("own_code")))


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_user_s_main_py_is_named_with_the_remedy(setting: str, folder: Path) -> None:
    (folder / "main.py").write_text(OWN)
    with pytest.raises(ConfigError, match=r"'main' is surreal_like's own.*main\.py:NAME or rename"):
        resolve(experiment(SETTINGS[setting].format("main")))


@pytest.mark.parametrize("name", TAKEN)
def test_a_file_with_the_name_of_another_module_is_named(name: str, folder: Path) -> None:
    (folder / f"{name}.py").write_text(OWN)
    words = rf"has no 'Echo'.*'{name}' is .*hides {name}\.py of the present folder.* rename"
    with pytest.raises(ConfigError, match=words):
        resolve(experiment(f"env_config.env_name={name}:Echo"))
    resolve(experiment(f"env_config.env_name={name}.py:Echo"))


def test_a_package_of_the_user_that_is_hidden_is_named(folder: Path) -> None:
    (folder / "main").mkdir()
    (folder / "main" / "worlds.py").write_text(OWN)
    with pytest.raises(ConfigError, match=r"No module named 'main\.worlds'.*rename main"):
        resolve(experiment("env_config.env_name=main.worlds:Echo"))


def test_a_folder_of_the_import_path_comes_before_the_present_one(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "own_code.py").write_text(OWN)
    (folder / "own_code.py").write_text("raise RuntimeError")
    words = ("env_config.env_name=own_code:Echo", "session_config.import_path=[mine]")
    assert resolve(experiment(*words)).session_config.import_path == ["mine"]


def test_the_reward_of_goals_and_the_function_of_a_tuning(folder: Path) -> None:
    (folder / "own_code.py").write_text(OWN)
    from surreal_like.addons.hindsight.view import make_goal_reward

    hindsight = "learner_config.replay.hindsight.reward=own_code:reward"
    assert experiment(hindsight).session_config.import_path == ["."]
    make_goal_reward("own_code.py:reward", {}, event=lambda kind, detail: None)
    for place in ("own_code.py", "own_code"):
        tuning = {
            "algorithm": "dqn",
            "env_config": {"env_name": "toy:chain"},
            "space": {"learner_config.algo.n_step": {"choice": [1, 2]}},
            "tune": {
                "scheduler": "pbt",
                "stop": {"env_steps": 200},
                "pbt": {"explore": f"{place}:explore", "perturbation_interval": 100},
            },
        }
        Config(tuning).dump_file(folder / "t.yaml")
        assert read_tune_file("t.yaml").explore is not None


@needs("gateway")
@pytest.mark.parametrize("place", ["own_code", "own_code.py"])
def test_commands_take_both_forms(
    place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own_code.py").write_text(OWN)
    assert main(["check", f"{place}:Echo"]) == 0
    # The environment is built before anything is connected.
    assert main(["client", "127.0.0.1:9", "--env", f"{place}:Ehco"]) == 2
    said = capsys.readouterr().err
    assert "did you mean Echo?" in said
    assert said.count("\n") == 1


def test_a_neighbour_that_is_not_found_is_answered_with_the_dot(folder: Path) -> None:
    (folder / "deeper").mkdir()
    (folder / "deeper" / "own_code.py").write_text(f"import neighbour\n{OWN}")
    (folder / "deeper" / "neighbour.py").write_text("")
    with pytest.raises(ConfigError, match=r"No module named 'neighbour'.*'from \.neighbour import"):
        resolve(experiment("env_config.env_name=deeper/own_code.py:Echo"))
    (folder / "deeper" / "own_code.py").write_text(f"from . import neighbour\n{OWN}")
    resolve(experiment("env_config.env_name=deeper/own_code.py:Echo"))


@pytest.mark.parametrize(
    ("word", "place", "name"),
    [
        ("own.py:Mine", "own.py", "Mine"),
        ("own.py", "own.py", ""),
        ("runs/at 10:30/own.py:Mine", "runs/at 10:30/own.py", "Mine"),
        ("runs/at 10:30/own.py", "runs/at 10:30/own.py", ""),
        ("package.module:Mine", "package.module", "Mine"),
        ("dqn", "dqn", ""),
    ],
)
def test_the_last_colon_stands_before_the_name(word: str, place: str, name: str) -> None:
    assert split_place(word) == (place, name)


def small(*, place: str) -> dict[str, Any]:
    return {
        "learner_config.replay": {
            "type": f"{place}:Stored",
            "min_size": 64,
            "batch_size": 16,
            "capacity": 2000,
        },
        "learner_config.model": {"torso": f"{place}:Small", "hidden_sizes": [8]},
        "learner_config.parts": [{"part": f"{place}:part"}],
        "learner_config.execution_plan": f"{place}:plan",
        "env_config.wrappers": [f"{place}:Doubled"],
        "env_config.num_envs": 4,
        "session_config.sender.flush_iteration": 8,
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", ["own_code", "own_code.py"])
def test_a_run_keeps_the_code_and_goes_on_without_it(place: str, folder: Path) -> None:
    (folder / "own_code.py").write_text(OWN)
    settings = small(place=place) | {"session_config.stop": {"env_steps": 300, "eval_episodes": 2}}
    run = train(
        algorithm=f"{place}:Mine",
        env=f"{place}:Echo",
        overrides=settings,
        launcher="serial",
        folder="r",
    )
    assert run.ok
    (folder / "own_code.py").unlink()
    for name in [each for each in sys.modules if "own_code" in each]:
        del sys.modules[name]
    assert (RunFolder("r").code / "own_code.py").read_text() == OWN
    assert evaluate("r", episodes=2, checkpoint="latest")["episodes"] == 2
    longer = {"session_config.stop": {"env_steps": 600, "eval_episodes": 2}}
    assert train(resume=True, folder="r", launcher="serial", overrides=longer).ok


@pytest.mark.slow
def test_unrelated_files_beside_a_script_are_not_executed(folder: Path) -> None:
    for name in ("main.py", "tests.py"):
        (folder / name).write_text("raise SystemExit('executed')")
    (folder / "begin.py").write_text(
        "from surreal_like import train\n"
        "if __name__ == '__main__':\n"
        "    stop = {'env_steps': 200, 'eval_episodes': 1}\n"
        "    run = train(algorithm='dqn', env='toy:chain', launcher='serial', folder='r',\n"
        "                overrides={'session_config.stop': stop})\n"
        "    print('trained', run.ok)\n"
    )
    done = subprocess.run(
        [sys.executable, "begin.py"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["trained True"], done.stdout + done.stderr


COLLIDING = (
    "main.py",
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in ("session.py", "session/__init__.py", "tests/__init__.py")
    ),
)


@pytest.mark.parametrize("name", COLLIDING)
def test_a_file_of_the_user_with_a_name_of_ours_is_not_executed(name: str, folder: Path) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("raise SystemExit('executed')")
    (folder / "begin.py").write_text("import surreal_like.run.train, session.config\n")
    script = run_python("begin.py")
    assert (script.returncode, script.stderr) == (0, "")
    for python_path in ({}, {"PYTHONPATH": str(folder)}):
        command = run_python("-P", "-m", "surreal_like", "list", "algorithms", **python_path)
        assert (command.returncode, command.stderr) == (0, "")


def test_components_find_the_library_although_python_path_leads_to_files_of_its_names(
    folder: Path,
) -> None:
    for name in ("main.py", "session.py"):
        (folder / name).write_text("raise SystemExit('executed')")
    (folder / "begin.py").write_text(
        "import os, subprocess, sys\n"
        "import surreal_like\n"
        "for module in ('main.ps', 'session.launchers.fork_server'):\n"
        "    command = [sys.executable, '-P', '-c', f'import {module}']\n"
        "    subprocess.run(command, check=True)\n"
        "print(os.environ['PYTHONPATH'].split(os.pathsep)[1:])\n"
    )
    folders = [str(folder), str(ROOT)]
    done = run_python("begin.py", PYTHONPATH=os.pathsep.join(folders))
    assert done.stdout == f"{folders}\n", done.stderr


def test_python_path_stays_as_it_is_without_such_files(folder: Path) -> None:
    (folder / "session").mkdir()
    code = "import os, surreal_like; print(os.environ['PYTHONPATH'])"
    done = run_python("-c", code, PYTHONPATH=str(folder))
    assert done.stdout == f"{folder}\n", done.stderr


def test_a_session_of_the_user_that_is_loaded_already_is_named(folder: Path) -> None:
    (folder / "session.py").write_text("")
    (folder / "begin.py").write_text("import session, surreal_like\n")
    last = run_python("begin.py").stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: another 'session' is loaded: {folder / 'session.py'}; ")


def test_a_neighbour_with_a_name_of_ours_is_imported_relatively(folder: Path) -> None:
    (folder / "session.py").write_text("LENGTH = 3\n")
    (folder / "near.py").write_text("from session import LENGTH\n")
    with pytest.raises(ConfigError, match=r"surreal_like's own; write 'from \.session import"):
        load_named("near.py:LENGTH", "here")
    (folder / "near.py").write_text("from .session import LENGTH\n")
    assert load_named("near.py:LENGTH", "here") == 3


def run_python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run an interpreter to its end."""
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def loaded_as(monkeypatch: pytest.MonkeyPatch, name: str, path: Path, text: str) -> ModuleType:
    """Returns a module as a script that has imported it finds it."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


SCRIPT = (
    "class Catch:\n    class Inner: pass\ndef make():\n    class Local: pass\n    return Local\n"
)


@pytest.mark.parametrize("name", ["__main__", "beside"])
def test_a_class_from_python_is_found_by_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    module = loaded_as(monkeypatch, name, tmp_path / "beside.py", SCRIPT)
    assert place_of(module.Catch, "env") == "beside.py:Catch"
    assert load_named(place_of(module.make, "env"), "env").__name__ == "make"
    user = read_experiment(None, algorithm="dqn", env_name=module.Catch)
    assert user.env_config.env_name == "beside.py:Catch"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert place_of(module.Catch, "env") == f"{tmp_path}/beside.py:Catch"


def test_classes_and_functions_from_python_are_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    module = loaded_as(monkeypatch, "beside", tmp_path / "beside.py", SCRIPT)
    given: dict[str, Any] = {
        "learner_config.model": {"torso": module.Catch},
        "env_config": {"env_name": module.Catch, "wrappers": [module.Catch]},
        "learner_config.execution_plan": module.make,
    }
    request = RunRequest(algorithm=module.Catch, overrides=given)
    assert request.algorithm == "beside.py:Catch"
    user = request.read()
    assert user.algorithm == user.env_config.env_name == "beside.py:Catch"
    assert user.learner_config.model.torso == "beside.py:Catch"
    assert user.env_config.wrappers == ["beside.py:Catch"]
    assert user.learner_config.execution_plan == "beside.py:make"
    assert read_experiment(None, given, algorithm=DQN).algorithm == "dqn"
    for value, error, said in (
        (lambda: 1, UsageError, "model.torso is .*lambda.* at the top level of a file"),
        (module.Catch(), ConfigError, "which no file can hold; .*name code: file.py:Name"),
    ):
        with pytest.raises(error, match=said):
            train(algorithm="dqn", env="toy:chain", overrides={"learner_config.model.torso": value})
    with pytest.raises(UsageError, match=r"give the class, algorithm=Catch$"):
        train(algorithm=module.Catch(), env="toy:chain")


def test_a_class_of_a_package_is_named_by_its_module() -> None:
    assert place_of(Config, "env") == "session.config.config:Config"
    assert load_named(place_of(Config, "env"), "env") is Config


def test_what_other_processes_cannot_import_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = loaded_as(monkeypatch, "beside", tmp_path / "beside.py", SCRIPT)
    cases = [
        (module.Catch(), r"env is an instance of Catch, .*give the class, env=Catch"),
        (partial(module.Catch), "env is an instance of partial"),
        (lambda: module.Catch(), "lambda.*define it at the top level of a file"),
        (module.make(), "Local, which other processes cannot import"),
        (module.Catch.Inner, "Catch.Inner, which other processes cannot import"),
    ]
    for code, said in cases:
        with pytest.raises(UsageError, match=said):
            train(algorithm="dqn", env=code)
    other = module.Catch
    monkeypatch.setattr(module, "Catch", object)
    with pytest.raises(UsageError, match="beside has another object of that name"):
        place_of(other, "env")


def test_a_class_of_an_interactive_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    shown = type("Catch", (), {"__module__": "__main__"})
    module.Catch = shown  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"interactive session.*give env='FILE.py:Catch'"):
        place_of(shown, "env")


def test_a_file_whose_top_level_starts_a_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "unguarded.py"
    file.write_text(
        "from session.config.named_code import check_no_import\n\n"
        "def train():\n    check_no_import('starts a run')\n\n\ntrain()\n"
    )
    check_no_import("starts a run")
    with pytest.raises(UsageError, match="top level starts a run: write that below if __name__"):
        load_named(f"{file}:train", "env")
