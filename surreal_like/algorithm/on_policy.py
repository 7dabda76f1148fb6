"""Shared code of learners of unrolls: their network, a KL penalty, a check of their config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from session.config import Config
from session.config.key import ABOVE_0, FROM_0, Key, section
from session.errors import ConfigError
from surreal_like.agent.actor_critic_agent import make_network
from surreal_like.data.batch import Batch
from surreal_like.data.frames import stack_size
from surreal_like.dataflow import (
    Flow,
    Loss,
    learn_moments,
    rollouts,
    train_one_step,
    update_entropy,
    update_value_scale,
)
from surreal_like.dataflow.batches import flat_actions, inputs_before, state_before
from surreal_like.errors import unwritten
from surreal_like.exploration.schedule import Schedule, make_schedule, schedule_section
from surreal_like.learner.learner import Learner
from surreal_like.learner.target import ENTROPY_TARGET_CONFIG, EntropyWeight, ValueScale
from surreal_like.loss.policy import masked_mean
from surreal_like.network.actor_critic import ACTOR_CRITIC_CONFIG, ActorCritic
from surreal_like.network.distribution import Distribution
from surreal_like.network.head import ScaledValueHead

if TYPE_CHECKING:
    from surreal_like.replay.replay import Replay

# The key `learner_config.algo.entropy_target`.
ENTROPY_TARGET = section(
    "Adapts the weight of the entropy, which begins at `entropy`, to the entropy of each batch.",
    ENTROPY_TARGET_CONFIG,
)
# Defaults of `learner_config.algo`.
ALGO_CONFIG = Config(
    {
        "learning_rate": schedule_section("Step size of Adam: a schedule.", 1e-3),
        "entropy": schedule_section("Weight of the entropy: a schedule.", 0.0),
        "entropy_target": ENTROPY_TARGET,
        "adam_epsilon": Key(1e-5, "Added to the root of Adam's second moment.", within=ABOVE_0),
        "max_grad_norm": Key(
            0.5, "Gradients with a larger norm are scaled to this norm; 0: never.", within=FROM_0
        ),
    }
)
# Defaults of `learner_config.replay`.
REPLAY_CONFIG = Config(
    {
        "batch_size": Key(
            16, "Streams per batch: whole unrolls of sender.flush_iteration steps.", unit="streams"
        ),
        "capacity": Key(
            10_000,
            "Rows waiting for the learner, all shards together, before agents wait.",
            unit="rows",
        ),
        "evict_rule": {
            "max_version_lag": Key(
                8, "Unrolls of parameters with a larger lag are dropped; 0: none.", unit="versions"
            )
        },
    }
)
# Defaults of `learner_config.parameter_publish`.
PUBLISH_CONFIG = Config(
    {
        "min_publish_interval": 0.0,
    }
)


class ActorCriticLearner(Learner):
    """Learns a policy and its state values from unrolls.

    Attributes:
        make_model: function of learner_config and env_config that builds the network.
        algo: `learner_config.algo`.
        network: computes both.
        entropy: gives the weight of the entropy.
        value_scale: unit of the values with `model.normalize_values`; None without.
    """

    make_model = staticmethod(make_network)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        algo = self.algo = self.learner_config.algo
        self.network = self.make_model(self.learner_config, self.env_config).to(self.device)
        # A network of the author's may have no head of values.
        head = getattr(self.network, "value_head", None)
        self.value_scale = ValueScale(head) if isinstance(head, ScaledValueHead) else None
        self.entropy = _make_entropy_weight(algo)
        options = algo.get("optimizer") or {"epsilon": algo.adam_epsilon}
        self.add_optimizer(
            "optimizer",
            self.network,
            algo.learning_rate,
            max_grad_norm=algo.max_grad_norm,
            **options,
        )

    def execution_plan(self) -> Flow:
        """Makes an update from each batch of unrolls, in `num_sgd_iter` passes over them."""
        passes = self.algo.get("num_sgd_iter", 1)
        flow = rollouts(self).for_each(train_one_step(self, None, passes, minibatches=0))
        if self.value_scale is not None:
            # Behind the update: in place, it would change weights that the gradients need.
            flow = flow.for_each(update_value_scale(self.value_scale))
        return self.adapt_entropy(flow).for_each(learn_moments(self.network))

    def adapt_entropy(self, flow: Flow) -> Flow:
        """Returns a flow of updates that adapts the weight of the entropy if there is a target."""
        if isinstance(self.entropy, EntropyWeight):
            return flow.for_each(update_entropy(self.entropy))
        return flow

    def loss(self, batch: Batch) -> torch.Tensor | Loss:
        """Returns the loss of a batch of unrolls."""
        raise unwritten(self, "loss(batch)", "your_own_algorithm.md")

    def evaluate_actions(
        self, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns log-probabilities, entropies, values `[T, B]`, and the bootstrap values `[B]`.

        Of the actions of a batch of unrolls, under the policy and values of now. Of rows in passes
        over a batch they are `[M]`, and there are no bootstrap values: `[0]`.
        """
        if len(batch.first) == len(batch.rewards):
            policy, values = see(self.network, batch)
            log_prob = policy.log_prob(flat_actions(batch.actions, batch.mask.ndim))
            return log_prob, policy.entropy(), values, values.new_zeros(0)
        state, before = state_before(batch), inputs_before(batch)
        policy, values = self.network.unroll(batch.obs, state, batch.first, **before)
        # The last row of each stream has no action.
        here = self.network.head.of({k: x[:-1] for k, x in policy.columns().items()})
        log_prob = here.log_prob(flat_actions(batch.actions))
        return log_prob, here.entropy(), values[:-1], values[-1]

    @property
    def value_unit(self) -> float:
        """Unit of the errors of values in losses; 1 unless values are normalized."""
        return 1.0 if self.value_scale is None else self.value_scale.sigma

    def per_unit(self, loss: torch.Tensor, power: int = 1) -> torch.Tensor:
        """Returns a loss divided by this power of `value_unit`."""
        # To divide by 1 would take 10 us, forwards and backwards.
        return loss if self.value_scale is None else loss / self.value_unit**power

    def value_metrics(self) -> dict[str, float]:
        """Returns mean and deviation of all value targets, if values are normalized."""
        scale = self.value_scale
        return {} if scale is None else {"value_mean": scale.mu, "value_deviation": scale.sigma}

    def module_dict(self) -> dict[str, ActorCritic]:
        """Returns the network that agents act with."""
        return {"network": self.network}

    def saveables(self) -> dict[str, Any]:
        """Returns name -> state that a checkpoint has in addition to the parameters."""
        saveables = dict(super().saveables())
        if isinstance(self.entropy, EntropyWeight):
            saveables["entropy_weight"] = self.entropy
        return saveables

    @classmethod
    def default_config(cls) -> Config:
        """Returns the defaults of `learner_config`."""
        return Config(
            {
                "algo": dict(ALGO_CONFIG),
                "model": dict(ACTOR_CRITIC_CONFIG),
                "replay": dict(REPLAY_CONFIG),
                "parameter_publish": dict(PUBLISH_CONFIG),
            }
        )


