"""PolicyAssignment: the agents of an episode are assigned to policies by the mapping."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from session.config import Config
from surreal_like.errors import DataError
from surreal_like.policies.assignment import PolicyAssignment, parts_of

SPEC = {"obs_spec": {"type": "float32", "dim": [4]}, "action_spec": {"type": "discrete", "dim": 2}}


def assignment(mapping: dict[str, Any], *, seed: int = 0, **more: Any) -> PolicyAssignment:
    """Returns the assignment of two policies that may play two agents."""
    evaluation = bool(more.get("eval_policy_mapping"))
    policies = {name: {**SPEC, "agents": ["a_0", "a_1"]} for name in ("main", "past")}
    env = {"policy_mapping": mapping, "eval_policy_mapping": {}, "seats": "shuffled", **more}
    return PolicyAssignment(
        Config({"policies": policies, "env_config": env}), seed, evaluation=evaluation
    )


def assign(given: PolicyAssignment) -> tuple[str, str]:
    play = given.assign()
    return play("a_0"), play("a_1")


def test_the_first_pattern_that_fits_counts() -> None:
    assert assign(assignment({"a_1": "past", "a_*": "main"})) == ("main", "past")


def test_a_list_is_assigned_anew_in_each_episode() -> None:
    given = assignment({"a_*": ["main", "past"]})
    assigned = Counter(assign(given) for _ in range(400))
    assert assigned.keys() == {("main", "past"), ("past", "main")}, "each agent once"
    assert 150 < assigned["main", "past"] < 250


def test_fixed_seats_keep_the_order() -> None:
    given = assignment({"a_*": ["past", "main"]}, seats="fixed")
    assert {assign(given) for _ in range(20)} == {("past", "main")}


def test_a_list_that_is_too_short_begins_again() -> None:
    assert assign(assignment({"a_*": ["main"]})) == ("main", "main")


def test_equal_seeds_deal_alike() -> None:
    mapping = {"a_*": ["main", "past"]}
    first, again, other = (
        [assign(each) for _ in range(30)]
        for each in (assignment(mapping), assignment(mapping), assignment(mapping, seed=1))
    )
    assert first == again
    assert first != other


def test_evaluations_may_have_a_mapping_of_their_own() -> None:
    given = assignment({"*": "main"}, eval_policy_mapping={"a_0": "main", "a_1": "past"})
    assert assign(given) == ("main", "past")


def test_a_function_chooses(tmp_path: Path) -> None:
    file = tmp_path / "choosing.py"
    file.write_text(
        "def choose(agent, episode, rng):\n"
        "    assert 0 <= rng.random() < 1\n"
        "    return 'main' if (agent == 'a_0') == (episode % 2 == 0) else 'past'\n"
        "def wrong(agent, episode, rng):\n"
        "    return 'mian'\n"
    )
    given = assignment({"*": f"{file}:choose"})
    assert [assign(given) for _ in range(3)] == [
        ("main", "past"),
        ("past", "main"),
        ("main", "past"),
    ]
    with pytest.raises(DataError, match="wrong gave 'mian' for agent a_0, expected one of main"):
        assign(assignment({"*": f"{file}:wrong"}))


def test_a_policy_that_plays_in_evaluations_only_has_no_streams_in_training() -> None:
    policies = {
        "main": {**SPEC, "agents": ["a_0", "a_1"], "eval_agents": ["a_0"]},
        "random": {**SPEC, "agents": [], "eval_agents": ["a_1"], "fixed": "random"},
    }
    config = Config({"policies": policies})
    assert parts_of(config).keys() == {"main"}
    evaluated = parts_of(config, evaluation=True)
    assert {name: part.agents for name, part in evaluated.items()} == {
        "main": ["a_0", "a_1"],
        "random": ["a_1"],
    }
    assert [part.learns for part in evaluated.values()] == [False, False]
    assert parts_of(config)["main"].learns
