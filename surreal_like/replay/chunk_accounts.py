"""Accounts of every chunk: inserted, dropped, duplicate or missing. Every row is counted.

A sender numbers its chunks 1, 2, 3, ... and each carries the count of rows cut so far, so the rows
of a missing chunk are known without it. An ack carries the number up to which all chunks were
handled; the sender keeps the later ones and sends them again, so a gap can close later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import msgpack

from session.errors import DecodeError
from session.wire import Identity
from session.wire.schema import SENDERS_LIMIT
from surreal_like.data.sender import ENTRIES, Incarnations
from surreal_like.experience.chunk import Chunk

OLDER_INCARNATION, CLOSED = "older incarnation", "closed incarnation"
# More chunks than a sender may have in flight.
_BEYOND = 1 << 16

Key = tuple[str, int]
# In the place of the incarnation, for the sum over all that are closed.
_SUM = -1


class Ack(NamedTuple):
    """Ack for one sender incarnation.

    Attributes:
        sender: the name.
        incarnation: incarnation of the sender.
        handled: highest chunk number up to which each was inserted or dropped.
        inserted: rows inserted up to there.
        dropped: rows dropped up to there.
    """

    sender: str
    incarnation: int
    handled: int
    inserted: int
    dropped: int


@dataclass(slots=True)
class SenderAcks:
    """Account of one sender incarnation, or the sums over all that are closed.

    Attributes:
        handled: highest chunk number without a gap below it; of a sum, in its newest one.
        handled_rows: the sender's row count there.
        inserted: rows inserted here up to there.
        dropped: rows dropped here up to there.
        seen_rows: highest row count that a chunk or a goodbye has reported.
        env_steps: environment steps of the sender so far.
        episodes: episodes of the sender so far.
        ended: True after its goodbye.
        beyond: chunks received after a gap: number -> (row count there, rows, inserted or not).
        guest: True for a sender of a machine that has joined.
        place: number of the sender's name in the ledger.
    """

    handled: int = 0
    handled_rows: int = 0
    inserted: int = 0
    dropped: int = 0
    seen_rows: int = 0
    env_steps: int = 0
    episodes: int = 0
    ended: bool = False
    beyond: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    guest: bool = False
    place: int = 0

    @property
    def done(self) -> bool:
        """True once its goodbye and all chunks before it were handled."""
        return self.ended and not self.beyond

    def add(self, other: SenderAcks) -> None:
        """Adds the numbers of the next incarnation that is closed; its gaps are never filled."""
        early = other.early
        self.handled = other.handled
        self.inserted += other.inserted + early["inserted"]
        self.dropped += other.dropped + early["dropped"]
        self.handled_rows += other.handled_rows + sum(early.values())
        self.seen_rows += other.seen_rows
        self.env_steps += other.env_steps
        self.episodes += other.episodes
        self.guest |= other.guest

    @property
    def holes(self) -> int:
        """Missing rows: cut before a chunk or goodbye that was received, and not received."""
        return self.seen_rows - self.handled_rows - sum(rows for _, rows, _ in self.beyond.values())

    @property
    def elsewhere(self) -> int:
        """Rows handled by another replay, or by an earlier incarnation of this one."""
        return self.handled_rows - self.inserted - self.dropped

    def handle(self, chunk: Chunk, inserted: bool) -> None:
        """Records a chunk, and closes the gap before chunks received early."""
        self.beyond[chunk.sequence] = (chunk.rows, chunk.size, inserted)
        self.see(chunk.rows)
        self.env_steps = max(self.env_steps, chunk.env_steps)
        self.episodes = max(self.episodes, chunk.episodes)
        self._move_on()

    def end(self, rows: int, sequence: int) -> None:
        """Records the goodbye: a chunk number without rows of its own."""
        self.ended = True
        if sequence > self.handled:
            self.beyond[sequence] = (rows, 0, True)
        self.see(rows)
        self._move_on()

    def see(self, rows: int) -> None:
        """Records the row count that a chunk or a goodbye reports."""
        self.seen_rows = max(self.seen_rows, rows)

    def skip(self, sequence: int, rows: int) -> None:
        """Skips chunks up to ``sequence``, which the sender has acks for: others handled them."""
        if sequence <= self.handled:
            return
        for early in sorted(n for n in self.beyond if n <= sequence):
            self._count(early)
        self.handled, self.handled_rows = sequence, rows
        self.see(rows)
        self._move_on()

    @property
    def early(self) -> dict[str, int]:
        """Rows received after a gap, ``inserted`` and ``dropped``."""
        entries = self.beyond.values()
        return {
            "inserted": sum(rows for _, rows, inserted in entries if inserted),
            "dropped": sum(rows for _, rows, inserted in entries if not inserted),
        }

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`from_state` makes the same account."""
        state = {name: getattr(self, name) for name in _COUNTS}
        return {**state, "beyond": [[number, *entry] for number, entry in self.beyond.items()]}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], place: int = 0) -> SenderAcks:
        """Returns the account that gave this state."""
        beyond = {number: (at, rows, inserted) for number, at, rows, inserted in state["beyond"]}
        return cls(**{"place": place, **state, "beyond": beyond})

    def _move_on(self) -> None:
        while self.handled + 1 in self.beyond:
            self.handled += 1
            self.handled_rows = self._count(self.handled)

    def _count(self, sequence: int) -> int:
        rows_there, rows, inserted = self.beyond.pop(sequence)
        if inserted:
            self.inserted += rows
        else:
            self.dropped += rows
        return rows_there


