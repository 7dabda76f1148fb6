"""DQN: the update is the formula, the options change what they say, a NaN changes nothing."""

import copy
import math
from typing import Any, cast

import numpy as np
import pytest
import torch

from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from session.errors import ConfigError
from surreal_like.agent.agent import Progress
from surreal_like.algorithm.dqn import DQN, DQNAgent, DQNLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow import Loss
from surreal_like.network.flat import manifest_of, named_tensors, read_flat
from surreal_like.network.q_network import QNetwork

VECTOR = {"type": "float32", "dim": [4]}
IMAGE = {"type": "uint8", "dim": [36, 36, 3]}
TUPLE = {"0": {"type": "int64", "dim": [], "num": 3}, "1": VECTOR}
GAMMA_3 = 0.99**3


def configs(obs_spec: Any = None, learner: Any = None, **algo: Any) -> dict[str, Config]:
    learner = Config({"algo": algo, "device": "cpu", **(learner or {})})
    learner.extend(DQN.default_config().extend(BASE_LEARNER_CONFIG), strict=True)
    action_spec = {"type": "discrete", "dim": [3]}
    env = Config({"env_name": "gym:None-v0", "obs_spec": obs_spec or VECTOR})
    env.action_spec = action_spec
    return {
        "learner_config": learner,
        "env_config": env.extend(BASE_ENV_CONFIG),
        "session_config": BASE_SESSION_CONFIG.copy(),
    }


def make_learner(obs_spec: Any = None, **algo: Any) -> DQNLearner:
    torch.manual_seed(0)
    return DQNLearner(**configs(obs_spec, **algo))


def make_agent(mode: str = "training", agent_id: int = 0, **algo: Any) -> DQNAgent:
    return DQNAgent(**configs(**algo), agent_id=agent_id, agent_mode=mode)


def make_obs(spec: Any, size: int) -> Any:
    if spec is IMAGE:
        return torch.randint(0, 256, (size, 36, 36, 3), dtype=torch.uint8)
    if spec is TUPLE:
        return torch.randint(0, 3, (size,)), torch.randn(size, 4)
    return torch.randn(size, 4)


def make_batch(spec: Any = None, size: int = 6) -> Batch:
    """Inner steps, a shorter transition up to a time limit, and one that ends in a termination."""
    discounts = torch.full((size,), GAMMA_3)
    discounts[0], discounts[1] = 0.0, 0.99
    return Batch(
        obs=make_obs(spec, size),
        obs_next=make_obs(spec, size),
        actions=torch.randint(0, 3, (size,)),
        rewards=3.0 * torch.randn(size),
        discounts=discounts,
        dones=(discounts == 0.0).float(),
        weights=torch.rand(size),
        indices=torch.arange(size),
        extras={},
    )


def slow_loss(
    online: QNetwork, target: QNetwork, batch: Batch, *, double: bool, kappa: float
) -> tuple[float, list[float]]:
    """The loss and the absolute TD errors, row by row as the papers write them."""
    losses, errors = [], []
    for row in range(len(batch.actions)):
        q_t = target(batch.obs_next[row : row + 1])[0].tolist()
        chooser = online(batch.obs_next[row : row + 1])[0].tolist() if double else q_t
        bootstrap = q_t[chooser.index(max(chooser))]
        y = batch.rewards[row].item() + batch.discounts[row].item() * bootstrap
        error = abs(y - online(batch.obs[row : row + 1])[0, batch.actions[row]].item())
        square = 0.5 * error * error
        loss = square if not kappa or error <= kappa else kappa * (error - 0.5 * kappa)
        losses.append(batch.weights[row].item() * loss)
        errors.append(error)
    return sum(losses) / len(losses), errors


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("kappa", [0.0, 1.0, 2.5])
def test_the_loss_is_the_formula(double: bool, dueling: bool, kappa: float) -> None:
    learner = make_learner(double=double, dueling=dueling, huber_kappa=kappa)
    with torch.no_grad():
        for each in learner.target.module.parameters():
            each.mul_(-1.5)
    batch = make_batch()
    online = learner.q_network.clone()
    expected, errors = slow_loss(online, learner.target.module, batch, double=double, kappa=kappa)
    metrics = learner.learn(batch)
    assert float(metrics["loss"]) == pytest.approx(expected, rel=1e-4)
    assert float(metrics["td_error"]) == pytest.approx(sum(errors) / len(errors), rel=1e-4)


