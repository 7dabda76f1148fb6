"""An agent's process: ``python -P -m main.agent --name agent-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.agent.base import AgentMode
from surreal_like.agent.loop import AgentService, make_agent, prepare_agent
from surreal_like.experiment.resolve import algorithm_of


def build(context: Context) -> Service:
    """Builds the agent of the run's algorithm with its environments."""
    torch.set_num_threads(1)
    context.busy(60.0, "building agent and environments")
    algorithm = algorithm_of(context.config, context.folder)
    agent = make_agent(context, algorithm.agent, AgentMode.training)
    return AgentService(context, prepare_agent(context, agent, algorithm.learner))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("agent", build, argv, gives_way=True)


if __name__ == "__main__":
    raise SystemExit(main())
