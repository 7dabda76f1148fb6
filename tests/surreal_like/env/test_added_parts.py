"""What rows of several agents get in addition: the state, the agent's number, rewards of a team."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from session.config import Config
from session.errors import ConfigError
from surreal_like.data.added_parts import policy_spec
from surreal_like.env.multi_agent import as_joint
from surreal_like.env.multi_agent_vector import (
    JointStep,
    JointVector,
    PolicyAgents,
    make_joint_vector,
)
from surreal_like.env.registry import make_joint_env
from surreal_like.errors import DataError, SpecError
from surreal_like.experiment.policies import added_parts
from tests.surreal_like.env.joint_samples import AgentsWithAState, InTurns, Script, Stated


def vector_of(*envs: Any, evaluation: bool = False, **options: Any) -> JointVector:
    """Returns a vector of environments, whose agents one policy plays, with all added parts."""
    stated = hasattr(envs[0], "state")
    joint = [as_joint(env, observe_state=stated and not evaluation) for env in envs]
    agents = joint[0].possible_agents
    config = Config({"env_name": "env", "observe_state": stated, "agent_id": True})
    obs_spec, action_spec = joint[0].specs_of(agents[0], added_parts(joint[0], config, agents))
    seen = policy_spec(obs_spec) if evaluation else obs_spec
    part = PolicyAgents((dict(seen), action_spec), agents)
    return JointVector(
        joint, range(len(joint)), {"p": part}, assign=lambda: lambda _: "p", **options
    )


def act(step: JointStep) -> dict[str, Any]:
    return {name: np.zeros(len(rows.streams), np.int64) for name, rows in step.rows.items()}


def played(vector: JointVector, steps: int) -> list[Any]:
    """Returns the observations of each step, those after a reset first."""
    step = vector.reset()
    found: list[Any] = [step.rows["p"].obs]
    for _ in range(steps):
        step = vector.step(act(step))
        found.append(step.rows["p"].obs)
    return found


def rewards_of(env: Any, **options: Any) -> tuple[list[list[float]], dict[str, Any]]:
    """Returns the rewards of the rows of each step of an episode, and its summary."""
    vector = vector_of(env, **options)
    step, found = vector.reset(), list[list[float]]()
    while not step.episodes:
        step = vector.step(act(step))
        found.append(step.rows["p"].reward.tolist())
    [(_, summary)] = step.episodes
    return found, dict(summary)


def test_the_state_is_that_of_the_step_of_the_row() -> None:
    first, *_, third, _, last = played(vector_of(Stated(), Stated()), 5)
    assert first.keys() == {"observation", "state", "agent_id"}
    assert first["observation"].tolist() == [[0], [0], [0], [0]]
    assert first["state"].dtype == np.float32
    assert first["state"].tolist() == [[0, 2]] * 4
    # The rows at which an agent ends have it, too.
    assert third["state"].tolist() == [[30, 1]] * 4
    assert last["state"].tolist() == [[50, 0]] * 2


def test_a_horizon_leaves_the_state_of_the_last_step() -> None:
    last = played(vector_of(Stated(), horizon=2), 2)[-1]
    assert last["state"].tolist() == [[20, 2]] * 2


def test_in_turns_each_agent_sees_the_state_at_its_turn() -> None:
    states = [obs["state"].tolist() for obs in played(vector_of(InTurns()), 4)]
    assert states == [[0], [1], [2], [3], [4, 4]]


def test_an_agent_is_numbered_among_those_of_its_policy() -> None:
    first, _, _, third, fourth, _ = played(vector_of(Stated(), Stated()), 5)
    assert first["agent_id"].dtype == np.int8
    assert first["agent_id"].tolist() == [[1, 0], [0, 1]] * 2
    assert third["agent_id"].tolist() == [[1, 0], [0, 1]] * 2
    assert fourth["agent_id"].tolist() == [[1, 0]] * 2


def test_an_evaluation_does_not_read_the_state() -> None:
    env: Any = Stated()
    vector = vector_of(env, evaluation=True)
    env.state = None
    assert all(obs.keys() == {"observation", "agent_id"} for obs in played(vector, 2))


def test_a_state_that_is_not_finite_is_refused() -> None:
    env: Any = Stated()
    vector = vector_of(env)
    env.state = lambda: np.array([np.nan, 0.0])
    with pytest.raises(DataError, match="obs/state of agent a_0 after 0 steps: NaN at"):
        vector.reset()


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(SpecError, match="agent a_0: its observations have a part 'state' already"):
        vector_of(AgentsWithAState())


def test_a_nested_state_is_refused() -> None:
    env = Stated()
    env.state_space = spaces.Dict({"x": spaces.Discrete(3)})
    with pytest.raises(ConfigError, match="state_space of env is a Dict: flatten it"):
        vector_of(env)


OWN = [[1, 2], [1, 2], [1, 2], [1], [1]]


@pytest.mark.parametrize(
    ("team_reward", "rewards"),
    [
        ("own", OWN),
        ("sum", [[3, 3], [3, 3], [3, 3], [1], [1]]),
        ("mean", [[1.5, 1.5], [1.5, 1.5], [1.5, 1.5], [1], [1]]),
    ],
)
def test_living_agents_share_the_rewards_of_a_step(team_reward: str, rewards: Any) -> None:
    found, summary = rewards_of(Stated(), team_reward=team_reward)
    assert found == rewards
    # A return is what the environment gave.
    assert summary["return"] == 11.0
    assert summary["metrics"] == {"return/a_0": 5.0, "return/a_1": 6.0, "policy/p": 5.5}


@pytest.mark.parametrize(("team_reward", "late"), [("sum", 100.0), ("mean", 100.0), ("mean", 0.0)])
def test_an_agent_that_has_ended_earns_nothing_for_the_team(team_reward: str, late: float) -> None:
    env: Any = Stated()
    inner = env.step

    def step(actions: Any) -> Any:
        result = inner(actions)
        result[1].setdefault("a_1", late)
        return result

    env.step = step
    assert rewards_of(env, team_reward=team_reward)[0][-1] == [1]


def test_a_vector_follows_the_config() -> None:
    config: Any = {
        "env_name": "tests.surreal_like.env.joint_samples:Stated",
        "observe_state": True,
        "team_reward": "sum",
    }
    agents = ["a_0", "a_1"]
    specs = as_joint(Stated()).specs_of("a_0", {"state": {"type": "float32", "dim": [2]}})
    vector = make_joint_vector(
        config, {"p": PolicyAgents(specs, agents)}, num_envs=1, seed=0, assign=lambda: lambda _: "p"
    )
    rows = vector.step(act(vector.reset())).rows["p"]
    assert rows.reward.tolist() == [3, 3]
    assert rows.obs["state"].tolist() == [[10, 2], [10, 2]]
    assert [turn.state for turn in make_joint_env(config, evaluation=True).reset()] == [None, None]


def test_in_turns_a_row_has_what_the_team_got_since_its_last_action() -> None:
    found, summary = rewards_of(InTurns(), team_reward="sum")
    # The second agent has no row for the first step, which comes before its first turn.
    assert found == [[0], [10], [10], [10, 5]]
    assert summary["return"] == 20.0


def test_keys_that_are_no_agents_earn_nothing_for_the_team() -> None:
    env: Any = Script({"a": (0, 1), "b": (0, 1)})
    inner = env.step

    def step(actions: Any) -> Any:
        result = inner(actions)
        result[1]["common"] = 100.0
        return result

    env.step = step
    assert rewards_of(env, team_reward="sum")[0] == [[3, 3]]
