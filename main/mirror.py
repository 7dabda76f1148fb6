"""The mirror's process: ``python -P -m main.mirror --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from session.addons.mirror.service import MirrorService
from session.process.entry import run_service

# Builds the service.
build = MirrorService


def main(argv: Sequence[str] | None = None) -> int:
    """Runs it as this process; returns the exit code."""
    return run_service("mirror", build, argv, gives_way=True)


if __name__ == "__main__":
    raise SystemExit(main())
