"""The learner's process: ``python -P -m main.learner --name learner --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from session.config.named_code import with_kept_plan
from session.errors import UsageError
from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.coordinator.service import LearnerService
from surreal_like.experiment.find import learners_of
from surreal_like.learner.group_member import MemberService


def build(context: Context) -> Service:
    """Builds the learners of all policies, and what makes them learn."""
    if context.folder is None:
        raise UsageError("the learner writes the run folder: start it with --folder")
    config = with_kept_plan(context.config, context.folder)
    torch.set_num_threads(config.session_config.learner.threads)
    context.busy(60.0, "building the learner")
    rank = context.component.index
    service = MemberService if rank else LearnerService
    return service(context, learners_of(config, context.folder, rank), context.folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("learner", build, argv, keeps_memory=True)


if __name__ == "__main__":
    raise SystemExit(main())
