"""Who has pushed how many rows, and where each of them went; kept over every restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Rows and their fate; a clean stop has ``pushed = inserted + dropped`` exactly."""

    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unreceipted: int = 0
    holes: int = 0


@dataclass(slots=True)
class Sender:
    """What is known of one incarnation of one agent; apart from ``unreceipted`` it only rises.

    ``pushed``, ``inserted``, ``dropped`` and ``unreceipted`` are what the sender said of itself,
    ``seen``, ``handled`` and ``refused`` what replay saw of it, and ``received`` (for each start of
    each shard) what replay counted by itself, while the others repeat numbers of the sender. All
    count rows.

    A guest is of a machine that has joined. Its numbers count as far as replay has received rows.
    """

    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unreceipted: int = 0
    final: bool = False
    seen: int = 0
    handled: int = 0
    refused: int = 0
    env_steps: int = 0
    episodes: int = 0
    guest: bool = False
    received: dict[str, int] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """Rows from this sender that replay has certainly received."""
        return sum(self.received.values())

    def counted(self, number: int) -> int:
        """Steps or episodes that count of those that the sender has named: at most one a row."""
        return min(number, self.bound) if self.guest else number

    def rows(self) -> Rows:
        """The rows of this incarnation.

        A sender that said farewell counts as it counted itself. One that was killed ends with the
        last chunk whose header a receiver saw; what came before and was never handled is missing.
        A guest that counted more than replay received counts as replay saw it.
        """
        settled = self.inserted + self.dropped
        if self.guest and not (self.final and settled + self.unreceipted == self.pushed):
            return self._received_rows()
        if self.guest and settled > self.bound:
            return self._received_rows()
        if self.final:
            return Rows(self.pushed, self.inserted, self.dropped, self.unreceipted)
        dropped = max(self.dropped, self.refused)
        handled = max(self.handled, self.inserted + self.dropped)
        pushed = max(self.seen, handled)
        return Rows(pushed, handled - dropped, dropped, 0, pushed - handled)

    def _received_rows(self) -> Rows:
        dropped = min(self.refused, self.bound)
        return Rows(self.bound, self.bound - dropped, dropped)

    def rise(self, **values: int) -> None:
        """Takes each value that is larger than the known one."""
        for name, value in values.items():
            setattr(self, name, max(getattr(self, name), int(value)))


class Accounts:
    """The accounts of a whole run, as the learner keeps them.

    Args:
        first_guest: number of the first agent of a machine that has joined; None: none can join.
    """

    def __init__(self, first_guest: int | None = None) -> None:
        self._first_guest = first_guest
        self.senders: dict[str, Sender] = {}
        self._sampled: dict[str, int] = {}
        self._replayed: dict[str, int] = {}

    def hear_sender(self, key: str, account: Mapping[str, Any]) -> None:
        """Takes what a sender (``name/incarnation``) said of itself.

        Its steps count from its chunks, as replay has seen them, until its farewell: what a killed
        sender took with it was in no row that anybody knows.
        """
        sender = self._sender(key)
        if sender.final:
            return
        names = ["pushed", "inserted", "dropped"]
        names += ["env_steps", "episodes"] if account["final"] else []
        sender.rise(**{name: account[name] for name in names})
        sender.unreceipted = int(account["unreceipted"])
        sender.final = bool(account["final"])

    def hear_replay(self, key: str, counts: Mapping[str, Any]) -> None:
        """Takes the counts of one incarnation of a shard (``name/incarnation``)."""
        self._sampled[key] = max(self._sampled.get(key, 0), int(counts["sampled"]))
        self._replayed[key] = max(self._replayed.get(key, 0), int(counts.get("replayed", 0)))
        for name, seen in counts["senders"].items():
            sender = self._sender(name)
            if sender.guest:
                received = seen["inserted"] + seen["dropped"]
                sender.received[key] = max(sender.received.get(key, 0), received)
            sender.rise(
                seen=seen["rows"],
                # What came before this shard's first chunk had been handled by the one before.
                handled=seen["base"] + seen["inserted"] + seen["dropped"],
                refused=seen["dropped"],
                env_steps=seen["env_steps"],
                episodes=seen["episodes"],
            )

    def _sender(self, key: str) -> Sender:
        if key not in self.senders:
            self.senders[key] = Sender(guest=self._is_guest(_split(key)[0]))
        return self.senders[key]

    def _is_guest(self, name: str) -> bool:
        number = name.rpartition("-")[2]
        first = self._first_guest
        return first is not None and number.isdecimal() and int(number) >= first

    @property
    def env_steps(self) -> int:
        """Environment steps of all senders that ever were."""
        return sum(sender.counted(sender.env_steps) for sender in self.senders.values())

    @property
    def episodes(self) -> int:
        """Finished episodes of all senders that ever were."""
        return sum(sender.counted(sender.episodes) for sender in self.senders.values())

    @property
    def sampled(self) -> int:
        """Rows given out by all shards that ever were."""
        return sum(self._sampled.values())

    @property
    def replayed(self) -> int:
        """Rows of unrolls that were given out once more, which are not in :attr:`sampled`."""
        return sum(self._replayed.values())

    @property
    def killed(self) -> int:
        """Senders that have been replaced by a later incarnation without a farewell."""
        newest: dict[str, int] = {}
        for key in self.senders:
            name, incarnation = _split(key)
            newest[name] = max(newest.get(name, 0), incarnation)
        return sum(
            not sender.final and _split(key)[1] < newest[_split(key)[0]]
            for key, sender in self.senders.items()
        )

    def rows(self) -> Rows:
        """The rows of all senders together."""
        return _sum(self.senders.values())

    def by_name(self) -> dict[str, dict[str, int]]:
        """Rows and environment steps of each sender, all of its incarnations together."""
        found: dict[str, list[Sender]] = {}
        for key, sender in self.senders.items():
            found.setdefault(_split(key)[0], []).append(sender)
        return {
            name: {
                **_sum(senders)._asdict(),
                "env_steps": sum(each.counted(each.env_steps) for each in senders),
            }
            for name, senders in sorted(found.items())
        }

    def state(self) -> dict[str, Any]:
        """Plain data for a file."""
        senders = {key: asdict(sender) for key, sender in self.senders.items()}
        given = {"sampled": dict(self._sampled), "replayed": dict(self._replayed)}
        return {"senders": senders, **given}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from what :meth:`state` gave."""
        self.senders = {key: Sender(**sender) for key, sender in state["senders"].items()}
        self._sampled = dict(state["sampled"])
        self._replayed = dict(state.get("replayed", {}))


def _sum(senders: Iterable[Sender]) -> Rows:
    every = [sender.rows() for sender in senders]
    return Rows(*map(sum, zip(*every, strict=True))) if every else Rows()


def _split(key: str) -> tuple[str, int]:
    name, _, incarnation = key.rpartition("/")
    return name, int(incarnation)
