"""A detached supervisor's process: ``python -P -m main.supervisor --folder RUN``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from setproctitle import setproctitle

from session.config import Config
from session.errors import SurrealError
from session.folder import RunFolder
from session.launchers.detached import supervise
from session.launchers.local import LocalLauncher
from surreal_like.topology import make_topology

PRELOAD = ("torch", "gymnasium", "main.learner", "main.agent", "main.evaluator")
EXIT_CODES = {"stopped": 0, "interrupted": 130}


def main(argv: Sequence[str] | None = None) -> int:
    """Launches the run in a folder and supervises it to its end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -P -m main.supervisor", description=__doc__)
    parser.add_argument("--folder", required=True, help="run folder with config.yaml")
    given = parser.parse_args(argv)
    setproctitle(f"python -P -m main.supervisor --folder {given.folder}")
    folder = RunFolder(given.folder)
    try:
        config = Config.load_file(folder.config)
        outcome = supervise(LocalLauncher(config, make_topology(config), folder, preload=PRELOAD))
    except SurrealError as error:
        sys.stderr.write(f"supervisor: {error}\n")
        return error.exit_code
    return EXIT_CODES.get(outcome.status, 1)


if __name__ == "__main__":
    raise SystemExit(main())
