"""The core of a run whose agents join: ``python -P -m main.core --folder RUN --host ADDRESS``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from setproctitle import setproctitle

from session.errors import START_AGAIN, SurrealError
from session.folder import RunFolder
from surreal_like.addons.submitted.core import run_core


def main(argv: Sequence[str] | None = None) -> int:
    """Begins the run in a folder, or goes on with it; returns the exit code of ``run_core``."""
    parser = argparse.ArgumentParser(prog="python -P -m main.core")
    parser.add_argument("--folder", required=True, help="run folder with config.yaml")
    parser.add_argument("--host", required=True, help="address of this machine for the agents")
    given = parser.parse_args(argv)
    setproctitle(f"python -P -m main.core --folder {given.folder}")
    try:
        return run_core(RunFolder(given.folder), given.host)
    except KeyboardInterrupt:
        return START_AGAIN
    except SurrealError as error:
        sys.stderr.write(f"core: {error}\n")
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