@pytest.mark.parametrize("kind", ["none", "categorical", "quantile"])
def test_values_of_other_actions_are_lowered(kind: str) -> None:
    distribution = {"kind": kind, **SMALL}
    plain = make_learner(distribution=distribution)
    learner = make_learner(cql_alpha=0.5, distribution=distribution)
    batch = make_batch()
    q = plain.q_network(batch.obs).tolist()
    weights, actions = batch.weights.tolist(), batch.actions.tolist()
    gaps = [math.log(sum(map(math.exp, row))) - row[a] for row, a in zip(q, actions, strict=True)]
    more = sum(0.5 * w * gap for w, gap in zip(weights, gaps, strict=True)) / len(gaps)
    first = plain.learn(batch)
    metrics = learner.learn(batch)
    assert float(metrics["loss"]) == pytest.approx(float(first["loss"]) + more, rel=1e-4)
    assert float(metrics["conservative_loss"]) == pytest.approx(sum(gaps) / len(gaps), rel=1e-4)


SMALL = {"atoms": 5, "v_min": -2.0, "v_max": 2.0, "quantiles": 4, "kappa": 0.5}


def total(loss: Loss) -> float:
    return float(cast(torch.Tensor, loss.total).detach())


def slow_distribution_loss(learner: DQNLearner, batch: Batch) -> tuple[list[float], list[float]]:
    """Losses without weights, and priorities, row by row as the papers write them."""
    online, target = learner.q_network, learner.target.module
    losses, priorities = [], []
    for row in range(len(batch.actions)):
        here, there = (each[row : row + 1] for each in (batch.obs, batch.obs_next))
        best = int((online if learner.double else target)(there).argmax())
        next_ = target.distribution(there)[0, best]
        mine = online.distribution(here)[0, batch.actions[row]]
        r, discount = batch.rewards[row].item(), batch.discounts[row].item()
        if online.kind == "categorical":
            m = [0.0] * 5
            for p, z in zip(next_.softmax(0).tolist(), [-2, -1, 0, 1, 2], strict=True):
                place = min(max(r + discount * z, -2.0), 2.0) + 2.0
                for i in range(5):
                    m[i] += p * max(0.0, 1.0 - abs(place - i))
            log_p = mine.log_softmax(0).tolist()
            losses.append(-sum(x * y for x, y in zip(m, log_p, strict=True)))
            entropy = -sum(x * math.log(x) for x in m if x > 0.0)
            priorities.append(losses[-1] - entropy)
        else:
            targets = [r + discount * z for z in next_.tolist()]
            loss = 0.0
            for i, theta in enumerate(mine.tolist()):
                for y in targets:
                    u = y - theta
                    huber = 0.5 * u * u if abs(u) <= 0.5 else 0.5 * (abs(u) - 0.25)
                    loss += abs((i + 0.5) / 4 - (u < 0)) * huber / 0.5 / 4
            losses.append(loss)
            priorities.append(abs(sum(targets) - sum(mine.tolist())) / 4)
    return losses, priorities


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
@pytest.mark.parametrize("kind", ["categorical", "quantile"])
def test_the_loss_of_a_distribution_is_the_formula(double: bool, dueling: bool, kind: str) -> None:
    distribution = {**SMALL, "kind": kind}
    learner = make_learner(double=double, dueling=dueling, distribution=distribution)
    with torch.no_grad():
        for each in learner.target.module.parameters():
            each.mul_(-1.5)
    batch = make_batch()
    losses, priorities = slow_distribution_loss(learner, batch)
    expected = np.mean([x * w for x, w in zip(losses, batch.weights.tolist(), strict=True)])
    loss = learner.loss(batch)
    assert total(loss) == pytest.approx(expected, rel=1e-4)
    assert loss.priorities is not None
    assert loss.priorities.tolist() == pytest.approx(priorities, rel=1e-3, abs=1e-5)
    metrics = learner.learn(batch)
    assert float(metrics["td_error"]) == pytest.approx(np.mean(priorities), rel=1e-3, abs=1e-5)
    assert ("clipped_mass" in metrics) == (kind == "categorical")


