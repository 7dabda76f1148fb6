"""Environments of PettingZoo by their names."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError, MissingExtra
from session.program import install_line
from surreal_like.env.kinds import extra_of, list_environments
from surreal_like.env.multi_agent_vector import JointVector, PolicyAgents
from surreal_like.env.registry import make_joint_env
from tests.surreal_like.env.test_multi_agent_vector import listed


def test_names_of_pettingzoo_are_listed_with_their_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for name in list_environments() if name.startswith("pettingzoo:")}
    assert "pettingzoo:classic/rps-v2" in names
    assert not [name for name in names if "hanabi" in name or "atari/" in name]
    installed = {"pettingzoo"}
    where = "surreal_like.addons.pettingzoo.names.is_installed"
    monkeypatch.setattr(where, lambda package: package in installed)
    assert extra_of("pettingzoo:classic/rps_v2") == "multi"
    assert extra_of("pettingzoo:sisl/multiwalker-v9") == "box2d"
    assert extra_of("pettingzoo:classic/chess-v6") == "?"
    installed.clear()
    assert extra_of("pettingzoo:classic/rps-v2") == "multi"
    assert not [name for name in list_environments() if name.startswith("pettingzoo:")]


def test_a_missing_package_of_pettingzoo_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.import_module("pettingzoo.env_registry.spec")
    # Another test may have imported what is missing here, and PettingZoo keeps what makes it.
    spec.__dict__["_load_env_creator"].cache_clear()
    # Not those of all environments: classes of a second import are other classes.
    games = ("pettingzoo.butterfly", "pettingzoo.sisl")
    for loaded in [name for name in sys.modules if name.startswith(games)]:
        monkeypatch.delitem(sys.modules, loaded)
    for package in ("pymunk", "pettingzoo.sisl.pursuit.pursuit"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match="pistonball-v6 needs a package that is not installed"):
        make_joint_env({"env_name": "pettingzoo:butterfly/pistonball-v6"})
    where = "surreal_like.addons.pettingzoo.names.is_installed"
    monkeypatch.setattr(where, lambda package: package == "pettingzoo")
    with pytest.raises(MissingExtra, match=re.escape(install_line("multi"))):
        make_joint_env({"env_name": "pettingzoo:sisl/pursuit-v5"})
    with pytest.raises(ConfigError, match="env_args: pettingzoo:classic/tictactoe-v3 cannot be"):
        make_joint_env({"env_name": "pettingzoo:classic/tictactoe-v3", "env_args": {"size": 4}})
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(MissingExtra, match=re.escape(install_line("multi"))):
        make_joint_env({"env_name": "pettingzoo:classic/rps-v2"})


def test_similar_names_of_pettingzoo_are_given() -> None:
    with pytest.raises(ConfigError, match="did you mean classic/rps-v2"):
        make_joint_env({"env_name": "pettingzoo:classic/rps-v3"})


ROCK_PAPER_SCISSORS = {"player_0": [0, 1], "player_1": [1, 1]}
FIRST_PLAYER = [(3, 0, "FIRST"), (1, -1, "MID"), (1, 0, "LAST")]
SECOND_PLAYER = [(3, 0, "FIRST"), (0, 1, "MID"), (1, 0, "LAST")]


@pytest.mark.parametrize(("interface", "steps"), [("aec", 4), ("parallel", 2)])
def test_two_rounds_of_rock_paper_scissors(interface: str, steps: int) -> None:
    config = {
        "env_name": "pettingzoo:classic/rps_v2",
        "env_args": {"max_cycles": 2},
        "multi_agent_api": interface,
    }
    joint = make_joint_env(config)
    agents = joint.possible_agents
    part = {"default": PolicyAgents(joint.specs_of(agents[0]), agents)}
    vector = JointVector([joint], [0], part, assign=lambda: lambda agent: "default")
    moves = {name: list(each) for name, each in ROCK_PAPER_SCISSORS.items()}
    seen: dict[str, list[Any]] = {name: [] for name in agents}
    step = vector.reset()
    while not step.episodes:
        rows, actions = step.rows["default"], []
        for stream, obs, reward, kind, _ in listed(step):
            seen[agents[stream]].append((obs, reward, kind))
            actions.append(moves[agents[stream]].pop(0))
        assert not rows.terminated.any()
        assert not rows.truncated.any()
        step = vector.step({"default": np.array(actions)})
    for stream, obs, reward, kind, _ in listed(step):
        seen[agents[stream]].append((obs, reward, kind))
    assert step.rows["default"].truncated.all()
    assert seen == {"player_0": FIRST_PLAYER, "player_1": SECOND_PLAYER}
    assert vector.env_steps == steps
    vector.close()
