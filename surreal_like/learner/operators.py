"""Operators that train: an update from a batch, the parts of one, and what follows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

import torch

from session import nest
from session.errors import ConfigError
from session.process.clock import WallClock
from session.process.periodic import Every, Rate
from surreal_like.data.batch import Batch
from surreal_like.data.group import group
from surreal_like.dataflow.batches import (
    View,
    flat_actions,
    inputs_before,
    parts_of,
    policy_columns,
    rows_of,
    state_before,
)
from surreal_like.dataflow.flow import PASSED, Operator, generators_in, name_of
from surreal_like.dataflow.items import Loss, Trained, axis_of, batch_of, parts_of_origin
from surreal_like.errors import DataError
from surreal_like.learner.metrics import check_metrics, place_of, recent_means
from surreal_like.learner.target import (
    AdaptiveStep,
    EntropyWeight,
    KLPenalty,
    TargetNetwork,
    ValueScale,
)
from surreal_like.loss.returns import gae, lambda_returns
from surreal_like.replay.replay import load_replay_class

if TYPE_CHECKING:
    from surreal_like.learner.updates import Updates
    from surreal_like.network.module import ObsModule

LossFunction = Callable[[Batch], Any]

# Metrics of an update that count over all of its steps.
_SHARED = frozenset({"skipped", "nan_updates"})


class Means(Mapping[str, float]):
    """Means of the metrics of several updates; a tensor is read only when its mean is."""

    def __init__(self, updates: list[Mapping[str, Any]] | None = None) -> None:
        self.updates = updates or []

    def __getitem__(self, name: str) -> float:
        """Returns the mean of one name."""
        return float(sum(each[name] for each in self.updates) / len(self.updates))

    def __iter__(self) -> Iterator[str]:
        return iter(self.updates[0])

    def __len__(self) -> int:
        return len(self.updates[0])


def train_one_step(
    learner: Updates,
    loss: LossFunction | None = None,
    num_sgd_iter: int = 1,
    minibatches: int = 1,
    until: Callable[[Means], bool] | None = None,
    prepare: Operator | None = None,
) -> Operator:
    """Returns an operator that makes an update from each batch, and gives a `Trained`.

    On a `Trained` it goes on with the same batch and the same metrics.

    Args:
        learner: the optimizers make the steps.
        loss: called with the batch, or with each part; returns a scalar or a `Loss`. None:
            `learner.loss`.
        num_sgd_iter: passes over the batch.
        minibatches: parts of each pass; each makes one step of the optimizers. 0: the loss gets
            the batch as it came, in each pass.
        until: called after each pass with the means of its metrics; True ends the passes.
        prepare: changes the columns of each part before its loss, such as `standardize`.
    """
    several = num_sgd_iter * (minibatches or 1) > 1 or until is not None or prepare is not None
    words = [] if loss is None else [getattr(loss, "__name__", "loss")]
    # A lambda has no name that a metric may have.
    label = words[0] if words and words[0].isidentifier() else "again"
    words += [f"{num_sgd_iter} x {minibatches or 'whole'}"] if several else []
    words += [] if prepare is None else [prepare.name]

    def train(item: Batch | Trained) -> Trained:
        batch = item.batch if isinstance(item, Trained) else item
        if batch.policy not in ("", own := learner.policy_name):
            raise ConfigError(
                f"train_one_step of policy {own} got a batch of policy {batch.policy}: put "
                f"select({own!r}) in front, or give it learners[{batch.policy!r}]"
            )
        learner.optimizers.begin(learner)
        function = learner.loss if loss is None else loss
        if several:
            sizes = num_sgd_iter, minibatches
            trained = _make_passes(learner, function, batch, *sizes, until, prepare)
        else:
            trained = Trained(batch, *_make_step(learner, function, batch))
            trained.metrics.update(learner.stats(batch))
        learner.optimizers.report(trained.metrics)
        if isinstance(item, Trained):
            names = {each.rate_name for each in learner.optimizers.values()}
            return item.follow(trained, name=label, shared=_SHARED | names)
        learner.updates.append(trained)
        return trained

    name = f"train_one_step({', '.join(words)})" if words else "train_one_step"
    return Operator(name, train, learner=learner, trains=True)


def learn_from(learner: Updates, learn: Callable[[Batch], Any]) -> Operator:
    """Returns an operator that gives each batch to the learner's `learn`, and gives a `Trained`.

    A metric `loss` that is not finite makes a bad update.
    """

    def train(batch: Batch) -> Trained:
        trained = Trained(batch, check_metrics(learn(batch), learn))
        loss = trained.metrics.get("loss", 0.0)
        if not math.isfinite(loss.item() if isinstance(loss, torch.Tensor) else loss):
            trained.metrics["skipped"] = 1
        learner.updates.append(trained)
        return trained

    return Operator("learn", train, learner=learner, trains=True)


def _make_passes(
    learner: Updates,
    function: LossFunction,
    batch: Batch,
    num_sgd_iter: int,
    minibatches: int,
    until: Callable[[Means], bool] | None,
    prepare: Operator | None,
) -> Trained:
    rows, updates, passes = rows_of(batch) if minibatches else batch, [], 0
    priorities: torch.Tensor | None = None
    for _ in range(1 if learner.rehearses else num_sgd_iter):
        last = Means()
        parts: Iterable[tuple[Any, Batch]] = [(..., batch)]
        if minibatches:
            parts = parts_of(rows, minibatches, learner.generator)
        for places, part in parts:
            counts = not minibatches or len(places) > 0
            if prepare is not None:
                # All ranks take part; a row that only fills a part is not among the rows.
                prepare(part if counts else View(part, lambda x: x[:0]))
            made, of_part = _make_step(learner, function, part, counts=counts)
            last.updates.append(made)
            if of_part is not None and counts:
                if priorities is None:
                    priorities = of_part.new_zeros(rows["rewards"].shape[axis_of(rows)])
                priorities[places] = of_part.detach()
            # All passes over a large batch may take longer than a silent process is given.
            learner.pulse()
        updates += last.updates
        passes += 1
        if until is not None:
            last = _of_group(last, batch)
            if until(last):
                break
    metrics: dict[str, Any] = dict(Means(updates))
    if until is not None:
        metrics["passes"] = float(passes)
    metrics.update(learner.stats(rows))
    return Trained(batch, metrics, priorities, last_pass=last)


def _of_group(means: Means, batch: Batch) -> Means:
    """Returns the means over all ranks of the group, by their rows in the batch."""
    if _alone():
        return means
    return Means([group().means(means, batch.rows, "metrics of a pass")])


def _alone() -> bool:
    """Returns True unless several learners make updates together."""
    return group().size == 1


def rows_to_weigh(batch: Batch) -> int:
    """Returns the number of rows by which a group of learners weighs the loss of a batch."""
    # Counting a mask waits for a GPU; without a group nothing reads the number.
    return 1 if _alone() else batch.rows


def _make_step(
    learner: Updates, function: LossFunction, batch: Batch, *, counts: bool = True
) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Makes a step of each optimizer that the loss names; returns its metrics and priorities.

    Without `counts`, the rows of the batch only fill a part in which this rank has none.
    """
    metrics, totals, priorities = computed(learner, function, batch)
    rows = rows_to_weigh(batch) if counts else 0
    for name, total in totals.items():
        optimizer = learner.optimizers[name]
        norm = optimizer.step(total, rows)
        if optimizer.norm_name:
            metrics[optimizer.norm_name] = norm
    metrics["skipped"] = learner.optimizers.skipped
    return metrics, priorities


