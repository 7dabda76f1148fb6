"""Roles: the messages a key may send to each endpoint, and the sender names it may use.

This table is the only source of rights. The ZAP handler checks it for each connection, each
binding socket for each message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUN = "run"
AGENT = "agent"
GUEST = "guest"
WATCHER = "watcher"
EVALUATOR = "evaluator"
GATEWAY = "gateway"

# Sender name of a joined machine that checks whether the run continues.
WATCH = "join"

_RUN_RATE = 1000.0
_RATE, _RATE_PER_NAME = 100.0, 50.0

# Endpoint, or the part of its name after the dot if several share it -> kinds of messages.
Rights = Mapping[str, tuple[str, ...]]

_EVERY_ROLE: Rights = {
    "ps.requests": ("hello", "fetch", "info"),
    "tensorplex.records": ("tensorplex",),
    "loggerplex.records": ("loggerplex",),
}
_AGENT: Rights = {
    **_EVERY_ROLE,
    "ps.requests": ("hello", "fetch", "info", "leave"),
    "experience": ("chunk", "goodbye"),
    # For subscribing only; no messages may be sent.
    "acks": (),
}
_SCORE: Rights = {"learner.control": ("evaluated",)}
# Of a machine that works for a tuning.
_WORKER: Rights = {
    "tune.workers": ("info", "poll", "fetch", "get", "files", "put", "report", "ended"),
}
_RIGHTS: Mapping[str, Rights] = {
    AGENT: _AGENT,
    GUEST: {**_AGENT, **_WORKER},
    # A machine without names: it only checks whether the run or tuning goes on.
    WATCHER: {"ps.requests": ("info",), "tune.workers": ("info",)},
    EVALUATOR: {**_EVERY_ROLE, **_SCORE},
    # Its clients may evaluate.
    GATEWAY: {**_AGENT, **_SCORE},
}


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one key.

    Args:
        role: ``run`` has all rights; an unknown role has none.
        names: sender names that the key may use; ``agent-*`` means all agents.
    """

    role: str = RUN
    names: tuple[str, ...] = ()

    @property
    def guest(self) -> bool:
        """True for a joined machine; its reported numbers are compared with those of replay."""
        return self.role in (GUEST, WATCHER)

    @property
    def rate(self) -> float:
        """Maximum requests per second of one connection; of a guest, of all its connections.

        Many times the rate of a normal component.
        """
        return _RATE + _RATE_PER_NAME * len(self.names) if self.guest else _RUN_RATE

    def enters(self, endpoint: str) -> bool:
        """True if the key may connect to an endpoint."""
        return self.role == RUN or self._kinds(endpoint) is not None

    def owns(self, name: str) -> bool:
        """True if the key may use this sender name."""
        return self.role == RUN or any(_fits(name, each) for each in self.names)

    def refusal(self, endpoint: str, kind: str, name: str) -> str | None:
        """Returns the reason to refuse a message, None if it is allowed.

        Args:
            endpoint: endpoint that received it.
            kind: kind of the message.
            name: the sender name.
        """
        if self.role == RUN:
            return None
        if kind not in (self._kinds(endpoint) or ()):
            return f"a key of the role '{self.role}' may not send '{kind[:63]}' to {endpoint}"
        if self.owns(name) or (kind == "info" and name == WATCH):
            return None
        return f"its key of the role '{self.role}' is for {_show(self.names)} only"

    def _kinds(self, endpoint: str) -> tuple[str, ...] | None:
        rights = _RIGHTS.get(self.role, {})
        return rights.get(endpoint, rights.get(endpoint.rpartition(".")[2]))

    def encode(self) -> str:
        """Returns the grant as a line of text."""
        return " ".join((self.role, *self.names))

    @classmethod
    def decode(cls, line: str) -> Grant:
        """Parses a line of :meth:`encode`; an empty line grants nothing."""
        role, *names = line.split() or [""]
        return cls(role, tuple(names))


EVERYTHING = Grant()
NOTHING = Grant("")
# Roles whose components share one pair of keys, if the run makes such keys.
SHARED = {
    AGENT: Grant(AGENT, ("agent-*",)),
    EVALUATOR: Grant(EVALUATOR, ("eval-*",)),
    GATEWAY: Grant(GATEWAY, ("gateway-*",)),
}


def _fits(name: str, pattern: str) -> bool:
    stem = pattern.removesuffix("*")
    return name == pattern or (stem != pattern and name.startswith(stem))


def _show(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
