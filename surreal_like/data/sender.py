"""Sender of a message, read once where the message enters, and incarnations that are closed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from session.wire import Message
from surreal_like.data.policy_names import DEFAULT_POLICY, PolicyId

_KEPT = 1 << 14
# Open incarnations of an account; of more the oldest is closed at once.
_OPEN = 3
# Most entries of an account: the open incarnations, and one for all that are closed.
ENTRIES = _OPEN + 1


class Sender(NamedTuple):
    """One incarnation of a process, with the policy that its message is about.

    Attributes:
        name: component name, such as ``agent-0``.
        incarnation: wall clock at the start of the process [ms].
        policy: name of a policy, which need not exist.
        snapshot: iteration of the snapshot of that policy; None: the policy itself.
        joined: True on a machine that has joined, by the grant of its key.
    """

    name: str
    incarnation: int
    policy: str = DEFAULT_POLICY
    snapshot: int | None = None
    joined: bool = False

    @classmethod
    def of(cls, message: Message, otherwise: str = DEFAULT_POLICY) -> Sender:
        """Returns the sender of a received message.

        Args:
            message: a message whose fields fit its schema.
            otherwise: policy of messages without a policy.
        """
        given = message.fields.get("policy", otherwise)
        policy, _, number = given.partition("-")
        snapshot = int(number) if number.isdecimal() else None
        name, incarnation = message.sender[:2]
        whole = given if snapshot is None else policy
        return cls(name, incarnation, whole, snapshot, message.grant.guest)

    @classmethod
    def parse(cls, key: str) -> Sender:
        """Returns the sender of a :attr:`key`; its rights are not in it."""
        return _parse(key)

    @property
    def account(self) -> str:
        """Name of its account, over all incarnations: ``agent-0``, ``agent-0:left``."""
        return PolicyId(self.policy).account(self.name)

    @property
    def key(self) -> str:
        """Name of the account of this incarnation: ``agent-0:left/1732799181000``."""
        return f"{self.account}/{self.incarnation}"

    @property
    def published(self) -> str:
        """Name under which the parameters that it asks for are published."""
        policy = PolicyId(self.policy)
        return policy.name if self.snapshot is None else policy.snapshot(self.snapshot)


@lru_cache(maxsize=_KEPT)
def _parse(key: str) -> Sender:
    account, _, incarnation = key.rpartition("/")
    name, _, policy = account.partition(":")
    return Sender(name, int(incarnation), policy or DEFAULT_POLICY)


class Incarnations:
    """Decides which incarnations of accounts are closed: nothing of them counts any more.

    An incarnation is closed once nothing has come of it for some time, if it has ended or a newer
    one of its account is known. Those of an account are closed in their order, so that one number
    says which are. So the numbers of any number of restarts fit into one sum of each account.

    Args:
        now: returns the time [s].
        quiet_seconds: the time without a message after which an incarnation is closed.

    Attributes:
        closed: newest closed incarnation by account.
    """

    def __init__(
        self, now: Callable[[], float] = lambda: 0.0, quiet_seconds: float = math.inf
    ) -> None:
        self.closed: dict[str, int] = {}
        self._now, self._quiet_seconds = now, quiet_seconds
        # Account -> open incarnation -> time of its newest message, and whether it has ended.
        self._open: dict[str, dict[int, tuple[float, bool]]] = {}
        self._looked_at = now()

    def empty(self) -> Incarnations:
        """Returns the same without any incarnation."""
        return Incarnations(self._now, self._quiet_seconds)

    def __len__(self) -> int:
        """Number of accounts."""
        return len(self._open)

    def __contains__(self, account: str) -> bool:
        """True for an account that is known."""
        return account in self._open

    def is_closed(self, account: str, incarnation: int) -> bool:
        """Returns True if this incarnation is closed."""
        return incarnation <= self.closed.get(account, -1)

    def newest(self, account: str) -> int:
        """Returns the newest known incarnation; -1 if there is none."""
        return max(self._open.get(account, ()), default=self.closed.get(account, -1))

    def note(self, account: str, incarnation: int, *, ended: bool = False) -> None:
        """Records a message of an open incarnation; one that has ended stays so."""
        opened = self._open.setdefault(account, {})
        opened[incarnation] = self._now(), ended or opened.get(incarnation, (0, False))[1]

    def reopen(self, account: str, closed: int) -> None:
        """Restores the closed ones of an account; its open ones are noted."""
        self._open.setdefault(account, {})
        self.closed[account] = closed

    def close_surplus(self, account: str) -> Iterator[int]:
        """Closes the oldest incarnations of an account that has too many, and yields them."""
        opened = self._open[account]
        while len(opened) > _OPEN:
            yield self._close(account, min(opened))

    def close_quiet(self) -> Iterator[tuple[str, int]]:
        """Closes all that are due, and yields account and incarnation of each.

        Call it often, each time after their numbers were given to the reader. After a longer time
        without a call the reader may have missed them, so the quiet time begins anew.
        """
        now, before = self._now(), self._looked_at
        self._looked_at = now
        away = now - before > self._quiet_seconds / 2
        for account, opened in self._open.items():
            if away:
                opened.update({each: (now, ended) for each, (_, ended) in opened.items()})
            newest = max(opened, default=-1)
            for incarnation in sorted(opened):
                at, ended = opened[incarnation]
                if now - at < self._quiet_seconds or not (ended or incarnation < newest):
                    break
                yield account, self._close(account, incarnation)

    def _close(self, account: str, incarnation: int) -> int:
        del self._open[account][incarnation]
        self.closed[account] = incarnation
        return incarnation
