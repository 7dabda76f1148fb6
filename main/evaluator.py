"""An evaluator's process: ``python -P -m main.evaluator --name eval-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.experiment.find import find_in
from surreal_like.policies.evaluator_builder import make_evaluator_service


def build(context: Context) -> Service:
    """Builds the agents of the run's policies in an evaluation mode."""
    torch.set_num_threads(1)
    context.busy(60.0, "building agent and environments")
    return make_evaluator_service(context, find_in(context.folder))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("evaluator", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
