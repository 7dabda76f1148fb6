"""However often senders start anew, what is kept of them is bounded, and every row is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

import main.ps
from session.wire import Identity, Message
from session.wire.requests import Request
from surreal_like.data.sender import Incarnations
from surreal_like.experience.row_accounts import RowAccounts, RowFates
from surreal_like.experience.send_window import Kept, SenderWindow
from surreal_like.replay.chunk_accounts import CLOSED, Ack, AckTracker
from tests.surreal_like.agent.rig import Rig, make_rig
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.test_batch_server import Bench, config
from tests.surreal_like.replay.test_chunk_accounts import feed, numbered

QUIET = 30.0
NAMES = 64


class Time:
    """A clock that a test sets."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Time:
    return Time()


def pass_time(clock: Time, incarnations: Incarnations, seconds: float) -> list[tuple[str, int]]:
    """Lets time pass with a reader that looks every 10 s."""
    closed: list[tuple[str, int]] = []
    end = clock.seconds + seconds
    while clock.seconds < end:
        clock.seconds = min(end, clock.seconds + 10.0)
        closed += incarnations.close_quiet()
    return closed


def test_what_is_replaced_or_has_ended_is_closed_once_nothing_comes(clock: Time) -> None:
    incarnations = Incarnations(clock.now, QUIET)
    for name, incarnation, ended in (("a", 1, False), ("a", 2, False), ("b", 5, True)):
        incarnations.note(name, incarnation, ended=ended)
    assert pass_time(clock, incarnations, 20.0) == []
    incarnations.note("a", 1)
    incarnations.note("b", 5)
    assert pass_time(clock, incarnations, 20.0) == []
    assert pass_time(clock, incarnations, 10.0) == [("a", 1), ("b", 5)]
    assert incarnations.is_closed("a", 1)
    assert not incarnations.is_closed("a", 2)
    # The newest one that has not ended may come back at any time.
    assert pass_time(clock, incarnations, 1000.0) == []
    assert (incarnations.newest("a"), incarnations.newest("b"), len(incarnations)) == (2, 5, 2)
    incarnations.note("b", 6)
    assert not incarnations.is_closed("b", 6)


def test_incarnations_are_closed_in_their_order(clock: Time) -> None:
    incarnations = Incarnations(clock.now, QUIET)
    for incarnation in (1, 2):
        incarnations.note("a", incarnation, ended=incarnation == 2)
    for _ in range(5):
        assert pass_time(clock, incarnations, 20.0) == []
        incarnations.note("a", 1)
    assert pass_time(clock, incarnations, 30.0) == [("a", 1), ("a", 2)]


def test_a_reader_that_was_away_gets_all_numbers_first(clock: Time) -> None:
    incarnations = Incarnations(clock.now, QUIET)
    incarnations.note("a", 1, ended=True)
    clock.seconds = 1000.0
    assert list(incarnations.close_quiet()) == []
    assert pass_time(clock, incarnations, 20.0) == []
    assert pass_time(clock, incarnations, 10.0) == [("a", 1)]


def test_a_storm_of_restarts_closes_the_oldest_at_once(clock: Time) -> None:
    incarnations = Incarnations(clock.now, QUIET)
    closed: list[int] = []
    for incarnation in range(10):
        incarnations.note("a", incarnation)
        closed += incarnations.close_surplus("a")
    assert closed == list(range(7))


# -- a shard --------------------------------------------------------------------------------------


def closed_ledger(clock: Time) -> AckTracker:
    """A ledger in which incarnation 1 of "a", with 4 rows of which 2 are missing, is closed."""
    ledger = AckTracker(clock.now, QUIET)
    feed(ledger, 1, 3)
    feed(ledger, 1, incarnation=2)
    ledger.acks()
    for _ in range(4):
        clock.seconds += 10.0
        ledger.close()
    return ledger