def computed(
    learner: Updates, function: LossFunction, batch: Batch
) -> tuple[dict[str, Any], Mapping[str, torch.Tensor], torch.Tensor | None]:
    """Returns metrics, optimizer -> scalar, and priorities of a loss."""
    result = function(batch)
    loss = result if isinstance(result, Loss) else Loss(result)
    metrics, totals = dict(loss.metrics), loss.total
    if isinstance(totals, torch.Tensor) and len(learner.optimizers) == 1:
        if totals.numel() != 1:
            raise DataError(
                f"the loss of {type(learner).__name__} returned {list(totals.shape)}, expected a "
                f"scalar, in {place_of(function)}"
            )
        metrics["loss"] = totals.detach()
        return metrics, {next(iter(learner.optimizers)): totals}, loss.priorities
    if not isinstance(totals, Mapping) or not totals.keys() <= learner.optimizers.keys():
        given = list(totals) if isinstance(totals, Mapping) else f"a {type(totals).__name__}"
        raise DataError(
            f"a loss returned {given}, expected a scalar tensor for the only optimizer, name -> "
            f"scalar, or with metrics Loss(total, metrics); the optimizers are "
            f"{list(learner.optimizers)}, in {place_of(function)}"
        )
    return metrics, totals, loss.priorities


class ActorCriticLearner(Protocol):
    """A learner with a policy and values."""

    @property
    def network(self) -> Any:
        """An `ActorCritic`."""


