"""Roles: which messages a key may send to which endpoint, and under which names.

The table is the only place that decides. The gate asks it for each connection, each socket that
binds asks it for each message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUN = "run"
AGENT = "agent"
GUEST = "guest"
EVALUATOR = "evaluator"

# The name under which a machine that has joined asks whether the run goes on.
WATCH = "join"

_RUN_RATE = 1000.0
_RATE, _RATE_PER_NAME = 100.0, 50.0

# Endpoint, or the part of its name behind the dot where there are several -> kinds of messages.
Rights = Mapping[str, tuple[str, ...]]

_EVERYONE: Rights = {
    "ps.requests": ("hello", "fetch", "info"),
    "tensorplex.records": ("tensorplex",),
    "loggerplex.records": ("loggerplex",),
}
_AGENT: Rights = {
    **_EVERYONE,
    "ps.requests": ("hello", "fetch", "info", "leave"),
    "experience": ("chunk", "goodbye"),
    # Subscribed to; nothing is sent there.
    "acks": (),
}
_RIGHTS: Mapping[str, Rights] = {
    AGENT: _AGENT,
    GUEST: _AGENT,
    EVALUATOR: {**_EVERYONE, "learner.control": ("evaluated",)},
}


@dataclass(frozen=True, slots=True)
class Grant:
    """The rights of one key.

    Args:
        role: ``run`` may do everything; a role that is not known may do nothing.
        names: of components for which the key may speak; ``agent-*`` stands for all agents.
    """

    role: str = RUN
    names: tuple[str, ...] = ()

    @property
    def guest(self) -> bool:
        """True for a machine that has joined: its numbers are compared with what replay saw."""
        return self.role == GUEST

    @property
    def rate(self) -> float:
        """Requests a second that are served over one connection; of a guest, over all of its.

        Many times what a component asks.
        """
        return _RATE + _RATE_PER_NAME * len(self.names) if self.guest else _RUN_RATE

    def enters(self, endpoint: str) -> bool:
        """True if a connection to an endpoint is admitted."""
        return self.role == RUN or self._kinds(endpoint) is not None

    def owns(self, name: str) -> bool:
        """True if the key may speak for a component of this name."""
        return self.role == RUN or any(_fits(name, each) for each in self.names)

    def refusal(self, endpoint: str, kind: str, name: str) -> str | None:
        """Why a message may not be acted on, None if it may.

        Args:
            endpoint: to which it came.
            kind: of the message.
            name: under which it was sent.
        """
        if self.role == RUN:
            return None
        if kind not in (self._kinds(endpoint) or ()):
            return f"a key of the role '{self.role}' may not send '{kind[:63]}' to {endpoint}"
        if self.owns(name) or (kind == "info" and name == WATCH):
            return None
        return f"its key of the role '{self.role}' is for {_shown(self.names)} only"

    def _kinds(self, endpoint: str) -> tuple[str, ...] | None:
        rights = _RIGHTS.get(self.role, {})
        return rights.get(endpoint, rights.get(endpoint.rpartition(".")[2]))

    def encode(self) -> str:
        """The grant as a line of text."""
        return " ".join((self.role, *self.names))

    @classmethod
    def decode(cls, line: str) -> Grant:
        """Reads the line; one without a word grants nothing."""
        role, *names = line.split() or [""]
        return cls(role, tuple(names))


EVERYTHING = Grant()
NOTHING = Grant("")
# Each of these roles has one pair of keys for all of its components, where a run makes them.
SHARED = {AGENT: Grant(AGENT, ("agent-*",)), EVALUATOR: Grant(EVALUATOR, ("eval-*",))}


def _fits(name: str, pattern: str) -> bool:
    stem = pattern.removesuffix("*")
    return name == pattern or (stem != pattern and name.startswith(stem))


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
