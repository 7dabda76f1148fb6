"""Bare loops of torch of distributional, noisy and recurrent Q-learning, beside :mod:`bare`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial

import torch
from bare import RATE, Update, mlp, step
from torch import nn

from session.config import Config
from surreal_like.data.batch import Batch

OBS, ACTIONS = 4, 2


class Noisy(nn.Module):
    """A linear layer with factorised Gaussian noise, drawn anew for each row."""

    def __init__(self, inputs: int, outputs: int, sigma: float = 0.5) -> None:
        super().__init__()
        self.mean, self.noise = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        for parameter in self.noise.parameters():
            nn.init.constant_(parameter, sigma / inputs**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps `[B, inputs]` to `[B, outputs]`."""
        into, out = (
            e.sign() * e.abs().sqrt()
            for e in (torch.randn_like(x), torch.randn(len(x), self.mean.out_features))
        )
        mapped: torch.Tensor = self.mean(x) + out * self.noise(x * into)
        return mapped


class Rainbow(nn.Module):
    """A dueling network of noisy layers."""

    def __init__(self, hidden: int, head: int, outputs: int) -> None:
        super().__init__()
        self._torso = nn.Sequential(Noisy(OBS, hidden), nn.ReLU())
        self._value, self._advantage = (
            nn.Sequential(Noisy(hidden, head), nn.ReLU(), Noisy(head, size * outputs))
            for size in (1, ACTIONS)
        )
        self._outputs = outputs

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Maps `[B, 4]` to `[B, A * K]`."""
        seen = self._torso(obs)
        value = self._value(seen).view(-1, 1, self._outputs)
        advantage = self._advantage(seen).view(-1, ACTIONS, self._outputs)
        outputs: torch.Tensor = value + advantage - advantage.mean(1, keepdim=True)
        return outputs.flatten(1)


def distributional(config: Config) -> Update:
    """Double DQN with distributions: C51 or QR-DQN, with noisy layers if the config has them."""
    algo, model = config.learner_config.algo, config.learner_config.model
    kind = algo.distribution.kind
    outputs = algo.distribution.atoms if kind == "categorical" else algo.distribution.quantiles
    online: nn.Module
    if model.noisy:
        online = Rainbow(model.hidden_sizes[0], model.head_sizes[0], outputs)
    else:
        online = mlp([OBS, *model.hidden_sizes, ACTIONS * outputs], nn.ReLU)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=RATE)
    atoms = torch.linspace(algo.distribution.v_min, algo.distribution.v_max, outputs)
    losses = partial(_categorical, atoms) if kind == "categorical" else _quantile

    def see(network: nn.Module, obs: torch.Tensor) -> torch.Tensor:
        return network(obs).view(len(obs), ACTIONS, outputs)  # type: ignore[no-any-return]

    def means(x: torch.Tensor) -> torch.Tensor:
        return (x.softmax(-1) * atoms).sum(-1) if kind == "categorical" else x.mean(-1)

    def update(batch: Batch) -> None:
        rows = torch.arange(len(batch.actions))
        with torch.no_grad():
            best = means(see(online, batch.obs_next)).argmax(1)
            later = see(target, batch.obs_next)[rows, best]
        taken = see(online, batch.obs)[rows, batch.actions]
        found = losses(taken, later, batch)
        step(adam, (found * batch.weights).mean(), algo.max_grad_norm)

    return update


def _categorical(
    atoms: torch.Tensor, taken: torch.Tensor, later: torch.Tensor, batch: Batch
) -> torch.Tensor:
    """Algorithm 1 of C51, as it is usually written: mass added to the lower and upper atoms."""
    with torch.no_grad():
        probs, spacing = later.softmax(-1), atoms[1] - atoms[0]
        moved = batch.rewards[:, None] + batch.discounts[:, None] * atoms
        place = (moved.clamp(atoms[0], atoms[-1]) - atoms[0]) / spacing
        lower, upper = place.floor().long(), place.ceil().long()
        lower[(upper > 0) & (lower == upper)] -= 1
        upper[(lower < len(atoms) - 1) & (lower == upper)] += 1
        offset = torch.arange(len(place))[:, None] * len(atoms)
        goal = torch.zeros(probs.numel())
        goal.index_add_(0, (lower + offset).view(-1), (probs * (upper - place)).view(-1))
        goal.index_add_(0, (upper + offset).view(-1), (probs * (place - lower)).view(-1))
        goal = goal.view_as(probs)
    return -(goal * taken.log_softmax(-1)).sum(-1)


def _quantile(taken: torch.Tensor, later: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Equation 10 of QR-DQN, over all pairs."""
    goal = batch.rewards[:, None] + batch.discounts[:, None] * later
    levels = (torch.arange(taken.shape[1]) + 0.5) / taken.shape[1]
    errors = goal[:, None, :] - taken[:, :, None]
    huber = torch.where(errors.abs() <= 1, 0.5 * errors.square(), errors.abs() - 0.5)
    weights = (levels[:, None] - (errors.detach() < 0).float()).abs()
    losses: torch.Tensor = (weights * huber).mean(2).sum(1)
    return losses