def compute_advantages(
    learner: ActorCriticLearner, lambda_: float, use_gae: bool = True
) -> Operator:
    """Returns an operator that adds columns `[T, B]` to unrolls, without gradients.

    They are `values` of the network, `advantages`, `value_targets`, and `log_probs` of the actions
    under the policy that acted, where its columns are in the batch.

    Args:
        learner: the network computes the values.
        lambda_: 0 relies on the values, 1 on the rewards.
        use_gae: False: both targets and advantages are the discounted returns.
    """

    @torch.no_grad()
    def compute(batch: Batch) -> Batch:
        network = learner.network
        state, before = state_before(batch), inputs_before(batch)
        _, values = network.unroll(batch.obs, state, batch.first, **before)
        given = (batch.rewards, batch.discounts, values[:-1], values[-1])
        if use_gae:
            batch["advantages"] = gae(*given, lambda_=lambda_, mask=batch.mask)
            batch["value_targets"] = values[:-1] + batch["advantages"]
        else:
            returns = lambda_returns(*given, lambda_=1.0, mask=batch.mask) * batch.mask
            batch["advantages"] = batch["value_targets"] = returns
        batch["values"] = values[:-1]
        acted = policy_columns(batch)
        if acted:
            batch["log_probs"] = network.head.of(acted).log_prob(flat_actions(batch.actions))
        return batch

    words = f"lambda={lambda_:g}" if use_gae else "returns"
    return Operator(f"compute_advantages({words})", compute)


def update_target(*targets: TargetNetwork[Any]) -> Operator:
    """Returns an operator that updates target networks, and gives the item back."""

    def update(item: Any) -> Any:
        for target in targets:
            target.update()
        return item

    return Operator("update_target", update)


def update_kl(penalty: KLPenalty) -> Operator:
    """Returns an operator that adapts a KL penalty to the metric `kl` of the last pass."""

    def update(item: Trained) -> Trained:
        if penalty.coefficient:
            penalty.adapt(_metric_of(item, "kl", "update_kl"))
        item.metrics["kl_coefficient"] = penalty.coefficient
        return item

    return Operator("update_kl", update)


def _metric_of(item: Trained, metric: str, name: str) -> float:
    metrics = item.last_pass or item.metrics
    if metric not in metrics:
        raise DataError(
            f"{name} reads the metric '{metric}', but the loss gives {', '.join(metrics)}: return "
            f"Loss(total, {{'{metric}': ...}}), or leave {name} out of the plan"
        )
    value, rows = float(metrics[metric]), item.batch.rows
    if _alone():
        # As the means of a group: without rows there is nothing to adapt to.
        return value if rows else math.nan
    return group().means({metric: value}, rows, metric)[metric]


def update_learning_rate(step: AdaptiveStep) -> Operator:
    """Returns an operator that adapts a step size to the metric `kl` of the last pass."""

    def update(item: Trained) -> Trained:
        step.adapt(_metric_of(item, "kl", "update_learning_rate"))
        return item

    return Operator("update_learning_rate", update)


def update_entropy(weight: EntropyWeight) -> Operator:
    """Returns an operator that adapts a weight to the metric `entropy` of the last pass."""

    def update(item: Trained) -> Trained:
        weight.adapt(_metric_of(item, "entropy", "update_entropy"))
        return item

    return Operator("update_entropy", update)


def update_value_scale(scale: ValueScale) -> Operator:
    """Returns an operator that counts the column `value_targets`, and gives the item back.

    Rows without an action are left out.
    """

    def update(item: Any) -> Any:
        batch = batch_of(item)
        scale.update(batch["value_targets"][batch.mask != 0])
        return item

    return Operator("update_value_scale", update)


def update_priorities(learner: Updates) -> Operator:
    """Returns an operator that sends the priorities of a loss to replay, and gives the item back.

    Of joined batches each shard gets those of its rows. Batches that do not come from replay have
    no priorities there. A batch that a function has made of another one, with other rows, needs
    their column `indices`.
    """

    # Only then the priorities of other ranks are worth an exchange.
    taken = load_replay_class(learner.learner_config).takes_priorities

    def update(item: Trained) -> Trained:
        if item.priorities is not None and (taken or _alone()):
            given = _of_all(item.priorities, item.batch.get("indices"))
            for origin, priorities in _of_shards(item.batch, *given):
                learner.link.send_priorities(origin, priorities)
        return item

    learner.sends_priorities = True
    return Operator("update_priorities", update, learner=learner)


