"""Operators on gradients: computed, averaged, applied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from surreal_like.data.batch import Batch
from surreal_like.dataflow.flow import PASSED, Operator, Signal
from surreal_like.dataflow.items import Gradients, Joined, Trained, size_of
from surreal_like.errors import DataError
from surreal_like.learner.operators import LossFunction, Means, computed, rows_to_weigh

if TYPE_CHECKING:
    from surreal_like.learner.updates import Updates


def compute_gradients(learner: Updates, loss: LossFunction | None = None) -> Operator:
    """Returns an operator that gives the `Gradients` of each batch; `loss` as in `train_one_step`.

    If the loss is not finite, the gradients are NaN, and `apply_gradients` skips them.
    """

    def compute(item: Batch) -> Gradients:
        function = learner.loss if loss is None else loss
        metrics, totals, priorities = computed(learner, function, item)
        rows = rows_to_weigh(item)
        flats = [learner.optimizers[name].compute(total, rows) for name, total in totals.items()]
        version = int(item["version"].min()) if "version" in item and item.rows else -1
        metrics.update(learner.stats(item))
        names, size = tuple(totals), size_of(item)
        return Gradients(
            torch.cat(flats),
            item.rows,
            version,
            metrics,
            names,
            item,
            size,
            priorities=None if priorities is None else priorities.detach(),
        )

    return Operator("compute_gradients", compute, learner=learner)


def average_gradients() -> Operator:
    """Returns an operator behind `batch(n)`: the mean of several gradients, weighted by rows."""

    def average(items: list[Gradients]) -> Gradients:
        rows = sum(each.rows for each in items)
        if not rows:
            raise DataError(f"average_gradients got {len(items)} gradients of 0 rows: no mean")
        if len({(each.names, each.clipped) for each in items}) > 1:
            raise DataError(f"gradients of {items[0].names} and of {items[-1].names} have no mean")
        flat = sum(each.flat * (each.rows / rows) for each in items)
        metrics: dict[str, Any] = dict(Means([each.metrics for each in items]))
        version = min(each.version for each in items)
        assert isinstance(flat, torch.Tensor)  # of at least one item
        return Gradients(
            flat,
            rows,
            version,
            metrics,
            items[0].names,
            batch=_join(items),
            size=size_of(items),
            clipped=items[0].clipped,
            priorities=_priorities(items),
        )

    return Operator("average_gradients", average)


class GradientCounts:
    """Gradients of agents over the whole run.

    Attributes:
        applied: number of those that the parameters were updated with.
        stale: number of those that were left out, because their parameters were too old.
    """

    def __init__(self) -> None:
        self.applied = self.stale = 0

    def state_dict(self) -> dict[str, int]:
        """Returns both numbers."""
        return {"applied": self.applied, "stale": self.stale}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Restores a result of `state_dict`."""
        self.applied, self.stale = int(state["applied"]), int(state["stale"])


def _join(items: list[Gradients]) -> Batch | None:
    """Returns a batch without rows, with their origin and moments; None if there is no batch."""
    batches = [each.batch for each in items if each.batch is not None]
    if not batches:
        return None
    joined = Batch(extras={})
    if not items[0].clipped:
        joined.origin = Joined.of(batches)
        return joined
    if "moments" in batches[0].extras:
        joined.extras["moments"] = tuple(each for b in batches for each in b.extras["moments"])
    if (origin := batches[0].origin) is not None:
        versions = np.concatenate([batch.origin.columns["version"] for batch in batches])
        joined.origin = replace(origin, columns={"version": versions})
    return joined


def _priorities(items: list[Gradients]) -> torch.Tensor | None:
    """Returns the priorities of all rows; None if a loss gave none."""
    given = [each.priorities for each in items if each.priorities is not None]
    return torch.cat(given) if len(given) == len(items) else None


def apply_gradients(learner: Updates) -> Operator:
    """Returns an operator that makes a step of the optimizers with gradients; gives a `Trained`.

    Gradients of agents whose parameters are more than `replay.evict_rule.max_version_lag` versions
    old are left out, and counted in the metric `stale`; those applied in `gradients`.
    """
    rule = learner.learner_config.replay.get("evict_rule") or {}
    most_lag = rule.get("max_version_lag") or math.inf
    from_agents = learner.learner_config.get("gradients_at") == "agent"
    counts = learner.keep("gradient_counts", GradientCounts()) if from_agents else GradientCounts()

    def apply(item: Gradients) -> Trained | Signal:
        if item.clipped and learner.version - item.version > most_lag:
            counts.stale += item.size
            return PASSED
        learner.optimizers.begin(learner)
        metrics, optimizers = dict(item.metrics), [learner.optimizers[name] for name in item.names]
        flats = torch.split(item.flat, [optimizer.size for optimizer in optimizers])
        for optimizer, flat in zip(optimizers, flats, strict=True):
            norm = optimizer.apply(flat, clipped=item.clipped)
            # An agent has reported the norm before the clip.
            if optimizer.norm_name and not item.clipped:
                metrics[optimizer.norm_name] = norm
        if from_agents:
            counts.applied += item.size
            metrics |= {"gradients": counts.applied, "stale": counts.stale}
        metrics["skipped"] = learner.optimizers.skipped
        learner.optimizers.report(metrics)
        batch = item.batch if item.batch is not None else Batch()
        trained = Trained(batch, metrics, item.priorities, size=item.size)
        learner.updates.append(trained)
        return trained

    return Operator("apply_gradients", apply, learner=learner, trains=True)
