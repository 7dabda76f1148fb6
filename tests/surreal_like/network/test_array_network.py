"""Networks on arrays give what torch gives, and only where they are the same network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from session.config.sections import sections_of
from surreal_like.algorithm.dqn import DQNAgent
from surreal_like.experiment.resolve import resolve
from surreal_like.network.q_network import DISTRIBUTION_CONFIG, Q_NETWORK_CONFIG, QNetwork
from surreal_like.run.request import RunRequest

BOX = {"type": "float32", "dim": [4]}


def network(spec: dict[str, Any], *, dueling: bool = False, **model: Any) -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(spec, 3, model={**Q_NETWORK_CONFIG, **model}, dueling=dueling).freeze()


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("sizes", [[], [8], [64, 64]])
@pytest.mark.parametrize(
    "spec", [BOX, {"type": "uint8", "dim": [2, 3]}, {"type": "int32", "dim": [1]}]
)
def test_arrays_give_what_torch_gives(
    spec: dict[str, Any], sizes: list[int], activation: str, rows: int
) -> None:
    made = network(spec, hidden_sizes=sizes, activation=activation)
    arrays = made.on_arrays()
    assert arrays is not None
    obs = np.random.default_rng(1).integers(0, 200, (rows, *spec["dim"])).astype(spec["type"])
    before = arrays(obs)
    np.testing.assert_allclose(before, made(torch.from_numpy(obs)).numpy(), rtol=2e-5, atol=1e-5)
    # Parameters that are loaded later act.
    flat = made.read_flat()
    made.load_flat((flat.view(np.float32) * 0.5).view(np.uint8))
    assert not np.allclose(arrays(obs), before)
    np.testing.assert_allclose(
        arrays(obs), made(torch.from_numpy(obs)).numpy(), rtol=2e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (BOX, {"activation": "gelu"}),
        (BOX, {"noisy": 0.5}),
        (BOX, {"normalize_obs": True}),
        (BOX, {"dueling": True}),
        (BOX, {"head_sizes": [8]}),
        (BOX, {"hidden_sizes": [512, 512]}),
        ({"type": "int64", "dim": [1], "num": [5]}, {}),
        ({"type": "uint8", "dim": [84, 84, 4]}, {}),
        ({"a": BOX, "b": BOX}, {}),
    ],
)
def test_other_networks_are_left_to_torch(spec: dict[str, Any], changes: dict[str, Any]) -> None:
    assert network(spec, **changes).on_arrays() is None


@pytest.mark.parametrize("kind", ["categorical", "quantile"])
def test_distributions_are_left_to_torch(kind: str) -> None:
    made = QNetwork(
        BOX, 3, model=dict(Q_NETWORK_CONFIG), distribution={**DISTRIBUTION_CONFIG, "kind": kind}
    )
    assert made.on_arrays() is None


def agent(kind: type[DQNAgent] = DQNAgent, *words: str) -> DQNAgent:
    config = resolve(RunRequest(algorithm="dqn", env="gym:CartPole-v1", overrides=words).read())
    torch.manual_seed(0)
    return kind(**sections_of(config), agent_id=0, agent_mode="training")


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_an_agent_chooses_the_same_actions_either_way(epsilon: float) -> None:
    words = (f"learner_config.algo.epsilon.start={epsilon}",)
    one, two = agent(DQNAgent, *words), agent(DQNAgent, *words)
    assert one.acts_on_arrays
    rng = np.random.default_rng(2)
    for _ in range(200):
        obs = rng.normal(size=(2, 4)).astype(np.float32)
        with torch.inference_mode():
            wanted = two.act(torch.from_numpy(obs))
        found = one.act_on_arrays(obs)
        assert found.tolist() == wanted.tolist()
        assert found.dtype == wanted.dtype


class OwnAct(DQNAgent):
    def act(self, obs: Any) -> Any:
        return np.zeros(len(obs), np.int64)


class OwnExploration(DQNAgent):
    def explore(self, q_values: torch.Tensor) -> Any:
        return np.ones(len(q_values), np.int64)


@pytest.mark.parametrize("kind", [OwnAct, OwnExploration])
def test_an_authors_own_way_to_act_is_not_passed_by(kind: type[DQNAgent]) -> None:
    assert not agent(kind).acts_on_arrays


def test_values_that_are_sent_need_torch() -> None:
    words = (
        "learner_config.replay.type=PrioritizedReplay",
        "learner_config.replay.priority.initial=acting",
    )
    assert not agent(DQNAgent, *words).acts_on_arrays


def test_a_hook_on_the_torso_is_called() -> None:
    made = agent()
    seen: list[int] = []
    obs = np.zeros((1, 4), np.float32)
    made.act_on_arrays(obs)
    assert seen == []
    made.q_network.torso.register_forward_hook(lambda *_: seen.append(1))
    made.act_on_arrays(obs)
    assert seen == [1]
