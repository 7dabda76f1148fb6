"""Runs of a policy against its snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.checkpoint import read_state
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.league.cross_play import play_league
from tests.add_ons import needs
from tests.runs.command import Train, balanced, without_real_times
from tests.runs.rps import RPS, run, write

pytestmark = needs("pettingzoo")
LEAGUE = {
    "policies": {
        "main": {},
        "past": {"snapshots_of": "main", "every": 2, "keep": 3, "latest_share": 0.2, "episodes": 3},
    },
    "env_config": {**RPS["env_config"], "policy_mapping": {"player_*": ["main", "past"]}},
}


def snapshots(train: Train) -> list[int]:
    league = train.folder.checkpoints / "main" / "league"
    for path in league.iterdir():
        assert read_state(path)["iteration"] == int(path.name), "whole, by its checksums"
    return sorted(int(path.name) for path in league.iterdir())


@pytest.mark.slow
def test_a_policy_plays_against_its_snapshots(tmp_path: Path) -> None:
    train = run(tmp_path / "run", write(tmp_path, **LEAGUE))
    assert snapshots(train) == [0, 10, 12], "the first and the newest"
    result = train.result
    assert balanced(result)
    assert result["experience"]["pushed"] > 0
    # One of the two agents is learned from: rows of an episode are its steps and a first one.
    steps, episodes = result["env_steps"], result["episodes"]
    assert result["experience"]["pushed"] <= steps + episodes + 2 * 4
    shares = {name for name in train.line["metrics"] if name.startswith("won/main-")}
    assert shares
    table = play_league(train.folder.path, episodes=10)["main"]
    assert table.keys() == {"main-0", "main-10", "main-12"}
    assert table["main-0"]["main-12"] + table["main-12"]["main-0"] == pytest.approx(1)
    found = evaluate(train.folder.path, episodes=10)
    assert found["policies"]["main"] == -found["policies"]["past"]


@pytest.mark.slow
def test_two_runs_against_snapshots_are_the_same(tmp_path: Path) -> None:
    file = write(tmp_path, **LEAGUE)
    first, second = (run(tmp_path / name, file) for name in "ab")
    assert without_real_times(first.result) == without_real_times(second.result)


@pytest.mark.slow
def test_a_league_is_restored_whole(tmp_path: Path) -> None:
    run(tmp_path / "run", write(tmp_path, **LEAGUE))
    train = run(tmp_path / "run", "--resume", "session_config.stop.iterations=14")
    assert snapshots(train) == [0, 12, 14]
    shares = {name for name in train.line["metrics"] if name.startswith("won/")}
    assert shares <= {f"won/main-{each}" for each in (0, 10, 12, 14)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_restarted_parameter_server_gets_all_snapshots_again(run_folder: Path) -> None:
    stop = "session_config.stop={seconds: 60, eval_episodes: 10}"
    with Train(run_folder, write(run_folder.parent, **LEAGUE), stop) as train:
        train.until(lambda: train.line.get("iterations", 0) > 6)
        train.kill("ps")
        train.kill("agent-0")
        train.learn(6)
        assert train.wait(100) == 0, train.words
    assert balanced(train.result)
    assert train.result["components"]["ps"]["restarts"] == 1
    # The new agent knew no snapshot but those of the new parameter server.
    assert any(name.startswith("won/main-") for name in train.line["metrics"])
