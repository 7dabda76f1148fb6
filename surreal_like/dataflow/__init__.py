"""The dataflow of training as a value: flows, operators, sources."""

from surreal_like.dataflow.batches import concat, standardize
from surreal_like.dataflow.concurrency import Queue, concurrently, dequeue, enqueue
from surreal_like.dataflow.flow import NOT_READY, PASSED, STALLED, Flow, Operator
from surreal_like.dataflow.items import Gradients, Loss, Trained
from surreal_like.dataflow.local_replay import LocalReplay, mix_in, store
from surreal_like.dataflow.sources import from_items, replay

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
    "concat",
    "concurrently",
    "dequeue",
    "enqueue",
    "from_items",
    "mix_in",
    "replay",
    "standardize",
    "store",
]
