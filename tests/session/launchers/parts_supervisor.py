"""The supervisor of a detached run whose components are those of the tests."""

from __future__ import annotations

from session.launchers.detached import run_supervisor
from session.launchers.fork_client import Preload
from tests.session.launchers.parts import MODULE

SUPERVISOR = "tests.session.launchers.parts_supervisor"

if __name__ == "__main__":
    raise SystemExit(run_supervisor(SUPERVISOR, Preload([MODULE])))
