"""What learners of unrolls share: rows out of unrolls, a KL penalty, means of several updates."""

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
    """Rows of unrolls, from which updates are made.

    Without a memory they are flat: `[M]` below is M rows in any order, from each of which an action
    was taken. With one they are whole streams in order of time: `[M]` is `[T, B]`.

    Args:
        obs: nest of tensors `[M, ...]`.
        actions: `[M, ...]`; continuous ones `[M, size]`.
        log_probs: of the actions, by the policy that acted, `[M]`.
        policy: columns of that policy, `[M, n]`.
        advantages: `[M]`.
        values: before the first update, `[M]`.
        targets: of the values, `[M]`.
        mask: 0 at rows that no action was taken from, `[M]`.
        first: where an episode begins, bool `[M]`.
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
        """The rows of a batch.

        Args:
            batch: of unrolls, time first.
            advantages, values, targets: `[T, B]`.
            policy_of: the policy of columns, `of` of the head.
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
        """Rows, or with a memory streams: what `[index]` chooses from."""
        return self.mask.shape[self._axis]

    @property
    def _axis(self) -> int:
        return 0 if self.state is None else 1

    def __getitem__(self, index: torch.Tensor) -> Rows:
        """The rows, or the streams, at `index`, int64 `[m]`."""
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
        """Policy and values `[M]` of these rows."""
        if self.state is not None:
            return network.unroll(self.obs, self.state, self.first)
        seen: tuple[Distribution, torch.Tensor] = network(self.obs)
        return seen


def state_before(batch: Batch) -> torch.Tensor | None:
    """What the memory held before the first row of a batch, `[B, state_size]`; None without one."""
    return batch.extras["memory"][0] if "memory" in batch.extras else None


def policy_columns(batch: Batch) -> list[str]:
    """The names of the extras that are the policy that acted."""
    return [name for name in ("logits", "mean", "log_std") if name in batch.extras]


def flat_actions(actions: torch.Tensor) -> torch.Tensor:
    """Actions `[T, B, ...]` as networks know them: continuous ones `[T, B, size]`."""
    return actions.flatten(2) if actions.is_floating_point() and actions.dim() > 2 else actions


class KLPenalty:
    """The weight of a penalty on divergence, adapted to what the divergence was.

    Args:
        coefficient: the first weight; 0: no penalty, now and later.
        target: divergence that it is adapted to [nats].
    """

    def __init__(self, coefficient: float, target: float) -> None:
        self.coefficient = coefficient
        self._target = target

    def adapt(self, kl: float) -> None:
        """Moves the weight after a batch, of whose last pass `kl` was the divergence [nats]."""
        self.coefficient = adapted_kl_coefficient(self.coefficient, kl, self._target)

    def state_dict(self) -> dict[str, Any]:
        """The weight."""
        return {"coefficient": self.coefficient}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` gave."""
        self.coefficient = float(state["coefficient"])


class Means:
    """Means of what several updates told; tensors are looked at only when they are asked for."""

    def __init__(self) -> None:
        self._told: list[Told] = []

    def add(self, told: Told) -> None:
        """Takes what one update told, numbers or 0-dimensional tensors by name."""
        self._told.append(told)

    def join(self, other: Means) -> None:
        """Takes all that another has."""
        self._told += other._told

    def value(self, name: str) -> float:
        """The mean of one name."""
        return float(sum(each[name] for each in self._told) / len(self._told))

    def values(self) -> dict[str, float]:
        """The means of all names."""
        return {name: self.value(name) for name in self._told[0]}


def explained_variance(
    values: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """How much of the targets' variance the values know: 1 is all, 0 no more than their mean does.

    A scalar, over the elements of mask 1, from tensors of one shape; not finite where the targets
    do not vary.
    """
    return 1.0 - _variance(targets - values, mask) / _variance(targets, mask)


def _variance(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return masked_mean((x - masked_mean(x, mask)).square(), mask)


def check_synchronous(
    learner_config: Config, env_config: Config, session_config: Config, *, unrolls: bool
) -> None:
    """Raises ConfigError where agents that wait for the version that follows would wait for ever.

    What every agent sends before it waits must be enough for an update, and every update must be
    published.

    Args:
        learner_config, env_config, session_config: of the experiment.
        unrolls: replay gives whole unrolls, so ``batch_size`` counts streams; otherwise rows.
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
    # The newest rows of each stream wait for those that follow.
    steps = session_config.sender.flush_iteration - learner_config.algo.n_step
    least = -(-replay.min_size // replay.replay_shards)
    if not unrolls and least > together * max(0, steps):
        raise ConfigError(
            f"{where}, but learner_config.replay.min_size {replay.min_size} is more than the first "
            f"chunks of {by} x {steps} steps have: they would wait for ever"
        )