def _make_entropy_weight(algo: Config) -> Schedule | EntropyWeight:
    """Returns what gives the weight; raises ConfigError for a schedule that has a target, too."""
    where = "learner_config.algo.entropy"
    schedule = make_schedule(algo.entropy, where, least=0.0)
    target = algo.get("entropy_target") or {"value": None}
    if target["value"] is None:
        return schedule
    if len(schedule.points) > 1:
        raise ConfigError(
            f"{where}_target.value is {target['value']}, but {where} is a schedule that changes: "
            "set its kind to constant, or the value to null"
        )
    return EntropyWeight(schedule.points[0][1], **target)


def see(network: ActorCritic, rows: Batch) -> tuple[Distribution, torch.Tensor]:
    """Returns policy and values `[M]` of rows; with a memory `[T, B]` of whole streams."""
    state = state_before(rows)
    if state is not None:
        return network.unroll(rows.obs, state, rows.first, **inputs_before(rows))
    seen: tuple[Distribution, torch.Tensor] = network(rows.obs)
    return seen


def explained_variance(
    values: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Returns the share of the targets' variance explained by the values: 1 all, 0 as their mean.

    A scalar, over the elements of mask 1, from tensors of one shape; not finite if the targets do
    not vary.
    """
    return 1.0 - _variance(targets - values, mask) / _variance(targets, mask)


def _variance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return masked_mean((x - masked_mean(x, mask)).square(), mask)


def check_synchronous(
    learner_config: Config, env_config: Config, session_config: Config, *, kind: type[Replay]
) -> None:
    """Raises ConfigError if agents that wait for the next version would wait for ever.

    The chunks that all agents send before they wait must be enough for an update, and every update
    must be published.

    Args:
        learner_config, env_config, session_config: the sections of the experiment.
        kind: class of the replay. ``batch_size`` counts rows, streams of unrolls, or gradients, of
            which each agent makes one.
    """
    gives = kind.gives()
    rows = gives in ("rows", "sequences")
    if rows and learner_config.replay.iteration.unroll_length:
        _check_parts(learner_config, env_config, session_config, kind)
        return
    if rows and learner_config.algo.get("synchronous", False):
        raise ConfigError(
            f"learner_config.algo.synchronous is true, but replay gives {gives} again and again: "
            "agents can only wait for a training iteration; set "
            "learner_config.replay.iteration.unroll_length, or synchronous to false"
        )
    where = "agents are synchronous (they wait for a version after each chunk that they send)"
    publish = learner_config.parameter_publish
    if publish.every > 1:
        raise ConfigError(
            f"{where}, but learner_config.parameter_publish.every is {publish.every}: set it to 1"
        )
    replay, agents = learner_config.replay, session_config.agent.num
    # Batches come from one shard; agents are spread over them in turn.
    each = 1 if gives == "gradients" else env_config.num_envs
    together = -(-agents // replay.replay_shards) * each
    by = f"{agents} agents x {each} environments by {replay.replay_shards} shards"
    if gives != "rows" and replay.batch_size > together:
        unit = "gradients" if gives == "gradients" else "streams"
        raise ConfigError(
            f"{where}, but a batch of learner_config.replay.batch_size {replay.batch_size} {unit} "
            f"is more than {by} = {together} {unit}: they would wait for ever"
        )
    # The newest rows of each stream are incomplete until later rows arrive.
    steps = session_config.sender.flush_iteration - learner_config.algo.n_step
    least = -(-replay.min_size // replay.replay_shards)
    if gives == "rows" and least > together * max(0, steps):
        raise ConfigError(
            f"{where}, but learner_config.replay.min_size {replay.min_size} is more than the first "
            f"chunks of {by} x {steps} steps have: they would wait for ever"
        )


def _check_parts(
    learner_config: Config, env_config: Config, session_config: Config, kind: type[Replay]
) -> None:
    """Raises ConfigError if the parts of all agents would not lead to a training iteration."""
    replay, agents, envs = learner_config.replay, session_config.agent.num, env_config.num_envs
    key = "learner_config.replay.iteration"
    first, length = replay.iteration.initial_collect_steps, replay.iteration.unroll_length
    if not learner_config.algo.get("synchronous", False):
        raise ConfigError(
            f"{key}.unroll_length is {length}, and agents are synchronous, but "
            "learner_config.algo.synchronous is false: the learner would not publish after each "
            "training; set it to true"
        )
    if first % (agents * envs or 1):
        raise ConfigError(
            f"{key}.initial_collect_steps is {first}, but agents are synchronous, and {agents} "
            f"agents x {envs} environments send equal parts of it: set it to a multiple of "
            f"{agents * envs}"
        )
    steps = kind.steps_of_sample(learner_config)[1] + stack_size(env_config) - 1
    if length <= steps:
        raise ConfigError(
            f"{key}.unroll_length is {length}, but agents are synchronous, and a sample needs "
            f"{steps} rows after its first: they might wait for ever; set it to {steps + 1} or more"
        )
