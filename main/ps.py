"""The parameter server's process: ``python -P -m main.ps --name ps --folder RUN``."""

from __future__ import annotations

from collections.abc import Sequence

from session.addons.hooks import PS_SERVICE
from session.process.context import Context
from session.process.entry import run_service
from session.process.service import Service
from surreal_like.ps.parameter_server import ParameterServer


def build(context: Context) -> Service:
    """Builds the parameter server of the run."""
    services = filter(None, (make(context) for make in PS_SERVICE))
    return ParameterServer(context, next(services, None))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    return run_service("ps", build, argv)


if __name__ == "__main__":
    raise SystemExit(main())
