"""Who takes part in a run: the answer to every hello, decided without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Accepted:
    """A hello that is welcome.

    Args:
        starts: starts seen under this name, this one included.
        incarnation: the one to use.
    """

    starts: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A hello that is not, and why.

    Args:
        reason: in one line, with the values of both sides.
        stranger: nor would it be later: it belongs to another run or protocol.
    """

    reason: str
    stranger: bool = False


@dataclass(slots=True)
class _Entry:
    """The newest process of one name; ``peer`` and ``asked`` know a repeated hello again."""

    starts: int
    incarnation: int
    peer: bytes
    asked: int


class Membership:
    """All names and the newest incarnation of each; a new roll learns them from the hellos.

    Args:
        protocol: version of the wire's protocol.
        fingerprint: of the experiment.
        spec_hash: of its observation and action specs.
    """

    def __init__(self, *, protocol: int, fingerprint: str, spec_hash: str) -> None:
        self._ours = {"protocol": protocol, "fingerprint": fingerprint, "spec_hash": spec_hash}
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def hello(self, peer: bytes, fields: Mapping[str, Any]) -> Accepted | Refused:
        """Judges one hello.

        Args:
            peer: the connection it came over.
            fields: ``protocol``, ``fingerprint``, ``spec_hash``, ``name``, ``incarnation``,
                ``fresh`` (True if this process was never accepted), and ``starts`` if it was;
                they fit :data:`session.handshake.HELLO`.
        """
        name, incarnation = fields["name"], fields["incarnation"]
        for what, ours in self._ours.items():
            if fields[what] != ours:
                return Refused(_mismatch(name, what, fields[what], ours), stranger=True)
        known = self._entries.get(name)
        if not fields["fresh"]:
            return self._return(name, incarnation, fields.get("starts", 1), peer)
        if known is None:
            entry = _Entry(1, incarnation, peer, incarnation)
        elif (known.peer, known.asked) == (peer, incarnation):
            entry = known
        else:
            # A node with a slow clock gets an incarnation that is newer for sure.
            newer = max(incarnation, known.incarnation + 1)
            entry = _Entry(known.starts + 1, newer, peer, incarnation)
        self._entries[name] = entry
        return Accepted(entry.starts, entry.incarnation)

    def _return(self, name: str, incarnation: int, starts: int, peer: bytes) -> Accepted | Refused:
        """A process that was accepted before and has been connected anew."""
        superseded = self.superseded(name, incarnation)
        if superseded is not None:
            return Refused(superseded)
        known = self._entries.get(name)
        if known is not None:
            starts = max(starts, known.starts)
        self._entries[name] = _Entry(starts, incarnation, peer, incarnation)
        return Accepted(starts, incarnation)

    def superseded(self, name: str, incarnation: int) -> str | None:
        """Why this incarnation has no say any more, None if it is the newest or unknown."""
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