def _of_all(
    priorities: torch.Tensor, indices: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns priorities and indices `[B]` of the rows of all ranks of the group."""
    if _alone():
        return priorities, indices
    if indices is None:
        joined = group().join(priorities.detach().cpu().numpy(), "priorities")
        return priorities.new_tensor(joined), None
    # Together: an index is exact in a double.
    both = torch.stack([priorities.detach().double(), indices.double()], 1).cpu().numpy()
    joined = group().join(both, "priorities")
    return priorities.new_tensor(joined[:, 0]), indices.new_tensor(joined[:, 1])


def _of_shards(
    batch: Batch, priorities: torch.Tensor, indices: torch.Tensor | None
) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yields the parts of priorities `[B]`, each with its origin.

    Raises DataError if their number is not that of the rows.
    """
    parts = parts_of_origin(batch)
    if not any(_has_indices(origin) for origin, _ in parts):
        return
    sizes = [len(origin.columns["indices"]) if _has_indices(origin) else n for origin, n in parts]
    places = None if indices is None else indices.cpu().numpy()
    if places is not None:
        sizes = [len(places)] if len(parts) == 1 else [size for _, size in parts]
    if sum(sizes) != len(priorities):
        raise DataError(
            f"update_priorities has {len(priorities)} priorities for {sum(sizes)} rows of replay: "
            "a function that changes the rows of a batch must keep their column 'indices', and "
            "belongs before concat"
        )
    start = 0
    for (origin, _), size in zip(parts, sizes, strict=True):
        here = slice(start, start + size)
        start += size
        if _has_indices(origin):
            columns = origin.columns if places is None else {"indices": places[here]}
            yield replace(origin, columns=columns), priorities[here]


def _has_indices(origin: Any) -> bool:
    return origin is not None and "indices" in origin.columns


def normalizing(networks: Iterable[Any]) -> list[Any]:
    """Returns those networks that normalize observations."""
    return [each for each in networks if getattr(each, "normalizer", None) is not None]


def learn_moments(*networks: ObsModule) -> Operator:
    """Returns an operator that updates the moments of observations, and gives the item back.

    It belongs behind the update: the acting policy normalized observations by the old moments.
    """

    found = normalizing(networks)

    def learn(item: Any) -> Any:
        if not found:
            return item
        batch = batch_of(item)
        if "moments" in batch.extras:
            # Agents have made gradients of the rows, and sent these beside them.
            for network, moments in product(found, batch.extras["moments"]):
                network.merge_moments(moments)
        else:
            rows = batch.obs
            if axis_of(batch):
                # The last row of each stream has no action.
                rows = nest.map(lambda x: x[:-1].flatten(0, 1), rows)
            for network in found:
                network.learn_moments(rows)
        return item

    return Operator("learn_moments", learn)


def every(
    updates: int, *operators: Callable[[Any], Any], learner: Updates | None = None
) -> Operator:
    """Returns an operator that applies others only where `learner.iteration % updates` is 0.

    Counted over the whole run, so a restored learner continues the rhythm.

    Args:
        updates: 1: always.
        operators: operators, or functions of items.
        learner: whose iteration is meant; None: that of the first operator that works on one, such
            as `train_one_step`.

    Raises:
        ConfigError: there is no learner, or `updates` is below 1.
    """
    learners = [getattr(each, "learner", None) for each in operators]
    counted = next((each for each in (learner, *learners) if each is not None), None)
    names = " -> ".join(map(name_of, operators))
    if updates < 1 or counted is None:
        raise ConfigError(
            f"every({updates}, {names}) needs 1 or more, and an operator that works on a learner: "
            "give learner=learner"
        )

    def apply(item: Any) -> Any:
        if counted.iteration % updates == 0:
            for operator in operators:
                item = operator(item)
        return item

    name = names if updates == 1 else f"every({updates}, {names})"
    trains = any(getattr(each, "trains", False) for each in operators)
    drawn = generators_in(operators)
    return Operator(name, apply, learner=counted, trains=trains, generators=drawn)


def report(learner: Updates, *, seconds: float) -> Operator:
    """Returns an operator for scripts: behind an update, it gives one dictionary per interval.

    It has the keys of a line of `progress.jsonl` that a learner knows; the means of `learn` are
    those of the updates since the last one. In a run the lines are written without it.

    Args:
        learner: that trains.
        seconds: length of an interval.
    """
    clock = WallClock()
    due, rate = Every(seconds=seconds, clock=clock.now), Rate(clock=clock.now)
    began = clock.now()
    updates: list[dict[str, Any]] = []

    def collect(item: Trained) -> Any:
        updates.append(item.metrics)
        rate.add()
        if not due():
            return PASSED
        means = recent_means(updates)
        updates.clear()
        return {
            "wall_seconds": clock.now() - began,
            "env_steps": learner.env_steps,
            "iterations": rate.total,
            "iteration": learner.iteration,
            "rates": {"updates_per_second": rate.per_second()},
            "learn": means,
        }

    return Operator(f"report({seconds:g} s)", collect, learner=learner)
