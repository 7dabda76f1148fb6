"""Parts of observations that only value functions see."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from surreal_like.data.added_parts import policy_spec, state_part
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG, ActorCritic
from surreal_like.network.torso import AnyTorso

FEATURES = {"type": "float32", "dim": [4]}
SPEC = {"x": FEATURES, "state": state_part({"type": "float32", "dim": [6]})}
DISCRETE = {"type": "discrete", "dim": [3]}
T, B = 5, 6
MODELS = [{}, {"shared": True}, {"memory": "lstm"}, {"normalize_values": True}]


def make_obs(seed: int) -> dict[str, torch.Tensor]:
    """Returns observations `[T, B]` whose part `x` is always the same."""
    same, own = (torch.Generator().manual_seed(each) for each in (0, seed))
    return {"x": torch.randn(T, B, 4, generator=same), "state": torch.randn(T, B, 6, generator=own)}


def make_network(**model: Any) -> ActorCritic:
    torch.manual_seed(0)
    given = {**ACTOR_CRITIC_CONFIG, "normalize_obs": True, **model}
    network = ActorCritic(SPEC, DISCRETE, given)
    network.learn_moments({name: 3.0 * x.flatten(0, 1) for name, x in make_obs(9).items()})
    return network


@pytest.mark.parametrize("model", MODELS)
def test_the_state_changes_values_and_no_policy(model: dict[str, Any]) -> None:
    network = make_network(**model)
    state = None if network.core is None else network.core.initial_state(B)
    first = torch.zeros(T, B, dtype=torch.bool)
    (one, values), (other, changed) = (
        network.unroll(make_obs(seed), state, first) for seed in (1, 2)
    )
    assert torch.equal(one.columns()["logits"], other.columns()["logits"])
    assert (values != changed).all()
    if network.core is None:
        rows = {name: x.flatten(0, 1) for name, x in make_obs(1).items()}
        policy, same = network(rows)
        torch.testing.assert_close(
            policy.columns()["logits"], one.columns()["logits"].flatten(0, 1)
        )
        torch.testing.assert_close(same, values.flatten())


@pytest.mark.parametrize("model", MODELS)
def test_a_policy_acts_without_the_state(model: dict[str, Any]) -> None:
    network = make_network(**model)
    state = None if network.core is None else network.core.initial_state(B)
    rows, first = {name: x[0] for name, x in make_obs(1).items()}, torch.zeros(B, dtype=torch.bool)
    seen, _ = network.act(rows, state, first)
    blind, _ = network.act({"x": rows["x"]}, state, first)
    assert torch.equal(seen.columns()["logits"], blind.columns()["logits"])


@pytest.mark.parametrize("model", MODELS)
def test_the_loss_of_the_policy_does_not_reach_the_layers_of_values(model: dict[str, Any]) -> None:
    network = make_network(**model)
    state = None if network.core is None else network.core.initial_state(B)
    policy, values = network.unroll(make_obs(1), state, torch.zeros(T, B, dtype=torch.bool))
    policy.entropy().sum().backward(retain_graph=True)  # type: ignore[no-untyped-call]
    reached = {name for name, each in network.named_parameters() if each.grad is not None}
    network.zero_grad()
    values.sum().backward()  # type: ignore[no-untyped-call]
    others = {name for name, each in network.named_parameters() if each.grad is not None}
    assert not reached & others


class Wide(AnyTorso):
    """Gives all parts of observations, as they are."""

    def __init__(self, obs_spec: Any) -> None:
        super().__init__()
        self.out_features = sum(part["dim"][0] for part in obs_spec.values())

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.cat(list(obs.values()), dim=-1)


def test_a_torso_of_ones_own_gets_the_parts_of_its_spec() -> None:
    network = make_network(torso=f"{__name__}:Wide", torso_args={})
    assert network.torso.out_features == 4
    assert network.value_torso is not None
    assert network.value_torso.out_features == 10
    rows = {name: x[0] for name, x in make_obs(1).items()}
    policy, values = network(rows)
    acted, _ = network.act(rows, None, torch.zeros(B, dtype=torch.bool))
    torch.testing.assert_close(policy.columns()["logits"], acted.columns()["logits"])
    assert values.shape == (B,)


def test_specs_without_such_parts_stay_as_they_are() -> None:
    assert policy_spec(SPEC) == {"x": FEATURES}
    for spec in (FEATURES, {"x": FEATURES}):
        assert policy_spec(spec) is spec
