"""``python -P -m main.cli`` is the same as ``surreal-like``."""

from main.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
