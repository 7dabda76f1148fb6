"""Rows of environments of several agents: who has one, when, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from session.errors import ConfigError, describe
from surreal_like.env.multi_agent import as_joint
from surreal_like.env.multi_agent_vector import JointStep, JointVector, PolicyAgents
from surreal_like.env.registry import SeveralAgents, make_env, make_joint_env
from surreal_like.env.toy import MultiCartPole
from surreal_like.errors import DataError
from tests.surreal_like.env.joint_samples import BookedInTurns, InTurns, Script

Lives = dict[str, tuple[int, int]]

_NAN = np.full(1, np.nan, np.float32)


def vector_of(
    *envs: Any, policies: dict[str, list[str]] | None = None, **options: Any
) -> JointVector:
    """Returns a vector of these environments; without policies one plays all agents."""
    joint = [as_joint(env) for env in envs]
    agents = policies or {"default": joint[0].possible_agents}
    parts = {name: PolicyAgents(joint[0].specs_of(each[0]), each) for name, each in agents.items()}
    owner = {agent: name for name, each in agents.items() for agent in each}
    return JointVector(joint, range(len(joint)), parts, assign=lambda: owner.__getitem__, **options)


def act(step: JointStep, action: int = 0) -> dict[str, Any]:
    return {name: np.full(len(rows.streams), action) for name, rows in step.rows.items()}


def listed(step: JointStep, policy: str = "default") -> list[tuple[Any, ...]]:
    """Returns (stream, observation, reward, kind, steps) of each row."""
    rows = step.rows.get(policy)
    if rows is None:
        return []
    obs = np.asarray(rows.obs).reshape(len(rows.streams), -1)[:, 0].tolist()
    ends = (rows.terminated | rows.truncated).tolist()
    kinds = [
        "FIRST" if f else "LAST" if e else "MID" for f, e in zip(rows.first, ends, strict=True)
    ]
    numbers = rows.streams.tolist(), obs, rows.reward.tolist(), kinds, rows.steps.tolist()
    return list(zip(*numbers, strict=True))


def play(vector: JointVector, steps: int, policy: str = "default") -> list[list[tuple[Any, ...]]]:
    step, seen = vector.reset(), []
    for _ in range(steps):
        seen.append(listed(step, policy))
        step = vector.step(act(step))
    return [*seen, listed(step, policy)]


def test_an_agent_that_ends_early_has_no_rows_until_all_have_ended() -> None:
    seen = play(vector_of(Script({"a": (0, 1), "b": (0, 3)})), 4)
    assert seen == [
        [(0, 0, 0, "FIRST", 0), (1, 0, 0, "FIRST", 0)],
        [(0, 1, 1, "LAST", 1), (1, 1, 2, "MID", 0)],
        [(1, 2, 2, "MID", 1)],
        [(1, 3, 2, "LAST", 1)],
        [(0, 0, 0, "FIRST", 0), (1, 0, 0, "FIRST", 0)],
    ]


def test_an_agent_may_join_late() -> None:
    seen = play(vector_of(Script({"a": (0, 3), "b": (2, 3)})), 3)
    assert seen[2:] == [
        [(0, 2, 1, "MID", 1), (1, 2, 0, "FIRST", 0)],
        [(0, 3, 1, "LAST", 1), (1, 3, 2, "LAST", 0)],
    ]


def test_an_agent_that_has_ended_may_stay_listed() -> None:
    lives = {"a": (0, 1), "b": (0, 3)}
    vectors = [vector_of(Script(lives, keeps=keeps)) for keeps in (False, True)]
    once, kept = (play(vector, 4) for vector in vectors)
    assert once == kept
    assert [vector.env_steps for vector in vectors] == [3, 3]


def test_streams_are_numbered_by_copy_and_agent() -> None:
    vector = vector_of(Script({"a": (0, 2), "b": (0, 2)}), Script({"a": (0, 2), "b": (0, 2)}))
    assert [row[0] for row in listed(vector.reset())] == [0, 1, 2, 3]
    assert vector.num_streams == {"default": 4}


def test_policies_have_rows_of_their_own_and_count_each_step_once() -> None:
    policies = {"left": ["a"], "right": ["b"]}
    vector = vector_of(Script({"a": (0, 1), "b": (0, 3)}), policies=policies)
    step = vector.reset()
    counted = {"left": 0, "right": 0}
    for _ in range(4):
        step = vector.step(act(step))
        for name in counted:
            counted[name] += sum(row[4] for row in listed(step, name))
    assert counted == {"left": 1, "right": 2}
    assert vector.env_steps == 3


def test_episodes_are_joint() -> None:
    vector = vector_of(Script({"a": (0, 1), "b": (0, 3)}))
    step, ended = vector.reset(), []
    for _ in range(3):
        step = vector.step(act(step))
        ended += step.episodes
    metrics = {"return/a": 1.0, "return/b": 6.0}
    assert ended == [(0, {"return": 7.0, "length": 3, "metrics": metrics})]


def test_a_horizon_truncates_every_agent_that_lives() -> None:
    vector = vector_of(Script({"a": (0, 1), "b": (0, 9), "c": (0, 9)}), horizon=2)
    step = vector.reset()
    for _ in range(2):
        step = vector.step(act(step))
    rows = step.rows["default"]
    assert listed(step) == [(1, 2, 2, "LAST", 1), (2, 2, 3, "LAST", 0)]
    assert rows.truncated.all()
    assert not rows.terminated.any()
    assert len(step.episodes) == 1


def _vanishes(env: Script) -> None:
    inner = env.step

    def step(actions: dict[str, Any]) -> Any:
        result = inner(actions)
        env.agents.remove("b")
        for part in result[2:4]:
            del part["b"]
        return result

    env.step = step  # type: ignore[method-assign]


def _is_blind(env: Script) -> None:
    inner = env.step

    def step(actions: dict[str, Any]) -> Any:
        result = inner(actions)
        del result[0]["b"]
        return result

    env.step = step  # type: ignore[method-assign]


def _comes_back(env: Script) -> None:
    inner = env.step

    def step(actions: dict[str, Any]) -> Any:
        result = inner(actions)
        if env.now == 3:
            env.agents.append("b")
            result[0]["b"] = result[0]["a"]
        return result

    env.lives["b"] = (0, 1)
    env.step = step  # type: ignore[method-assign]


def _spoil(change: Callable[[Script, Any], object], spoil_reset: bool = False) -> Any:
    """Returns a function that lets `change` alter each result of `step`, or of `reset`."""

    def spoil(env: Script) -> None:
        inner = env.reset if spoil_reset else env.step

        def changed(*args: Any, **keywords: Any) -> Any:
            result = list(inner(*args, **keywords))
            change(env, result)
            return tuple(result)

        setattr(env, "reset" if spoil_reset else "step", changed)

    return spoil


def _put(number: int, value: Any) -> Callable[[Script, Any], object]:
    return lambda env, result: result.__setitem__(number, value)


def _see(value: Any) -> Callable[[Script, Any], object]:
    """Returns a function that alters what agent b sees in the third step."""
    return lambda env, result: result[0].update(b=value) if env.now == 3 else None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_spoil(lambda env, _: env.agents.append("c")), "agent c: .*not in `possible_agents`"),
        (_spoil(lambda env, _: env.agents.append("c"), True), "agent c: .*`possible_agents`"),
        (_spoil(_put(0, [1.0])), r"step\(\) gave a list as observations, expected a mapping"),
        (_spoil(_put(2, True)), r"step\(\) gave a bool as terminations"),
        (_spoil(_put(4, None)), r"step\(\) gave a NoneType as infos"),
        (_spoil(_put(1, None), True), r"reset\(\) gave a NoneType as infos"),
        (_spoil(_see(np.zeros(2))), r"obs: shape \[2\] given of agent b after 3 steps"),
        (_spoil(_see("far")), "obs: <U3 given.*, of agent b after 3 steps"),
        (_spoil(_see(_NAN)), r"obs of agent b after 3 steps: NaN at \[0\]"),
        (_spoil(_put(1, {"b": np.inf})), "reward of agent b: inf given after 1 steps"),
        (_vanishes, "agent b: it acted, but step\\(\\) gave no termination"),
        (_is_blind, "agent b: the environment gave no observation of it"),
        (_comes_back, "agent b: it has come back after its end"),
    ],
)
def test_an_environment_that_breaks_its_interface_is_refused(spoil: Any, message: str) -> None:
    env = Script({"a": (0, 5), "b": (0, 5)})
    spoil(env)
    with pytest.raises(DataError, match=message):
        play(vector_of(env), 4)


def test_keys_that_are_no_agents_are_ignored() -> None:
    env = Script({"a": (0, 2)})
    inner = env.step

    def step(actions: dict[str, Any]) -> Any:
        result = inner(actions)
        for part in result:
            part["common"] = 1.0
        return result

    env.step = step  # type: ignore[method-assign]
    assert play(vector_of(env), 2)[-1] == [(0, 2, 1, "LAST", 1)]


def test_a_discrete_space_may_start_elsewhere() -> None:
    env = Script({"a": (0, 2), "b": (0, 2)})
    env.action_space = lambda agent: spaces.Discrete(3, start=5)  # type: ignore[method-assign]
    inner, seen = env.step, list[Any]()

    def step(actions: dict[str, Any]) -> Any:
        seen.append(actions)
        return inner(actions)

    env.step = step  # type: ignore[method-assign]
    vector = vector_of(env)
    vector.step(act(vector.reset(), 2))
    assert seen == [{"a": 7, "b": 7}]


def test_agents_join_in_the_order_of_the_environment() -> None:
    names = [f"late_{number}" for number in range(9)]
    seen = play(vector_of(Script({"a": (0, 3), **dict.fromkeys(names, (1, 3))})), 1)
    assert [row[0] for row in seen[1]] == list(range(10))


def test_an_action_outside_its_space_is_refused() -> None:
    vector = vector_of(Script({"a": (0, 5)}))
    step = vector.reset()
    with pytest.raises(DataError, match="action: 3 in stream 0"):
        vector.step(act(step, 3))


def test_multi_cartpole_is_as_many_carts() -> None:
    env = MultiCartPole(3, limit=20)
    vector = vector_of(env)
    step = vector.reset()
    lengths = np.zeros(3, int)
    while not step.episodes:
        step = vector.step(act(step))
        lengths[step.rows["default"].streams] += 1
    [(_, summary)] = step.episodes
    assert summary["return"] == lengths.sum()
    assert summary["length"] == lengths.max()
    assert len(set(lengths.tolist())) > 1, "they fall at different times"


def test_several_agents_are_no_env() -> None:
    with pytest.raises(SeveralAgents, match="is an environment of several agents"):
        make_env({"env_name": "toy:multi_cartpole"})
    with pytest.raises(ConfigError, match="is an environment of a single agent"):
        make_joint_env({"env_name": "toy:chain"})


def test_names_that_are_similar_are_given() -> None:
    config = {"env_name": "toy:multi_cartpole", "multi_agent_api": "aec"}
    with pytest.raises(
        ConfigError, match="but the environment MultiCartPole has the interface parallel"
    ):
        make_joint_env(config)


class Vanishes(InTurns):
    """An environment in turns whose second agent leaves without a flag."""

    def __init__(self, *, keeps: bool) -> None:
        self.keeps = keeps

    def step(self, action: Any) -> None:
        super().step(action)
        if self.now == 2:
            self.agents = ["a"]
            self.agent_selection = "a"
            if not self.keeps:
                del self.terminations["b"], self.truncations["b"], self.infos["b"]


@pytest.mark.parametrize("keeps", [True, False])
def test_an_agent_that_vanishes_between_turns_is_named(keeps: bool) -> None:
    env = as_joint(Vanishes(keeps=keeps))
    env.reset()
    env.step({"a": 0})
    with pytest.raises(DataError, match="agent b: it is not in `agents` any more, but it had no"):
        env.step({"b": 0})


def test_the_selected_agent_is_one_that_lives() -> None:
    class Elsewhere(InTurns):
        def step(self, action: Any) -> None:
            super().step(action)
            self.agents, self.agent_selection = ["a", "b", "c"], "d"

    env = as_joint(Elsewhere())
    [turn] = env.reset()
    with pytest.raises(
        DataError, match="agent_selection is 'd', which is not in `agents`: a, b, c"
    ):
        env.step({turn.agent: 0})


@pytest.mark.parametrize("spoil", [dict.clear, lambda flags: flags.pop("b", None)])
def test_in_turns_infos_may_lack_agents_but_flags_may_not(spoil: Callable[[Any], Any]) -> None:
    class Sparse(InTurns):
        """Its infos are empty; in the third step an agent has no flag."""

        spoils = False

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            super().reset(seed, options)
            self.infos = {}

        def step(self, action: Any) -> None:
            super().step(action)
            if self.spoils and self.now == 3:
                spoil(self.terminations)

    seen = play(vector_of(Sparse(), horizon=3), 3)
    assert [row[3] for row in seen[-1]] == ["LAST", "LAST"]
    env = Sparse()
    env.spoils = True
    with pytest.raises(DataError, match="agent b: `terminations` or `truncations` lacks it"):
        play(vector_of(env), 4)


@pytest.mark.parametrize(("team", "wanted"), [("own", (2, 0)), ("sum", (2, 2)), ("mean", (1, 1))])
def test_an_agent_that_was_not_paid_has_the_reward_of_its_team(
    team: str, wanted: tuple[float, float]
) -> None:
    env = Script({"a": (0, 4), "b": (0, 4)})
    _spoil(_put(1, {"a": 2.0}))(env)
    seen = play(vector_of(env, team_reward=team), 2)
    assert [row[2] for row in seen[-1]] == list(wanted)


def test_an_error_of_the_environment_has_the_step() -> None:
    env = Script({"a": (0, 4)})
    known = dict.fromkeys(range(3))
    _spoil(lambda env, _: known[env.now])(env)
    with pytest.raises(KeyError) as caught:
        play(vector_of(env), 4)
    assert describe(caught.value).endswith("; after 2 steps of the episode")


def test_an_environment_in_turns_needs_no_base_class_and_no_close() -> None:
    members = {k: v for k, v in vars(InTurns).items() if k not in ("agent_iter", "close")}
    own: Any = type("Own", (), members)
    env = as_joint(own(), "aec")
    assert [turn.agent for turn in env.reset()] == ["a"]
    env.close()


@pytest.mark.parametrize("way", ["both", "sums", "rewards", "kept", "early"])
def test_rewards_in_turns_are_those_of_last(way: str) -> None:
    env, by_last = BookedInTurns(way), {"a": 0.0, "b": 0.0}
    env.reset()
    while env.agents:
        agent = env.agent_selection
        by_last[agent] += env.last()
        env.step(None if env.terminations[agent] else 0)
    vector = vector_of(BookedInTurns(way), BookedInTurns(way))
    step = vector.reset()
    for _ in range(2):
        step = vector.step(act(step))
        while not step.episodes:
            step = vector.step(act(step))
        for _, summary in step.episodes:
            metrics = summary["metrics"]
            assert {agent: metrics[f"return/{agent}"] for agent in by_last} == by_last


def test_a_horizon_and_a_team_have_the_rewards_of_last() -> None:
    vector = vector_of(BookedInTurns(), horizon=3, team_reward="sum")
    seen = play(vector, 3)
    assert [row[2] for rows in seen for row in rows] == [0, 0, 10, 5, 10]
    assert [row[3] for row in seen[-1]] == ["LAST", "LAST"]


def test_rewards_that_last_does_not_give_are_said(caplog: pytest.LogCaptureFixture) -> None:
    both, lost, sums = (as_joint(BookedInTurns(way)) for way in ("both", "rewards", "sums"))
    for env in (both, lost, sums):
        env.reset()
        env.step({"a": 0})
        env.step({"b": 0})
    assert (both.rewards, both.differs) == ({"a": 1.0, "b": 4.0}, "")
    assert (lost.rewards, sums.rewards) == ({"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 4.0})
    assert lost.differs.startswith("agent a: what last() gives")
    assert (sums.differs, caplog.messages) == (lost.differs, [lost.differs])


@pytest.mark.parametrize("interface", ["parallel", "aec"])
@pytest.mark.parametrize(
    ("reward", "wanted"),
    [
        *((each, 1.0) for each in (1, True, np.int64(1), np.float32(1), np.array(1.0))),
        *((each, 1.0) for each in (np.array([1.0]), np.array([[True]]), np.bool_(True))),
        *((each, None) for each in ("1.0", np.array([1.0, 2.0]), [1.0], 1j, 10**400, np.inf)),
        (np.nan, None),
        (1e39, None),
        (None, None),
    ],
)
def test_rewards_are_numbers_or_the_agent_is_named(
    interface: str, reward: Any, wanted: float | None
) -> None:
    env: Any = InTurns() if interface == "aec" else Script({"a": (0, 4), "b": (0, 4)})
    inner = env.step

    def step(actions: Any) -> Any:
        result = inner(actions)
        rewards = result[1] if result else env.rewards
        rewards["b"] = reward
        return result

    env.step = step
    vector = vector_of(env)
    if wanted is None:
        with pytest.raises(DataError, match=r"^reward of agent b: .*expected a") as caught:
            play(vector, 4)
        assert "\n" not in str(caught.value)
        return
    result = vector.reset()
    while not result.episodes:
        result = vector.step(act(result))
    returned = result.episodes[0][1]["metrics"]["return/b"]
    assert (returned, type(returned)) == (4.0, float)


def test_rewards_of_several_agents_are_a_mapping() -> None:
    env = Script({"a": (0, 4)})
    inner = env.step
    env.step = lambda actions: (inner(actions)[0], [1.0], {}, {}, {})  # type: ignore[method-assign]
    with pytest.raises(DataError, match="rewards: a list given, expected a mapping of agents"):
        play(vector_of(env), 1)


@pytest.mark.parametrize(("name", "has"), [("main", True), ("default", False)])
def test_a_policy_with_a_name_has_its_return_also_alone(name: str, has: bool) -> None:
    vector = vector_of(InTurns(), policies={name: ["a", "b"]})
    step = vector.reset()
    while not step.episodes:
        step = vector.step(act(step))
    [(_, summary)] = step.episodes
    assert (f"policy/{name}" in summary["metrics"]) == has
    assert summary["return"] == 20
