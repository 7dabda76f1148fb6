"""PQN: targets, loss, memory, masks, and what it learns."""

from pathlib import Path
from typing import Any

import pytest
import torch

from surreal_like.addons.analysis.evaluate import evaluate
from surreal_like.algorithm.pqn import PQN, PQNAgent, PQNLearner
from surreal_like.data.batch import Batch
from surreal_like.dataflow.batches import rows_of, state_before
from surreal_like.experiment.resolve import defaults
from surreal_like.loss.value import taken_value
from surreal_like.network.q_network import QNetwork
from tests.surreal_like.algorithm.test_masks import unrolls as masked_unrolls
from tests.surreal_like.algorithm.unrolls import (
    DISCRETE,
    SMALL,
    B,
    T,
    acted_batch,
    configs,
    make_batch,
    play,
)

LSTM = {"memory": "lstm", "memory_size": 6}


def learner(model: Any = None, **algo: Any) -> PQNLearner:
    torch.manual_seed(0)
    return PQNLearner(**configs(PQN, learner={"model": {**SMALL, **(model or {})}}, **algo))


# By hand: row 2 is terminated, row 4 truncated, the unroll ends behind row 5. Where an episode has
# ended there is a row without an action, of mask 0, which has the value of the last observation.
GOLDEN = {
    0.0: [1.45, -0.18, -1.0, 2.72, 1.49, -0.27],
    0.65: [0.77842, -0.648, -1.0, 3.12365, 1.49, -0.27],
    1.0: [0.19, -0.9, -1.0, 3.341, 1.49, -0.27],
}


