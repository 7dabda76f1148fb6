"""Trained policies that come with the library: cards, loading, names, and what they reach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import yaml

from main.cli import main
from session.config import Config
from session.errors import CheckpointError, UsageError
from session.folder import RunFolder
from surreal_like import load_policy, train
from surreal_like.data.policy_names import PolicyId, learning_policies
from surreal_like.errors import SpecError
from surreal_like.experiment import trained
from surreal_like.experiment.checkpoints import checkpoint_of, whole_checkpoint
from surreal_like.experiment.find import split_run
from surreal_like.experiment.shipped import find_experiment, list_experiments
from surreal_like.experiment.trained import list_trained, trained_folder
from surreal_like.learner.saver import PARAMETERS
from surreal_like.network.files import load_parameters, save_parameters
from surreal_like.network.parts import choose_parts
from surreal_like.run.request import RunRequest
from tests.add_ons import needs

pytestmark = pytest.mark.usefixtures("quick")

ROOT = Path(__file__).resolve().parents[3]
CARDS = list_trained()
MOST_BYTES = 6_000_000
HALVES_ABOVE_BYTES = 200_000
# Extra -> the package with its environments.
PACKAGES = {
    "multi": "pettingzoo",
    "minigrid": "minigrid",
    "robotics": "gymnasium_robotics",
    "mujoco": "mujoco",
}
# Without an extra, of one agent.
NAME = "cartpole_pqn"


def folder_of(name: str) -> Path:
    folder = trained_folder(f"trained:{name}")
    assert folder is not None
    return folder


def test_together_they_are_small() -> None:
    files = [file for file in folder_of(NAME).parent.glob("**/*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("name", CARDS)
def test_a_card_is_of_the_shipped_experiment_and_of_the_median_seed(name: str) -> None:
    card = CARDS[name]
    shipped = {each.name: each for each in list_experiments()}[name]
    assert (card.environment, card.algorithm) == (shipped.environment, shipped.algorithm)
    assert card.extra == shipped.extra
    kept = RunFolder(folder_of(name)).read_config()
    assert kept.session_config.seed == card.seed
    assert card.fingerprint == kept.fingerprint() == kept.recorded["fingerprint"]
    scores = sorted(card.seeds.values())
    if len(scores) == 1:
        page = (ROOT / "docs" / "zoo.md").read_text()
        alone = page.partition(" one seed alone was trained")[0].rpartition("(")[2]
        assert f"of `{name}`" in alone
    else:
        assert len(scores) == 3
    assert min(card.seeds) > 100
    assert card.seeds[card.seed] == scores[len(scores) // 2]
    assert card.score["episodes"] == 1000
    files = [*folder_of(name).glob(f"checkpoints/best/**/{PARAMETERS}")]
    assert files
    halves = card.precision == "float16"
    assert halves or sum(file.stat().st_size for file in files) <= HALVES_ABOVE_BYTES


def learns_from_rows(name: str) -> bool:
    session = Config.load_file(str(find_experiment(name))).get("session_config", {})
    return "dataset" in session


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs("recording")) if learns_from_rows(name) else name
        for name in CARDS
    ],
)
def test_the_settings_are_those_that_are_shipped_now(name: str) -> None:
    if extra := CARDS[name].extra:
        pytest.importorskip(PACKAGES[extra], reason=f"the extra {extra} is not installed")
    config = RunRequest(str(find_experiment(name))).resolve().config
    assert CARDS[name].fingerprint == config.fingerprint()


@pytest.mark.parametrize("name", CARDS)
def test_a_policy_is_loaded_by_its_name(name: str) -> None:
    for policy in learning_policies(RunFolder(folder_of(name)).read_config()):
        assert load_policy(f"trained:{name}", policy=policy).checkpoint.startswith("best")


@pytest.mark.slow
def test_a_few_episodes_of_each_give_what_its_card_says() -> None:
    command = [sys.executable, "benchmarks/zoo.py", "--check", "sample"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # A package of robots warns when it is imported.
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"{name}: as its card says" for name in CARDS]


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no trained policy .cartpole_pqm. .*did you mean cartp"):
        load_policy("trained:cartpole_pqm")
    assert trained_folder("runs/cartpole_pqn") is None
    assert trained_folder("s3://bucket/trained:x") is None


def test_the_command_plays_one(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([NAME, "--trained"], [f"trained:{NAME}"]):
        assert main(["evaluate", *words, "--episodes", "3", "--json"]) == 0
        assert '"checkpoint": "best"' in capsys.readouterr().out
    assert main(["list", "trained"]) == 0
    assert f"\n{NAME} " in capsys.readouterr().out


def test_messages_name_it_and_not_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", NAME, "--trained", "--episodes", "3"]) == 0
    assert f"checkpoint best of trained:{NAME}, " in capsys.readouterr().out
    assert main(["stop", f"trained:{NAME}"]) == 2
    said = capsys.readouterr().err
    assert f"trained:{NAME} is a copy, which takes no commands" in said
    assert "--resume" not in said


def test_a_run_begins_with_one(tmp_path: Path) -> None:
    overrides = {"session_config.stop": {"iterations": 1}}
    run = train(
        NAME,
        overrides=overrides,
        launcher="serial",
        folder=tmp_path / "run",
        start_from=f"trained:{NAME}",
    )
    assert run.ok
    start = checkpoint_of(f"trained:{NAME}")
    assert start == folder_of(NAME) / "checkpoints" / "best"
    assert checkpoint_of(f"trained:{NAME}:best") == start
    with pytest.raises(UsageError, match="has no checkpoint 'latest'; it has best"):
        checkpoint_of(f"trained:{NAME}:latest")
    config = RunFolder(run.folder).read_config()
    assert config.session_config.checkpoint.start_from == str(start.resolve())


@pytest.mark.parametrize("name", CARDS)
def test_a_run_begins_with_those_of_one_policy(name: str) -> None:
    learning = learning_policies(RunFolder(folder_of(name)).read_config())
    if len(learning) == 1:
        path = folder_of(name) / "checkpoints" / PolicyId(learning[0]).best
        assert checkpoint_of(f"trained:{name}") == path
        return
    words = rf"run trained:{name} has several policies that learn \({', '.join(learning)}\): --from"
    with pytest.raises(UsageError, match=words):
        checkpoint_of(f"trained:{name}")


@pytest.mark.parametrize("names", [["main"], ["main", "more"]])
def test_one_named_policy_begins_with_it(names: list[str], tmp_path: Path) -> None:
    overrides = {
        "policies": {**{name: {} for name in names}, "other": {"fixed": "random"}},
        "env_config.env_args": {"agents": 3},
        "env_config.policy_mapping": {"cart_0": "main", "cart_1": names[-1], "*": "other"},
        "session_config.stop": {"iterations": 1, "eval_episodes": 1},
        "session_config.launcher.snapshot": False,
    }
    words: dict[str, Any] = {
        "overrides": overrides,
        "launcher": "serial",
        "folder": tmp_path / "run",
        "start_from": "trained:cartpole_ppo",
    }
    config = tmp_path / "config.yaml"
    shipped = find_experiment("cartpole_ppo").read_text()
    config.write_text(shipped.replace("gym:CartPole-v1", "toy:multi_cartpole"))
    if len(names) > 1:
        with pytest.raises(UsageError, match=r"policies that learn \(main, more\): --from is for"):
            train(config, **words)
        return
    run = train(config, **words)
    assert run.ok
    assert '"restored"' in (tmp_path / "run" / "events.jsonl").read_text()
    newest = whole_checkpoint(RunFolder(tmp_path / "run"), "latest", "main")
    more = {"session_config.stop.iterations": 2}
    again = train(folder=tmp_path / "run", resume=True, checkpoint=newest.name, overrides=more)
    assert again.ok


def test_an_opponent_may_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = "trained:multi_cartpole_ppo"
    # A folder of one's own with that name stands in no way.
    (tmp_path / "trained").mkdir()
    monkeypatch.chdir(tmp_path)
    assert split_run(place) == (place, "best", None)
    assert split_run(f"{place}:best") == (place, "best", None)
    assert split_run(f"{place}:best:left") == (place, "best", "left")
    changes = {
        "policies.other": {"fixed": f"run:{place}:best:left"},
        "env_config.eval_policy_mapping": {"*": ["left", "other"]},
    }
    request = RunRequest(str(find_experiment("multi_cartpole_ppo")), overrides=changes)
    config = request.resolve().config
    folder = folder_of("multi_cartpole_ppo").resolve()
    assert config.policies.other.fixed == f"run:{folder}:best:left"


def test_one_of_another_layout_says_how_it_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folder_of(NAME), tmp_path / "trained" / NAME)
    monkeypatch.setattr(trained, "shipped_folder", lambda: tmp_path)
    file = tmp_path / "trained" / NAME / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["learner_config"]["model"]["hidden_sizes"] = [64, 8]
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(SpecError, match=rf"\[8.*\[64.*make trained NAME={NAME}$"):
        load_policy(f"trained:{NAME}")


def test_parts_of_halves_become_whole_numbers() -> None:
    own = {"net/torso.weight": torch.zeros(2, 3), "net/head.weight": torch.zeros(1, 2)}
    given = {"net/torso.weight": torch.ones(2, 3).half()}
    chosen = choose_parts(own, given, ["torso"])
    assert chosen["net/torso.weight"].dtype == torch.float32
    assert chosen["net/torso.weight"].min() == 1.0


@pytest.mark.parametrize("wrong", [torch.inf, torch.nan])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, wrong: float) -> None:
    layer, other = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2).requires_grad_(False)
    with torch.no_grad():
        layer.weight[1, 2] = wrong
    save_parameters({"net": layer}, tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"file: net/weight has values that are not finite"):
        load_parameters({"net": other}, tmp_path / "file")
    # A buffer may hold them, such as a mask.
    masked = torch.nn.Module()
    masked.register_buffer("mask", torch.full((2,), -torch.inf))
    save_parameters({"net": masked}, tmp_path / "file")
    load_parameters({"net": masked}, tmp_path / "file")


def test_halves_become_whole_numbers(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    halves = {f"net/{name}": x.detach().half() for name, x in layer.named_parameters()}
    (tmp_path / "file").write_bytes(safetensors.torch.save(halves))
    other = torch.nn.Linear(3, 2)
    load_parameters({"net": other}, tmp_path / "file")
    torch.testing.assert_close(other.weight, layer.weight.half().float())
    assert other.weight.dtype == torch.float32
