"""Names that follow from a policy: those of a run of one policy have nothing added."""

import pytest

from session.config import Config
from surreal_like.data.policy_names import PolicyId, agents_of, named_policies, policies_of

ALONE = {
    "shard": "replay-2",
    "account": "agent-0",
    "snapshot": "default-200",
    "parameters": "learner.parameters",
    "client": "learner/learner",
    "checkpoints": "learner",
    "best": "best",
    "add": "",
}
LEFT = {
    "shard": "replay-left-2",
    "account": "agent-0:left",
    "snapshot": "left-200",
    "parameters": "learner-left.parameters",
    "client": "learner/left",
    "checkpoints": "left",
    "best": "best/left",
    "add": "of left",
}
ARGUMENTS = {"shard": 2, "account": "agent-0", "snapshot": 200, "add": "of {}"}


@pytest.mark.parametrize(("policy", "names"), [(PolicyId(), ALONE), (PolicyId("left"), LEFT)])
def test_a_policy_gives_all_its_names(policy: PolicyId, names: dict[str, str]) -> None:
    found = {name: getattr(policy, name) for name in names}
    assert names == {
        name: each(ARGUMENTS[name]) if name in ARGUMENTS else each for name, each in found.items()
    }
    assert PolicyId.of_shard(policy.shard(2)) == policy


def test_two_policies_of_a_process_draw_independently() -> None:
    assert PolicyId().seed(7) == 7
    assert len({PolicyId(name).seed(7) for name in ("left", "right", "default")}) == 3


def test_a_single_agent_has_one_policy_without_settings_of_its_own() -> None:
    assert policies_of(Config({"policies": {}})) == policies_of(Config()) == {"default": {}}
    assert agents_of(Config()) == named_policies(Config()) == []


def test_agents_of_several_policies_count_once() -> None:
    past = {"fixed": "random", "agents": ["a", "b"]}
    config = Config({"policies": {"main": {"agents": ["b", "c"]}, "past": past}})
    assert agents_of(config) == ["b", "c", "a"]
    assert named_policies(config) == ["main"]
