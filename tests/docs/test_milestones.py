"""Long results in several sittings: what is left, what is kept, what a row shows."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.generate import ROOT
from session.config import Config
from session.show.progress import Curve
from surreal_like.analysis.plot import plot
from surreal_like.analysis.run_curves import RunCurves
from surreal_like.analysis.run_groups import group, run_folders
from surreal_like.run.request import RunRequest

# docs/generate.py has put the folder of benchmarks on the path.
learn = importlib.import_module("learn")
milestones = importlib.import_module("milestones")
LONG = learn.Row("long", "long", 285.0, 100.0, may_miss=1)
BUDGET = learn.Row("game one", "game", None, 100.0)
PRINTS = {"long": "f", "game one": "g"}


def ran(row: str, seed: int, seconds: float | None = 50.0, print_: str = "") -> dict[str, Any]:
    return {
        "row": row,
        "seed": seed,
        "fingerprint": print_ or PRINTS[row],
        "greedy_seconds": seconds,
        "greedy_env_steps": None if seconds is None else 1000,
        "mean_return": 200.0 + seed,
    }


def test_rows_are_chosen_by_name_or_by_config() -> None:
    assert [row.name for row in milestones.chosen(["pong_ppo"])] == ["pong_ppo"]
    assert len(milestones.chosen(["minatar_dqn", "hopper_sac"])) == 6
    assert [row.name for row in milestones.chosen(["minatar_rainbow Freeway"])] == [
        "minatar_rainbow Freeway"
    ]
    with pytest.raises(SystemExit, match="no row 'pong': there are bipedalwalker_ppo"):
        milestones.chosen(["pong"])


def test_rows_ask_for_what_the_experiments_ask_for() -> None:
    for row in milestones.ROWS:
        stop = Config.load_file(ROOT / "configs" / f"{row.config}.yaml").session_config.stop
        assert (stop.get("eval_return"), stop.seconds) == (row.goal, row.at_most_seconds), row.name
    assert len({row.name for row in milestones.ROWS}) == len(milestones.ROWS)


def test_a_row_has_the_fingerprint_of_its_experiment() -> None:
    row = learn.row("cartpole_ppo", 475.0, 15.0)
    config = RunRequest(learn.CONFIGS / "cartpole_ppo.yaml").resolve().config
    assert milestones.fingerprint(row) == config.recorded["fingerprint"]
    assert len(milestones.fingerprint(row)) == 64


def test_what_is_kept_is_not_run_again() -> None:
    kept = [ran("long", 101), ran("long", 102, print_="other settings"), ran("game one", 101)]
    rest = milestones.left([LONG, BUDGET], [101, 102], kept, PRINTS)
    assert rest == [(LONG, 102), (BUDGET, 102)]


def test_a_row_holds_if_enough_runs_of_these_settings_do() -> None:
    two = [ran("long", 101), ran("long", 102), ran("long", 103, None)]
    [found] = milestones.table_rows([LONG, BUDGET], two, PRINTS)
    assert found["passed"]
    [found] = milestones.table_rows([LONG], [*two, ran("long", 104, 101.0)], PRINTS)
    assert not found["passed"]
    assert milestones.table_rows([LONG], [ran("long", 1, print_="x")], PRINTS) == []


def test_a_row_with_a_peer_holds_if_its_mean_is_not_lower() -> None:
    [cheetah] = milestones.chosen(["halfcheetah_sac"])
    [peer] = milestones.peers_of([cheetah, LONG])
    assert (peer.name, milestones.is_peer(cheetah)) == ("halfcheetah_sac, stable-baselines3", False)
    assert "mujoco==3.10.0 sac {" in milestones.fingerprint(peer)
    prints = {cheetah.name: "f", peer.name: "p"}
    ours = [ran(cheetah.name, seed, None, "f") for seed in (1, 2, 3)]
    for seed, passed in ((1, True), (2, True), (3, False)):
        theirs = [ran(peer.name, seed, None, "p")]
        rows = milestones.table_rows([cheetah, peer], [*ours, *theirs], prints)
        assert [row["passed"] for row in rows] == [passed, True]
    with pytest.raises(SystemExit, match="no row with a peer: halfcheetah_sac"):
        milestones.peers_of([LONG])


def test_a_peer_has_the_settings_of_our_config(tmp_path: Path, monkeypatch: Any) -> None:
    """Each value that the peer gets comes from our file, and both have the same ones."""
    for name in milestones.PEERS:
        [row] = milestones.chosen([name])
        given = milestones.peer_experiment(row)
        config = Config.load_file(ROOT / "configs" / f"{name}.yaml")
        algo, rows = config.learner_config.algo, config.learner_config.replay
        assert given["arguments"] == {
            "gamma": algo.gamma,
            "learning_rate": algo.learning_rate,
            "ent_coef": "auto_1.0",
            "tau": algo.tau,
            "learning_starts": algo.random_steps,
            "policy_kwargs": {"net_arch": config.learner_config.model.hidden_sizes},
            "batch_size": rows.batch_size,
            "buffer_size": rows.capacity,
        }
        assert (given["steps"], given["episodes"]) == (100_000, 20)
    # A value that the peer cannot have is no comparison.
    text = (ROOT / "configs" / "hopper_sac.yaml").read_text()
    monkeypatch.setattr(milestones, "CONFIGS", tmp_path)
    [row] = milestones.chosen(["hopper_sac"])
    for old, new in (
        ("critic_learning_rate: 3e-4", "critic_learning_rate: 1e-3"),
        ("random_steps: 10_000", "random_steps: 1000"),
        ("samples_per_insert: 256", "samples_per_insert: 128"),
    ):
        assert old in text
        (tmp_path / "hopper_sac.yaml").write_text(text.replace(old, new))
        with pytest.raises(ValueError, match="unpack"):
            milestones.peer_experiment(row)


def test_the_run_of_a_peer_is_what_its_script_prints(tmp_path: Path) -> None:
    [peer] = milestones.peers_of(milestones.chosen(["hopper_sac"]))
    python = tmp_path / "python"
    line = {
        "env_steps": 9,
        "wall_seconds": 1.5,
        "eval": {"mean_return": 6.5, "env_steps": 9},
        "train": {"mean_return_100": None},
    }
    printed = json.dumps({"mean_return": 7.5, "seed_word": "$2", "curve": [line]})
    python.write_text(f"#!/bin/sh\nshift\necho noise\ncat <<END\n{printed}\nEND\n")
    python.chmod(0o755)
    folder = tmp_path / "hopper-peer" / "seed-4"
    found = milestones.peer_run(str(python), peer, 4, folder)
    assert (found["seed"], found["mean_return"]) == (4, 7.5)
    assert found["seed_word"] == "4"
    assert "curve" not in found
    [experiment] = group(run_folders(folder))
    assert (experiment.label, experiment.seeds) == ("hopper-peer", [4])
    assert RunCurves(experiment.runs[0]).curve("eval.mean_return", "env_steps") == Curve(
        [9.0], [6.5]
    )
    assert plot(folder, out=tmp_path / "curve.png").exists()
    python.write_text("#!/bin/sh\necho why >&2; exit 3\n")
    with pytest.raises(SystemExit, match="hopper_sac, stable-baselines3, seed 4: why"):
        milestones.peer_run(str(python), peer, 4, folder)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Runs that end at once; seed 3 fails. Returns those that were made."""
    made: list[tuple[str, int]] = []

    def one_run(row: Any, seed: int, folder: Path) -> dict[str, Any]:
        made.append((row.name, seed))
        if seed == 3:
            raise SystemExit("seed 3 has failed")
        return {key: value for key, value in ran("long", seed).items() if key != "row"}

    monkeypatch.setattr(milestones, "one_run", one_run)
    monkeypatch.setattr(milestones, "ROWS", (LONG,))
    monkeypatch.setattr(milestones, "fingerprint", lambda row: "f")
    monkeypatch.setattr(milestones, "HERE", tmp_path)
    (tmp_path / "results").mkdir()
    return made


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["milestones.py", "--rows", "long", *words])
    return int(milestones.main())


def test_results_grow_over_sittings(
    stand_in: list[tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "--seeds", "1,2") == 0
    assert run(monkeypatch, "--seeds", "1..4", "--jobs", "2") == 1
    assert sorted(stand_in) == [("long", seed) for seed in (1, 2, 3, 4)]
    kept = json.loads((tmp_path / "results" / "milestones.json").read_text())["milestones"]
    assert sorted(each["seed"] for each in kept) == [1, 2, 4]
    assert {each["jobs"] for each in kept} == {1, 2}
    # What has failed is run again.
    assert run(monkeypatch, "--seeds", "3") == 1
    assert stand_in.count(("long", 3)) == 2


def test_nothing_starts_after_the_hours(
    stand_in: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, "--seeds", "1..3", "--hours", "0") == 1
    assert stand_in == []
