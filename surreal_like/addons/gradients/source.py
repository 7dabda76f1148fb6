"""Source of the gradients that agents have made of their own unrolls."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from session import nest
from session.errors import ConfigError
from session.nest import Array
from surreal_like.data.batch import Batch, Sampled
from surreal_like.data.columns import GRADIENT, GRADIENT_ROWS, manifest_of, plain_columns
from surreal_like.data.timestep import StepType
from surreal_like.dataflow.flow import Flow, Operator, Signal, generators_in
from surreal_like.dataflow.items import Gradients
from surreal_like.errors import DataError
from surreal_like.learner.gradients import compute_gradients
from surreal_like.learner.operators import normalizing
from surreal_like.learner.sources import check_kind

if TYPE_CHECKING:
    from surreal_like.learner.learner import Learner


def async_gradients(learner: Learner, before: Sequence[Operator] = ()) -> AgentGradients:
    """Returns the flow of gradients that agents have made of their own unrolls, oldest first.

    Each agent builds the same plan with a learner of its own, on the CPU, and applies `before` and
    `compute_gradients` to each of its unrolls, with the parameters that acted in it. A batch of
    unrolls, as a script may give to `learn`, becomes a gradient here.

    Args:
        learner: learner of the run, or of the agent.
        before: operators on the unroll, such as `compute_advantages`; none of them changes state
            that is learned, which the learner of the run would not get.

    Raises:
        ConfigError: `learner_config.gradients_at` is not agent, or the config has parts.
    """
    check_kind(learner, "async_gradients", "gradients")
    if learner.learner_config.get("parts"):
        raise ConfigError(
            "learner_config.parts has operators on batches, but agents make the gradients: "
            "leave parts empty, or set learner_config.gradients_at to learner"
        )
    if learner.learner_config.algo.get("normalize_rewards", False):
        raise ConfigError(
            "learner_config.algo.normalize_rewards is true, but agents make the gradients, and "
            "each knows only its own rewards: set it to false, or learner_config.gradients_at to "
            "learner"
        )
    return AgentGradients(learner, before)


class AgentGradients(Flow):
    """Source of gradients that agents have made; use `async_gradients`."""

    counts_items = True

    def __init__(self, learner: Learner, before: Sequence[Operator]) -> None:
        names = ", ".join(each.name for each in before)
        super().__init__(
            f"async_gradients({names})" if names else "async_gradients", outside=learner
        )
        self._learner = learner
        self._parts = [*before, compute_gradients(learner)]
        self._left: deque[Gradients] = deque()

    def pull(self) -> Any:
        """Returns the next gradient; raises DataError if it does not fit the parameters."""
        if not self._left:
            batch = self._learner.next_batch()
            if isinstance(batch, Signal):
                return batch
            if GRADIENT in batch.extras:
                self._left.extend(_unpack(self._learner, batch))
            else:
                self._left.append(self.compute(batch))
        return self._count(self._left.popleft())

    def own_generators(self) -> tuple[Any, ...]:
        """Returns the random generators of the operators on unrolls."""
        return generators_in(self._parts)

    def sent_columns(self, batch: Batch) -> dict[str, Any]:
        """Returns name -> `{type, dim}` of the columns of a gradient."""
        columns = columns_of_gradient(self._learner, self.compute(batch), batch)
        manifest = manifest_of(row_of_gradient(columns, np.zeros(1, np.int64)), axes=2)
        return plain_columns(manifest)

    def compute(self, batch: Batch) -> Gradients:
        """Returns the clipped gradient of a batch of unrolls.

        Raises:
            DataError: the loss does not name all optimizers, in their order.
        """
        item: Any = batch
        for part in self._parts:
            item = part(item)
        gradients: Gradients = item
        optimizers = self._learner.optimizers
        if gradients.names != tuple(optimizers):
            raise DataError(
                f"a loss names the optimizers {list(gradients.names)}, but agents make gradients "
                f"for all, in order: {list(optimizers)}"
            )
        sizes = [optimizer.size for optimizer in optimizers.values()]
        for optimizer, flat in zip(
            optimizers.values(), torch.split(gradients.flat, sizes), strict=True
        ):
            norm = optimizer.clip(flat)
            if optimizer.norm_name:
                gradients.metrics[optimizer.norm_name] = norm
        gradients.clipped, gradients.size = True, 1
        return gradients


def columns_of_gradient(learner: Learner, gradients: Gradients, batch: Batch) -> dict[str, Any]:
    """Returns a gradient as columns of one row, name -> array without the axes `[1, 1]`.

    They are `gradient` float32 `[P]`, `rows` int64, `metrics/<name>` float32, and where
    observations are normalized `moments/...` float64, those of the rows of the unroll.
    """
    columns = {GRADIENT: gradients.flat, GRADIENT_ROWS: torch.tensor(gradients.rows)}
    for name, value in gradients.metrics.items():
        columns[f"metrics/{name}"] = torch.tensor(float(value))
    networks = normalizing(learner.module_dict().values())
    if networks:
        # All of one policy normalize the same observations.
        rows = nest.map(lambda x: x[:-1].flatten(0, 1), batch.obs)
        columns |= nest.flatten(networks[0].normalizer.moments(rows), "moments")
    return {name: column.numpy() for name, column in columns.items()}


def row_of_gradient(columns: Mapping[str, Array], version: Array) -> dict[str, Array]:
    """Returns the columns of a chunk of one row, `[1, 1, ...]`.

    Args:
        columns: columns of `columns_of_gradient`.
        version: oldest of the unroll, int64.
    """
    return {
        "step_type": np.full((1, 1), StepType.MID, np.uint8),
        "reward": np.zeros((1, 1), np.float32),
        "discount": np.ones((1, 1), np.float32),
        "version": version.reshape(1, 1),
        **{f"extras/{name}": each.reshape(1, 1, *each.shape) for name, each in columns.items()},
    }


def _unpack(learner: Learner, batch: Batch) -> Iterator[Gradients]:
    """Yields the gradients of a batch of rows; raises DataError for another length."""
    expected = sum(optimizer.size for optimizer in learner.optimizers.values())
    flats, names = batch.extras[GRADIENT], tuple(learner.optimizers)
    if flats.shape[1:] != (expected,) or flats.dtype != torch.float32:
        raise DataError(
            f"a gradient is {flats.dtype} {list(flats.shape[1:])}, but the parameters are "
            f"float32 [{expected}]: agents and learner must build the same networks"
        )
    origin, rows, versions = (
        batch.origin,
        batch.extras[GRADIENT_ROWS].tolist(),
        batch.version.tolist(),
    )
    metrics = nest.flatten(batch.extras.get("metrics", {}))
    metrics = {name: column.tolist() for name, column in metrics.items()}
    moments = batch.extras.get("moments")
    for place, flat in enumerate(flats):
        one = slice(place, place + 1)
        row = Batch(version=batch.version[one], extras={})
        if moments is not None:
            row.extras["moments"] = (nest.map(lambda x, place=place: x[place], moments),)
        if origin is not None:
            columns = {"version": origin.columns["version"][one]}
            stamps = {} if place else origin.stamps
            row.origin = Sampled(columns, origin.shard, origin.incarnation, stamps)
        yield Gradients(
            flat,
            rows[place],
            versions[place],
            {name: column[place] for name, column in metrics.items()},
            names,
            row,
            size=1,
            clipped=True,
        )
