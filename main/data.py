"""The process that sends recorded rows: ``python -P -m main.data --name data-0 --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from session.process.entry import run_service
from surreal_like.addons.recording.dataset import DatasetService

# Builds the service.
build = DatasetService


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it as this process; returns the exit code."""
    return run_service("data", build, argv, gives_way=True)


if __name__ == "__main__":
    raise SystemExit(main())
