"""Standard output and error: characters that they cannot encode, and output that cannot be written.

All commands print through here, because `main` runs them inside of `prepared_output`.
"""

from __future__ import annotations

import codecs
import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

from session.errors import SurrealError

# Characters of tables and pictures -> in their place where the encoding lacks them.
_PLAIN = {"·": "-", "…": "...", "━": "=", "─": "-", "●": "*"}
_HANDLER = "surreal_like_plain"


class HelpShown(SystemExit):
    """A parser has printed a help text, and nothing else is to be done."""


class OutputError(SurrealError):
    """Standard output cannot be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"the output cannot be written: {error.strerror}")
        # The reader of a pipe has seen enough: no error of the command.
        self.unwanted = isinstance(error, BrokenPipeError)


def terminal_width(stream: IO[str] | None = None) -> int:
    """Returns the width in characters; 0 if the stream, by default standard output, is none."""
    return shutil.get_terminal_size().columns if (stream or sys.stdout).isatty() else 0


class _Output:
    """A stream whose errors name it, so that they are not taken for those of other files."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            raise OutputError(error) from error


@contextmanager
def prepare_output() -> Iterator[None]:
    """Runs a command with streams that write everything, or raise OutputError.

    What an encoding lacks (ASCII in cron) is written plainly; letters of names become escapes, such
    as ``\\xfc``.
    """
    codecs.register_error(_HANDLER, _encode_plainly)
    stream = sys.stdout
    for each in (stream, sys.stderr):
        if isinstance(each, io.TextIOWrapper):
            each.reconfigure(errors=_HANDLER)
    # None: the process was started without one.
    if stream is not None:
        sys.stdout = cast(TextIO, _Output(stream))
    try:
        yield
        if stream is not None:
            sys.stdout.flush()
    except OutputError:
        # Python must not try again, and report it, at exit.
        stream = cast(TextIO, None)
        raise
    finally:
        sys.stdout = stream


def _encode_plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    escaped = (_PLAIN.get(each) or ascii(each)[1:-1] for each in missing)
    return "".join(escaped), error.end
