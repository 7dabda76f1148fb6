"""The Loggerplex process of a run."""

from __future__ import annotations

from collections.abc import Sequence

from session.loggerplex.log_server import Loggerplex
from session.process.entry import run_service

# Builds the service.
build = Loggerplex


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it as this process; returns the exit code."""
    return run_service("loggerplex", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
