"""The process of a trial: ``python -P -m main.trial --name trial-003 --folder TUNING``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from setproctitle import setproctitle

from session.folder import RunFolder
from surreal_like.addons.tuning.trial import run_trial


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the process; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -P -m main.trial")
    parser.add_argument("--name", required=True, help="name of the trial, such as trial-003")
    parser.add_argument("--folder", required=True, help="folder of the tuning")
    given = parser.parse_args(argv)
    setproctitle(f"python -P -m main.trial --name {given.name} --folder {given.folder}")
    return run_trial(RunFolder(given.folder), given.name)


if __name__ == "__main__":
    raise SystemExit(main())
