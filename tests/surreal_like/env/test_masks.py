"""Environments with masks of actions: what is refused, and where a mask comes from."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal_like.data.masks import check_mask, feature_spec, has_mask
from surreal_like.env.batched import BatchedVector
from surreal_like.env.check import check_env
from surreal_like.env.environment import Env, VectorEnv
from surreal_like.env.gym_adapter import GymAdapter
from surreal_like.env.multi_agent import as_joint
from surreal_like.env.multi_agent_vector import JointStep, JointVector, PolicyAgents
from surreal_like.env.registry import make_joint_env
from surreal_like.env.vector import as_vector, make_vector_env
from surreal_like.errors import DataError, SpecError
from tests.add_ons import needs
from tests.surreal_like.env.masked import STEPS, Masked, MaskedGame

PLACE = "tests.surreal_like.env.masked"
NUMBERS = {"type": "float32", "dim": [2]}
DISCRETE = {"type": "discrete", "dim": [3]}


def of_mask(*dim: int) -> dict[str, Any]:
    return {"x": NUMBERS, "action_mask": {"type": "bool", "dim": list(dim)}}


class Fixed(Env):
    """Shows the masks of a list, one after the other; the last one ends the episode."""

    def __init__(self, *masks: list[int], nums: tuple[int, ...] = (3,)) -> None:
        self.obs_spec = of_mask(sum(nums))
        several = len(nums) > 1
        self.action_spec = {"type": "multi_discrete" if several else "discrete", "dim": nums}
        self.masks, self.now = masks, 0

    def _observe(self) -> Any:
        return {"x": np.zeros(2, np.float32), "action_mask": np.array(self.masks[self.now], bool)}

    def reset(self) -> Any:
        self.now = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.now += 1
        return self._observe(), 0.0, self.now == len(self.masks) - 1, False, {}


def legal_actions(obs: Any) -> Any:
    return np.asarray(obs["action_mask"]).argmax(-1)


def test_only_a_part_of_this_name_is_a_mask() -> None:
    assert has_mask(of_mask(3))
    assert not has_mask(NUMBERS)
    assert not has_mask({"x": of_mask(3)})
    assert feature_spec(of_mask(3)) == {"x": NUMBERS}
    assert feature_spec(NUMBERS) is NUMBERS


@pytest.mark.parametrize(
    ("obs_spec", "action_spec", "words"),
    [
        (of_mask(3), {"type": "continuous", "dim": [3]}, "continuous actions, which have no mask"),
        (of_mask(4), DISCRETE, r"of shape \[4\], expected \[3\]"),
        (of_mask(2, 3), DISCRETE, r"of shape \[2, 3\], expected \[3\]"),
        (of_mask(5), {"type": "multi_discrete", "dim": [3, 3]}, r"expected \[6\]"),
        ({"action_mask": {"type": "bool", "dim": [3]}}, DISCRETE, "and nothing else"),
    ],
)
def test_a_mask_that_fits_no_actions_is_refused(
    obs_spec: dict[str, Any], action_spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=f"^e has observations with action_mask.*{words}"):
        check_mask(obs_spec, action_spec, "e")


def test_a_stack_of_frames_may_have_a_mask_of_each() -> None:
    check_mask(of_mask(2, 3), DISCRETE, "e", stacks=True)


def test_a_mask_without_a_legal_action_is_refused_where_one_must_be_taken() -> None:
    vector = as_vector(Fixed([1, 0, 0], [0, 0, 0], [0, 0, 1]))
    vector.reset()
    with pytest.raises(DataError, match=r"^obs/action_mask: .* in stream 0 leaves no legal action"):
        vector.step(np.array([0]))


def test_a_first_mask_without_a_legal_action_is_refused() -> None:
    with pytest.raises(DataError, match="leaves no legal action"):
        as_vector(Fixed([0, 0, 0], [1, 1, 1])).reset()


def test_each_of_several_choices_needs_a_legal_action() -> None:
    with pytest.raises(DataError, match="leaves no legal action"):
        as_vector(Fixed([1, 0, 0, 0], [1, 1, 1, 1], nums=(2, 2))).reset()


def test_nothing_need_be_legal_at_the_end_of_an_episode() -> None:
    vector = as_vector(Fixed([1, 0, 0], [0, 0, 0]))
    vector.reset()
    for _ in range(2):
        assert vector.step(np.array([0]))[2].item()
        # The action that leads to the next episode is ignored, so it need not be legal.
        vector.step(np.array([2]))


@pytest.mark.parametrize("way", ["sync", pytest.param("process", marks=needs("workers"))])
def test_a_masked_action_is_refused(way: str) -> None:
    env = make_vector_env(
        {"env_name": f"{PLACE}:Masked", "vector": way, "workers": 1}, num_envs=2, seed=0
    )
    try:
        obs, _ = env.reset()
        actions = legal_actions(obs)
        actions[1] = illegal = obs["action_mask"][1].argmin()
        legal = obs["action_mask"][1].nonzero()[0].tolist()
        words = rf"action: {illegal} in stream 1 is masked by obs/action_mask, legal are \{legal}"
        with pytest.raises(DataError, match=words):
            env.step(actions)
    finally:
        env.close()


def test_masks_of_native_code_are_checked() -> None:
    native = f"{PLACE}:make_vector"
    gymnasium.register("Masked-v0", entry_point=f"{PLACE}:Masked", vector_entry_point=native)
    try:
        env = make_vector_env({"env_name": "gym:Masked-v0"}, num_envs=2, seed=0)
        assert isinstance(env, BatchedVector)
        obs, _ = env.reset()
        masked = obs["action_mask"].argmin(1)
        with pytest.raises(DataError, match=r"in stream \d is masked by obs/action_mask, legal"):
            env.step(masked)
        env.close()
    finally:
        del gymnasium.registry["Masked-v0"]


def test_a_masked_action_of_several_choices_is_refused() -> None:
    vector = as_vector(Fixed([1, 0, 0, 1], [1, 1, 1, 1], nums=(2, 2)))
    vector.reset()
    with pytest.raises(
        DataError, match=r"action: \[0, 0\] in stream 0 is masked.* legal are \[\[0\], \[1\]\]"
    ):
        vector.step(np.array([[0, 0]]))


@pytest.mark.parametrize("dtype", ["int8", "bool", "uint8", "int64", "float32", "float64"])
def test_masks_are_numbers_of_any_dtype(dtype: str) -> None:
    vector: VectorEnv = as_vector(GymAdapter(Masked(dtype=dtype)))
    obs, _ = vector.reset()
    for _ in range(3 * STEPS):
        obs = vector.step(legal_actions(obs))[0]


@pytest.mark.parametrize("nums", [(4,), (3, 2)])
def test_an_environment_is_checked_with_legal_actions(nums: tuple[int, ...]) -> None:
    report = check_env(lambda: GymAdapter(Masked(nums)), steps=50)
    assert not [each for each in report.findings if each.kind == "error"], report


def game(*, informs: bool) -> JointVector:
    envs = [as_joint(MaskedGame(informs=informs)) for _ in range(2)]
    specs = envs[0].specs_of("a")
    assert specs == envs[0].specs_of("b")
    return JointVector(
        envs, [0, 1], {"p": PolicyAgents(specs, ["a", "b"])}, assign=lambda: lambda _: "p"
    )


def choose(step: JointStep) -> dict[str, Any]:
    return {name: legal_actions(rows.obs) for name, rows in step.rows.items()}


def test_a_mask_of_an_info_becomes_a_part_of_the_observation() -> None:
    one, other = game(informs=False), game(informs=True)
    assert one.num_streams == other.num_streams == {"p": 4}
    steps = one.reset(), other.reset()
    for _ in range(2 * STEPS):
        for name in ("observation", "action_mask"):
            ours, theirs = (step.rows["p"].obs[name] for step in steps)
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)
        steps = one.step(choose(steps[0])), other.step(choose(steps[1]))


def test_infos_without_masks_change_no_spec() -> None:
    env = make_joint_env({"env_name": "toy:multi_cartpole"})
    assert not has_mask(env.specs_of(env.possible_agents[0])[0])


def test_an_agent_that_takes_a_masked_action_is_named() -> None:
    vector = game(informs=False)
    rows = vector.reset().rows["p"]
    actions = legal_actions(rows.obs)
    actions[1] = rows.obs["action_mask"][1].argmin()
    with pytest.raises(
        DataError, match=r"^action: \d of agent b after 0 steps is masked by obs/action_mask"
    ):
        vector.step({"p": actions})


@pytest.mark.parametrize("informs", [False, True])
def test_an_agent_without_a_legal_action_is_named(informs: bool) -> None:
    env = MaskedGame(informs=informs)
    joint = as_joint(env)
    parts = {"p": PolicyAgents(joint.specs_of("a"), ["a", "b"])}
    env.games["b"].ends_at_once = True
    vector = JointVector([joint], [0], parts, assign=lambda: lambda _: "p")
    with pytest.raises(
        DataError, match=r"^obs/action_mask: .* of agent b after 0 steps leaves no legal action"
    ):
        vector.reset()


def test_an_info_that_lacks_its_mask_is_refused() -> None:
    env = MaskedGame(informs=True)
    joint = as_joint(env)
    parts = {"p": PolicyAgents(joint.specs_of("a"), ["a", "b"])}
    env.forgets = True
    vector = JointVector([joint], [0], parts, assign=lambda: lambda _: "p")
    with pytest.raises(DataError, match=r"^info has no action_mask.* of agent a after 0 steps"):
        vector.reset()
