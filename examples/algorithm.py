"""A loss of your own: Munchausen DQN (Vieillard et al. 2020) in place of DQN's."""

import torch
from torch.nn.functional import log_softmax, smooth_l1_loss

from surreal_like import Loss, build_algorithm
from surreal_like.algorithm.dqn import DQN

CONFIG = {"algo": {"n_step": 1, "temperature": 0.03, "munchausen": 0.9}}


def loss(learner, batch):
    algo = learner.learner_config.algo
    tau, actions = algo.temperature, batch.actions.unsqueeze(1)
    with torch.no_grad():
        q, q_next = learner.target.module(batch.obs), learner.target.module(batch.obs_next)
        # tau times the log-probability of the action under softmax(q / tau), at least -1.
        bonus = (tau * log_softmax(q / tau, -1)).gather(1, actions).squeeze(1).clamp(min=-1.0)
        soft_value = tau * torch.logsumexp(q_next / tau, -1)
        wanted = batch.rewards + algo.munchausen * bonus + batch.discounts * soft_value
    taken = learner.q_network(batch.obs).gather(1, actions).squeeze(1)
    losses = smooth_l1_loss(taken, wanted, reduction="none") * batch.weights
    metrics = {"mean_q": taken.detach().mean(), "bonus": bonus.mean()}
    return Loss(losses.mean(), metrics, priorities=(taken - wanted).abs().detach())


MunchausenDQN = build_algorithm("MunchausenDQN", loss, base=DQN, default_config=CONFIG)
