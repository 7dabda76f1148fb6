"""A parser whose errors are one line, like all other errors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from session.did_you_mean import did_you_mean
from session.errors import UsageError


class Parser(argparse.ArgumentParser):
    """The options of one command.

    Args:
        command: the name.
        description: the purpose.
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

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        """Returns the arguments; options may stand before, between and after the words."""
        return self.parse_intermixed_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError, with the option that was probably meant in place of an unknown one."""
        unknown = message.removeprefix("unrecognized arguments: ").split()
        options = [each for action in self._actions for each in action.option_strings]
        hint = ""
        if len(unknown) < len(message.split()) and unknown[0].startswith("--"):
            hint = did_you_mean(unknown[0].partition("=")[0], options, lead="; ")
        raise UsageError(f"{message}{hint}; see {self.prog} --help")
