"""Accounts of rows: pushed by each sender, and their fates; kept over every restart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from session.config import Config
from surreal_like.data.policy_names import PolicyId, agents_of
from surreal_like.data.sender import Incarnations, Sender

# In the place of senders whose accounts were lost with a damaged record.
_UNKNOWN = "unknown/0"
# Numbers of each shard that are added up as they are.
_TOTALS = ("sampled", "replayed", "agent_steps")
# Fates of inserted rows of queues that no learner was given: older than max_version_lag allows;
# acted before a trial took over another; removed by newer ones (when_full: drop_oldest); of a guest
# that was fenced; still in a queue.
UNLEARNED = ("too_old", "taken_over", "overflowed", "fenced", "waiting")
# Share of inserted rows that are too old from which on that is reported, with the remedy.
TOO_OLD = 0.01
REMEDY = (
    "session_config.agent.fetch_parameter_mode=step:N, N as session_config.sender.flush_iteration, "
    "and fetch_interval_seconds=0; else learner_config.replay.evict_rule.max_version_lag up"
)


def describe_too_old(numbers: Mapping[str, Any], share: float = TOO_OLD) -> str:
    """Describes how many rows were too old to be learned from; empty for a smaller share.

    Args:
        numbers: a line of progress or the result of a run.
        share: least share of the rows that replay has inserted, of the run or of one policy.
    """
    found = []
    for name, part in {"": numbers, **(numbers.get("policies") or {})}.items():
        rows = part.get("experience") or {}
        gone, inserted = rows.get("too_old") or 0, rows.get("inserted") or 0
        if gone > share * inserted:
            of = f" of policy {name}" if name else ""
            found.append(f"{gone:,} of {inserted:,} rows{of} ({100 * gone / inserted:.0f} %)")
    return ", ".join(found)


class RowFates(NamedTuple):
    """Row counts by fate; after a clean stop ``pushed = inserted + dropped`` holds exactly."""

    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unacked: int = 0
    holes: int = 0


@dataclass(slots=True)
class SenderRows:
    """Known counts of rows of one incarnation of an agent; all but ``unacked`` only rise.

    ``pushed``, ``inserted``, ``dropped`` and ``unacked`` are reported by the sender; ``seen``,
    ``handled`` and ``refused`` were observed by replay. ``received`` (for each ledger of each
    shard) is counted by replay itself, while the others repeat numbers of the sender.

    ``env_restarts`` are environments that were made anew; ``clients`` are the totals of a gateway.

    The numbers of an agent of a machine that has joined count only up to the rows that replay has
    received.
    """

    pushed: int = 0
    inserted: int = 0
    dropped: int = 0
    unacked: int = 0
    final: bool = False
    seen: int = 0
    handled: int = 0
    refused: int = 0
    env_steps: int = 0
    episodes: int = 0
    joined: bool = False
    steps_per_row: int = 1
    env_restarts: int = 0
    received: dict[str, int] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)

    @property
    def bound(self) -> int:
        """Number of rows of this sender that replay has certainly received."""
        return sum(self.received.values())

    def bound_by_rows(self, number: int) -> int:
        """Returns the part of the reported steps or episodes that counts: so many per row."""
        return min(number, self.bound * self.steps_per_row) if self.joined else number

    def rows(self) -> RowFates:
        """Returns the row counts of this incarnation.

        For a sender that left, its own counts hold. For a killed one, the last chunk whose header a
        receiver has seen is the end; earlier rows that were never handled are missing. For a joined
        agent that reported more rows than replay received, the counts of replay hold.
        """
        settled = self.inserted + self.dropped
        if self.joined and not (self.final and settled + self.unacked == self.pushed):
            return self._receive_rows()
        if self.joined and settled > self.bound:
            return self._receive_rows()
        if self.final:
            # Recorded rows may be on their way again, after a shard had lost what it had acked.
            left = max(0, self.pushed - settled)
            unacked = min(self.unacked, left)
            return RowFates(self.pushed, self.inserted, self.dropped, unacked, left - unacked)
        dropped = max(self.dropped, self.refused)
        handled = max(self.handled, self.inserted + self.dropped)
        pushed = max(self.seen, handled)
        return RowFates(pushed, handled - dropped, dropped, 0, pushed - handled)

    def _receive_rows(self) -> RowFates:
        dropped = min(self.refused, self.bound)
        return RowFates(self.bound, self.bound - dropped, dropped)

    def rise(self, **values: int) -> None:
        """Raises each given field to the given value if that is larger."""
        for name, value in values.items():
            setattr(self, name, max(getattr(self, name), int(value)))


class ShardRows(NamedTuple):
    """Newest counts of rows of one incarnation of a shard.

    Args:
        restored: rows that it has restored.
        inserted: rows that it has inserted since; if it goes on, those before it included.
        stored: rows that it keeps.
        goes_on: it has all rows and accounts of the incarnation before.
        rolled_back: rows that it has removed because updates were bad; if it goes on, those before
            it included.
    """

    restored: int = 0
    inserted: int = 0
    stored: int = 0
    goes_on: bool = False
    rolled_back: int = 0


@dataclass(slots=True)
class ClosedRows:
    """Sums over the closed incarnations of an account, up to the one of this number."""

    incarnation: int = -1
    rows: RowFates = field(default_factory=RowFates)
    env_steps: int = 0
    episodes: int = 0
    env_restarts: int = 0
    killed: int = 0
    clients: dict[str, int] = field(default_factory=dict)

    def add(self, incarnation: int, sender: SenderRows, *, killed: bool) -> None:
        """Adds the numbers of one incarnation."""
        self.incarnation = incarnation
        self.rows = _sum((self.rows, sender.rows()))
        self.env_steps += sender.bound_by_rows(sender.env_steps)
        self.episodes += sender.bound_by_rows(sender.episodes)
        self.env_restarts += sender.bound_by_rows(sender.env_restarts)
        self.killed += killed
        self.clients = _add_up((self.clients, sender.clients))


class RowAccounts:
    """Row accounts of a whole run, kept by the learner.

    Args:
        steps_per_row: most environment steps of a row of a joined machine's agent.
        now: returns the time [s].
        quiet_seconds: see :class:`Incarnations`; the sums of what is closed are kept.
    """

    def __init__(
        self,
        *,
        steps_per_row: int = 1,
        now: Callable[[], float] = lambda: 0.0,
        quiet_seconds: float = math.inf,
    ) -> None:
        self._steps_per_row = steps_per_row
        self.senders: dict[str, SenderRows] = {}
        self.closed: dict[str, ClosedRows] = {}
        self._incarnations = Incarnations(now, quiet_seconds)
        # Total -> key of a shard -> its part.
        self._totals: dict[str, dict[str, int]] = {name: {} for name in _TOTALS}
        self._unlearned: dict[str, dict[str, int]] = {}
        self._shards: dict[str, ShardRows] = {}
        # Totals that were reported before this process; sums below them are not known completely.
        self._reached = {"env_steps": 0, "episodes": 0}

    def reach(self, totals: Mapping[str, int], *, gone: bool) -> None:
        """Raises the totals to those that an earlier process has reported, as they never fall.

        Args:
            totals: ``env_steps`` and ``episodes``.
            gone: True if the senders of what is missing here do not report again; else they do,
                and nothing must be counted twice.
        """
        missing = {
            name: totals[name] - getattr(self, name)
            for name in self._reached
            if totals[name] > getattr(self, name)
        }
        if gone and missing:
            self._sender(_UNKNOWN).rise(**missing)
        self._reached = {name: max(totals[name], was) for name, was in self._reached.items()}

    def add_sender(self, key: str, account: Mapping[str, Any]) -> None:
        """Adds the account that a sender (``name/incarnation``) reported.

        Until a sender leaves, its steps are counted from its chunks, as replay has seen them: the
        unsent steps of a killed sender are in no known row.
        """
        if not self._note(key, ended=account["final"]):
            return
        sender = self._sender(key, joined=account.get("guest", False))
        if sender.final:
            return
        names = ["pushed", "inserted", "dropped"]
        names += ["env_steps", "episodes"] if account["final"] else []
        sender.rise(**{name: account[name] for name in names})
        sender.rise(env_restarts=account.get("env_restarts", 0))
        sender.unacked = int(account["unacked"])
        # A machine that has joined has no gateway.
        sender.clients = {} if sender.joined else dict(account.get("clients") or {})
        sender.final = bool(account["final"])

    def add_shard(self, key: str, counts: Mapping[str, Any]) -> int:
        """Adds the counts of one incarnation of a shard (``name/incarnation``).

        Its first ones come with those of the incarnation whose snapshot it has restored: all may
        have been killed before the learner was given these.

        Returns:
            With the first counts of an incarnation the rows that the one before it kept by its last
            counts, and that this one has not restored; else 0.
        """
        known = key in self._shards
        for earlier, then in {} if known else counts.get("before", {}).items():
            if then["added"] >= self._shards.get(earlier, ShardRows()).inserted:
                self.add_shard(earlier, then)
        before = self._key_before(key)
        ledger = f"{Sender.parse(key).name}/{counts['ledger']}" if "ledger" in counts else key
        for name, parts in self._totals.items():
            parts[key] = max(parts.get(key, 0), int(counts.get(name, 0)))
        self._unlearned[key] = dict(counts.get("unlearned") or {})
        names = ("restored", "added", "size", "rolled_back")
        restored, added, size, back = (int(counts.get(name, 0)) for name in names)
        rows = ShardRows(restored, added, size, bool(counts.get("goes_on")), back)
        self._shards[key] = rows
        for name, seen in counts["senders"].items():
            # The sums of a shard are of incarnations that it reported one by one before.
            if seen.get("closed") or not self._note(name, ended=seen.get("goodbye", False)):
                continue
            sender = self._sender(name, joined=seen.get("guest", False))
            if sender.joined:
                received = seen["inserted"] + seen["dropped"]
                sender.received[ledger] = max(sender.received.get(ledger, 0), received)
            sender.rise(
                seen=seen["rows"],
                # The previous shard handled everything before the first chunk that this shard got.
                handled=seen["base"] + seen["inserted"] + seen["dropped"],
                refused=seen["dropped"],
                env_steps=seen["env_steps"],
                episodes=seen["episodes"],
            )
        self._close_quiet()
        kept = self._shards[before].stored if before and not known and not rows.goes_on else 0
        return max(0, kept - rows.restored)

    def _note(self, key: str, *, ended: bool) -> bool:
        """Records that a sender was reported; returns False if its incarnation is closed."""
        if self._is_closed(key):
            return False
        sender = Sender.parse(key)
        self._incarnations.note(sender.account, sender.incarnation, ended=ended)
        return True

    def _close_quiet(self) -> None:
        for account, incarnation in self._incarnations.close_quiet():
            rows = self.senders.pop(f"{account}/{incarnation}", None)
            if rows is not None:
                killed = self._is_killed(account, incarnation, rows)
                self.closed.setdefault(account, ClosedRows()).add(incarnation, rows, killed=killed)

    def is_final(self, key: str) -> bool:
        """Returns True once nothing more comes of a sender: it has left, or is closed."""
        return self._is_closed(key) or (key in self.senders and self.senders[key].final)

    def _is_closed(self, key: str) -> bool:
        sender = Sender.parse(key)
        return self._incarnations.is_closed(sender.account, sender.incarnation)

    def _key_before(self, key: str) -> str:
        """Returns the key of the incarnation of a shard before this one; empty: there is none."""
        shard = Sender.parse(key)
        earlier = [each for each in map(Sender.parse, self._shards) if each < shard]
        newest = max((each for each in earlier if each.name == shard.name), default=None)
        return newest.key if newest else ""

    def _sender(self, key: str, *, joined: bool = False) -> SenderRows:
        """Returns the counts of a sender; makes them if there are none.

        Args:
            key: name of the account with the incarnation.
            joined: True if its key is that of a joined machine.
        """
        if key not in self.senders:
            self.senders[key] = SenderRows(steps_per_row=self._steps_per_row)
        sender = self.senders[key]
        sender.joined |= joined
        return sender

    def counts(self, sender: Sender) -> bool:
        """Returns False for a joined machine of whose rows replay has received none."""
        rows = self.senders.get(sender.key)
        return rows is None or not rows.joined or rows.bound > 0

    @property
    def env_steps(self) -> int:
        """Environment steps of all senders of the whole run."""
        return max(self._add_bounded("env_steps"), self._reached["env_steps"])

    @property
    def episodes(self) -> int:
        """Finished episodes of all senders of the whole run."""
        return max(self._add_bounded("episodes"), self._reached["episodes"])

    def _add_bounded(self, name: str) -> int:
        """Returns the sum of a count of all senders, as far as their rows bear it out."""
        known = (each.bound_by_rows(getattr(each, name)) for each in self.senders.values())
        return sum((*known, *(getattr(each, name) for each in self.closed.values())))

    @property
    def sampled(self) -> int:
        """Number of rows sampled from all shards of the whole run."""
        return sum(self._totals["sampled"].values())

    @property
    def replayed(self) -> int:
        """Number of rows of unrolls that were given out again, which :attr:`sampled` excludes."""
        return sum(self._totals["replayed"].values())

    def agent_steps(self, policy: str) -> int:
        """Returns the number of steps of agents whose rows the shards of a policy have inserted."""
        parts = self._totals["agent_steps"].items()
        return sum(steps for key, steps in parts if _policy_of(key) == policy)

    def lost(self) -> int:
        """Number of inserted rows that shards kept when they ended, and their successors do not.

        Exact once all living shards have reported all that they inserted, and if a dead one evicted
        none since its last report.
        """
        newest: dict[str, ShardRows] = {}
        lost = reported = ended = 0
        for key in sorted(self._shards, key=Sender.parse):
            rows, name = self._shards[key], Sender.parse(key).name
            before = newest.get(name)
            newest[name] = rows
            reported += rows.inserted
            if before is not None and rows.goes_on:
                reported -= before.inserted
            elif before is not None:
                lost += before.stored - rows.restored
                ended += 1
        if not ended:
            return 0
        # Rows that a dead shard has inserted after its last report are in no report; rows that it
        # had not acked yet were sent again and are in two.
        return max(0, lost + self.rows().inserted - reported)

    def count_unlearned(self, policy: str = "") -> dict[str, int]:
        """Returns the rows of queues that no learner was given, by fate.

        Args:
            policy: only those of this policy; empty: of all.
        """
        newest = {Sender.parse(key).name: key for key in sorted(self._unlearned, key=Sender.parse)}
        totals = dict.fromkeys(UNLEARNED, 0)
        for key, counts in self._unlearned.items():
            name = Sender.parse(key).name
            if policy in ("", _policy_of(key)):
                for fate, rows in counts.items():
                    # Rows that waited in a shard that has ended are lost, or restored.
                    if fate != "waiting" or newest[name] == key:
                        totals[fate] += rows
        return totals

    def of_policy(self, policy: str) -> dict[str, int]:
        """Returns the row counts of all senders of a policy, and its rows that were not learned."""
        return {**self.rows(policy)._asdict(), **self.count_unlearned(policy)}

    @property
    def rolled_back(self) -> int:
        """Number of inserted rows that shards have removed because updates were bad."""
        total = 0
        for key, rows in self._shards.items():
            before = self._shards.get(self._key_before(key), ShardRows())
            total += rows.rolled_back - before.rolled_back * rows.goes_on
        return total

    @property
    def killed(self) -> int:
        """Number of senders that a later incarnation replaced without a leave message."""
        closed = sum(each.killed for each in self.closed.values())
        senders = {Sender.parse(key): rows for key, rows in self.senders.items()}
        return closed + sum(
            self._is_killed(sender.account, sender.incarnation, rows)
            for sender, rows in senders.items()
        )

    def _is_killed(self, account: str, incarnation: int, rows: SenderRows) -> bool:
        return not rows.final and incarnation < self._incarnations.newest(account)

    def rows(self, policy: str = "") -> RowFates:
        """Returns the row counts of all senders together.

        Args:
            policy: only those of this policy; empty: of all.
        """
        every = [(key, each.rows()) for key, each in self.senders.items()]
        every += [(f"{account}/0", each.rows) for account, each in self.closed.items()]
        return _sum(rows for key, rows in every if policy in ("", Sender.parse(key).policy))

    def by_name(self) -> dict[str, dict[str, int]]:
        """Returns row counts and environment steps by sender name, over all incarnations."""
        found = {name: [(each.rows, each.env_steps)] for name, each in self.closed.items()}
        for key, sender in self.senders.items():
            numbers = sender.rows(), sender.bound_by_rows(sender.env_steps)
            found.setdefault(Sender.parse(key).account, []).append(numbers)
        return {
            name: {
                **_sum(rows for rows, _ in every)._asdict(),
                "env_steps": sum(steps for _, steps in every),
            }
            for name, every in sorted(found.items())
        }

    @property
    def env_restarts(self) -> int:
        """Number of environments that were made anew after an error."""
        return self._add_bounded("env_restarts")

    def clients(self) -> dict[str, int]:
        """Returns the totals of all gateways, over all incarnations; empty without any."""
        closed = (each.clients for each in self.closed.values())
        return _add_up((*closed, *(each.clients for each in self.senders.values())))

    def state(self) -> dict[str, Any]:
        """Returns plain data for a file."""
        senders = {key: asdict(sender) for key, sender in self.senders.items()}
        closed = {account: asdict(each) for account, each in self.closed.items()}
        shards = {key: list(rows) for key, rows in self._shards.items()}
        totals = {name: dict(parts) for name, parts in self._totals.items()}
        unlearned = {key: dict(each) for key, each in self._unlearned.items()}
        accounts = {"senders": senders, "closed": closed, "shards": shards}
        return {**accounts, **totals, "unlearned": unlearned}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`state`."""
        self.senders = {key: SenderRows(**sender) for key, sender in state["senders"].items()}
        self.closed, self._incarnations = {}, self._incarnations.empty()
        for account, values in state.get("closed", {}).items():
            self.closed[account] = ClosedRows(**{**values, "rows": RowFates(*values["rows"])})
            self._incarnations.reopen(account, self.closed[account].incarnation)
        for key, sender in self.senders.items():
            self._note(key, ended=sender.final)
        self._totals = {name: dict(state.get(name, {})) for name in _TOTALS}
        self._unlearned = {key: dict(each) for key, each in state.get("unlearned", {}).items()}
        # Runs that began earlier have not counted them.
        self._shards = {key: ShardRows(*rows) for key, rows in state.get("shards", {}).items()}


def steps_per_row(config: Config) -> int:
    """Returns the most environment steps of a row: in a game in turns it stands for all agents."""
    return max(1, len(agents_of(config)))


def _policy_of(shard: str) -> str:
    return PolicyId.of_shard(Sender.parse(shard).name).name


def _add_up(every: Iterable[Mapping[str, int]]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for each in every:
        totals.update(each)
    return dict(totals)


def _sum(every: Iterable[RowFates]) -> RowFates:
    return RowFates(*map(sum, zip(RowFates(), *every, strict=True)))
