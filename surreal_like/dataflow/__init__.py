"""The dataflow of training as a value: flows, operators, sources."""

from surreal_like.dataflow.agent_gradients import async_gradients
from surreal_like.dataflow.batches import concat, standardize
from surreal_like.dataflow.concurrency import Queue, concurrently, dequeue, enqueue
from surreal_like.dataflow.flow import NOT_READY, PASSED, STALLED, Flow, Operator
from surreal_like.dataflow.gradients import (
    apply_gradients,
    average_gradients,
    compensate_delay,
    compute_gradients,
)
from surreal_like.dataflow.items import Gradients, Loss, Trained
from surreal_like.dataflow.local_replay import LocalReplay, mix_in, store
from surreal_like.dataflow.reporting import report
from surreal_like.dataflow.rnd import add_rnd_bonus
from surreal_like.dataflow.sources import experience, from_items, replay, rollouts
from surreal_like.dataflow.training import (
    compute_advantages,
    every,
    learn_moments,
    train_one_step,
    update_kl,
    update_learning_rate,
    update_priorities,
    update_target,
    update_value_scale,
)

__all__ = [
    "NOT_READY",
    "PASSED",
    "STALLED",
    "Flow",
    "Gradients",
    "LocalReplay",
    "Loss",
    "Operator",
    "Queue",
    "Trained",
    "add_rnd_bonus",
    "apply_gradients",
    "async_gradients",
    "average_gradients",
    "compensate_delay",
    "compute_advantages",
    "compute_gradients",
    "concat",
    "concurrently",
    "dequeue",
    "enqueue",
    "every",
    "experience",
    "from_items",
    "learn_moments",
    "mix_in",
    "replay",
    "report",
    "rollouts",
    "standardize",
    "store",
    "train_one_step",
    "update_kl",
    "update_learning_rate",
    "update_priorities",
    "update_target",
    "update_value_scale",
]
