"""Runs against policies that do not learn: fixed ones, and snapshots of the policy itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from session.checkpoint import read_state
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.analysis.league import play_league
from tests.runs.command import Train, balanced, without_real_times

PLAYERS = "surreal_like.policies.rock_paper_scissors"
RPS: dict[str, Any] = {
    "algorithm": "ppo",
    "policies": {
        "main": {},
        "past": {"snapshots_of": "main", "every": 2, "keep": 3, "latest_share": 0.2, "episodes": 3},
    },
    "learner_config": {"replay": {"batch_size": 4}},
    "env_config": {
        "env_name": "pettingzoo:classic/rps-v2",
        "num_envs": 4,
        "policy_mapping": {"player_*": ["main", "past"]},
    },
    "session_config": {"stop": {"iterations": 12, "eval_episodes": 10}},
}
# Of the sender: rows that leave for replay.
COUNTS = ("pushed", "inserted", "dropped")


def write(folder: Path, **changes: Any) -> str:
    """Writes the experiment with other sections; returns the path of the file."""
    file = folder / "rps.yaml"
    file.write_text(yaml.safe_dump({**RPS, **changes}, sort_keys=False))
    return str(file)


def run(folder: Path, *words: str) -> Train:
    with Train(folder, *words, "--on", "serial", "--quiet") as train:
        assert train.wait(200) == 0, train.words
    return train


def snapshots(train: Train) -> list[int]:
    league = train.folder.checkpoints / "main" / "league"
    for path in league.iterdir():
        assert read_state(path)["iteration"] == int(path.name), "whole, by its checksums"
    return sorted(int(path.name) for path in league.iterdir())


@pytest.mark.slow
def test_a_policy_plays_against_its_snapshots(tmp_path: Path) -> None:
    train = run(tmp_path / "run", write(tmp_path))
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
    file = write(tmp_path)
    first, second = (run(tmp_path / name, file) for name in "ab")
    assert without_real_times(first.result) == without_real_times(second.result)


@pytest.mark.slow
def test_a_league_is_restored_whole(tmp_path: Path) -> None:
    run(tmp_path / "run", write(tmp_path))
    train = run(tmp_path / "run", "--resume", "session_config.stop.iterations=14")
    assert snapshots(train) == [0, 12, 14]
    shares = {name for name in train.line["metrics"] if name.startswith("won/")}
    assert shares <= {f"won/main-{each}" for each in (0, 10, 12, 14)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_restarted_parameter_server_gets_all_snapshots_again(run_folder: Path) -> None:
    stop = "session_config.stop={seconds: 28, eval_episodes: 10}"
    with Train(run_folder, write(run_folder.parent), stop) as train:
        train.until(lambda: train.line.get("iterations", 0) > 6)
        train.kill("ps")
        train.kill("agent-0")
        train.learn(6)
        assert train.wait(100) == 0, train.words
    assert balanced(train.result)
    assert train.result["components"]["ps"]["restarts"] == 1
    # The new agent knew no snapshot but those of the new parameter server.
    assert any(name.startswith("won/main-") for name in train.line["metrics"])


@pytest.mark.parametrize(
    "player",
    [
        "Rock",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("Round", "BeatLast", "AlwaysSame")
        ),
    ],
)
def test_a_fixed_policy_is_an_agent_of_anyone(tmp_path: Path, player: str) -> None:
    file = write(
        tmp_path,
        policies={"main": {}, "other": {"fixed": f"{PLAYERS}:{player}"}},
        env_config={
            **RPS["env_config"],
            "policy_mapping": {"player_0": "main", "player_1": "other"},
        },
        session_config={"stop": {"iterations": 2, "eval_episodes": 4}},
    )
    result = run(tmp_path / "run", file).result
    assert balanced(result)
    assert result["experience"]["inserted"] > 0
    assert not (tmp_path / "run" / "checkpoints" / "other").exists()


@pytest.mark.slow
def test_a_trained_policy_plays_in_another_run(tmp_path: Path) -> None:
    trained = run(tmp_path / "one", write(tmp_path))
    for place in (f"{trained.folder.path}", f"{trained.folder.path}:latest:main"):
        file = write(
            tmp_path,
            policies={"main": {}, "other": {"fixed": f"run:{place}"}, "any": {"fixed": "random"}},
            env_config={
                **RPS["env_config"],
                "policy_mapping": {"player_0": "main", "player_1": "other"},
                "eval_policy_mapping": {"player_1": "main", "player_0": "any"},
            },
            session_config={"stop": {"iterations": 2, "eval_episodes": 4}},
        )
        result = run(tmp_path / f"two-{'latest' in place}", file).result
        assert balanced(result)
        assert set(result["eval"]) >= {"mean_return"}


@pytest.mark.slow
def test_rows_of_turns_against_others_count_all_steps(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        policies={"main": {}, "random": {"fixed": "random"}},
        env_config={
            "env_name": "pettingzoo:classic/tictactoe-v3",
            "num_envs": 8,
            "policy_mapping": {"player_*": ["main", "random"]},
        },
        session_config={"stop": {"iterations": 3, "eval_episodes": 10}},
    )
    train = run(tmp_path / "run", file)
    result = train.result
    rows = result["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"]
    # A game has 5 to 9 moves, of which main makes about half.
    assert 5 <= result["env_steps"] / result["episodes"] <= 10
    assert result["env_steps"] > 1.3 * (result["experience"]["pushed"] - result["episodes"])
    assert {"seat/main/player_1", "seat/main/player_2"} <= train.line["metrics"].keys()
