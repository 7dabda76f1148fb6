"""Whatever is wrong gets one line that names it and says what to do, and nothing is overwritten."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from session.program import install_line
from tests.main.conftest import CONFIG, Command, Said

SERIAL = ("train", "small.yaml", "--on", "serial")

ENVIRONMENTS = '''
import numpy as np
from surreal_like import Env


class Flawed(Env):
    """Goes wrong in the way that it is told."""

    def __init__(self, flaw="none"):
        if flaw == "constructor":
            raise RuntimeError("no licence for this simulator")
        self.flaw = flaw
        self.steps = 0
        self.obs_spec = {"type": "float32", "dim": [3]}
        self.action_spec = {"type": "discrete", "dim": [2]}

    def reset(self):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        late = self.steps > 20
        obs = np.full(3, np.nan if late and self.flaw == "nan" else 0.5, np.float32)
        if late and self.flaw == "shape":
            obs = obs[:2]
        if late and self.flaw == "bug":
            raise KeyError("a bug in an environment")
        return obs, 0.0, self.steps % 10 == 0, False, {}
'''


SPACES = """
import gymnasium, numpy as np
from gymnasium import spaces

class Unbounded(gymnasium.Env):
    def __init__(self):
        self.observation_space = spaces.Box(-1, 1, (2,))
        self.action_space = spaces.Box(-1, np.inf, (2,))
    def reset(self, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}

class Texts(Unbounded):
    def __init__(self):
        self.observation_space, self.action_space = spaces.Text(5), spaces.Discrete(2)
