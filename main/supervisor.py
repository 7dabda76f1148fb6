"""A detached supervisor's process: ``python -P -m main.supervisor --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from session.launchers.detached import run_supervisor
from surreal_like.experiment.topology import PRELOAD


def main(argv: Sequence[str] | None = None) -> int:
    """Launches the run in a folder and supervises it to its end; returns the exit code."""
    return run_supervisor("main.supervisor", PRELOAD, argv)


if __name__ == "__main__":
    raise SystemExit(main())
