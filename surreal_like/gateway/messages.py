"""Messages of clients after they were checked, and the refusal of a message; version 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from session.nest import Array, Nest
from surreal_like.env.base import Info

VERSION = 1
MODES = ("train", "evaluate", "act")
# Names of a client's numbers in one message, and in one session.
METRIC_NAMES = 64
# Errors that close the connection.
FATAL = frozenset(
    (
        "malformed",
        "oversize",
        "bad_version",
        "bad_token",
        "bad_hello",
        "not_supported",
        "too_many_errors",
        "internal",
    )
)

Fields = Mapping[str, Any]
_NO_INFO: Info = {}


class Refusal(Exception):
    """A message that is refused; becomes an ``error`` for the client.

    Args:
        code: of the table of errors.
        text: one line: what is wrong, where, what to do.
        seq: number of the request that it answers.
    """

    def __init__(self, code: str, text: str, seq: int | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.seq = code, text, seq

    @property
    def fatal(self) -> bool:
        """True if the connection is closed."""
        return self.code in FATAL

    def fields(self) -> dict[str, Any]:
        """Returns the message for the client."""
        found = {"kind": "error", "code": self.code, "message": self.text, "fatal": self.fatal}
        return found if self.seq is None else {**found, "seq": self.seq}


class Hello(NamedTuple):
    """The first message of a connection, see :meth:`Protocol.parse`."""

    version: int
    token: str
    mode: str
    name: str
    num_envs: int
    client: str
    resume: str


class Request(NamedTuple):
    """A message with a number, which is answered.

    Args:
        kind: ``reset``, ``step`` or ``end``.
        seq: its number.
        obs: nest of arrays ``[N, ...]``; None at an ``end`` without one.
        reward: of the last action, float32 ``[N]``; 0 at a ``reset``.
        terminated, truncated: bool ``[N]``; of a ``step`` of one stream False.
        action: ``[N, ...]``, what was done instead of what was advised; None: as advised.
        info: as of an environment: the ``metrics`` of one stream's episode, or nothing.
    """

    kind: str
    seq: int
    obs: Nest
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    action: Array | None = None
    info: Info = _NO_INFO


class Metrics(NamedTuple):
    """Numbers for curves of their own."""

    values: Mapping[str, float]


class Ping(NamedTuple):
    """A question that is answered at once."""

    token: Any


class Bye(NamedTuple):
    """The end of a session."""


Incoming = Hello | Request | Metrics | Ping | Bye


def malformed(text: str) -> NoReturn:
    """Raises the refusal of a payload that cannot be read."""
    raise Refusal("malformed", text)


def short(value: Any) -> str:
    """Returns a value of a client as it is shown in an error."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}"
    # An array inside a list or a map has line ends in its text.
    return " ".join(repr(value).split())[:40]
