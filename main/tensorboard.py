"""TensorBoard as a process of a run."""

from __future__ import annotations

from collections.abc import Sequence

from session.process.entry import run_service
from session.tensorplex.board import Board

# Builds the service.
build = Board


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it as this process; returns the exit code."""
    return run_service("tensorboard", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
