"""Cores: an unroll at once is the same as row by row, and torch's own where nothing begins."""

from typing import Any

import pytest
import torch
from torch import nn

from session.errors import ConfigError
from surreal_like.network.recurrent import (
    GRUCore,
    InformedCore,
    LSTMCore,
    make_core,
    make_memory,
)

T, B, F, H = 7, 3, 4, 5
KINDS = ["lstm", "gru"]


def make(kind: str) -> LSTMCore | GRUCore:
    torch.manual_seed(0)
    return make_core(kind, F, H)


def nowhere() -> torch.Tensor:
    return torch.zeros(T, B, dtype=torch.bool)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_one_of_torch_where_no_episode_begins(kind: str) -> None:
    core = make(kind)
    theirs = nn.LSTM(F, H) if kind == "lstm" else nn.GRU(F, H)
    theirs.load_state_dict({f"{k}_l0": v for k, v in core.cell.state_dict().items()})
    features, state = torch.randn(T, B, F), torch.randn(B, core.state_size)
    outs, last = core(features, state, nowhere())
    begin = tuple(part[None].contiguous() for part in state.view(B, -1, H).unbind(1))
    expected, end = theirs(features, begin if kind == "lstm" else begin[0])
    assert torch.allclose(outs, expected, atol=1e-6)
    end = torch.cat(end, -1) if kind == "lstm" else end
    assert torch.allclose(last, end[0], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unroll_is_the_same_as_step_by_step(kind: str) -> None:
    core = make(kind)
    features, state = torch.randn(T, B, F), torch.randn(B, core.state_size)
    first = torch.rand(T, B) < 0.3
    outs, last = core(features, state, first)
    assert outs.shape == (T, B, core.out_features)
    for t in range(T):
        out, state = core(features[t : t + 1], state, first[t : t + 1])
        assert torch.allclose(out[0], outs[t], atol=1e-6)
    assert torch.allclose(state, last, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_inside_an_unroll_knows_nothing_of_the_one_before(kind: str) -> None:
    core = make(kind)
    features = torch.randn(T, B, F)
    first = nowhere()
    first[3, 1] = True
    outs, last = core(features, torch.randn(B, core.state_size), first)
    fresh, end = core(features[3:], core.initial_state(B), nowhere()[3:])
    assert torch.allclose(outs[3:, 1], fresh[:, 1], atol=1e-6)
    assert torch.allclose(last[1], end[1], atol=1e-6)
    assert not torch.allclose(outs[3:, 0], fresh[:, 0], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_crosses_the_beginning_of_an_episode(kind: str) -> None:
    core = make(kind)
    features = torch.randn(T, B, F, requires_grad=True)
    first = nowhere()
    first[3] = True
    outs, _ = core(features, core.initial_state(B), first)
    (gradient,) = torch.autograd.grad(outs[3:].sum(), features)
    assert not gradient[:3].any()
    assert gradient[3:].any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_initial_state_is_zero(kind: str) -> None:
    core = make(kind)
    state = core.initial_state(6)
    assert state.shape == (6, core.state_size)
    assert not state.any()


@pytest.mark.parametrize(
    ("kind", "size", "words"), [("rnn", 4, "'rnn', expected lstm or gru"), ("gru", 0, "0 units")]
)
def test_another_core_is_refused(kind: str, size: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_core(kind, F, size)


SPECS: dict[str, dict[str, Any]] = {
    "discrete": {"type": "discrete", "dim": [3]},
    "several": {"type": "multi_discrete", "dim": [3, 2]},
    "number": {"type": "continuous", "dim": []},
    "table": {"type": "continuous", "dim": [2, 2]},
}


def draw_actions(spec: Any) -> torch.Tensor:
    if spec["type"] == "continuous":
        return torch.randn(T, B, *spec["dim"])
    columns = torch.stack([torch.randint(size, (T, B)) for size in spec["dim"]], -1)
    return columns if spec["type"] == "multi_discrete" else columns[..., 0]


def slow_code(spec: Any, action: Any) -> list[float]:
    flat = torch.as_tensor(action).flatten().tolist()
    if spec["type"] == "continuous":
        return flat
    return [float(i == a) for a, size in zip(flat, spec["dim"], strict=True) for i in range(size)]


@pytest.mark.parametrize("inputs", [["action"], ["reward"], ["action", "reward"]])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_step_before_is_zero_where_an_episode_begins(spec: Any, inputs: list[str]) -> None:
    torch.manual_seed(0)
    core = make_memory({"memory": "gru", "memory_size": H, "memory_inputs": inputs}, F, spec)
    assert isinstance(core, InformedCore)
    features, actions, rewards = torch.randn(T, B, F), draw_actions(spec), torch.randn(T, B)
    first, state = torch.rand(T, B) < 0.4, torch.randn(B, core.state_size)
    assert first.any()
    outs, after = core(features, state, first, actions, rewards)
    before, code = state.tolist(), [each[H:] for each in state.tolist()]
    carried = torch.tensor([each[:H] for each in before])
    for t in range(T):
        rows = []
        for b in range(B):
            known = code[b] + ([rewards[t, b].item()] if "reward" in inputs else [])
            rows.append(features[t, b].tolist() + [x * (not first[t, b]) for x in known])
        row, here = torch.tensor([rows]), first[t : t + 1]
        out, carried = core.core(row, carried, here)
        assert torch.allclose(out[0], outs[t], atol=1e-6)
        # As an agent does it: one row, then the action that it chose.
        _, state = core(features[t : t + 1], state, here, rewards=rewards[t : t + 1])
        state = core.remember(state, actions[t])
        code = [slow_code(spec, actions[t, b]) if "action" in inputs else [] for b in range(B)]
    assert torch.allclose(state, after, atol=1e-6)
    assert torch.allclose(after, torch.cat((carried, torch.tensor(code)), -1), atol=1e-6)


def test_a_core_without_inputs_is_a_plain_one() -> None:
    model = {"memory": "lstm", "memory_size": H, "memory_inputs": []}
    core = make_memory(model, F, SPECS["discrete"])
    assert isinstance(core, LSTMCore)
    state = torch.randn(B, core.state_size)
    assert core.remember(state, torch.zeros(B)) is state


def test_rewards_that_are_missing_are_named() -> None:
    model = {"memory": "lstm", "memory_size": H, "memory_inputs": ["reward"]}
    core = make_memory(model, F, SPECS["discrete"])
    with pytest.raises(ValueError, match=r"memory_inputs has reward: give the rewards"):
        core(torch.randn(T, B, F), core.initial_state(B), nowhere())