"""


@dataclass(frozen=True)
class Case:
    """A command that is refused.

    parts: what its one line must hold; files: what lies in the folder before, by name.
    """

    name: str
    argv: tuple[str, ...]
    parts: tuple[str, ...]
    code: int = 2
    files: dict[str, str] = field(default_factory=dict)


NO_TOUCH = {"taken/notes.txt": "mine"}
BROKEN_YAML = CONFIG + "    stop: {twice: 1\n"

# What is found before anything slow begins.
EARLY = (
    Case("no command of that name", ("trian",), ("no command 'trian'", "did you mean train?")),
    Case("unknown option", ("train", "--fodler", "x"), ("--fodler", "surreal-like train --help")),
    Case("option without value", ("train", "small.yaml", "--seed"), ("--seed", "expected one")),
    Case("option of the wrong type", ("train", "small.yaml", "--seed", "x"), ("--seed", "'x'")),
    Case("no experiment", ("train",), ("no experiment", "cartpole_dqn", "--env")),
    Case("two experiments", ("train", "small.yaml", "b.yaml"), ("small.yaml and b.yaml",)),
    Case("no such file", ("train", "nope.yaml"), ("nope.yaml", "No such file")),
    Case(
        "a folder as file",
        ("train", "taken"),
        ("taken is a folder", "--folder RUN"),
        files=NO_TOUCH,
    ),
    Case("file of another kind", ("train", "a.txt"), ("a.txt", ".yaml, .yml or .json")),
    Case(
        "broken YAML", ("train", "b.yaml"), ("b.yaml:9", "expected"), files={"b.yaml": BROKEN_YAML}
    ),
    Case(
        "key twice",
        ("train", "b.yaml"),
        ("b.yaml:2", "'algorithm' stands twice"),
        files={"b.yaml": "algorithm: dqn\nalgorithm: dqn\n"},
    ),
    Case(
        "unknown section",
        ("train", "b.yaml"),
        ("'learner_cfg'", "learner_config"),
        files={"b.yaml": "algorithm: dqn\nlearner_cfg: {}\n"},
    ),
    Case(
        "misspelt key",
        (*SERIAL, "session_config.agnet.num=2"),
        ("session_config.agnet", "did you mean session_config.agent"),
    ),
    Case(
        "wrong type",
        (*SERIAL, "session_config.agent.num=two"),
        ("session_config.agent.num", "'two'", "expected"),
    ),
    Case(
        "wrong choice",
        (*SERIAL, "env_config.vector=natvie"),
        ("env_config.vector", "'natvie'", "did you mean native?"),
    ),
    Case("override without a key", (*SERIAL, "=3"), ("'=3'", "section.key=value")),
    Case(
        "goal without evaluator",
        (*SERIAL, "session_config.stop.eval_return=1", "--evals", "0"),
        ("session_config.stop.eval_return", "session_config.evaluator.num"),
    ),
    Case(
        "half a goal",
        (*SERIAL, "session_config.stop.metric=my/score"),
        ("session_config.stop.metric", "above"),
    ),
    Case(
        "no algorithm",
        ("train", "b.yaml"),
        ("no algorithm", "--algorithm"),
        files={"b.yaml": "env_config: {env_name: 'toy:chain'}\n"},
    ),
    Case("unknown launcher", ("train", "small.yaml", "--on", "locl"), ("'locl'", "mean local?")),
    Case("seeds of no kind", ("train", "small.yaml", "--seeds", "5..1"), ("5..1", "1..5")),
    Case("seed and seeds", ("train", "small.yaml", "--seed", "1", "--seeds", "1,2"), ("not both",)),
    Case(
        "folder of somebody else",
        (*SERIAL, "--folder", "taken"),
        ("taken", "not empty", "--folder", "--resume"),
        files=NO_TOUCH,
    ),
    Case(
        "folder that is a file",
        (*SERIAL, "--folder", "taken"),
        ("cannot make the run folder taken",),
        files={"taken": "mine"},
    ),
    Case("nothing to resume", (*SERIAL, "--resume"), ("runs/small-*", "--folder")),
    Case(
        "no run to resume",
        ("train", "--resume", "--folder", "taken"),
        ("taken", "config.yaml", "without --resume"),
        files=NO_TOUCH,
    ),
    Case("unknown run", ("status", "nope"), ("no run 'nope'", "list runs")),
    Case("no run at all", ("status", "latest"), ("no run", "surreal-like train")),
    Case("nothing to stop", ("stop", "nope"), ("no run 'nope'",)),
    Case("nothing to evaluate", ("evaluate", "nope"), ("no run 'nope'",)),
    Case("specs of runs", ("list", "runs", "--specs", "x"), ("--specs", "environments")),
    Case("list of nothing", ("list", "walls"), ("'walls'", "algorithms")),
    Case("folder of a table", ("plan", "small.yaml", "--folder", "x"), ("--folder", "shell")),
)

# What only the algorithm or the environment can know.
RESOLVED = (
    Case(
        "misspelt key of the algorithm",
        (*SERIAL, "learner_config.algo.learning_rat=1"),
        ("learner_config.algo.learning_rat", "did you mean learner_config.algo.learning_rate"),
    ),
    Case(
        "unknown algorithm",
        ("train", "small.yaml", "--on", "serial", "--algorithm", "dqnn"),
        ("'dqnn'", "did you mean dqn"),
    ),
    Case(
        "no such algorithm file",
        ("train", "small.yaml", "--on", "serial", "--algorithm", "mine.py"),
        ("mine.py", "no such file"),
    ),
    Case(
        "unknown environment",
        (*SERIAL, "env_config.env_name=toy:chian"),
        ("toy:chian", "did you mean toy:chain"),
    ),
    Case(
        "unknown version of an environment",
        (*SERIAL, "env_config.env_name=gym:CartPole-v7"),
        ("CartPole-v7", "CartPole-v1"),
    ),
    Case(
        "argument that the environment does not take",
        (*SERIAL, "env_config.env_args={lenth: 3}"),
        ("env_config.env_args", "lenth"),
    ),
    Case(
        "specs that differ",
        (*SERIAL, "env_config.obs_spec={type: float32, dim: [5]}"),
        ("env_config.obs_spec", "[5]", "[8]"),
    ),
    Case(
        "actions that the algorithm cannot take",
        (*SERIAL, "env_config.env_name=gym:Pendulum-v1"),
        ("DQN needs discrete actions", "gym:Pendulum-v1", "continuous"),
    ),
    Case(
        "actions without bounds",
        (
            *SERIAL,
            "--algorithm=sac",
            "env_config.env_name=spaces_a:Unbounded",
            "session_config.import_path=[.]",
        ),
        (
            "SAC needs continuous actions within finite bounds",
            "spaces_a:Unbounded",
            "from [-1.0, -1.0] to None",
        ),
        files={"spaces_a.py": SPACES},
    ),
    Case(
        "a bounded policy of actions without bounds",
        (
            *SERIAL,
            "--algorithm=ppo",
            "learner_config.model.policy=beta",
            "env_config.env_name=spaces_c:Unbounded",
            "session_config.import_path=[.]",
        ),
        ("learner_config.model.policy is 'beta'", "need finite bounds", "set it to gaussian"),
        files={"spaces_c.py": SPACES},
    ),
    Case(
        "observations that nobody can take",
        (*SERIAL, "env_config.env_name=spaces_b:Texts", "session_config.import_path=[.]"),
        ("spaces_b:Texts", "observation space Text", "but Box, Discrete", "wrapper"),
        files={"spaces_b.py": SPACES},
    ),
    Case(
        "a memory where there is none",
        (*SERIAL, "learner_config.model.memory=lstm"),
        ("dqn has no learner_config.model.memory", "impala and ppo"),
    ),
    Case(
        "n-step returns of unrolls",
        (*SERIAL, "--algorithm=ppo", "learner_config.algo.n_step=3"),
        ("learner_config.algo.n_step is 3", "FIFOReplay", "set it to 1"),
    ),
    Case(
        "unrolls that end with episodes",
        (*SERIAL, "--algorithm=impala", "session_config.sender.cut=episodes"),
        ("session_config.sender.cut is episodes", "write steps"),
    ),
    Case(
        "environment that cannot be built",
        (
            *SERIAL,
            "env_config={env_name: 'flawed_a:Flawed', env_args: {flaw: constructor}}",
            "session_config.import_path=[.]",
        ),
        ("flawed_a:Flawed", "no licence for this simulator"),
        files={"flawed_a.py": ENVIRONMENTS},
    ),
    Case(
        "more memory than there is",
        (*SERIAL, "learner_config.replay.capacity=1_000_000_000_000"),
        ("1,000,000,000,000 rows of 65 bytes", "available", "learner_config.replay.capacity"),
    ),
    Case(
        "fewer than no agents",
        (*SERIAL, "--agents", "-1"),
        ("session_config.agent.num is -1", "expected 0 to 1000"),
    ),
)


def assert_refused(case: Case, said: Said) -> None:
    assert said.code == case.code
    assert said.err.startswith("surreal-like: error: "), said.err
    assert said.err.count("\n") == 1, said.err
    for part in case.parts:
        assert part in said.err, said.err
    assert not said.out


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def content(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its bytes, and every folder, compiled code aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("case", EARLY, ids=lambda case: case.name)
def test_refused_at_once(case: Case, command: Command, tmp_path: Path) -> None:
    write(tmp_path, case.files)
    before = content(tmp_path)
    assert_refused(case, command(*case.argv))
    assert content(tmp_path) == before


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("case", RESOLVED, ids=lambda case: case.name)
def test_refused_once_resolved(case: Case, command: Command, tmp_path: Path) -> None:
    write(tmp_path, case.files)
    before = content(tmp_path)
    assert_refused(case, command(*case.argv))
    assert content(tmp_path) == before


@pytest.mark.usefixtures("quick", "without_box2d")
def test_a_missing_package_names_the_extra(command: Command, tmp_path: Path) -> None:
    before = content(tmp_path)
    said = command(*SERIAL, "env_config.env_name=gym:LunarLander-v3")
    parts = ("gym:LunarLander-v3", install_line("box2d"))
    assert_refused(Case("", (), parts), said)
    assert content(tmp_path) == before


@pytest.mark.usefixtures("quick")
def test_a_port_in_use_is_named(command: Command, tmp_path: Path) -> None:
    before = content(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        said = command(*SERIAL, f"session_config.tensorplex.prometheus_port={port}")
    parts = (f"session_config.tensorplex.prometheus_port is {port}", "in use", "choose another")
    assert_refused(Case("", (), parts), said)
    assert content(tmp_path) == before


# -- a run that exists ----------------------------------------------------------------------------


@pytest.fixture
def trained(ended_run: Path, command: Command, quick: None) -> Path:
    """Return a small run that has ended."""
    return shutil.copytree(ended_run, Path("ended"))


def test_a_changed_config_is_refused_before_a_resume(command: Command, trained: Path) -> None:
    before = content(trained)
    said = command(
        *SERIAL,
        "--resume",
        "--folder",
        "ended",
        "learner_config.algo.gamma=0.9",
        "env_config.num_envs=2",
    )
    parts = (
        "learner_config.algo.gamma was 0.99, is 0.9",
        "env_config.num_envs was 4, is 2",
        "--allow-change env_config.num_envs,learner_config.algo.gamma",
    )
    assert_refused(Case("", (), parts), said)
    assert content(trained) == before


def test_another_run_never_enters_its_folder(command: Command, trained: Path) -> None:
    before = content(trained)
    said = command(*SERIAL, "--folder", "ended")
    assert_refused(Case("", (), ("ended", "not empty")), said)
    assert content(trained) == before


def cut_short(run: Path) -> Path:
    """Cut a file of every checkpoint; return one of them."""
    files = [
        *run.glob("checkpoints/learner/*/params.safetensors"),
        *run.glob("checkpoints/best/p*"),
    ]
    for file in files:
        file.write_bytes(file.read_bytes()[:100])
    return files[0]


def test_a_checkpoint_cut_short_is_named_when_it_is_played(command: Command, trained: Path) -> None:
    file = cut_short(trained)
    said = command("evaluate", "ended", "--checkpoint", "latest", "--episodes", "1")
    assert_refused(Case("", (), (str(file), "bytes"), code=1), said)


def test_a_run_without_a_whole_checkpoint_is_not_resumed(command: Command, trained: Path) -> None:
    file = cut_short(trained)
    before = content(trained)
    said = command(*SERIAL, "--resume", "--folder", "ended")
    assert_refused(Case("", (), ("no checkpoint of run ended", str(file)), code=1), said)
    assert content(trained) == before


def test_an_unknown_checkpoint_is_refused_with_those_there_are(
    command: Command, trained: Path
) -> None:
    said = command("evaluate", "ended", "--checkpoint", "12345")
    assert_refused(Case("", (), ("'12345'", "latest")), said)
    said = command("evaluate", "ended", "--episodes", "0")
    assert_refused(Case("", (), ("0 episodes",)), said)


def test_a_component_and_a_log_that_are_not_there(command: Command, trained: Path) -> None:
    assert_refused(Case("", (), ("'x'", "learner")), command("probe", "ended", "x"))
    assert_refused(Case("", (), ("'x'", "learner")), command("logs", "ended", "--component", "x"))


# -- what goes wrong while it runs ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("flaw", "parts"),
    [
        ("nan", ("agent-0: obs", "NaN", "expected a finite number")),
        ("shape", ("agent-0: obs", "shape [2]", "[3]")),
    ],
)
def test_a_wrong_observation_fails_the_run(
    flaw: str, parts: tuple[str, ...], command: Command, tmp_path: Path
) -> None:
    (tmp_path / f"flawed_{flaw}.py").write_text(ENVIRONMENTS)
    said = command(
        *SERIAL,
        "--quiet",
        f"env_config={{env_name: 'flawed_{flaw}:Flawed', env_args: {{flaw: {flaw}}}}}",
        f"session_config.import_path=[{tmp_path}]",
    )
    assert_refused(Case("", (), (*parts, "runs/small-"), code=1), said)


@pytest.mark.slow
@pytest.mark.parametrize(("flaw", "part"), [("nan", "NaN"), ("bug", "a bug in an environment")])
def test_a_component_that_dies_shows_its_error_in_the_terminal_of_train(
    flaw: str, part: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "flawed_local.py").write_text(ENVIRONMENTS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "main.cli", "train", "small.yaml"),
            f"env_config={{env_name: 'flawed_local:Flawed', env_args: {{flaw: {flaw}}}}}",
            f"session_config.import_path=[{tmp_path}]",
            "session_config.launcher.max_restarts=1",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("surreal-like: error: run runs/small-")
    assert part in last
    assert "agent-" in last
    assert ("Traceback" in done.stderr) == (flaw == "bug")
