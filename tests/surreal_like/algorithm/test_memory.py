"""PPO and IMPALA with a memory: agent and learner see the same, and what was seen is recalled."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from session.config import Config
from session.errors import ConfigError
from surreal_like import train
from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.addons.scripts.policy import load_policy
from surreal_like.agent.acting import Acting, ActingPolicy
from surreal_like.agent.evaluation import Evaluation
from surreal_like.algorithm.on_policy import see
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.dataflow.batches import View, inputs_before, parts_of, state_before
from surreal_like.env.toy import Recall
from surreal_like.network.flat import manifest_of, named_tensors
from surreal_like.policies.evaluator_builder import make_player
from tests.add_ons import needs
from tests.surreal_like.algorithm.unrolls import (
    ACTIONS,
    DISCRETE,
    B,
    T,
    acted_batch,
    configs,
    make_obs,
    play,
    prepare,
)
from tests.surreal_like.env.samples import Arms

ARMS = "tests.surreal_like.env.samples:Arms"
KINDS = ["lstm", "gru"]
NAMES = ["ppo", "impala"]


def pair(name: str, kind: str, inputs: Any = (), spec: Any = DISCRETE) -> tuple[Any, Any]:
    """Agent and learner with the same parameters."""
    algorithm: Any = find_algorithm(name)
    model = {"hidden_sizes": [8], "memory": kind, "memory_size": 6, "memory_inputs": [*inputs]}
    options = configs(algorithm, spec, learner={"model": model})
    torch.manual_seed(0)
    learner = algorithm.learner(**options)
    agent = algorithm.agent(**options, agent_id=0, agent_mode="training")
    agent.network.load_flat(learner.network.read_flat())
    return agent, learner


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_learner_sees_in_an_unroll_what_the_agent_saw_step_by_step(
    name: str, kind: str
) -> None:
    agent, learner = pair(name, kind)
    acted_batch(agent, seed=1)  # so that a state stands before the first row
    batch = acted_batch(agent)
    state = state_before(batch)
    assert state is not None
    assert state.any()
    policy, values = learner.network.unroll(batch.obs, state, batch.first)
    assert values.shape == (T + 1, B)
    logits = policy.columns()["logits"][:T].detach()
    assert torch.allclose(logits, batch.extras["logits"], atol=1e-6)


INPUTS = [("action",), ("reward",), ("action", "reward")]


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("spec", ACTIONS.values(), ids=ACTIONS)
def test_agent_and_learner_get_the_same_action_and_reward_before(inputs: Any, spec: Any) -> None:
    """T2, S5: in mid-episode, too; an action and a reward of another step would be seen."""
    agent, learner = pair("impala", "lstm", inputs, spec)
    acted_batch(agent, seed=1, spec=spec)
    batch = acted_batch(agent, spec=spec)
    state, before = state_before(batch), inputs_before(batch)
    columns = learner.network.unroll(batch.obs, state, batch.first, **before)[0].columns()
    for name, column in columns.items():
        assert torch.allclose(column[:T].detach(), batch.extras[name], atol=1e-6), name
    other = {name: x.roll(1, 0) for name, x in before.items()}
    moved = learner.network.unroll(batch.obs, state, batch.first, **other)[0].columns()
    assert any(not torch.allclose(moved[name], columns[name], atol=1e-4) for name in columns)
    assert learner.learn(batch)["nan_updates"] == 0


def test_inputs_without_a_memory_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"memory_inputs is \['action'\], but model.memory is"):
        pair("ppo", "", ("action",))


@pytest.mark.parametrize("inputs", [(), *INPUTS])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_ratios_are_1(kind: str, inputs: Any) -> None:
    agent, learner = pair("ppo", kind, inputs)
    acted_batch(agent, seed=1)
    batch = acted_batch(agent)
    rows = prepare(learner, batch)
    assert rows.mask.shape == (T, B)
    for part in (rows, View(rows, lambda x: x[:, [2, 0]])):
        policy, values = see(learner.network, part)
        assert torch.allclose(policy.log_prob(part.actions), part.log_probs, atol=1e-5)
        assert torch.allclose(values, part["values"], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_minibatches_are_of_whole_streams(kind: str) -> None:
    agent, learner = pair("ppo", kind)
    rows = prepare(learner, acted_batch(agent))
    parts = [part for _, part in parts_of(rows, 4, learner.generator)]
    assert [part.mask.shape for part in parts] == [(T, 1)] * B
    assert all(part.advantages.shape == (T, 1) for part in parts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_nothing_was_done_at_are_left_out(name: str, kind: str) -> None:
    results = []
    for spoilt in (False, True):
        agent, learner = pair(name, kind)
        batch = acted_batch(agent)
        if spoilt:
            idle = batch.mask == 0
            batch["rewards"] = torch.where(idle, torch.tensor(1e6), batch.rewards)
            logits = batch.extras["logits"]
            batch.extras["logits"] = torch.where(idle.unsqueeze(-1), torch.tensor(3.0), logits)
        learner.learn(batch)
        results.append(learner.network.hash())
    assert results[0] == results[1]


@pytest.mark.parametrize("name", NAMES)
def test_agent_and_learner_have_the_same_parameters(name: str) -> None:
    agent, learner = pair(name, "lstm")
    manifests = [manifest_of(named_tensors(x.module_dict())) for x in (agent, learner)]
    assert manifests[0] == manifests[1]
    assert any("core" in entry.name for entry in manifests[0])


def test_an_agent_forgets_where_an_episode_begins() -> None:
    agent, _ = pair("ppo", "lstm")
    obs = make_obs(None, 2)
    agent.first = np.array([True, True])
    _, fresh = agent.act(obs)
    assert not agent.initial_state(2).any()
    agent.first = np.array([False, True])
    _, later = agent.act(obs)
    assert np.allclose(later["logits"][1], fresh["logits"][1], atol=1e-6)
    assert not np.allclose(later["logits"][0], fresh["logits"][0], atol=1e-6)
    assert later["memory"].shape == (2, 12)


def test_another_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="'rnn', expected lstm or gru"):
        pair("ppo", "rnn")


def test_a_memory_does_not_look_at_single_observations() -> None:
    _, learner = pair("ppo", "lstm")
    with pytest.raises(ValueError, match=r"call unroll\(\) or act\(\)"):
        learner.network(make_obs(None, 3))


SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"learner_config__algo__learning_rate__start": 5e-3},
    "impala": {"learner_config__algo__learning_rate__start": 1e-2},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("ppo", marks=pytest.mark.slow), "impala"])
def test_what_was_shown_is_recalled(name: str, tmp_path: Path) -> None:
    easy = {"arms": 2, "delay": 2}
    words = {
        **SETTINGS[name],
        "learner_config__model__memory": "lstm",
        "env_config__env_args": easy,
    }
    goal = Recall().optimal_return
    run = play(tmp_path / "run", name, "toy:recall", env_steps=60_000, goal=goal, **words)
    assert run.result["goal_met"] is True
    # The same by the policy of a finished run, whose episodes begin at different times.
    score = evaluate(tmp_path / "run", episodes=20)
    assert score["mean_return"] > 0.95
    policy = load_policy(tmp_path / "run")
    env = Recall(**easy)
    env.seed(3)
    for _ in range(5):
        (obs, _), state, over = env.reset(), None, False
        while not over:
            action, state = policy(obs, state)
            obs, reward, over, _, _ = env.step(int(action))
        assert reward == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("env", ["toy:target", "toy:multi_cartpole"])
def test_a_run_learns_from_what_its_agents_saw(env: str, tmp_path: Path) -> None:
    """The policy stays as it is: all ratios are 1 if the memory of the learner gets the same."""
    words: dict[str, Any] = {
        "learner_config__model__memory": "gru",
        "learner_config__model__memory_inputs": ["action", "reward"],
        "learner_config__algo__learning_rate__start": 0.0,
        "session_config__stop__iterations": 4,
    }
    run = play(tmp_path / "run", "impala", env, env_steps=100_000, **words)
    learn = run.progress()[-1]["learn"]
    assert learn["rho"] == pytest.approx(1.0, abs=1e-5)
    assert learn["entropy"] != 0.0


def test_an_evaluation_shows_the_reward_before() -> None:
    algorithm: Any = find_algorithm("ppo")
    model = {"hidden_sizes": [8], "memory": "lstm", "memory_inputs": ["reward"]}
    options = configs(algorithm, {"type": "discrete", "dim": [2]}, learner={"model": model})
    options["env_config"].update(env_name=ARMS, obs_spec={"type": "float32", "dim": [1]})
    agent = algorithm.agent(**options, agent_id=0, agent_mode="eval_stochastic")
    seen: list[Any] = []
    act = agent.act

    def look(obs: Any) -> Any:
        seen.append(agent.prev_reward.tolist())
        return act(obs)

    agent.act = look
    player = make_player(
        [ActingPolicy("default", Acting(agent))], Config(options), num_envs=2, seed=0
    )
    rewards, evaluation = [[0.0, 0.0]], Evaluation(8, 2)
    env: Any = player.env.env  # type: ignore[union-attr]
    step = env.step

    def note(actions: Any) -> Any:
        made = step(actions)
        # Of the last row of an episode, too; the row behind it begins the next one.
        rewards.append(made[1].tolist())
        return made

    env.step = note
    player.reset()
    for _ in range(12):
        player.step(evaluation)
    player.close()
    assert seen == rewards[:12]
    assert np.any(seen)


@pytest.mark.slow
@needs("r2d2")
@pytest.mark.parametrize("inputs", [[], ["action", "reward"]])
def test_which_arm_pays_is_known_by_the_reward_before(inputs: list[str], tmp_path: Path) -> None:
    config = Path(__file__).resolve().parents[3] / "configs" / "memory_r2d2.yaml"
    settings = {
        "env_config.env_name": ARMS,
        "env_config.env_args": {},
        "learner_config.model.memory_inputs": inputs,
        "session_config.stop": {"eval_return": 5.3, "env_steps": 24_000, "eval_episodes": 100},
    }
    run = train(config, overrides=settings, launcher="serial", folder=tmp_path / "run")
    assert bool(run.result["goal_met"]) == bool(inputs)
    if not inputs:
        assert run.result["best_eval"]["mean_return"] < 4.0
        return
    # By the policy of the finished run, which gets the reward from its caller.
    policy, env, total = load_policy(tmp_path / "run"), Arms(), 0.0
    env.seed(3)
    for _ in range(20):
        (obs, _), state, reward, over = env.reset(), None, 0.0, False
        while not over:
            action, state = policy(obs, state, reward=reward)
            obs, reward, over, _, _ = env.step(int(action))
            total += reward
    assert total / 20 > 5.0
    assert evaluate(tmp_path / "run", episodes=20)["mean_return"] > 5.0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_a_memory_it_is_not(name: str, tmp_path: Path) -> None:
    run = play(tmp_path / "run", name, "toy:recall", env_steps=6000, **SETTINGS[name])
    assert run.progress()[-1]["train"]["mean_return_100"] < 0.6
