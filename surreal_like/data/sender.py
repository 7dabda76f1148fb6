"""Sender of a message: its process, policy and rights, read once where the message enters."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from session.process.component import split_name
from session.wire import Message
from surreal_like.data.policy_names import DEFAULT_POLICY, account_name, snapshot_name

_KEPT = 1 << 14


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
    def number(self) -> int | None:
        """Number in its name; None if it has none."""
        return split_name(self.name)[1]

    @property
    def account(self) -> str:
        """Name of its account, over all incarnations: ``agent-0``, ``agent-0:left``."""
        return account_name(self.name, self.policy)

    @property
    def key(self) -> str:
        """Name of the account of this incarnation: ``agent-0:left/1732799181000``."""
        return f"{self.account}/{self.incarnation}"

    @property
    def published(self) -> str:
        """Name under which the parameters that it asks for are published."""
        return self.policy if self.snapshot is None else snapshot_name(self.policy, self.snapshot)


@lru_cache(maxsize=_KEPT)
def _parse(key: str) -> Sender:
    account, _, incarnation = key.rpartition("/")
    name, _, policy = account.partition(":")
    return Sender(name, int(incarnation), policy or DEFAULT_POLICY)
