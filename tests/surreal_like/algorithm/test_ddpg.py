"""DDPG and TD3: the update is the formula, the options change what they say, a toy is solved."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.agent.agent import Progress
from surreal_like.algorithm.ddpg import DDPG, DDPGAgent, DDPGLearner
from surreal_like.algorithm.td3 import TD3, TD3Agent, TD3Learner
from surreal_like.data.batch import Batch
from surreal_like.network.flat import manifest_of, named_tensors
from tests.surreal_like.algorithm.transitions import SIZE, check_moved, make_transitions, options
from tests.surreal_like.algorithm.unrolls import play

ALGORITHMS: list[Any] = [(DDPG, DDPGLearner, DDPGAgent), (TD3, TD3Learner, TD3Agent)]


def make_learner(which: int = 0, **algo: Any) -> DDPGLearner:
    torch.manual_seed(0)
    algorithm, learner, _ = ALGORITHMS[which]
    made: DDPGLearner = learner(**options(algorithm, **algo))
    with torch.no_grad():
        for each in (*made.target_policy.module.parameters(), *made.policy.parameters()):
            each.mul_(3.0)
    return made


def make_agent(mode: str = "training", **algo: Any) -> DDPGAgent:
    torch.manual_seed(0)
    return DDPGAgent(**options(DDPG, **algo), agent_id=0, agent_mode=mode)


@torch.no_grad()
def slow_loss(learner: DDPGLearner, batch: Batch, noise: Any) -> float:
    """The loss of the critics, row by row."""
    loss = 0.0
    for row in range(SIZE):
        here = slice(row, row + 1)
        action = learner.target_policy.module(batch.obs_next[here])[0].tolist()
        action = [
            max(-1.0, min(1.0, a + e)) for a, e in zip(action, noise[row].tolist(), strict=True)
        ]
        q_t = learner.target_critics.module(batch.obs_next[here], torch.tensor([action]))
        y = batch.rewards[row].item() + batch.discounts[row].item() * min(q_t[:, 0].tolist())
        taken = batch.actions[row].tolist()
        unit = torch.tensor([[taken[0] / 2.0, (taken[1] - 2.0) / 2.0]])
        for q in learner.critics(batch.obs[here], unit)[:, 0].tolist():
            loss += batch.weights[row].item() * 0.5 * (y - q) ** 2 / SIZE
    return loss


@pytest.mark.parametrize("twin", [False, True])
def test_the_critic_loss_is_the_formula(twin: bool) -> None:
    learner = make_learner(twin=twin)
    batch = make_transitions()
    expected = slow_loss(learner, batch, np.zeros((SIZE, 2), np.float32))
    assert float(learner.learn(batch)["loss"]) == pytest.approx(expected, rel=1e-4)


def test_targets_are_smoothed_by_clipped_noise() -> None:
    learner = make_learner(twin=True, target_noise=0.5, target_noise_clip=0.3)
    drawn = torch.empty(SIZE, 2).normal_(generator=learner.generator.clone_state())
    noise = (0.5 * drawn).clamp(-0.3, 0.3).numpy()
    assert np.abs(noise).max() == pytest.approx(0.3)
    batch = make_transitions()
    expected = slow_loss(learner, batch, noise)
    assert float(learner.learn(batch)["loss"]) == pytest.approx(expected, rel=1e-4)


def test_the_policy_climbs_the_first_critic() -> None:
    learner = make_learner(twin=True, critic_learning_rate=0.0, learning_rate=1e-3)
    batch = make_transitions()
    with torch.no_grad():
        q = learner.critics(batch.obs, learner.policy(batch.obs))[0]
    losses = [float(learner.learn(batch)["policy_loss"]) for _ in range(20)]
    assert losses[0] == pytest.approx(float(-(q * batch.weights).mean()), rel=1e-4)
    assert losses[-1] < losses[0] - 1e-3


@pytest.mark.parametrize("which", [0, 1])
def test_the_policy_loss_with_recorded_actions_is_the_formula(which: int) -> None:
    learner, batch = make_learner(which, bc_weight=2.5), make_transitions()
    with torch.no_grad():
        actions = learner.policy(batch.obs)
        q = learner.critics(batch.obs, actions)[0].tolist()
    scale = 2.5 / (sum(map(abs, q)) / SIZE)
    loss = distance = 0.0
    for row, taken in enumerate(batch.actions.tolist()):
        unit = taken[0] / 2.0, (taken[1] - 2.0) / 2.0
        square = sum((x - y) ** 2 for x, y in zip(actions[row].tolist(), unit, strict=True)) / 2
        loss += batch.weights[row].item() * (square - scale * q[row]) / SIZE
        distance += square / SIZE
    found = learner.policy_loss(batch)
    assert float(found.metrics["policy_loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(found.metrics["bc_loss"]) == pytest.approx(distance, rel=1e-4)


def test_a_policy_of_recorded_actions_comes_near_them() -> None:
    """Without values of any size only the distance counts."""
    learner = make_learner(1, bc_weight=1e-6, policy_delay=1, learning_rate=1e-2)
    batch = make_transitions()
    for _ in range(300):
        learner.learn(batch)
    with torch.no_grad():
        found = learner.scale.to_env(learner.policy(batch.obs))
    assert (found - batch.actions).abs().max() < 0.4
    assert (make_learner(1).scale.to_env(torch.zeros(SIZE, 2)) - batch.actions).abs().max() > 1.0


def test_the_scale_of_values_has_no_gradient() -> None:
    learner, batch = make_learner(1, bc_weight=2.5), make_transitions()
    parameters = list(learner.policy.parameters())
    found = learner.policy_loss(batch).total
    assert isinstance(found, dict)
    given = torch.autograd.grad(found["policy"], parameters)
    actions = learner.policy(batch.obs)
    q = learner.critics(batch.obs, actions)[0]
    scale = 2.5 / q.abs().mean().item()
    squares = (actions - learner.scale.to_unit(batch.actions)).square().mean(1)
    wanted = torch.autograd.grad(((squares - scale * q) * batch.weights).mean(), parameters)
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_late_policy_waits_its_turn_and_the_slow_networks_with_it() -> None:
    learner = make_learner(1, policy_delay=3)
    changed = []
    for iteration in range(6):
        learner.iteration = iteration
        before = learner.policy.hash(), learner.target_critics.module.hash()
        metrics = learner.learn(make_transitions(iteration))
        after = learner.policy.hash(), learner.target_critics.module.hash()
        changed.append([x != y for x, y in zip(before, after, strict=True)])
        assert ("policy_loss" in metrics) == (iteration in (0, 3))
    assert changed == [[i in (0, 3)] * 2 for i in range(6)]


def test_both_targets_move_by_their_share() -> None:
    learner = make_learner(tau=0.25)
    targets = (learner.target_policy.module, learner.target_critics.module)
    before = copy.deepcopy(targets)
    learner.learn(make_transitions())
    for was, online, now in zip(before, (learner.policy, learner.critics), targets, strict=True):
        check_moved(was, online, now, 0.25)


def test_a_terminal_transition_does_not_look_at_what_follows() -> None:
    learner, batch = make_learner(), make_transitions()
    targets = learner.bootstrap(batch)
    batch["obs_next"] = 10.0 * torch.randn(SIZE, 4)
    assert (learner.bootstrap(batch) != targets).tolist() == [False, *[True] * (SIZE - 1)]


@pytest.mark.parametrize("field", ["rewards", "obs"])
def test_a_nan_skips_the_update_and_is_counted(field: str) -> None:
    learner = make_learner()
    before = learner.policy.hash(), learner.critics.hash()
    bad = make_transitions()
    bad[field][2] = math.nan
    metrics = learner.learn(bad)
    assert metrics["skipped"] == 1.0
    assert metrics["nan_updates"] >= 1
    assert learner.critics.hash() == before[1]


@pytest.mark.parametrize("which", [0, 1])
def test_a_restored_learner_goes_on_to_the_same_parameters(which: int) -> None:
    quiet = {"target_noise": 0.0}
    learner, again = make_learner(which, **quiet), make_learner(which, **quiet)
    for iteration in range(4):
        learner.iteration = iteration
        learner.learn(make_transitions(iteration))
    again.policy.load_flat(learner.policy.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    for iteration in range(4, 8):
        for each in (learner, again):
            each.iteration = iteration
            each.learn(make_transitions(iteration))
    assert again.policy.hash() == learner.policy.hash()
    assert again.critics.hash() == learner.critics.hash()


@pytest.mark.parametrize(("algorithm", "learner", "agent"), ALGORITHMS)
def test_agent_and_learner_have_the_same_parameters(
    algorithm: Any, learner: Any, agent: Any
) -> None:
    one, other = (
        learner(**options(algorithm)),
        agent(**options(algorithm), agent_id=0, agent_mode="training"),
    )
    manifests = [manifest_of(named_tensors(each.module_dict())) for each in (one, other)]
    assert manifests[0] == manifests[1]


def test_td3_is_what_the_paper_says() -> None:
    algo = TD3.default_config().algo
    assert (algo.twin, algo.policy_delay, algo.target_noise) == (True, 2, 0.2)
    assert set(algo) == set(DDPG.default_config().algo)


def test_noise_is_added_in_training_and_not_in_evaluation() -> None:
    obs = torch.randn(1, 4).expand(4000, 4)
    noisy = make_agent(noise={"sigma": 0.1}, random_steps=0)
    noisy.progress = Progress(10, 1)
    best = make_agent("eval_deterministic").act(obs)
    assert (best == best[0]).all()
    actions = noisy.act(obs)
    assert actions.dtype == np.float32
    # Half widths of the bounds are 2.
    assert (actions - best).std(0) == pytest.approx([0.2, 0.2], rel=0.1)
    wild = make_agent(noise={"sigma": 5.0}, random_steps=0)
    wild.progress = Progress(10, 1)
    actions = wild.act(obs)
    assert (actions >= [-2.0, 0.0]).all()
    assert (actions <= [2.0, 4.0]).all()


def test_a_young_run_acts_at_random() -> None:
    agent = make_agent(random_steps=100)
    obs = torch.randn(1, 4).expand(4000, 4)
    assert agent.act(obs).std(0) == pytest.approx([4 / 12**0.5] * 2, rel=0.05)
    agent.progress = Progress(100, 1)
    assert agent.act(obs).std(0).max() < 0.5


SMALL = {
    "learner_config__replay__batch_size": 32,
    "learner_config__replay__min_size": 200,
    "learner_config__replay__samples_per_insert": 16.0,
    "learner_config__algo__gamma": 0.5,
    "learner_config__algo__learning_rate": 3e-3,
    "learner_config__algo__critic_learning_rate": 3e-3,
    "learner_config__algo__tau": 0.05,
    "learner_config__algo__noise__sigma": 0.3,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddpg", "td3"])
def test_continuous_actions_come_near_the_optimum(name: str, tmp_path: Path) -> None:
    run = play(tmp_path / "run", name, "toy:target", env_steps=3000, **SMALL)
    # Actions at random give -16.7 or so.
    assert run.result["best_eval"]["mean_return"] > -0.5
