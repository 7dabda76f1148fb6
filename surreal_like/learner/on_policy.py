"""Shared code of learners of unrolls: rows of unrolls, a KL penalty, means of several updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from session import nest
from session.config import Config
from session.errors import ConfigError
from surreal_like.data.batch import Batch
from surreal_like.loss.policy import adapted_kl_coefficient, masked_mean
from surreal_like.network.actor_critic import ActorCritic
from surreal_like.network.distribution import Distribution

Told = Mapping[str, float | torch.Tensor]


@dataclass(slots=True)
class Rows:
    """Rows of unrolls, input of updates.

    Without a memory they are flat: `[M]` below is M rows with an action, in any order. With a
    memory they are whole streams in time order: `[M]` is `[T, B]`.

    Args:
        obs: nest of tensors `[M, ...]`.
        actions: `[M, ...]`; continuous ones `[M, size]`.
        log_probs: of the actions under the policy that acted, `[M]`.
        policy: columns of that policy, `[M, n]`.
        advantages: `[M]`.
        values: before the first update, `[M]`.
        targets: of the values, `[M]`.
        mask: 0 at rows without an action, `[M]`.
        first: True where an episode begins, bool `[M]`.
        state: of the memory before the first row, `[B, state_size]`; None without a memory.
    """

    obs: Any
    actions: torch.Tensor
    log_probs: torch.Tensor
    policy: Mapping[str, torch.Tensor]
    advantages: torch.Tensor
    values: torch.Tensor
    targets: torch.Tensor
    mask: torch.Tensor
    first: torch.Tensor
    state: torch.Tensor | None

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        advantages: torch.Tensor,
        values: torch.Tensor,
        targets: torch.Tensor,
        policy_of: Callable[[Mapping[str, torch.Tensor]], Distribution],
    ) -> Rows:
        """Returns the rows of a batch.

        Args:
            batch: of unrolls, time first.
            advantages, values, targets: `[T, B]`.
            policy_of: builds a policy from columns: `of` of the head.
        """
        steps, state = len(batch.rewards), state_before(batch)
        keep = batch.mask.flatten().nonzero().squeeze(1)

        def pick(x: torch.Tensor) -> torch.Tensor:
            return x[:steps].flatten(0, 1)[keep] if state is None else x[:steps]

        actions = pick(flat_actions(batch.actions))
        policy = {name: pick(batch.extras[name]) for name in policy_columns(batch)}
        return cls(
            obs=nest.map(pick, batch.obs),
            actions=actions,
            log_probs=policy_of(policy).log_prob(actions),
            policy=policy,
            advantages=pick(advantages),
            values=pick(values),
            targets=pick(targets),
            mask=pick(batch.mask),
            first=pick(batch.first),
            state=state,
        )

    def __len__(self) -> int:
        """Number of rows, or with a memory of streams: range of `[index]`."""
        return self.mask.shape[self._axis]

    @property
    def _axis(self) -> int:
        return 0 if self.state is None else 1

    def __getitem__(self, index: torch.Tensor) -> Rows:
        """Returns the rows, or the streams, at `index`, int64 `[m]`."""
        axis = self._axis

        def pick(x: torch.Tensor) -> torch.Tensor:
            return x.index_select(axis, index)

        return Rows(
            obs=nest.map(pick, self.obs),
            actions=pick(self.actions),
            log_probs=pick(self.log_probs),
            policy={name: pick(column) for name, column in self.policy.items()},
            advantages=pick(self.advantages),
            values=pick(self.values),
            targets=pick(self.targets),
            mask=pick(self.mask),
            first=pick(self.first),
            state=None if self.state is None else self.state[index],
        )

    def seen_by(self, network: ActorCritic) -> tuple[Distribution, torch.Tensor]:
        """Returns policy and values `[M]` of these rows."""
        if self.state is not None:
            return network.unroll(self.obs, self.state, self.first)
        seen: tuple[Distribution, torch.Tensor] = network(self.obs)
        return seen


def state_before(batch: Batch) -> torch.Tensor | None:
    """Returns the memory before the first row of a batch, `[B, state_size]`; None without one."""
    return batch.extras["memory"][0] if "memory" in batch.extras else None


def policy_columns(batch: Batch) -> list[str]:
    """Returns the names of the extras that are columns of the policy that acted."""
    return [name for name in ("logits", "mean", "log_std") if name in batch.extras]


def flat_actions(actions: torch.Tensor) -> torch.Tensor:
    """Returns actions `[T, B, ...]` in the shape of networks: continuous ones `[T, B, size]`."""
    return actions.flatten(2) if actions.is_floating_point() and actions.dim() > 2 else actions


class KLPenalty:
    """Weight of a penalty on divergence, adapted to the measured divergence.

    Args:
        coefficient: the first weight; 0: no penalty, also later.
        target: divergence that the adaptation aims at [nats].
    """

    def __init__(self, coefficient: float, target: float) -> None:
        self.coefficient = coefficient
        self._target = target

    def adapt(self, kl: float) -> None:
        """Adapts the weight after a batch; `kl` is the divergence in its last pass [nats]."""
        self.coefficient = adapted_kl_coefficient(self.coefficient, kl, self._target)

    def state_dict(self) -> dict[str, Any]:
        """Returns the weight."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state_dict`."""
        self.coefficient = float(state["coefficient"])


class Means:
    """Means of the metrics of several updates; tensors are read only when a mean is requested."""

    def __init__(self) -> None:
        self._told: list[Told] = []

    def add(self, told: Told) -> None:
        """Adds the metrics of one update: numbers or 0-dimensional tensors by name."""
        self._told.append(told)

    def join(self, other: Means) -> None:
        """Adds all metrics of another instance."""
        self._told += other._told

    def value(self, name: str) -> float:
        """Returns the mean of one name."""
        return float(sum(each[name] for each in self._told) / len(self._told))

    def values(self) -> dict[str, float]:
        """Returns the means of all names."""
        return {name: self.value(name) for name in self._told[0]}


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
    learner_config: Config, env_config: Config, session_config: Config, *, unrolls: bool
) -> None:
    """Raises ConfigError if agents that wait for the next version would wait for ever.

    The chunks that all agents send before they wait must be enough for an update, and every update
    must be published.

    Args:
        learner_config, env_config, session_config: of the experiment.
        unrolls: True if replay gives whole unrolls, so ``batch_size`` counts streams; else rows.
    """
    where = "agents are synchronous (they wait for a version after each chunk that they send)"
    publish = learner_config.parameter_publish
    if publish.every > 1:
        raise ConfigError(
            f"{where}, but learner_config.parameter_publish.every is {publish.every}: set it to 1"
        )
    replay, agents = learner_config.replay, session_config.agent.num
    # Batches come from one shard; agents are spread over them in turn.
    together = -(-agents // replay.replay_shards) * env_config.num_envs
    by = f"{agents} agents x {env_config.num_envs} environments by {replay.replay_shards} shards"
    if unrolls and replay.batch_size > together:
        raise ConfigError(
            f"{where}, but a batch of learner_config.replay.batch_size {replay.batch_size} streams "
            f"is more than {by} = {together} streams: they would wait for ever"
        )
    # The newest rows of each stream are incomplete until later rows arrive.
    steps = session_config.sender.flush_iteration - learner_config.algo.n_step
    least = -(-replay.min_size // replay.replay_shards)
    if not unrolls and least > together * max(0, steps):
        raise ConfigError(
            f"{where}, but learner_config.replay.min_size {replay.min_size} is more than the first "
            f"chunks of {by} x {steps} steps have: they would wait for ever"
        )
