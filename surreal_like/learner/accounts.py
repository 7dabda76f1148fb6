"""Who has pushed how many rows, and where each of them went; kept over every restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
    ``seen``, ``handled`` and ``refused`` what replay saw of it. All count rows.
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

    def rows(self) -> Rows:
        """The rows of this incarnation.

        A sender that said farewell counts as it counted itself. One that was killed ends with the
        last chunk whose header a receiver saw; what came before and was never handled is missing.
        """
        if self.final:
            return Rows(self.pushed, self.inserted, self.dropped, self.unreceipted)
        dropped = max(self.dropped, self.refused)
        handled = max(self.handled, self.inserted + self.dropped)
        pushed = max(self.seen, handled)
        return Rows(pushed, handled - dropped, dropped, 0, pushed - handled)

    def rise(self, **values: int) -> None:
        """Takes each value that is larger than the known one."""
        for name, value in values.items():
            setattr(self, name, max(getattr(self, name), int(value)))


class Accounts:
    """The accounts of a whole run, as the learner keeps them."""

    def __init__(self) -> None:
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
            self._sender(name).rise(
                seen=seen["rows"],
                # What came before this shard's first chunk had been handled by the one before.
                handled=seen["base"] + seen["inserted"] + seen["dropped"],
                refused=seen["dropped"],
                env_steps=seen["env_steps"],
                episodes=seen["episodes"],
            )

    def _sender(self, key: str) -> Sender:
        return self.senders.setdefault(key, Sender())

    @property
    def env_steps(self) -> int:
        """Environment steps of all senders that ever were."""
        return sum(sender.env_steps for sender in self.senders.values())

    @property
    def episodes(self) -> int:
        """Finished episodes of all senders that ever were."""
        return sum(sender.episodes for sender in self.senders.values())

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
        every = [sender.rows() for sender in self.senders.values()]
        return Rows(*map(sum, zip(*every, strict=True))) if every else Rows()

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


def _split(key: str) -> tuple[str, int]:
    name, _, incarnation = key.rpartition("/")
    return name, int(incarnation)