def test_the_numbers_of_what_is_closed_are_one_sum_of_the_name(clock: Time) -> None:
    ledger, twin = closed_ledger(clock), AckTracker()
    feed(twin, 1, 3)
    feed(twin, 1, incarnation=2)
    assert ledger.totals() == twin.totals()
    assert {key: rows["closed"] for key, rows in ledger.senders().items()} == {
        "a/1": True,
        "a/2": False,
    }
    sums = ledger.senders()["a/1"]
    assert (sums["rows"], sums["inserted"], sums["holes"]) == (6, 4, 2)
    assert sums["place"] == ledger.senders()["a/2"]["place"] == 0


@pytest.mark.parametrize("way", ["pack", "state"])
def test_what_is_closed_stays_closed_in_the_next_process(clock: Time, way: str) -> None:
    ledger, other = closed_ledger(clock), AckTracker(clock.now, QUIET)
    if way == "pack":
        other.unpack(msgpack.unpackb(msgpack.packb(ledger.pack())))
    else:
        other.restore(json.loads(json.dumps(ledger.state())))
    assert other.senders() == ledger.senders()
    assert feed(other, 2) == [False]
    assert other.drops == {CLOSED: 2}
    assert other.pack() == {**other.pack()}


def test_what_comes_of_a_closed_incarnation_is_acked_and_dropped(clock: Time) -> None:
    ledger = closed_ledger(clock)
    window = SenderWindow(1 << 20, 8)
    for sequence in (1, 2, 3):
        window.keep(Kept(sequence, Message("chunk"), rows=2))
        window.sent(0.0)
    window.on_acks(0.0, 7, 1, 2)
    before = ledger.totals()
    for sequence in (2, 3):
        assert not ledger.admit(numbered(sequence))
    assert [each.handled for each in ledger.acks(news=True) if each.incarnation == 1] == [3]
    ledger.goodbye(("a", 1), {"rows": 6, "seq": 4})
    window.keep(Kept(4, Message("goodbye")))
    (ack,) = [each for each in ledger.acks(news=True) if each.incarnation == 1]
    window.on_acks(0.0, 7, ack.handled, ack.inserted)
    assert window.empty
    assert (window.pushed, window.inserted, window.dropped) == (6, 2, 4)
    after = ledger.totals()
    assert ledger.drops == {CLOSED: 4}
    assert (after["pushed"], after["dropped"]) == (before["pushed"] + 4, before["dropped"] + 4)
    assert after["pushed"] == after["inserted"] + after["dropped"] + after["holes"]
    assert ledger.acks(news=True) == []


@pytest.mark.parametrize("incarnation", [1, 2])
def test_what_comes_twice_of_a_closed_incarnation_is_dropped_once(
    clock: Time, incarnation: int
) -> None:
    ledger = AckTracker(clock.now, QUIET)
    for each in (1, 2, 3):
        feed(ledger, 1, incarnation=each)
    for _ in range(4):
        clock.seconds += 10.0
        ledger.close()
    before = ledger.totals()
    assert feed(ledger, 2, 3, 2, 3, incarnation=incarnation) == [False] * 4
    after = ledger.totals()
    assert ledger.drops == {CLOSED: 4}
    assert (after["pushed"], after["dropped"]) == (before["pushed"] + 4, 4)
    assert after["duplicates"] == 4
    late = [each for each in ledger.acks(news=True) if each.incarnation == incarnation]
    assert late == [Ack("a", incarnation, 3, 0, 0)]


def test_what_was_counted_of_the_newest_closed_incarnation_is_not_dropped(clock: Time) -> None:
    ledger = closed_ledger(clock)
    before = ledger.totals()
    # The ack was lost before the incarnation was closed, and again after it.
    assert feed(ledger, 1, 2) == [False, False]
    ledger.acks()
    other = AckTracker(clock.now, QUIET)
    other.restore(ledger.state())
    for each in (ledger, other):
        assert feed(each, 1, 2) == [False, False]
        assert each.drops == {CLOSED: 2}
        assert each.totals() == {
            **before,
            "pushed": before["pushed"] + 2,
            "dropped": before["dropped"] + 2,
            "duplicates": before["duplicates"] + 6,
        }
        assert Ack("a", 1, 2, 0, 0) in each.acks(news=True)


