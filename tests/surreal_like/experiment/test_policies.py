"""Policies of an experiment: what they are completed to, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from session.config import Config
from session.config.named_code import with_kept_plan
from session.errors import SurrealError
from session.folder import RunFolder
from surreal_like.experiment.machine import env_row_parts
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.policies.config import policy_config
from tests.add_ons import needs

MIXED: dict[str, Any] = {
    "algorithm": "ppo",
    "policies": {
        "left": {},
        "right": {"algorithm": "dqn", "learner_config": {"algo": {"learning_rate": 5e-4}}},
    },
    "learner_config": {"algo": {"gamma": 0.97}},
    "env_config": {
        "env_name": "toy:multi_cartpole",
        "env_args": {"agents": 3},
        "num_envs": 4,
        "policy_mapping": {"cart_1": "right", "cart_*": "left"},
    },
}


def resolved(tmp_path: Path, changes: Mapping[str, Any], known: Config | None = None) -> Config:
    """Resolves the mixed experiment; a change is a dotted key and its value."""
    config = Config(MIXED).copy()
    for path, value in changes.items():
        *sections, name = path.split(".")
        inner: Any = config
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[name] = value
    file = tmp_path / "mixed.yaml"
    file.write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))
    return resolve(read_experiment(file), known=known)


def test_a_policy_stands_complete(tmp_path: Path) -> None:
    config = resolved(tmp_path, {})
    left, right = config.policies.left, config.policies.right
    assert left.agents == ["cart_0", "cart_2"]
    assert right.agents == ["cart_1"]
    assert (left.algorithm, right.algorithm) == ("ppo", "dqn")
    assert left.obs_spec == right.obs_spec == {"type": "float32", "dim": [4]}
    # The first has the settings of the run, the second begins with the defaults of its algorithm.
    assert left.learner_config.algo.gamma == 0.97
    assert right.learner_config.algo.gamma == 0.99
    assert right.learner_config.algo.learning_rate.start == 5e-4
    assert right.learner_config.replay.type == "UniformReplay"
    assert right.sender.flush_iteration == 16


def test_a_policy_has_the_config_of_a_run_of_its_own(tmp_path: Path) -> None:
    config = resolved(tmp_path, {})
    own = policy_config(config, "right")
    assert own.algorithm == "dqn"
    assert "policies" not in own
    assert own.env_config.num_envs == 4, "one agent in each of four copies"
    assert policy_config(config, "left").env_config.num_envs == 1, "unrolls come one by one"
    assert config.env_config.num_envs == 4


def test_without_policies_one_plays_all_agents(tmp_path: Path) -> None:
    config = resolved(tmp_path, {"policies": {}, "env_config.policy_mapping": {}})
    assert list(config.policies) == ["default"]
    assert config.policies.default.agents == ["cart_0", "cart_1", "cart_2"]


def test_a_single_agent_has_no_policies(tmp_path: Path) -> None:
    changes = {"policies": {}, "env_config": {"env_name": "toy:chain"}}
    assert "policies" not in resolved(tmp_path, changes)


def test_a_known_experiment_gives_no_settings_of_policies(tmp_path: Path) -> None:
    known = resolved(tmp_path, {})
    path = "policies.right.learner_config.algo.learning_rate"
    other = resolved(tmp_path, {path: 1e-4}, known)
    assert other.policies.right.learner_config.algo.learning_rate.start == 1e-4


def test_the_fingerprint_covers_policies(tmp_path: Path) -> None:
    first = resolved(tmp_path, {})
    other = resolved(tmp_path, {"policies.right.learner_config.algo.learning_rate": 1e-4})
    assert first.fingerprint() != other.fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policies.Left": {}}, "policies has 'Left', expected a name of a lower case letter"),
        ({"policies.default": {}}, "other than default"),
        ({"policies.left": 3}, "policies.left is 3, expected a mapping"),
        ({"policies.left.algoritm": "dqn"}, "policies.left.algoritm: did you mean algorithm?"),
        (
            {"policies.right.learner_config.algo.gama": 1},
            "unknown key policies.right.learner_config.algo.gama = 1; did you mean "
            "policies.right.learner_config.algo.gamma?",
        ),
        ({"policies.right.learner_config.algo.gamma": 2}, "policies.right: .*gamma is 2"),
        ({"policies.right.algorithm": "dqm"}, "unknown algorithm 'dqm': did you mean dqn?"),
        ({"policies.right.algorithm": "sac"}, "policies.right: SAC needs continuous actions"),
        (
            {"env_config.policy_mapping": {"*": "rigth"}},
            "gives * to policy 'rigth', which is not in policies: did you mean right?",
        ),
        (
            {"env_config.policy_mapping": {"cart_0": "left", "cart_1": "right"}},
            "agent cart_2 of toy:multi_cartpole has no policy",
        ),
        ({"env_config.policy_mapping": {"*": "left"}}, "policy right plays no agent"),
        (
            {"session_config.stop.eval_returns": {"middle": 1.0}},
            "has 'middle', which is no policy that",
        ),
        (
            {
                "policies": {},
                "env_config.policy_mapping": {},
                "session_config.stop.eval_returns": {"default": 1.0},
            },
            "has 'default', which is no policy that learns: there are none",
        ),
        (
            {"policies.other": {"fixed": "radnom"}},
            "policies.other.fixed is 'radnom', expected random, run:FOLDER or module:Class",
        ),
        (
            {
                "policies.other": {"fixed": "collections:OrderedDict"},
                "env_config.eval_policy_mapping": {"*": ["left", "other"]},
            },
            "policies.other.fixed is 'collections:OrderedDict', which is no subclass of",
        ),
        (
            {
                "policies.other": {"fixed": "run:/dev/null/none"},
                "env_config.eval_policy_mapping": {"*": ["left", "other"]},
            },
            "/dev/null/none is not a run folder",
        ),
        ({"policies.other": {"fixed": "random"}}, "policy other plays no agent"),
        (
            {"policies.other": {"fixed": "random", "algorithm": "ppo"}},
            "policies.other has fixed, and so no algorithm: leave one of the two out",
        ),
        pytest.param(
            {"policies.left.keep": 3},
            "policies.left learns, and so has no keep",
            marks=needs("league"),
        ),
        (
            {"env_config.policy_mapping": {"catr_*": "left", "cart_*": "right"}},
            "env_config.policy_mapping has 'catr_*', which fits no agent: did you mean cart_",
        ),
        pytest.param(
            {"policies.past": {"snapshots_of": "lef"}},
            "no policy that learns: did you mean left?",
            marks=needs("league"),
        ),
        pytest.param(
            {"policies.past": {"snapshots_of": "left", "evry": 3}},
            "unknown key policies.past.evry: did you mean every?",
            marks=needs("league"),
        ),
        pytest.param(
            {"policies.past": {"snapshots_of": "left", "keep": 0}},
            "policies.past.keep is 0",
            marks=needs("league"),
        ),
        pytest.param(
            {"policies.past": {"snapshots_of": "left", "draw": "heard"}},
            "policies.past.draw is 'heard', expected one of uniform, hard; did you mean hard?",
            marks=needs("league"),
        ),
        pytest.param(
            {"policies.a": {"snapshots_of": "left"}, "policies.b": {"snapshots_of": "left"}},
            "policies.b.snapshots_of is left, but policy a plays snapshots of it already",
            marks=needs("league"),
        ),
        (
            {"policies": {"left": {"fixed": "random"}, "right": {"fixed": "random"}}},
            "no policy of policies learns",
        ),
        (
            {"env_config.policy_mapping": {"*": []}},
            "env_config.policy_mapping gives * to [], expected a policy, a list of policies",
        ),
        (
            {"env_config.policy_mapping": {"*": ["left", "rigth"]}},
            "gives * to policy 'rigth', which is not in policies: did you mean right?",
        ),
        (
            {"env_config.policy_mapping": {"*": "collections:nothing"}},
            "env_config.policy_mapping of * 'collections:nothing': collections has no 'nothing'",
        ),
        (
            {"env_config.eval_policy_mapping": {"cart_0": "left"}},
            "agent cart_1 of toy:multi_cartpole has no policy: add it, or a pattern such as '*', "
            "to env_config.eval_policy_mapping",
        ),
        ({"env_config.seats": "random"}, "env_config.seats is 'random', expected one of shuffled"),
        ({"env_config.frame_stack": 4}, "env_config.frame_stack is 4, but toy:multi_cartpole has"),
        pytest.param(
            {"env_config.vector": "process"},
            "env_config.vector is process, but",
            marks=needs("workers"),
        ),
        ({"env_config": {"env_name": "toy:chain"}}, "toy:chain has one: remove it"),
        (
            {"env_config.multi_agent_api": "aec"},
            "multi_agent_api is aec, which needs observe(agent)",
        ),
    ],
)
def test_wrong_settings_are_refused(
    tmp_path: Path, changes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(SurrealError) as caught:
        resolved(tmp_path, changes)
    said = str(caught.value)
    assert "\n" not in said
    start, dots, end = message.partition(".*")
    assert start in said, said
    assert not dots or end in said, said


def test_agents_with_other_specs_need_other_policies(tmp_path: Path) -> None:
    (tmp_path / "two_kinds.py").write_text(
        "from gymnasium import spaces\n"
        "from tests.surreal_like.env.joint_samples import Script\n"
        "class Kinds(Script):\n"
        "    def __init__(self):\n"
        "        super().__init__({'wolf_0': (0, 5), 'wolf_1': (0, 5), 'sheep_0': (0, 5)})\n"
        "    def action_space(self, agent):\n"
        "        return spaces.Discrete(3 if agent.startswith('wolf') else 5)\n"
    )
    changes = {
        "policies": {},
        "env_config": {"env_name": f"{tmp_path / 'two_kinds.py'}:Kinds"},
    }
    with pytest.raises(SurrealError) as caught:
        resolved(tmp_path, changes)
    assert "action spec {'type': 'discrete', 'dim': [3]} of wolf_0" in str(caught.value)
    assert "policies: {wolf: {}, sheep: {}}" in str(caught.value)
    assert "wolf_0: wolf, wolf_1: wolf, sheep_0: sheep" in str(caught.value)


CENTRAL: dict[str, Any] = {
    "policies": {},
    "env_config.policy_mapping": {},
    "env_config.env_args": {},
}
STATED = "tests.surreal_like.env.joint_samples:Stated"


def test_a_state_and_a_number_are_parts_of_observations(tmp_path: Path) -> None:
    added = {"env_config.observe_state": True, "env_config.agent_id": True}
    config = resolved(tmp_path, {**CENTRAL, "env_config.env_name": STATED, **added})
    assert config.policies.default.obs_spec == {
        "observation": {"type": "float32", "dim": [1]},
        "agent_id": {"type": "int8", "dim": [2]},
        "state": {"type": "float32", "dim": [2], "critic_only": True},
    }
    assert env_row_parts(config)["state"] == 8
    assert env_row_parts(config)["observation"] == 6


def test_agents_are_numbered_within_their_policy(tmp_path: Path) -> None:
    config = resolved(tmp_path, {"env_config.agent_id": True})
    parts = [each.obs_spec.agent_id.dim for each in config.policies.values()]
    assert parts == [[2], [1]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"env_config.observe_state": True},
            "observe_state is true, but toy:multi_cartpole has no state\\(\\) with a state_space: "
            "give it both",
        ),
        (
            {"env_config.observe_state": True, "env_config.env_name": STATED, "algorithm": "dqn"},
            "DQN has no value function that sees more than its policy, as "
            "env_config.observe_state needs: set it to false, or try (a3c, )?impala or ppo",
        ),
        (
            {"env_config": {"env_name": "toy:chain", "observe_state": True}},
            "env_config.observe_state is for several agents, but toy:chain has one: remove it",
        ),
        (
            {"env_config": {"env_name": "toy:chain", "agent_id": True}},
            "env_config.agent_id is for several agents, but toy:chain has one: remove it",
        ),
        (
            {"env_config": {"env_name": "toy:chain", "team_reward": "mean"}},
            "env_config.team_reward is for several agents, but toy:chain has one: remove it",
        ),
        *(
            (
                {"env_config": {"env_name": "toy:chain", key: value}},
                f"env_config.{key} is for several agents, but toy:chain has one: remove it",
            )
            for key, value in {
                "policy_mapping": {"agent": "left"},
                "eval_policy_mapping": {"agent": "left"},
                "seats": "fixed",
                "multi_agent_api": "aec",
            }.items()
        ),
        *(
            (
                {f"env_config.{key}": {"cart_*": "left"}},
                f"env_config.{key} names policies, but policies is empty, so that one policy plays",
            )
            for key in ("policy_mapping", "eval_policy_mapping")
        ),
        (
            {
                "env_config": {
                    "env_name": "tests.surreal_like.env.samples:Spoiled",
                    "obs_spec": {
                        "temps": {"type": "float32", "dim": [3], "critic_only": True},
                        "door": {"type": "int8", "dim": []},
                    },
                }
            },
            "env_config.obs_spec.temps is critic_only, as only env_config.observe_state of several",
        ),
        (
            {"env_config.team_reward": "total"},
            "env_config.team_reward is 'total', expected",
        ),
    ],
)
def test_parts_that_cannot_be_added_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SurrealError, match=message) as error:
        resolved(tmp_path, {**CENTRAL, "learner_config": {}, **changes})
    assert "\n" not in str(error.value)


PLANS = """
from surreal_like.dataflow import concurrently, for_policies, replay, rollouts, train_one_step


