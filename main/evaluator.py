"""An evaluator's process: ``python -P -m main.evaluator --name eval-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.agent.evaluator import EvaluatorService
from surreal_like.agent.loop import make_agent
from surreal_like.experiment.resolve import algorithm_of


def build(context: Context) -> Service:
    """Builds the agent of the run's algorithm in an evaluation mode."""
    evaluator = context.config.session_config.evaluator
    torch.set_num_threads(1)
    context.busy(60.0, "building agent and environments")
    algorithm = algorithm_of(context.config, context.folder)
    mode = evaluator.mode[context.component.index % len(evaluator.mode)]
    return EvaluatorService(context, make_agent(context, algorithm.agent, mode))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("evaluator", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
