"""A gateway's process: ``python -P -m main.gateway --name gateway-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.addons.gateway.service import GatewayService
from surreal_like.agent.loop import make_agent, prepare_agent
from surreal_like.experiment.find import algorithm_of


def build(context: Context) -> Service:
    """Builds the agent of the run's algorithm, and the port for its clients."""
    session = context.config.session_config
    torch.set_num_threads(session.gateway.threads)
    context.busy(60.0, "building the agent")
    algorithm = algorithm_of(context.config, context.folder)
    # Its exploration follows that of the agents.
    number = session.agent.num + context.component.index
    return GatewayService(
        context,
        lambda mode: prepare_agent(
            context, make_agent(context, algorithm.agent, mode, number), algorithm.learner
        ),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("gateway", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
