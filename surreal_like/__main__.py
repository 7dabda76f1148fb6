"""``python -m surreal_like``, and the command ``surreal-like``.

It is in this package because files of users have its name least of all: with a main.py of theirs in
PYTHONPATH the name ``main`` would be that file.
"""

import importlib

from surreal_like.own_packages import load_package


def main() -> int:
    """Runs the command; returns its exit code."""
    load_package("main")
    return int(importlib.import_module("main.cli").main())


if __name__ == "__main__":
    raise SystemExit(main())