def test_the_mass_beyond_the_ends_is_reported() -> None:
    learner = make_learner(distribution={**SMALL, "kind": "categorical"})
    batch = make_batch()
    batch["rewards"] = torch.tensor([9.0, 9.0, 9.0, 0.0, 0.0, 0.0])
    batch["discounts"] = torch.zeros(6)
    assert float(learner.learn(batch)["clipped_mass"]) == pytest.approx(0.5)


RAINBOW: dict[str, Any] = {
    "dueling": True,
    "distribution": {"kind": "categorical"},
    "learner": {"model": {"noisy": 0.5, "head_sizes": [8], "hidden_sizes": [8]}},
}


def test_noise_is_drawn_anew_for_each_update_and_each_network() -> None:
    learner = make_learner(**RAINBOW)
    batch = make_batch()
    first, second = (learner.loss(batch) for _ in range(2))
    assert total(first) != total(second)
    learner.target.copy_online()
    networks = (learner.q_network, learner.target.module)
    mine, theirs = (each.distribution(batch.obs) for each in networks)
    assert not torch.equal(mine, theirs)
    again = make_learner(**RAINBOW)
    assert total(again.loss(batch)) == total(first)


def test_noise_explores_in_training_by_stream_and_not_in_evaluation() -> None:
    obs = torch.randn(1, 4).expand(3000, 4)
    epsilon = {"kind": "constant", "start": 0.0}
    agent = make_agent(**RAINBOW, epsilon=epsilon)
    with torch.no_grad():
        agent.q_network.head.advantage[1].weight_sigma.mul_(20.0)  # type: ignore[union-attr, index]
    found = np.asarray(agent.act(obs))
    assert np.bincount(found, minlength=3).min() > 100
    assert (np.asarray(agent.act(obs)) != found).any()
    again = make_agent(**RAINBOW, epsilon=epsilon)
    again.q_network.load_flat(agent.q_network.read_flat())
    assert np.array_equal(again.act(obs), found)
    for mode in ("eval_deterministic", "eval_stochastic"):
        evaluating = make_agent(mode, **RAINBOW, eval_epsilon=0.0)
        evaluating.q_network.load_flat(agent.q_network.read_flat())
        assert len(set(np.asarray(evaluating.act(obs)).tolist())) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"distribution": {"kind": "categorical", "v_min": -20.0, "v_max": 20.0}},
        {"distribution": {"kind": "quantile"}},
        {"learner": {"model": {"noisy": 0.5, "head_sizes": [16]}}},
    ],
)
def test_it_learns_distributions_and_with_noise(options: dict[str, Any]) -> None:
    learner = make_learner(dueling=True, learning_rate=3e-3, **options)
    batch = make_batch()
    batch["discounts"] = torch.zeros(6)
    errors = [float(learner.learn(batch)["td_error"]) for _ in range(300)]
    assert np.mean(errors[-20:]) < 0.6 * np.mean(errors[:5])


