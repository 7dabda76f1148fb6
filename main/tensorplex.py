"""The Tensorplex process of a run."""

from __future__ import annotations

from collections.abc import Sequence

from session.process.entry import run_service
from session.tensorplex.metrics_server import Tensorplex

# Builds the service.
build = Tensorplex


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it as this process; returns the exit code."""
    return run_service("tensorplex", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
