"""The optimizers of a learner, by the names that losses use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from surreal_like.exploration.schedule import Progress, make_schedule
from surreal_like.learner.optimizer import Optimizer


class Optimizers(dict[str, Optimizer]):
    """Optimizers by name, with their common metrics and their entries in checkpoints."""

    def add(
        self,
        name: str,
        module: nn.Module,
        learning_rate: Mapping[str, Any] | float,
        *,
        where: str = "learner_config.algo.learning_rate",
        **options: Any,
    ) -> Optimizer:
        """Adds an optimizer; see `Learner.add_optimizer`."""
        schedule = make_schedule(learning_rate, where, least=0.0)
        self[name] = Optimizer(module, learning_rate=schedule, **options)
        return self[name]

    def separate_metrics(self) -> None:
        """Puts the name of an optimizer before its metrics that an earlier one has, too."""
        taken: set[str] = set()
        for name, each in self.items():
            each.norm_name = (
                f"{name}/{each.norm_name}" if each.norm_name in taken else each.norm_name
            )
            each.rate_name = (
                f"{name}/{each.rate_name}" if each.rate_name in taken else each.rate_name
            )
            taken |= {each.norm_name, each.rate_name} - {""}

    def begin(self, progress: Progress) -> None:
        """Sets the step sizes of this point of the run."""
        for optimizer in self.values():
            optimizer.begin(progress)

    @property
    def skipped(self) -> float:
        """1 if the newest update of one of them was not finite, otherwise 0."""
        for optimizer in self.values():
            if optimizer.skipped:
                return 1.0
        return 0.0

    def report(self, metrics: dict[str, Any]) -> None:
        """Adds the step sizes, and the number of updates that were not finite."""
        skipped = 0
        for optimizer in self.values():
            skipped += optimizer.nan_updates
            if optimizer.rate_name:
                metrics[optimizer.rate_name] = optimizer.learning_rate
        metrics["nan_updates"] = skipped

    def saveables(self) -> dict[str, Optimizer]:
        """Returns name in checkpoints -> optimizer."""
        return {
            name if name == "optimizer" else f"{name}_optimizer": optimizer
            for name, optimizer in self.items()
        }
