"""Runs against policies that do not learn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.add_ons import needs
from tests.runs.command import balanced
from tests.runs.rps import RPS, run, write

pytestmark = needs("pettingzoo")
PLAYERS = "surreal_like.policies.rock_paper_scissors"


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
