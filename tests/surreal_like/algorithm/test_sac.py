"""SAC: the update is the formula, the temperature follows the entropy, a toy is solved."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.agent.agent import Progress
from surreal_like.algorithm.sac import SAC, SACAgent, SACLearner
from surreal_like.data.batch import Batch
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm import test_ddpg
from tests.surreal_like.algorithm.transitions import SIZE, check_moved, make_transitions, options
from tests.surreal_like.algorithm.unrolls import play


def make_learner(**algo: Any) -> SACLearner:
    torch.manual_seed(0)
    learner = SACLearner(**options(SAC, **algo))
    with torch.no_grad():
        for each in learner.target.module.parameters():
            each.mul_(2.0)
    return learner


def make_agent(mode: str = "training", **algo: Any) -> SACAgent:
    torch.manual_seed(0)
    return SACAgent(**options(SAC, **algo), agent_id=0, agent_mode=mode)


both = pytest.mark.parametrize("make", [make_learner, test_ddpg.make_learner], ids=["sac", "ddpg"])


@pytest.mark.parametrize("alpha", [1.0, 0.2])
def test_the_critic_loss_is_the_formula(alpha: float) -> None:
    learner = make_learner(temperature={"start": alpha})
    batch = make_transitions()
    twin = learner.generator.clone_state()
    with torch.no_grad():
        actions, log_prob = learner.policy(batch.obs_next).draw(twin)
        q_t = learner.target.module(batch.obs_next, actions)
        unit = (batch.actions - torch.tensor([0.0, 2.0])) / 2.0
        q_tm1 = learner.critics(batch.obs, unit)
    expected = 0.0
    for row in range(SIZE):
        soft = min(q_t[:, row].tolist()) - alpha * log_prob[row].item()
        y = batch.rewards[row].item() + batch.discounts[row].item() * soft
        for q in q_tm1[:, row].tolist():
            expected += batch.weights[row].item() * 0.5 * (y - q) ** 2 / SIZE
    assert float(learner.learn(batch)["loss"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("lower", [0, 1])
def test_the_policy_loss_is_the_formula(lower: int) -> None:
    """Either critic is the lower one in turn, and each row has a weight of its own."""
    learner = make_learner(temperature={"start": 0.2})
    offset = torch.zeros(2, 1)
    offset[lower] = -3.0
    critics = learner.critics.forward

    def shifted(obs: Any, actions: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = critics(obs, actions) + offset
        return values

    learner.critics.forward = shifted  # type: ignore[method-assign]
    batch = make_transitions()
    twin = learner.generator.clone_state()
    with torch.no_grad():
        actions, log_prob = learner.policy(batch.obs).draw(twin)
        q = learner.critics(batch.obs, actions)
    expected = sum(
        batch.weights[row].item() * (0.2 * log_prob[row].item() - min(q[:, row].tolist())) / SIZE
        for row in range(SIZE)
    )
    assert float(learner.policy_loss(batch).metrics["policy_loss"]) == pytest.approx(expected)


@torch.no_grad()
def slow_gap(learner: SACLearner, batch: Batch, row: int, critic: int, drawn: Any) -> float:
    """The loss of CQL(H) of one row and one critic, action by action."""

    def value(action: torch.Tensor) -> float:
        found: float = learner.critics(batch.obs[row : row + 1], action[None])[critic, 0].item()
        return found

    uniform, here, there = drawn
    # The density of the square from -1 to 1 is a quarter.
    total = sum(math.exp(value(action[row])) / 0.25 for action in uniform)
    for actions, log_prob in (here, there):
        for action, density in zip(actions[:, row], log_prob[:, row].tolist(), strict=True):
            total += math.exp(value(action) - density)
    taken = (batch.actions[row] - torch.tensor([0.0, 2.0])) / 2.0
    return math.log(total) - value(taken)


def test_the_conservative_loss_is_the_formula() -> None:
    learner, plain = make_learner(cql_alpha=0.5, cql_actions=3), make_learner()
    batch = make_transitions()
    before = float(plain.critic_loss(make_transitions()).metrics["loss"])
    twin = learner.generator.clone_state()
    with torch.no_grad():
        learner.policy(batch.obs_next).draw(twin)  # the target's
        drawn: list[Any] = [torch.empty(3, SIZE, 2).uniform_(-1.0, 1.0, generator=twin)]
        for obs in (batch.obs, batch.obs_next):
            # Three times the same observations, one after the other.
            actions, log_prob = learner.policy(obs.repeat(3, 1)).draw(twin)
            drawn.append((actions.view(3, SIZE, 2), log_prob.view(3, SIZE)))
    gaps = [
        [slow_gap(learner, batch, row, critic, drawn) for row in range(SIZE)] for critic in (0, 1)
    ]
    weights = batch.weights.tolist()
    penalty = sum(w * g for each in gaps for w, g in zip(weights, each, strict=True)) / SIZE
    found = learner.critic_loss(batch)
    assert float(found.metrics["loss"]) == pytest.approx(before + 0.5 * penalty, rel=1e-4)
    mean = sum(map(sum, gaps)) / (2 * SIZE)
    assert float(found.metrics["conservative_loss"]) == pytest.approx(mean, rel=1e-4)
    total: Any = found.total
    assert total["critic"].item() == pytest.approx(before + 0.5 * penalty, rel=1e-4)
    learner.policy.zero_grad(set_to_none=True)
    total["critic"].backward()
    assert all(each.grad is None for each in learner.policy.parameters())


@pytest.mark.slow
def test_values_of_actions_outside_the_data_fall() -> None:
    gaps = []
    for alpha in (0.0, 5.0):
        learner = make_learner(cql_alpha=alpha, critic_learning_rate=1e-2)
        for _ in range(150):
            learner.learn(make_transitions())
        gaps.append(float(learner.value_gaps(make_transitions()).detach().mean()))
    assert gaps[1] < gaps[0] - 0.5


def test_without_the_conservative_loss_nothing_else_is_drawn() -> None:
    states = []
    for algo in ({}, {"cql_alpha": 0.0, "cql_actions": 7}):
        learner = make_learner(**algo)
        learner.learn(make_transitions())
        states.append((learner.generator.get_state().tolist(), learner.critics.hash()))
    assert states[0] == states[1]


@pytest.mark.parametrize("torso", ["", "tests.surreal_like.algorithm.test_sac:Squares"])
def test_critics_value_several_actions_as_they_do_each(torso: str) -> None:
    """With encoders of their own, too."""
    learner = SACLearner(**options(SAC, learner={"model": {"torso": torso, "hidden_sizes": [8]}}))
    obs, actions = torch.randn(SIZE, 4), torch.rand(3, SIZE, 2)
    found = learner.critics(obs, actions)
    assert found.shape == (2, 3, SIZE)
    for number, each in enumerate(actions):
        torch.testing.assert_close(found[:, number], learner.critics(obs, each))


class Squares(torch.nn.Module):
    def __init__(self, obs_spec: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 5)
        self.out_features = 5

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(obs.square())
        return found


def test_the_policy_is_paid_for_entropy_and_climbs_the_lower_critic() -> None:
    learner = make_learner(
        critic_learning_rate=0.0,
        learning_rate=3e-3,
        temperature={"start": 0.05, "learning_rate": 0.0},
    )
    batch = make_transitions()
    batch["weights"] = torch.ones(SIZE)

    def value() -> float:
        with torch.no_grad():
            obs = batch.obs.repeat(500, 1)
            actions, log_prob = learner.policy(obs).draw(torch.Generator().manual_seed(5))
            q = learner.critics(obs, actions).amin(0)
            return float((q - 0.05 * log_prob).mean())

    before = value()
    for _ in range(60):
        learner.learn(batch)
    assert value() > before + 0.01


@both
def test_critics_are_not_moved_by_the_policys_loss(make: Any) -> None:
    learner = make(critic_learning_rate=0.0)
    before = learner.critics.hash()
    learner.learn(make_transitions())
    assert learner.critics.hash() == before
    assert all(each.requires_grad for each in learner.critics.parameters())


def test_the_target_moves_by_its_share_towards_the_critics() -> None:
    learner = make_learner(tau=0.25)
    before = copy.deepcopy(learner.target.module)
    learner.learn(make_transitions())
    check_moved(before, learner.critics, learner.target.module, 0.25)


@pytest.mark.parametrize("above", [-0.3, 0.3])
def test_the_temperature_follows_the_entropy(above: float) -> None:
    entropy = float(make_learner().learn(make_transitions())["entropy"])
    wanted = {"target_entropy": entropy + above, "learning_rate": 0.1}
    learner = make_learner(temperature=wanted)
    assert learner.learn(make_transitions())["temperature"] == 1.0
    assert (learner.temperature.value > 1.0) == (above > 0)


def test_a_temperature_may_stay_and_its_target_is_minus_the_size() -> None:
    learner = make_learner(temperature={"start": 0.3, "learning_rate": 0.0})
    for seed in range(3):
        learner.learn(make_transitions(seed))
    assert learner.temperature.value == pytest.approx(0.3)
    assert learner.target_entropy == -2.0


@pytest.mark.parametrize("field", ["rewards", "obs"])
def test_a_nan_skips_the_update_and_is_counted(field: str) -> None:
    learner = make_learner()
    before = learner.critics.hash()
    bad = make_transitions()
    bad[field][2] = math.nan
    metrics = learner.learn(bad)
    assert metrics["skipped"] == 1.0
    assert metrics["nan_updates"] >= 1
    assert learner.critics.hash() == before


def test_a_restored_learner_goes_on_to_the_same_parameters() -> None:
    learner, again = make_learner(), make_learner()
    for seed in range(4):
        learner.learn(make_transitions(seed))
    again.policy.load_flat(learner.policy.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    again.generator.set_state(learner.generator.get_state())
    for seed in range(4, 8):
        learner.learn(make_transitions(seed))
        again.learn(make_transitions(seed))
    assert again.policy.hash() == learner.policy.hash()
    assert again.critics.hash() == learner.critics.hash()
    assert again.temperature.value == learner.temperature.value


def test_agent_and_learner_have_the_same_parameters() -> None:
    each = (make_agent(), make_learner())
    manifests = [manifest_of(named_tensors(one.module_dict())) for one in each]
    assert manifests[0] == manifests[1]


def test_an_agent_draws_in_training_and_not_in_evaluation() -> None:
    obs = torch.randn(1, 4).expand(3000, 4)
    agent = make_agent()
    agent.progress = Progress(10, 1)
    drawn = agent.act(obs)
    assert drawn.dtype == np.float32
    assert drawn.std(0).min() > 0.3
    assert (drawn >= [-2.0, 0.0]).all()
    assert (drawn <= [2.0, 4.0]).all()
    best = make_agent("eval_deterministic").act(obs)
    assert (best == best[0]).all()
    assert make_agent("eval_stochastic").act(obs).std(0).min() > 0.3


def test_a_young_run_acts_at_random() -> None:
    agent = make_agent(random_steps=100)
    obs = torch.randn(1, 4).expand(4000, 4)
    uniform = agent.act(obs)
    counts = np.histogram(uniform[:, 0], bins=4, range=(-2, 2))[0]
    assert counts.min() > 850
    agent.progress = Progress(100, 1)
    assert np.histogram(agent.act(obs)[:, 0], bins=4, range=(-2, 2))[0].min() < 850


@pytest.mark.slow
def test_continuous_actions_come_near_the_optimum(tmp_path: Path) -> None:
    words: dict[str, Any] = {
        key: value for key, value in test_ddpg.SMALL.items() if "noise" not in key
    }
    words |= {"learner_config__algo__temperature": {"start": 0.1, "learning_rate": 3e-3}}
    run = play(tmp_path / "run", "sac", "toy:target", env_steps=2500, **words)
    assert run.result["best_eval"]["mean_return"] > -0.5


@both
def test_step_sizes_follow_their_schedules(make: Any) -> None:
    falling = {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": 1000}
    learner = make(learning_rate=falling, critic_learning_rate={**falling, "steps": 2000})
    learner.env_steps = 500
    assert learner.learn(make_transitions())["learning_rate"] == pytest.approx(5e-4)
    learner.env_steps, before = 1000, (learner.policy.hash(), learner.critics.hash())
    assert learner.learn(make_transitions(1))["learning_rate"] == 0.0
    after = learner.policy.hash(), learner.critics.hash()
    assert [x == y for x, y in zip(before, after, strict=True)] == [True, False]