@pytest.mark.parametrize("q_lambda", GOLDEN)
def test_targets_of_an_unroll_of_three_episodes(
    q_lambda: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = learner(q_lambda=q_lambda)
    # Of rows 0, 1, 2, the last one, 3, 4, the last one, 5, and the row after the unroll.
    largest = torch.tensor([9.0, 0.5, -0.2, 7.0, 9.0, 0.8, 1.1, 9.0, -0.3])
    q_values = torch.stack((largest - 2.0, largest, largest - 1.0), -1)[:, None]
    monkeypatch.setattr(it, "values", lambda batch: q_values)

    def column(*rows: float) -> torch.Tensor:
        return torch.tensor(rows)[:, None]

    batch = Batch(
        rewards=column(1, 0, -1, 1e3, 2, 0.5, 1e3, 0),
        discounts=column(0.9, 0.9, 0, 0.9, 0.9, 0.9, 0.9, 0.9),
        mask=column(1, 1, 1, 0, 1, 1, 0, 1),
    )
    targets = it.compute_targets(batch)["value_targets"][batch.mask != 0]
    assert targets.tolist() == pytest.approx(GOLDEN[q_lambda], abs=1e-5)


def test_the_loss_is_the_mean_squared_error_of_acted_rows() -> None:
    it = learner()
    batch = it.compute_targets(make_batch(DISCRETE))
    q_values = taken_value(it.q_network.unroll(batch.obs, None, batch.first)[0][:T], batch.actions)
    errors = (batch["value_targets"] - q_values)[batch.mask != 0]
    loss = it.loss(batch)
    torch.testing.assert_close(loss.total, errors.square().mean())
    assert loss.metrics["td_error"].item() == pytest.approx(errors.abs().mean().item(), rel=1e-5)
    # The same of rows in another order, as minibatches have them.
    torch.testing.assert_close(it.loss(rows_of(batch)).total, loss.total)


def test_the_defaults_are_those_of_the_paper_for_images() -> None:
    own = defaults("pqn")
    learner_config, sender = own.learner_config, own.session_config.sender
    assert (learner_config.replay.batch_size, sender.flush_iteration) == (128, 32)
    assert (learner_config.algo.num_sgd_iter, learner_config.algo.minibatches) == (2, 32)


def test_a_batch_in_which_nothing_was_done_teaches_nothing() -> None:
    it = learner()
    before = it.q_network.hash()
    batch = make_batch(DISCRETE)
    batch["mask"] = torch.zeros(T, B)
    metrics = it.learn(batch)
    assert (float(metrics["loss"]), metrics["skipped"]) == (0.0, 0.0)
    assert it.q_network.hash() == before


def test_targets_have_no_gradient_and_no_second_network() -> None:
    it = learner()
    assert not it.compute_targets(make_batch(DISCRETE))["value_targets"].requires_grad
    assert set(it.module_dict()) == {"q_network"}
    assert "target" not in it.saveables()


def test_hidden_layers_are_normalized_unless_it_is_switched_off() -> None:
    names = [name for name, _ in learner().q_network.named_parameters()]
    assert any("norm" in name for name in names)
    names = [name for name, _ in learner({"layer_norm": False}).q_network.named_parameters()]
    assert not any("norm" in name for name in names)


def test_a_row_of_no_legal_action_is_worth_nothing() -> None:
    torch.manual_seed(0)
    batch = masked_unrolls()
    spec = {"action_mask": {"type": "int8", "dim": [3]}, "x": {"type": "float32", "dim": [4]}}
    it = PQNLearner(**configs(PQN, obs_spec=spec, learner={"model": SMALL}))
    targets = it.compute_targets(batch)["value_targets"]
    assert targets.abs().max() < 100.0
    # Stream 0 has nothing legal in its last row: the reward alone is left.
    torch.testing.assert_close(targets[T - 1, 0], batch.rewards[T - 1, 0])
    loss = it.loss(batch).total
    assert isinstance(loss, torch.Tensor)
    assert torch.isfinite(loss)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_learner_sees_in_an_unroll_what_the_agent_saw_step_by_step(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = configs(PQN, learner={"model": {**SMALL, **LSTM, "memory": kind}})
    torch.manual_seed(0)
    agent = PQNAgent(**options, agent_id=0, agent_mode="training")
    it = PQNLearner(**options)
    it.q_network.load_flat(agent.q_network.read_flat())
    acted_batch(agent, seed=1)  # so that a state stands before the first row
    seen: list[torch.Tensor] = []
    act = agent.q_network.act

    def watched(*given: Any, **more: Any) -> Any:
        found = act(*given, **more)
        seen.append(found[0])
        return found

    monkeypatch.setattr(agent.q_network, "act", watched)
    batch = acted_batch(agent)
    state = state_before(batch)
    assert state is not None
    assert state.any()
    torch.testing.assert_close(it.values(batch)[: len(seen)].detach(), torch.stack(seen))
    batch = it.compute_targets(batch)
    assert batch["value_targets"].shape == (T, B)
    assert it.learn(batch)["nan_updates"] == 0


def test_a_network_with_a_memory_refuses_single_rows() -> None:
    network: QNetwork = learner(LSTM).q_network
    with pytest.raises(ValueError, match="looks at sequences"):
        network(torch.randn(2, 4))


# A minibatch holds 64 rows, and the last version that acted is that of now.
FAST = {
    "learner_config__algo__minibatches": 2,
    "learner_config__algo__learning_rate": 3e-3,
    "learner_config__algo__epsilon": 0.3,
    "learner_config__algo__gamma": 0.9,
}


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 2])
def test_it_learns_the_chain(agents: int, tmp_path: Path) -> None:
    several = {"session_config__agent__num": agents}
    run = play(tmp_path / "run", "pqn", "toy:chain", env_steps=20_000, goal=0.6, **FAST, **several)
    assert run.ok
    assert run.result["goal_met"]


@pytest.mark.slow
def test_a_memory_recalls_what_was_seen(tmp_path: Path) -> None:
    memory = {
        "learner_config__model": {"hidden_sizes": [16], "memory": "lstm", "memory_size": 16},
    }
    run = play(tmp_path / "run", "pqn", "toy:recall", env_steps=60_000, goal=0.9, **FAST, **memory)
    assert run.ok
    assert run.result["goal_met"]
    assert evaluate(run.folder, checkpoint="best", episodes=20)["mean_return"] > 0.8