def default(learners):
    return for_policies(learners)


def crossed(learners):
    left, right = learners.values()
    flows = [rollouts(left).for_each(train_one_step(right)), replay(right)]
    return concurrently([*flows, rollouts(left).for_each(train_one_step(left))])


def wrong(learners):
    left, right = learners.values()
    one, other = replay(right).duplicate(2)
    branches = [one.for_each(train_one_step(right)), other.for_each(train_one_step(left))]
    return concurrently([left.execution_plan(), *branches])
"""


@pytest.mark.parametrize(
    ("plan", "changes", "said"),
    [
        ("default", {"policies": {}, "env_config.policy_mapping": {}}, "but policies is empty"),
        ("default", {"policies.right": {"fixed": "random"}}, ""),
        ("crossed", {}, "would take each other's batches"),
        ("wrong", {}, "train_one_step of policy left got a batch of policy right: put select"),
        ("defualt", {}, "has no 'defualt'; did you mean default?"),
        (3, {}, "policies_plan is 3, expected a place, such as plan.py:function"),
    ],
)
def test_a_plan_over_policies_is_built_before_the_start(
    tmp_path: Path, plan: Any, changes: Mapping[str, Any], said: str
) -> None:
    (tmp_path / "plans.py").write_text(PLANS)
    place = plan if plan == 3 else f"{tmp_path / 'plans.py'}:{plan}"
    if said:
        with pytest.raises(SurrealError) as error:
            resolved(tmp_path, {**changes, "policies_plan": place})
        assert said in str(error.value)
        assert "\n" not in str(error.value)
    else:
        assert resolved(tmp_path, {**changes, "policies_plan": place}).policies_plan == place


def test_an_entry_of_the_experiment_that_is_misspelled_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SurrealError, match=r"unknown key 'policies_plna'; .*, policies_plan"):
        read_experiment(None, ["policies_plna=x.py:y"], algorithm="dqn", env_name="toy:chain")


def test_the_fingerprint_covers_the_plan_over_policies(tmp_path: Path) -> None:
    (tmp_path / "plans.py").write_text(PLANS)
    plain = resolved(tmp_path, {})
    planned = resolved(tmp_path, {"policies_plan": f"{tmp_path / 'plans.py'}:default"})
    assert planned.fingerprint() != plain.fingerprint()
    del plain["policies_plan"]
    assert plain.fingerprint() == resolved(tmp_path, {}).fingerprint()


def test_the_plans_of_policies_are_those_in_the_code_of_the_run(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.code.mkdir(parents=True)
    for name in ("joint", "right"):
        (folder.code / f"{name}.py").touch()
    config = Config(
        {
            "learner_config": {"execution_plan": None},
            "policies": {
                "left": {"fixed": "random"},
                "right": {"learner_config": {"execution_plan": "right.py:plan"}},
            },
            "policies_plan": "joint.py:plan",
        }
    )
    kept = with_kept_plan(config, folder)
    assert kept.policies_plan == f"{folder.code / 'joint.py'}:plan"
    assert kept.policies.right.learner_config.execution_plan == f"{folder.code / 'right.py'}:plan"
    assert config.policies_plan == "joint.py:plan"