class Recurrent(nn.Module):
    """A dueling network around `nn.LSTMCell`."""

    def __init__(self, obs: int, actions: int, hidden: int, memory: int) -> None:
        super().__init__()
        self.torso = mlp([obs, hidden], nn.ReLU)
        self.cell = nn.LSTMCell(hidden, memory)
        self.value, self.advantage = nn.Linear(memory, 1), nn.Linear(memory, actions)

    def forward(
        self, obs: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor], first: torch.Tensor
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Returns Q `[T, B, A]` of sequences, and the state behind them."""
        seen, keep, found = self.torso(obs), (~first).float(), []
        for row, kept in zip(seen, keep, strict=True):
            state = self.cell(row, (state[0] * kept[:, None], state[1] * kept[:, None]))
            found.append(state[0])
        memory = torch.stack(found)
        advantage = self.advantage(memory)
        outputs: torch.Tensor = self.value(memory) + advantage - advantage.mean(-1, keepdim=True)
        return outputs, state


def r2d2(config: Config) -> Update:
    """R2D2: burn-in, rescaled n-step targets, masked losses."""
    algo, model = config.learner_config.algo, config.learner_config.model
    size, start = model.memory_size, config.learner_config.replay.sequence.burn_in
    actions = config.env_config.action_spec.dim[0]
    online = Recurrent(config.env_config.obs_spec.dim[0], actions, model.hidden_sizes[0], size)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=RATE)
    epsilon = algo.rescale

    def values(network: nn.Module, batch: Batch) -> torch.Tensor:
        state = batch.extras["memory"][0].split(size, 1)
        with torch.no_grad():
            _, state = network(batch.obs[:start], state, batch.first[:start])
        found: torch.Tensor = network(batch.obs[start:], state, batch.first[start:])[0]
        return found

    def update(batch: Batch) -> None:
        q = values(online, batch)
        mask, rewards, discounts = (
            column[start:] for column in (batch.mask, batch.rewards, batch.discounts)
        )
        with torch.no_grad():
            v = values(target, batch).gather(-1, q.argmax(-1, keepdim=True))[..., 0]
            root = (1 + 4 * epsilon * (v.abs() + 1 + epsilon)).sqrt()
            v = v.sign() * (((root - 1) / (2 * epsilon)).square() - 1)
            goals = []
            for t in range(len(rewards)):
                goal, discount = torch.zeros_like(v[0]), torch.ones_like(v[0])
                end = min(t + algo.n_step, len(rewards))
                for k in range(t, end):
                    goal, discount = goal + discount * rewards[k], discount * discounts[k]
                goals.append(goal + discount * v[end])
            goal = torch.stack(goals)
            goal = goal.sign() * ((goal.abs() + 1).sqrt() - 1) + epsilon * goal
        taken = q[:-1].gather(-1, batch.actions[start:, :, None])[..., 0]
        errors = (0.5 * (goal - taken).square() * mask).sum(0) / mask.sum(0)
        step(adam, (errors * batch.weights).mean(), algo.max_grad_norm)

    return update


LOOPS: Mapping[str, Callable[[Config], Update]] = {"dqn": distributional, "r2d2": r2d2}
