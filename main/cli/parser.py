"""A parser whose errors are one line, like all other errors."""

from __future__ import annotations

import argparse
from typing import NoReturn

from session.errors import UsageError


class Parser(argparse.ArgumentParser):
    """The options of one command.

    Args:
        command: its name.
        description: its purpose.
        epilog: examples, shown as written.
    """

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"surreal-like {command}",
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(f"{message}; see {self.prog} --help")