def test_a_guest_is_fenced_by_its_place_after_all_its_incarnations_were_closed(
    clock: Time,
) -> None:
    ledger = AckTracker(clock.now, QUIET)
    for name in ("b", "a"):
        chunk = numbered(1, sender=name)
        assert ledger.admit(chunk)
        ledger.account(name, 1).guest = True
        ledger.count_inserted(chunk)
        ledger.goodbye((name, 1), {"rows": 2, "seq": 2}, guest=True)
    for _ in range(4):
        clock.seconds += 10.0
        ledger.close()
    assert all(rows["closed"] and rows["guest"] for rows in ledger.senders().values())
    assert ledger.fence({"a"}) == [1]
    # Rows of the first one may still be stored: no other name gets its place.
    assert ledger.admit(numbered(1, sender="c"))
    assert ledger.account("c", 1).place == 2


# -- accounts of the run --------------------------------------------------------------------------


def test_accounts_are_the_same_before_and_after_incarnations_are_closed(clock: Time) -> None:
    kept, closing_ones = RowAccounts(), RowAccounts(now=clock.now, quiet_seconds=QUIET)
    seen = {"rows": 10, "base": 0, "inserted": 6, "dropped": 1, "holes": 3, "episodes": 2}
    final = {"pushed": 12, "inserted": 10, "dropped": 1, "unacked": 1, "episodes": 3}
    more = {
        "env_restarts": 2,
        "clients": {"sessions": 3, "refused": 0},
        "final": True,
        "env_steps": 11,
    }
    for accounts in (kept, closing_ones):
        for key in ("agent-0/1", "agent-0/2", "agent-1000:left/1", "agent-1000:left/2"):
            marks = {"goodbye": False, "guest": key.startswith("agent-1000")}
            senders = {key: {**seen, **marks, "env_steps": 10**6}}
            accounts.add_shard("replay-0/7", {"sampled": 0, "senders": senders})
        accounts.add_sender("agent-0/2", {**final, **more})
    for _ in range(5):
        clock.seconds += 10.0
        closing_ones.add_shard("replay-0/7", {"sampled": 0, "senders": {}})
    assert set(closing_ones.closed) == {"agent-0", "agent-1000:left"}
    assert set(closing_ones.senders) == {"agent-1000:left/2"}
    again = RowAccounts(now=clock.now, quiet_seconds=QUIET)
    again.restore(json.loads(json.dumps(closing_ones.state())))
    for accounts in (closing_ones, again):
        for name in ("env_steps", "episodes", "killed", "env_restarts"):
            assert getattr(accounts, name) == getattr(kept, name), name
        for policy in ("", "default", "left"):
            assert accounts.rows(policy) == kept.rows(policy)
        assert accounts.by_name() == kept.by_name()
        assert accounts.clients() == kept.clients()
        # Nothing of a closed one counts any more.
        before = accounts.rows()
        accounts.add_sender("agent-0/1", {**final, **more})
        late = {"agent-0/1": {**seen, "rows": 10**6, "env_steps": 0, "goodbye": True}}
        accounts.add_shard("replay-0/7", {"sampled": 0, "senders": late})
        assert accounts.rows() == before
        assert accounts.is_final("agent-0/1")


# -- the parameter server -------------------------------------------------------------------------


@pytest.fixture
def rig() -> Iterator[Rig]:
    with make_rig() as made:
        yield made


def account(pushed: int, *, final: bool) -> dict[str, Any]:
    counts = {"pushed": pushed, "inserted": pushed, "dropped": 0, "unacked": 0}
    return {**counts, "env_steps": pushed, "episodes": 1, "final": final}


