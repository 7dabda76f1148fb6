"""R2D2: the loss is the formula, stored states are those that the agent had, a burn-in is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from session.errors import ConfigError
from surreal_like.addons.r2d2.r2d2 import R2D2, R2D2Agent, R2D2Learner, rescale, unscale
from surreal_like.addons.r2d2.replay import SequenceReplay
from surreal_like.data.batch import Batch, make_batch
from surreal_like.dataflow import Loss
from surreal_like.experience.chunk import Chunk
from tests.surreal_like.algorithm.unrolls import DISCRETE, VECTOR, configs
from tests.surreal_like.replay.chunks import chunk_of

WIDTH = 3
TEXTS = ("FMMMMMMMMMMMMMT", "FMMMUFMMMMMMMMM", "MMMMMMMTFMMMMMU")


def options(kind: str = "lstm", burn_in: int = 2, inputs: Any = (), **algo: Any) -> Any:
    model = {"hidden_sizes": [8], "memory": kind, "memory_size": 6, "memory_inputs": [*inputs]}
    learner = {
        "model": model,
        "replay": {
            "type": R2D2.replay,
            "min_size": 1,
            "sequence": {"length": 4, "burn_in": burn_in, "period": 2},
        },
    }
    return configs(R2D2, learner=learner, **algo)


def pair(*how: Any, **algo: Any) -> tuple[R2D2Agent, R2D2Learner]:
    """Agent and learner with the same parameters."""
    torch.manual_seed(0)
    learner = R2D2Learner(**options(*how, **algo))
    agent = R2D2Agent(**options(*how, **algo), agent_id=0, agent_mode="training")
    agent.q_network.load_flat(learner.q_network.read_flat())
    return agent, learner


def acted(agent: R2D2Agent) -> tuple[Chunk, torch.Tensor]:
    """The rows of three streams that an agent acted in, and its values ``[T, N, A]``."""
    chunk = chunk_of(*TEXTS)
    steps = len(TEXTS[0])
    obs = torch.randn(steps, WIDTH, 4)
    values, columns = [], dict(chunk.columns)
    look = agent.q_network.act

    def act(*given: Any, **before: Any) -> Any:
        values.append(look(*given, **before))
        return values[-1]

    agent.q_network.act = act  # type: ignore[method-assign]
    actions, memory = [], []
    # Streams may begin in the middle of an episode, with a state from before.
    agent.state = torch.randn(WIDTH, agent.q_network.core.state_size)
    reward = np.where(columns["step_type"] == 0, 0, obs[..., 0]).astype(np.float32)
    for t in range(steps):
        agent.first = columns["step_type"][t] == 0
        if "reward" in agent.learner_config.model.memory_inputs:
            agent.prev_reward = torch.from_numpy(reward[t])
        taken, extras = agent.act(obs[t])
        actions.append(taken)
        memory.append(extras["memory"])
    columns = {name: each for name, each in columns.items() if name[:3] not in ("obs", "ext")}
    columns |= {"obs": obs.numpy(), "action": np.stack(actions)}
    columns["extras/memory"] = np.stack(memory)
    columns["reward"] = reward
    chunk.columns = columns
    return chunk, torch.stack([q_values for q_values, _ in values])


def sequences(chunk: Chunk, *how: Any, size: int = 40) -> tuple[Batch, Any]:
    table = SequenceReplay(**options(*how))
    table.insert(chunk)
    columns = table.sample_columns(size)
    window = table.view.window(table.storage, columns["indices"])
    return make_batch({name: torch.from_numpy(each) for name, each in columns.items()}), window


@pytest.mark.parametrize("inputs", [(), ("action",), ("reward",), ("action", "reward")])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_learner_has_the_values_that_the_agent_had(kind: str, inputs: Any) -> None:
    """R4: in mid-episode too, because the stored state is that of the agent."""
    agent, learner = pair(kind, 0, inputs)
    chunk, values = acted(agent)
    batch, rows = sequences(chunk, kind, 0, inputs)
    had = values.flatten(0, 1)[torch.from_numpy(rows)]
    found, _ = learner.values(learner.q_network, batch)
    real = torch.ones(rows.shape, dtype=torch.bool)
    real[1:] = torch.from_numpy(rows[1:] != rows[:-1])  # the others pad the end of an episode
    assert not real.all()
    assert torch.allclose(found[real], had[real], atol=1e-5)
    inside = ~batch.first[0]
    assert inside.any()
    assert learner.state_drift(batch, batch.extras["memory"][0]).item() == 0.0
    batch.extras["memory"] = torch.zeros_like(batch.extras["memory"])
    without, _ = learner.values(learner.q_network, batch)
    assert (without - had)[:, inside].abs().amax(0).amin() > 1e-5


@pytest.mark.parametrize("inputs", [(), ("action", "reward")])
def test_a_burn_in_with_the_acting_weights_comes_to_the_stored_state(inputs: Any) -> None:
    agent, learner = pair("lstm", 2, inputs)
    batch, _ = sequences(acted(agent)[0], "lstm", 2, inputs)
    _, state = learner.values(learner.q_network, batch)
    first = batch.first[learner.burn_in]
    assert first.any()
    assert torch.allclose(state[~first], batch.extras["memory"][learner.burn_in][~first], atol=1e-6)
    assert learner.state_drift(batch, state).item() < 1e-5
    assert learner.state_drift(batch, 2.0 * state).item() == pytest.approx(0.5, rel=1e-4)


def test_a_burn_in_has_no_gradient() -> None:
    agent, learner = pair()
    batch, _ = sequences(acted(agent)[0])
    batch["obs"] = batch.obs.clone().requires_grad_()
    learner.loss(batch).total.backward()  # type: ignore[union-attr]
    assert batch.obs.grad is not None
    size = batch.obs.grad.abs().sum((1, 2))
    assert size[: learner.burn_in].tolist() == [0.0] * learner.burn_in
    assert size[learner.burn_in] > 0.0


def slow_loss(learner: R2D2Learner, batch: Batch, b: int) -> tuple[float, float]:
    """Loss and priority of one sequence, row by row."""
    start, n = learner.burn_in, learner.n_step
    one = Batch({name: each[:, b : b + 1] for name, each in batch.items() if name in _TIMED})
    one["extras"] = {"memory": batch.extras["memory"][:, b : b + 1]}
    q = learner.values(learner.q_network, one)[0][:, 0].tolist()
    target_q = learner.values(learner.target.module, one)[0][:, 0]
    last, losses, errors = len(q) - 1, [], []
    for t in range(last):
        if not batch.mask[start + t, b]:
            continue
        total, factor, at = 0.0, 1.0, t
        while at < min(t + n, last) and batch.mask[start + at, b]:
            total += factor * batch.rewards[start + at, b].item()
            factor *= batch.discounts[start + at, b].item()
            at += 1
        best = max(range(len(q[at])), key=q[at].__getitem__) if learner.double else None
        value = target_q[at].max() if best is None else target_q[at][best]
        goal = total + factor * unscale(value, learner.rescale)
        delta = rescale(goal, learner.rescale).item() - q[t][batch.actions[start + t, b]]
        losses.append(0.5 * delta**2)
        errors.append(abs(delta))
    priority = 0.9 * max(errors) + 0.1 * sum(errors) / len(errors)
    return sum(losses) / len(losses), priority


_TIMED = ("obs", "first", "rewards", "discounts", "mask", "actions")


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_is_the_formula(double: bool) -> None:
    """R2, R3, S4: n-step targets of rescaled values, fewer steps at the end of a sequence."""
    agent, learner = pair(double=double, n_step=3, rescale=0.01)
    batch, _ = sequences(acted(agent)[0], size=12)
    batch["weights"] = torch.rand(12)
    with torch.no_grad():
        for parameter in learner.target.module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
        loss = learner.loss(batch)
        slow = [slow_loss(learner, batch, b) for b in range(12)]
    assert isinstance(loss, Loss)
    expected = sum(w * each for w, (each, _) in zip(batch.weights.tolist(), slow, strict=True)) / 12
    assert float(loss.total) == pytest.approx(expected, rel=1e-5)  # type: ignore[arg-type]
    assert loss.priorities is not None
    assert loss.priorities.tolist() == pytest.approx([each for _, each in slow], rel=1e-5)


def test_without_rescaling_values_are_those_of_the_rewards() -> None:
    agent, learner = pair(rescale=0.0, double=False)
    batch, _ = sequences(acted(agent)[0], size=4)
    batch["mask"][learner.burn_in :] = torch.eye(4)[0, :, None]
    batch["discounts"] = torch.zeros_like(batch.discounts)
    loss = learner.loss(batch)
    q_values, _ = learner.values(learner.q_network, batch)
    taken = q_values[0].gather(1, batch.actions[learner.burn_in, :, None])[:, 0]
    expected = (batch.rewards[learner.burn_in] - taken).abs()
    assert loss.priorities is not None
    assert torch.allclose(loss.priorities, expected.detach(), atol=1e-6)


def test_an_update_changes_the_network_and_a_checkpoint_has_the_target() -> None:
    agent, learner = pair()
    batch, _ = sequences(acted(agent)[0])
    before = learner.q_network.hash()
    metrics = learner.learn(batch)
    assert {"td_error", "mean_q", "state_drift"} < metrics.keys()
    assert learner.q_network.hash() != before
    assert {"target", "optimizer"} <= learner.saveables().keys()


def test_evaluation_sends_no_state_and_acts_greedily() -> None:
    agent = R2D2Agent(**options(), agent_id=0, agent_mode="eval_deterministic")
    agent.first = np.ones(WIDTH, np.bool_)
    obs = torch.randn(WIDTH, 4)
    actions = agent.act(obs)
    state = agent.initial_state(WIDTH)
    q_values, after = agent.q_network.act(obs, state, torch.ones(WIDTH, dtype=torch.bool))
    assert actions.tolist() == q_values.argmax(1).tolist()
    assert torch.equal(agent.state, after)


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.memory is empty.* set it to lstm or gru"):
        R2D2Learner(**options(""))
    with pytest.raises(ConfigError, match="R2D2 learns from sequences of episodes"):
        R2D2.check_replay({"replay": {"type": "UniformReplay"}})
    network = R2D2Learner(**configs(R2D2, DISCRETE, obs_spec=VECTOR)).q_network
    with pytest.raises(ValueError, match="call unroll"):
        network(torch.zeros(1, 4))