_COUNTS = [each.name for each in fields(SenderAcks) if each.name != "beyond"]


class AckTracker:
    """Accounts of all senders of one replay; those of closed incarnations are one of each name.

    Args:
        now: returns the time [s].
        quiet_seconds: see :class:`Incarnations`.
        began: incarnation of the shard that begins it.

    Attributes:
        began: the same; that of an earlier shard once its ledger was restored.
        duplicates: rows of chunks that arrived again and were ignored.
        drops: reason -> rows dropped, chunks after a gap included.
        fenced: names of guests whose rows are not taken any more.
        rolled_back: inserted rows that were removed again, because updates were bad.
        env_steps: environment steps of the chunks that were admitted, each counted by one shard.
        in_order: names of senders that send again from the first chunk on what is not here: a chunk
            after a gap is not taken, because the rows before it could not be linked any more.
    """

    def __init__(
        self,
        now: Callable[[], float] = lambda: 0.0,
        quiet_seconds: float = math.inf,
        began: int = 0,
    ) -> None:
        self.began = began
        self.duplicates = 0
        self.drops: dict[str, int] = {}
        self.fenced: set[str] = set()
        self.in_order: Collection[str] = ()
        self.rolled_back = self.env_steps = 0
        self._accounts: dict[Key, SenderAcks] = {}
        # Name -> sums over its closed incarnations.
        self._closed: dict[str, SenderAcks] = {}
        # Name -> its place, which rows keep: a name never gets another one.
        self._places: dict[str, int] = {}
        self._incarnations = Incarnations(now, quiet_seconds)
        # Newest number of a chunk that came of a closed incarnation since the last acks.
        self._late: dict[Key, int] = {}
        # Accounts with news since their last ack, in the order of the first news.
        self._news: dict[Key, None] = {}
        # Packed accounts, and those that have changed since.
        self._changed: dict[Key, None] = {}
        self._packed: dict[Key, bytes] = {}

    def check(self, sender: Identity, sequence: int) -> None:
        """Raises DecodeError for a chunk or goodbye for which no account can be kept.

        This bounds the ledger for any number of incarnations and gaps.
        """
        account = self._accounts.get((sender.name, sender.incarnation))
        most = SENDERS_LIMIT // ENTRIES
        if sender.name not in self._places and len(self._places) >= most:
            raise DecodeError(f"accounts of {most} senders are kept already")
        full = account is not None and len(account.beyond) >= _BEYOND
        if account is not None and full and sequence != account.handled + 1:
            raise DecodeError(f"{_BEYOND} chunks have come after one that is missing")

    def count_new_steps(self, chunk: Chunk) -> int:
        """Returns the environment steps that a chunk adds; call it before :meth:`admit`.

        They are the difference to the total of the chunk before. Where that went to another shard,
        or is missing, the rows of the chunk are counted.
        """
        account = self._accounts.get((chunk.sender, chunk.incarnation))
        rows, steps = (0, 0) if account is None else (account.seen_rows, account.env_steps)
        follows = chunk.rows - chunk.size == rows
        if follows:
            return max(0, chunk.env_steps - steps)
        # Of recorded rows its sender has counted none.
        return min(chunk.env_steps, chunk.count_steps())

    def admit(self, chunk: Chunk) -> bool:
        """Returns True if a chunk is new and of its sender's newest incarnation.

        If True, call :meth:`count_inserted` or :meth:`count_dropped` next; if False, all is
        counted already, or comes again. Chunks for which the sender has an ack, from any replay,
        never count as missing here.

        Args:
            chunk: the header is read; ``joined`` is set.
        """
        key = (chunk.sender, chunk.incarnation)
        account = self._open(key)
        if account is None:
            self._refuse_late(chunk)
            return False
        account.guest = chunk.joined
        account.skip(chunk.acked, chunk.acked_rows)
        if chunk.sequence <= account.handled or chunk.sequence in account.beyond:
            self.duplicates += chunk.size
            self._note(key)  # sent again because its ack was lost
            return False
        if chunk.sender in self.in_order and chunk.sequence != account.handled + 1:
            self._note(key)
            return False
        if chunk.incarnation < self._incarnations.newest(chunk.sender):
            self.count_dropped(chunk, OLDER_INCARNATION)
            return False
        return True

    def _open(self, key: Key) -> SenderAcks | None:
        """Returns an account, made if there is none; None if its incarnation is closed."""
        name = key[0]
        if key not in self._accounts and not self._incarnations.is_closed(*key):
            unused = 1 + max(self._places.values(), default=-1)
            place = self._places.setdefault(name, unused)
            self._accounts[key] = SenderAcks(place=place)
            self._incarnations.note(*key)
            for each in self._incarnations.close_surplus(name):
                self._add_to_sum((name, each))
        return self._accounts.get(key)

    def _refuse_late(self, chunk: Chunk) -> None:
        """Counts a chunk of a closed incarnation as dropped, once; it gets an ack as any other.

        The sum of a name has the number up to which the newest closed incarnation is counted. Of
        older ones nothing is kept but what the next acks say: a chunk that comes again because it
        lost its ack is counted again, and so is one that came after a gap.
        """
        key, account = (chunk.sender, chunk.incarnation), self._closed[chunk.sender]
        newest = chunk.incarnation == self._incarnations.closed[chunk.sender]
        counted = max(self._late.get(key, 0), account.handled if newest else 0)
        self._note_late(key, chunk.sequence)
        if chunk.sequence <= counted:
            self.duplicates += chunk.size
            return
        if newest:
            account.handled = chunk.sequence
        account.dropped += chunk.size
        account.handled_rows += chunk.size
        account.seen_rows += chunk.size
        self.drops[CLOSED] = self.drops.get(CLOSED, 0) + chunk.size
        self._changed[chunk.sender, _SUM] = None

    def _note_late(self, key: Key, sequence: int) -> None:
        self._late[key] = max(sequence, self._late.get(key, 0))

    def close(self) -> list[Key]:
        """Closes the incarnations that are due, after their numbers were reported; returns them."""
        keys = list(self._incarnations.close_quiet())
        for key in keys:
            self._add_to_sum(key)
        return keys

    def _add_to_sum(self, key: Key) -> None:
        """Adds the account of an incarnation that was closed to the sum of its name."""
        account, name = self._accounts.pop(key), key[0]
        self._closed.setdefault(name, SenderAcks(place=self._places[name])).add(account)
        for kept in (self._news, self._changed, self._packed):
            kept.pop(key, None)
        self._changed[name, _SUM] = None

    def _entries(self) -> Iterator[tuple[Key, SenderAcks, bool]]:
        """Yields sender with incarnation, account, and whether it is the sum of closed ones."""
        for name, account in self._closed.items():
            yield (name, self._incarnations.closed[name]), account, True
        for key, account in self._accounts.items():
            yield key, account, False

    def fence(self, names: Collection[str]) -> list[int]:
        """Fences guests, also those that come later; returns the places of their accounts.

        It has no effect on other senders.

        Args:
            names: names of senders, without incarnations.
        """
        self.fenced.update(names)
        entries = self._entries()
        return sorted(
            {each.place for (name, _), each, _ in entries if each.guest and name in names}
        )

    def count_inserted(self, chunk: Chunk) -> None:
        """Records that an admitted chunk was inserted."""
        self._handle(chunk, inserted=True)

    def count_dropped(self, chunk: Chunk, reason: str) -> None:
        """Records that an admitted chunk was dropped, and why."""
        self.drops[reason] = self.drops.get(reason, 0) + chunk.size
        self._handle(chunk, inserted=False)

    def _handle(self, chunk: Chunk, *, inserted: bool) -> None:
        key = (chunk.sender, chunk.incarnation)
        self._accounts[key].handle(chunk, inserted)
        self._note(key)

    def _note(self, key: Key) -> None:
        self._news[key] = self._changed[key] = None
        self._incarnations.note(*key, ended=self._accounts[key].done)

    def goodbye(self, key: Key, fields: Mapping[str, int], *, guest: bool = False) -> None:
        """Records that a sender ended; rows that it cut and that were not received are missing.

        The goodbye has the next chunk number and is acked like a chunk.

        Args:
            key: the sender, with its incarnation.
            fields: those of its message, see :data:`surreal_like.experience.chunk.GOODBYE`.
            guest: that of the account.
        """
        account = self._open(key)
        if account is None:
            self._note_late(key, fields["seq"])
            return
        account.guest = guest
        account.skip(fields.get("acked", 0), fields.get("acked_rows", 0))
        account.end(fields["rows"], fields["seq"])
        self._note(key)

    def acks(self, *, news: bool = False) -> list[Ack]:
        """Returns one ack per sender's newest incarnation, and per older one that has news.

        Args:
            news: only acks of accounts with news since their last ack.
        """
        keys = dict(self._news)
        if not news:
            newest = self._incarnations.newest
            keys |= {key: None for key in self._accounts if key[1] == newest(key[0])}
        late = [Ack(*key, sequence, 0, 0) for key, sequence in self._late.items()]
        self._news.clear()
        self._late.clear()
        return [*map(self._ack, keys), *late]

    def _ack(self, key: Key) -> Ack:
        account = self._accounts[key]
        return Ack(*key, account.handled, account.inserted, account.dropped)

    def account(self, sender: str, incarnation: int) -> SenderAcks:
        """Returns the account of one sender incarnation; KeyError if there is none."""
        return self._accounts[sender, incarnation]

    def totals(self) -> dict[str, int]:
        """Rows over all accounts, and ``env_steps`` and ``episodes`` of all senders.

        ``pushed`` (as far as known) ``= inserted + dropped + holes + elsewhere``; ``duplicates``
        are in none of these.
        """
        senders = self.senders().values()
        names = ("inserted", "dropped", "holes", "env_steps", "episodes")
        return {
            "pushed": sum(sender["rows"] for sender in senders),
            "elsewhere": sum(sender["base"] for sender in senders),
            "duplicates": self.duplicates,
            **{name: sum(sender[name] for sender in senders) for name in names},
        }

    def senders(self) -> dict[str, dict[str, int]]:
        """Rows of each sender incarnation (``name/incarnation``); ``base`` was handled elsewhere.

        ``rows = base + inserted + dropped + holes``; ``goodbye`` is True after its goodbye. With
        ``closed`` they are the sums over all incarnations up to this one.
        """
        counts = {}
        for (sender, incarnation), account, closed in self._entries():
            early = account.early
            counts[f"{sender}/{incarnation}"] = {
                "rows": account.seen_rows,
                "base": account.elsewhere,
                "inserted": account.inserted + early["inserted"],
                "dropped": account.dropped + early["dropped"],
                "holes": account.holes,
                "env_steps": account.env_steps,
                "episodes": account.episodes,
                "goodbye": account.ended,
                "guest": account.guest,
                "place": account.place,
                "closed": closed,
            }
        return counts

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`restore` makes the same ledger."""
        return {**self._counts(), "accounts": [self._state(key) for key in self._keys()]}

    def _counts(self) -> dict[str, Any]:
        return {
            "duplicates": self.duplicates,
            "drops": dict(self.drops),
            "fenced": sorted(self.fenced),
            "env_steps": self.env_steps,
            "began": self.began,
        }

    def _keys(self) -> list[Key]:
        return [*((name, _SUM) for name in self._closed), *self._accounts]

    def _state(self, key: Key) -> dict[str, Any]:
        sender, incarnation = key
        closed = incarnation == _SUM
        account = self._closed[sender] if closed else self._accounts[key]
        newest = self._incarnations.closed[sender] if closed else incarnation
        return {"sender": sender, "incarnation": newest, "closed": closed, **account.state()}

    def pack(self) -> dict[str, Any]:
        """Returns :meth:`state` with packed accounts; packs only those that have changed."""
        for key in self._changed:
            self._packed[key] = msgpack.packb(self._state(key))
        self._changed.clear()
        packed = list(self._packed.values())
        return {**self._counts(), "rolled_back": self.rolled_back, "packed": packed}

    def carry(self, state: Mapping[str, Any], names: Collection[str], incarnation: int) -> None:
        """Takes over what was handled of senders that send the same in each part of a run.

        Their rows count in the part in which they came, so only the numbers of chunks go on.

        Args:
            state: that of a ledger of an earlier part.
            names: names of the senders.
            incarnation: theirs in this part.
        """
        for entry in state["accounts"]:
            # The goodbye has a number, too; of chunks it is that of the next one.
            left = entry.get("closed") or (entry["ended"] and not entry["beyond"])
            chunks = entry["handled"] - bool(left)
            key = entry["sender"], incarnation
            if entry["sender"] in names and chunks and (account := self._open(key)):
                account.handled = chunks
                self._note(key)

    def unpack(self, packed: Mapping[str, Any]) -> None:
        """Restores what :meth:`pack` gave."""
        accounts = [msgpack.unpackb(each) for each in packed["packed"]]
        self.restore({**packed, "accounts": accounts})
        # A snapshot has none: its process begins a new count.
        self.rolled_back = packed["rolled_back"]

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state` gave."""
        self.duplicates = state["duplicates"]
        self.drops = dict(state["drops"])
        # Runs that began earlier have fenced none.
        self.fenced, self.rolled_back = set(state.get("fenced", ())), 0
        self.env_steps = state.get("env_steps", 0)
        self.began = state.get("began") or self.began
        self._accounts, self._closed, self._places = {}, {}, {}
        self._incarnations = self._incarnations.empty()
        for place, entry in enumerate(state["accounts"]):
            values = dict(entry)
            name, incarnation = values.pop("sender"), values.pop("incarnation")
            closed = values.pop("closed", False)
            account = SenderAcks.from_state(values, place)
            self._places[name] = account.place
            if closed:
                self._closed[name] = account
                self._incarnations.reopen(name, incarnation)
            else:
                self._accounts[name, incarnation] = account
                self._incarnations.note(name, incarnation, ended=account.done)
        self._news, self._packed = dict.fromkeys(self._accounts), {}
        self._changed = dict.fromkeys(self._keys())
        self._late.clear()
