"""The updates of our learners as bare loops of torch: same networks, same losses, torch's own Adam.

Each function returns a function that makes one update from a batch, without checks, publishing or
reports.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import torch
from networks import make_network
from torch import nn

from session.config import Config
from surreal_like.data.batch import Batch

RATE = 1e-3

Update = Callable[[Batch], None]


def mlp(widths: Sequence[int], activation: type[nn.Module]) -> nn.Sequential:
    """Builds linear layers with an activation between them."""
    layers: list[nn.Module] = []
    for pair in pairwise(widths):
        layers += [nn.Linear(*pair), activation()]
    return nn.Sequential(*layers[:-1])


def step(adam: torch.optim.Optimizer, loss: torch.Tensor, max_norm: float) -> None:
    """Takes one optimizer step down the gradient of a loss."""
    adam.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    if max_norm:
        nn.utils.clip_grad_norm_(adam.param_groups[0]["params"], max_norm)
    adam.step()


def dqn(config: Config) -> Update:
    """Double DQN with Huber's loss."""
    algo = config.learner_config.algo
    online = mlp([4, *config.learner_config.model.hidden_sizes, 2], nn.ReLU)
    target = copy.deepcopy(online)
    adam = torch.optim.Adam(online.parameters(), lr=RATE)

    def update(batch: Batch) -> None:
        with torch.no_grad():
            best = online(batch.obs_next).argmax(1, keepdim=True)
            value = target(batch.obs_next).gather(1, best)[:, 0]
            goal = batch.rewards + batch.discounts * value
        taken = online(batch.obs).gather(1, batch.actions[:, None])[:, 0]
        losses = nn.functional.huber_loss(taken, goal, reduction="none")
        step(adam, (losses * batch.weights).mean(), algo.max_grad_norm)

    return update


def sac(config: Config) -> Update:
    """SAC with two critics and a learned temperature."""
    algo, hidden = config.learner_config.algo, config.learner_config.model.hidden_sizes
    policy = mlp([3, *hidden, 2], nn.ReLU)
    critics = nn.ModuleList(mlp([4, *hidden, 1], nn.ReLU) for _ in range(2))
    target = copy.deepcopy(critics)
    log_alpha = nn.Parameter(torch.zeros(()))
    adams = [
        torch.optim.Adam(parameters, lr=RATE)
        for parameters in ([*policy.parameters()], [*critics.parameters()], [log_alpha])
    ]

    def draw(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = policy(obs).chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        raw = normal.rsample()
        action = raw.tanh()
        log_prob = normal.log_prob(raw) - (1 - action.square() + 1e-6).log()  # type: ignore[no-untyped-call]
        return action, log_prob.sum(1)

    def least(which: nn.ModuleList, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        both = torch.cat((obs, action), 1)
        lower: torch.Tensor = torch.min(which[0](both), which[1](both))[:, 0]
        return lower

    def update(batch: Batch) -> None:
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            action, log_prob = draw(batch.obs_next)
            value = least(target, batch.obs_next, action) - alpha * log_prob
            goal = batch.rewards + batch.discounts * value
        both = torch.cat((batch.obs, batch.actions), 1)
        error = sum((critic(both)[:, 0] - goal).square().mean() for critic in critics)
        step(adams[1], torch.as_tensor(error), 0.0)
        action, log_prob = draw(batch.obs)
        critics.requires_grad_(False)
        step(adams[0], (alpha * log_prob - least(critics, batch.obs, action)).mean(), 0.0)
        critics.requires_grad_(True)
        step(adams[2], -(log_alpha * (log_prob.detach() - 1.0)).mean(), 0.0)
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), critics.parameters(), strict=True):
                slow.lerp_(fast, algo.tau)

    return update


See = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def actor_critic(config: Config) -> tuple[See, list[nn.Parameter]]:
    """Returns what computes logits `[..., A]` and values `[...]`, and its parameters."""
    number = config.env_config.action_spec.dim[0]
    if config.env_config.obs_spec.type != "uint8":
        hidden = config.learner_config.model.hidden_sizes
        actor, critic = mlp([4, *hidden, number], nn.Tanh), mlp([4, *hidden, 1], nn.Tanh)
        parameters = [*actor.parameters(), *critic.parameters()]
        return lambda obs: (actor(obs), critic(obs)[..., 0]), parameters
    network = make_network(1 + number)

    def see(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = network(obs.flatten(0, -4).float() / 255).unflatten(0, obs.shape[:-3])
        return out[..., :-1], out[..., -1]

    return see, [*network.parameters()]


def ppo(config: Config, made: tuple[See, list[nn.Parameter]] | None = None) -> Update:
    """PPO with clipping: values and advantages, then passes over minibatches.

    made: networks to learn, as :func:`actor_critic` returns them; None: new ones.
    """
    algo = config.learner_config.algo
    see, parameters = made or actor_critic(config)
    adam = torch.optim.Adam(parameters, lr=RATE)

    def prepare(batch: Batch) -> list[torch.Tensor]:
        values = see(batch.obs)[1]
        deltas = batch.rewards + batch.discounts * values[1:] - values[:-1]
        advantages, later = torch.zeros_like(deltas), torch.zeros(deltas.shape[1])
        for t in reversed(range(len(deltas))):
            later = deltas[t] + batch.discounts[t] * algo.gae_lambda * later
            advantages[t] = later
        targets = values[:-1] + advantages
        advantages = (advantages - advantages.mean()) / advantages.std()
        acted = batch.extras["logits"].log_softmax(-1).gather(-1, batch.actions[..., None])[..., 0]
        columns = (batch.obs[:-1], batch.actions, acted, advantages, targets)
        return [column.flatten(0, 1) for column in columns]

    def update(batch: Batch) -> None:
        with torch.no_grad():
            rows = prepare(batch)
        for _ in range(algo.num_sgd_iter):
            for part in torch.randperm(len(rows[0])).chunk(algo.minibatches):
                obs, action, acted, advantage, target = (column[part] for column in rows)
                logits, values = see(obs)
                log_probs = logits.log_softmax(1)
                ratio = (log_probs.gather(1, action[:, None])[:, 0] - acted).exp()
                clipped = ratio.clamp(1 - algo.clip.start, 1 + algo.clip.start)
                gain = torch.min(ratio * advantage, clipped * advantage).mean()
                error = (values - target).square().mean()
                entropy = -(log_probs.exp() * log_probs).sum(1).mean()
                loss = 0.5 * algo.value_weight * error - gain - 0.01 * entropy
                step(adam, loss, algo.max_grad_norm)

    return update


def impala(config: Config) -> Update:
    """IMPALA: one update from V-trace targets."""
    algo = config.learner_config.algo
    see, parameters = actor_critic(config)
    adam = torch.optim.Adam(parameters, lr=RATE)

    def update(batch: Batch) -> None:
        logits, values = see(batch.obs)
        log_probs, taken = logits[:-1].log_softmax(-1), batch.actions[..., None]
        log_prob = log_probs.gather(-1, taken)[..., 0]
        with torch.no_grad():
            acted = batch.extras["logits"].log_softmax(-1).gather(-1, taken)[..., 0]
            rhos = (log_prob - acted).exp().clamp(max=1)
            deltas = rhos * (batch.rewards + batch.discounts * values[1:] - values[:-1])
            errors, later = torch.zeros_like(deltas), torch.zeros(deltas.shape[1])
            for t in reversed(range(len(deltas))):
                later = deltas[t] + batch.discounts[t] * algo.vtrace_lambda * rhos[t] * later
                errors[t] = later
            targets = values[:-1] + errors
            following = torch.cat((targets[1:], values[-1:]))
            gains = rhos * (batch.rewards + batch.discounts * following - values[:-1])
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        error = (values[:-1] - targets).square().mean()
        loss = 0.5 * algo.value_weight * error - (log_prob * gains).mean() - 0.01 * entropy
        step(adam, loss, algo.max_grad_norm)

    return update


LOOPS: Mapping[str, Callable[[Config], Update]] = {
    "dqn": dqn,
    "sac": sac,
    "ppo": ppo,
    "impala": impala,
}
