"""Membership of a run: the reply to every hello, decided without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Accepted:
    """An accepted hello.

    Args:
        starts: number of starts under this name, including this one.
        incarnation: incarnation to use.
    """

    starts: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused hello.

    Args:
        reason: reason in one line, with the values of both sides.
        stranger: True if a later hello would be refused, too: it belongs to another run or
            protocol.
    """

    reason: str
    stranger: bool = False


@dataclass(slots=True)
class _Entry:
    """Newest process of a name; ``asked`` is the incarnation that its first hello asked for."""

    starts: int
    incarnation: int
    asked: int


class Membership:
    """All names with their newest incarnation; after a restart it learns them from the hellos.

    Args:
        protocol: version of the wire's protocol.
        fingerprint: fingerprint of the experiment.
        spec_hash: spec hash of its observation and action specs.
    """

    def __init__(self, *, protocol: int, fingerprint: str, spec_hash: str) -> None:
        self._ours = {"protocol": protocol, "fingerprint": fingerprint, "spec_hash": spec_hash}
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hello(self, fields: Mapping[str, Any]) -> Accepted | Refused:
        """Accepts or refuses a hello.

        Args:
            fields: ``protocol``, ``fingerprint``, ``spec_hash``, ``name``, ``incarnation``,
                ``fresh`` (True if this process was never accepted), and ``starts`` if it was; they
                match :data:`session.process.handshake.HELLO`.
        """
        name, incarnation = fields["name"], fields["incarnation"]
        for what, ours in self._ours.items():
            if fields[what] != ours:
                return Refused(_mismatch(name, what, fields[what], ours), stranger=True)
        known = self._entries.get(name)
        if not fields["fresh"]:
            return self._return(name, incarnation, fields.get("starts", 1))
        if known is None:
            entry = _Entry(1, incarnation, incarnation)
        elif known.asked == incarnation:
            # A repeated hello, perhaps on a new connection because the first was lost before the
            # reply. A further start would change the seed, and supersede the process itself.
            entry = known
        else:
            # The clock of another node may be slow: the new incarnation must be newer.
            newer = max(incarnation, known.incarnation + 1)
            entry = _Entry(known.starts + 1, newer, incarnation)
        self._entries[name] = entry
        return Accepted(entry.starts, entry.incarnation)

    def _return(self, name: str, incarnation: int, starts: int) -> Accepted | Refused:
        """Accepts again a process that was accepted before and has reconnected."""
        superseded = self.superseded(name, incarnation)
        if superseded is not None:
            return Refused(superseded)
        known = self._entries.get(name)
        asked = incarnation
        if known is not None:
            starts = max(starts, known.starts)
            asked = known.asked if known.incarnation == incarnation else asked
        self._entries[name] = _Entry(starts, incarnation, asked)
        return Accepted(starts, incarnation)

    def superseded(self, name: str, incarnation: int) -> str | None:
        """Returns the reason if a newer incarnation has replaced this one, else None."""
        known = self._entries.get(name)
        if known is None or incarnation >= known.incarnation:
            return None
        return (
            f"'{name}' of incarnation {incarnation} has been replaced by incarnation "
            f"{known.incarnation}: this process must end"
        )


def _mismatch(name: str, what: str, theirs: object, ours: object) -> str:
    shown = [str(value)[:_SHOWN_CHARACTERS] for value in (theirs, ours)]
    if shown[0] == shown[1]:
        shown = [str(theirs), str(ours)]
    return (
        f"'{name}' has {what} {shown[0]}, this run has {shown[1]}: "
        "start it from the config of this run"
    )
