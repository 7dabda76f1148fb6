"""The promises about the shipped example and its launcher, one test for each."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from session.addons.analysis.dashboard import best_launcher
from session.addons.tmux.run import TmuxCluster
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.merge import leaves
from session.errors import UsageError
from session.folder import RunFolder
from session.process.service import Service
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.replay.kinds import UniformReplay
from surreal_like.run.train import Run
from tests.api.stage import Stage

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "cluster_dashboard.ipynb"
EXAMPLE = ROOT / "configs" / "cartpole_dqn.yaml"


def test_dqn_on_cartpole_is_a_full_example(run: Run) -> None:
    assert find_algorithm("dqn") is DQN
    assert (ROOT / "surreal_like" / "algorithm" / "dqn.py").is_file()
    result = run.result
    assert (result["algorithm"], result["env_name"]) == ("dqn", "gym:CartPole-v1")
    assert (result["status"], result["iterations"]) == ("stopped", 60)
    assert result["experience"]["pushed"] == result["experience"]["inserted"] > 0


@pytest.mark.parametrize(
    "name", ["learner", "agent-0", "replay-0", "ps", "eval-0", "tensorplex", "loggerplex"]
)
def test_shared_main_functions_make_every_component(stage: Stage, name: str) -> None:
    component = stage.topology.component(name)
    module = importlib.import_module(component.module)
    assert module.__name__ == f"main.{component.kind}"
    stage.start(*{"ps", name})
    service = stage.service(name)
    assert isinstance(service, Service)
    service.tick()


def test_the_example_s_config_extends_the_defaults() -> None:
    user = Config.load_file(EXAMPLE)
    assert set(user) == {"algorithm", "learner_config", "env_config", "session_config"}
    config = resolve(read_experiment(EXAMPLE))
    given, resolved = leaves(user), leaves(config)
    for path, value in given.items():
        # A number in place of a schedule is its start.
        assert resolved[path if path in resolved else f"{path}.start"] == value
    # An empty mapping among the defaults is one that others fill.
    empty = {path for path, value in leaves(BASE_CONFIG).items() if value == {}}
    assert set(leaves(BASE_CONFIG)) - empty <= set(resolved)
    assert len(given) < len(resolved) / 3, "it holds what differs"


def test_the_notebook_launches_and_manages_the_system() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    for verb in ("launch(", "Dashboard(run)", ".add_agent(", ".kill(", ".table(", ".stop("):
        assert verb in code
    assert "cartpole_dqn" in code


def test_tmux_is_a_prerequisite_of_that_launcher(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert best_launcher() == "local"
    cluster = TmuxCluster(stage.config, stage.topology, RunFolder(tmp_path / "run"))
    with pytest.raises(UsageError, match="no tmux on the PATH: install it"):
        cluster.launch()


def test_tmux_cluster_takes_a_preamble(stage: Stage, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    cluster = TmuxCluster(
        stage.config.copy(), stage.topology, folder, preamble_cmd="source activate myenv"
    )
    verbs = ("launch", "status", "logs", "scale", "restart", "stop", "dry_run")
    assert all(callable(getattr(cluster, verb)) for verb in verbs)
    _, *lines = cluster.dry_run().splitlines()
    assert len(lines) == 1 + len(list(stage.topology))
    assert all(line.startswith("{ source activate myenv; } && ") for line in lines)


@pytest.mark.parametrize("kind", ["agent-0", "learner", "replay-0"])
def test_what_is_recorded_before_the_connection_arrives(
    stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"agent-0": DQNAgent, "learner": DQNLearner, "replay-0": UniformReplay}[kind]
    make = owner.__init__  # type: ignore[misc]

    def recording(self: Any, **kwargs: Any) -> None:
        make(self, **kwargs)
        self.log.info("made")
        self.log.debug("left out")
        self.tensorplex.add_scalar("made", 3.0, 0)

    monkeypatch.setattr(owner, "__init__", recording)
    stage.listen("loggerplex", "tensorplex")
    stage.start(*dict.fromkeys(("ps", "replay-0", kind)))
    stage.service(kind)
    stage.until(lambda: any(each.get("tag") == "made" for each in stage.records("tensorplex")))
    [line] = [each for each in stage.records("loggerplex") if "made" in each.get("text", "")]
    assert (line["component"], line["level"], line["text"]) == (kind, "info", "made")
    assert line["time"] < 60, "the clock of the run"
    assert not any("left out" in each.get("text", "") for each in stage.records("loggerplex"))