@pytest.mark.parametrize("spec", [VECTOR, IMAGE, TUPLE])
@pytest.mark.parametrize("dueling", [True, False])
def test_it_learns_the_value_of_a_batch_of_any_observation(spec: Any, dueling: bool) -> None:
    learner = make_learner(spec, dueling=dueling, learning_rate=3e-3)
    batch = make_batch(spec)
    batch["discounts"] = torch.zeros(6)
    first = float(learner.learn(batch)["loss"])
    for _ in range(60):
        metrics = learner.learn(batch)
    assert float(metrics["loss"]) < 0.2 * first


def test_a_terminal_transition_does_not_look_at_what_follows() -> None:
    learner = make_learner()
    batch = make_batch()
    targets = learner.bootstrap(batch)
    batch["obs_next"] = 100.0 * torch.randn(6, 4)
    changed = learner.bootstrap(batch) != targets
    assert changed.tolist() == [False, True, True, True, True, True]


@pytest.mark.parametrize("field", ["rewards", "obs", "weights"])
def test_a_nan_skips_the_update_and_is_counted(field: str) -> None:
    learner = make_learner(target={"mode": "soft", "tau": 0.5})
    learner.learn(make_batch())
    saved = copy.deepcopy(learner.optimizers["optimizer"].state_dict())
    before = learner.q_network.hash()
    bad = make_batch()
    bad[field][2] = math.nan
    metrics = learner.learn(bad)
    assert (metrics["skipped"], metrics["nan_updates"]) == (1.0, 1)
    assert learner.q_network.hash() == before
    kept = learner.optimizers["optimizer"].state_dict()["adam"]
    assert kept["steps"] == saved["adam"]["steps"]
    for moment in ("moment_1", "moment_2"):
        assert torch.equal(kept[moment], saved["adam"][moment])
    metrics = learner.learn(make_batch())
    assert (metrics["skipped"], metrics["nan_updates"]) == (0.0, 1)
    assert learner.q_network.hash() != before


def test_a_target_follows_as_the_config_says() -> None:
    hard = make_learner(target={"mode": "hard", "period": 2})
    equal = []
    for _ in range(4):
        hard.learn(make_batch())
        equal.append(hard.target.module.hash() == hard.q_network.hash())
    assert equal == [False, True, False, True]
    soft = make_learner(target={"mode": "soft", "tau": 1.0})
    soft.learn(make_batch())
    assert soft.target.module.hash() == soft.q_network.hash()


@pytest.mark.parametrize("kind", ["none", "categorical", "quantile"])
def test_a_restored_learner_goes_on_to_the_same_parameters(kind: str) -> None:
    options: dict[str, Any] = {"target": {"period": 3}, "distribution": {"kind": kind}}
    learner = make_learner(**options)
    batches = [make_batch() for _ in range(8)]
    for batch in batches[:4]:
        learner.learn(batch)
    again = make_learner(**options)
    again.q_network.load_flat(learner.q_network.read_flat())
    for name, saveable in again.saveables().items():
        saveable.load_state_dict(copy.deepcopy(learner.saveables()[name].state_dict()))
    for batch in batches[4:]:
        learner.learn(batch)
        again.learn(batch)
    assert again.q_network.hash() == learner.q_network.hash()
    assert again.target.module.hash() == learner.target.module.hash()


@pytest.mark.parametrize("dueling", [True, False])
def test_agent_and_learner_have_the_same_parameters(dueling: bool) -> None:
    agent, learner = make_agent(dueling=dueling), make_learner(dueling=dueling)
    assert ("head.advantage.1.weight" in agent.q_network.state_dict()) == dueling
    manifests = [manifest_of(named_tensors(each.module_dict())) for each in (agent, learner)]
    assert manifests[0] == manifests[1]
    learner.learn(make_batch())
    agent.q_network.load_flat(learner.q_network.read_flat())
    assert np.array_equal(read_flat(agent.module_dict()), read_flat(learner.module_dict()))