def test_the_parameter_server_closes_accounts_that_the_learner_has_read(rig: Rig) -> None:
    frame = rig.start("ps", main.ps.build)
    rig.until(lambda: frame._service)
    service: Any = frame._service
    replies: list[dict[str, Any]] = []
    service._requests.reply = lambda request, kind, fields=None, *more, **named: replies.append(
        dict((fields or {}).get("accounts", {}))
    )

    def ask(kind: str, sender: Identity, **fields: Any) -> None:
        service._answer(Request(b"x", Message(kind, {"id": 1, **fields}, sender=sender)))

    def read() -> set[str]:
        ask("accounts", Identity("learner", 1, bytes(8)))
        return set(replies[-1])

    for incarnation, final in ((1, False), (2, True)):
        sender = Identity("agent-0", incarnation, bytes(8))
        ask("leave", sender, policy="default", account=account(10, final=final))
    both = {"agent-0/1", "agent-0/2"}
    # While no learner asks, nothing goes, whatever the time.
    rig.clock.seconds += 1000.0
    assert read() == both
    for _ in range(4):
        rig.clock.seconds += 10.0
        read()
    assert read() == set()
    ask(
        "leave", Identity("agent-0", 2, bytes(8)), policy="default", account=account(20, final=True)
    )
    assert read() == set()
    ask(
        "leave", Identity("agent-0", 3, bytes(8)), policy="default", account=account(20, final=True)
    )
    assert read() == {"agent-0/3"}


# -- all of it ------------------------------------------------------------------------------------


class Fleet:
    """Agents that are pre-empted again and again, a shard, and the accounts of their run."""

    def __init__(self, folder: Path, context: zmq.Context[Any]) -> None:
        self.bench = Bench(context, folder, config())
        self.bench.until(lambda: self.bench.service)
        self.intake: Any = self.bench.service._intake
        clock = self.bench.clock
        self.accounts = RowAccounts(now=clock.now, quiet_seconds=QUIET)
        self._chunk = chunk_of("FM").to_message()
        self._chunk.fields |= {"rows": 2, "env_steps": 1, "episodes": 0}
        self._started = 0

    def start_agents(self, number: int) -> None:
        """Agents start, send a chunk, and leave, or are killed."""
        for _ in range(number):
            sender = Identity(f"agent-{self._started % NAMES}", 1000 + self._started, bytes(8))
            self._started += 1
            self._chunk.sender = sender
            self.intake._take(self._chunk)
            if self._started % 3:
                fields = {"seq": 2, "rows": 2, "env_steps": 1, "episodes": 0}
                self.intake._take(Message("goodbye", fields, sender=sender))

    def look(self) -> None:
        """The learner reads the counts, as it does all the time."""
        senders = self.intake.ledger.senders()
        self.accounts.add_shard("replay-0/7", {"sampled": 0, "senders": senders})
        self.intake.close_senders()

    def sizes(self) -> dict[str, int]:
        ledger = self.intake.ledger
        return {
            "commit": len(msgpack.packb(ledger.pack())),
            "snapshot": len(json.dumps(ledger.state())),
            "reply": len(msgpack.packb(ledger.senders())),
            "record": len(json.dumps(self.accounts.state())),
        }


@pytest.mark.slow
def test_any_number_of_restarts_fits_into_one_sum_of_each_name(tmp_path: Path) -> None:
    context: zmq.Context[Any] = zmq.Context()
    fleet = Fleet(tmp_path, context)
    sizes = []
    with closing(fleet.bench):
        for round_ in range(20_000 // NAMES + 1):
            fleet.start_agents(NAMES)
            for _ in range(3):
                fleet.look()
                fleet.bench.clock._rounds += 14_000
            if round_ in (20, 20_000 // NAMES):
                sizes.append(fleet.sizes())
        started = (20_000 // NAMES + 1) * NAMES
        totals = fleet.intake.ledger.totals()
    context.destroy(0)
    assert started >= 20_000
    assert (totals["inserted"], totals["pushed"], totals["env_steps"]) == (
        *[2 * started] * 2,
        started,
    )
    assert fleet.accounts.rows() == RowFates(2 * started, 2 * started)
    assert fleet.accounts.env_steps == started
    first, last = sizes
    for name, size in first.items():
        # Numbers have more digits at the end, and nothing else is larger.
        assert last[name] < 1.2 * size, name