def test_an_agent_explores_in_training_and_not_in_evaluation() -> None:
    obs = torch.randn(1, 4).expand(3000, 4)
    random = {"start": 1.0, "end": 1.0}
    actions = make_agent(epsilon=random).act(obs)
    assert np.bincount(np.asarray(actions), minlength=3).min() > 800
    greedy = make_agent("eval_deterministic", epsilon=random)
    assert np.array_equal(greedy.act(obs), greedy.q_network(obs).argmax(1).numpy())
    stochastic = make_agent("eval_stochastic", epsilon=random, eval_epsilon=0.3)
    best = stochastic.q_network(obs[:1]).argmax().item()
    assert np.mean(np.asarray(stochastic.act(obs)) != best) == pytest.approx(0.2, abs=0.04)


def test_epsilon_follows_the_steps_of_the_whole_run() -> None:
    agent = make_agent(epsilon={"start": 1.0, "end": 0.0, "steps": 100})
    assert agent.epsilon == 1.0
    agent.progress = Progress(env_steps=75, iteration=3)
    assert agent.epsilon == pytest.approx(0.25)


def test_agents_differ_in_epsilon_where_alpha_says_so() -> None:
    fixed = {"kind": "constant", "start": 0.4}
    found = [make_agent(agent_id=i, epsilon=fixed, epsilon_alpha=7.0).epsilon for i in range(2)]
    assert found == pytest.approx([0.4, 0.4**8])


def test_actions_are_integers_of_the_shape_of_the_streams() -> None:
    actions = make_agent().act(torch.randn(5, 4))
    assert actions.dtype == np.int64
    assert actions.shape == (5,)


@pytest.mark.parametrize(
    ("algo", "words"),
    [
        ({"distribution": {"v_max": -10}}, r"distribution has v_min -10\.0, not below v_max -10"),
        ({"target": {"mode": "lazy"}}, "'lazy', expected hard or soft"),
    ],
)
def test_options_out_of_range_are_refused(algo: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_learner(**algo)


def test_a_misspelt_option_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"algo\.learning_rat .*learning_rate"):
        make_learner(learning_rat=0.1)


def test_the_step_size_follows_its_schedule() -> None:
    falling = {"kind": "linear", "start": 1e-3, "end": 0.0, "steps": 1000}
    learner = make_learner(learning_rate=falling)
    learner.env_steps = 500
    assert learner.learn(make_batch())["learning_rate"] == pytest.approx(5e-4)
    learner.env_steps, before = 1000, learner.q_network.hash()
    assert learner.learn(make_batch())["learning_rate"] == 0.0
    assert learner.q_network.hash() == before


ACTING = {"replay": {"priority": {"initial": "acting"}}}


def test_agents_send_the_values_of_which_first_priorities_are_made() -> None:
    options = configs(learner=ACTING, epsilon={"start": 0.5, "kind": "constant"})
    agent = DQNAgent(**options, agent_id=0, agent_mode="training")
    obs = make_obs(VECTOR, 40)
    actions, extras = agent.act(obs)
    q_values = agent.q_network(obs).numpy()
    assert extras["q_taken"].dtype == extras["q_greedy"].dtype == np.float32
    assert extras["q_taken"].tolist() == q_values[np.arange(40), actions].tolist()
    assert extras["q_greedy"].tolist() == q_values.max(1).tolist()
    assert (extras["q_taken"] < extras["q_greedy"]).any()
    for mode, learner in (("eval_deterministic", ACTING), ("training", None)):
        agent = DQNAgent(**configs(learner=learner), agent_id=0, agent_mode=mode)
        assert agent.act(obs).shape == (40,)


def test_first_priorities_of_divergences_are_refused() -> None:
    """P2."""
    options = configs(learner=ACTING, distribution={"kind": "categorical"})
    with pytest.raises(ConfigError, match=r"initial is acting, but .* are divergences"):
        DQNAgent(**options, agent_id=0, agent_mode="training")
    options = configs(learner=ACTING, distribution={"kind": "quantile"})
    assert DQNAgent(**options, agent_id=0, agent_mode="training").sends_values
