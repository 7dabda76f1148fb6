"""Every chunk is inserted, dropped, a duplicate or a hole, and counted as such."""

from __future__ import annotations

import json
from random import Random

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_like.experience.chunk import Chunk
from surreal_like.replay.chunk_accounts import OLDER_INCARNATION, Ack, AckTracker
from tests.examples import examples
from tests.surreal_like.replay.chunks import chunk_of


def numbered(
    sequence: int, *, steps: int = 2, incarnation: int = 1, sender: str = "a", acked: int = 0
) -> Chunk:
    """Chunk number ``sequence`` of a sender all of whose chunks have ``steps`` rows."""
    chunk = chunk_of("F" * steps, sequence=sequence, incarnation=incarnation, sender=sender)
    chunk.rows = sequence * steps
    chunk.acked, chunk.acked_rows = acked, acked * steps
    chunk.env_steps, chunk.episodes = 10 * sequence, sequence
    return chunk


def feed(ledger: AckTracker, *sequences: int, incarnation: int = 1) -> list[bool]:
    """Admits chunks of a sender that has acks for all before the least of them."""
    admitted, acked = [], min(sequences) - 1
    for sequence in sequences:
        chunk = numbered(sequence, incarnation=incarnation, acked=acked)
        admitted.append(ledger.admit(chunk))
        if admitted[-1]:
            ledger.count_inserted(chunk)
    return admitted


# Chunks of 2 rows as they arrive: (handled, inserted in the ack), then all rows by kind.
@pytest.mark.parametrize(
    ("arrivals", "admitted", "ack", "rows"),
    [
        ([1, 2, 3], "yyy", (3, 6), {"inserted": 6}),
        ([1, 2, 2, 1, 3], "yynny", (3, 6), {"inserted": 6, "duplicates": 4}),
        ([1, 3], "yy", (1, 2), {"inserted": 4, "holes": 2}),
        ([1, 4, 6], "yyy", (1, 2), {"inserted": 6, "holes": 6}),
        ([1, 4, 4], "yyn", (1, 2), {"inserted": 4, "holes": 4, "duplicates": 2}),
        ([1, 3, 2], "yyy", (3, 6), {"inserted": 6}),
        ([1, 4, 2, 3, 4], "yyyyn", (4, 8), {"inserted": 8, "duplicates": 2}),
        ([1, 5, 3], "yyy", (1, 2), {"inserted": 6, "holes": 4}),
        ([5, 6], "yy", (6, 4), {"inserted": 4, "elsewhere": 8}),
    ],
)
def test_holes_and_duplicates_are_counted(
    arrivals: list[int], admitted: str, ack: tuple[int, int], rows: dict[str, int]
) -> None:
    ledger = AckTracker()
    assert feed(ledger, *arrivals) == [letter == "y" for letter in admitted]
    handled, inserted = ack
    assert ledger.acks() == [Ack("a", 1, handled, inserted, 0)]
    expected = dict.fromkeys(("inserted", "dropped", "holes", "duplicates", "elsewhere"), 0) | rows
    assert ledger.totals() == expected | {
        "pushed": 2 * max(arrivals),
        "env_steps": 10 * max(arrivals),
        "episodes": max(arrivals),
    }


def test_of_a_sender_that_sends_all_again_nothing_is_taken_after_a_gap() -> None:
    ledger = AckTracker()
    ledger.in_order = {"a"}
    found = []
    for sequence in (3, 1, 3, 2, 2, 3):
        chunk = numbered(sequence)
        found.append(ledger.admit(chunk))
        if found[-1]:
            ledger.count_inserted(chunk)
        # What was not taken is acked, too: as not handled.
        assert len(ledger.acks(news=True)) == 1
    assert found == [False, True, False, True, False, True]
    totals = ledger.totals()
    assert (totals["inserted"], totals["duplicates"], totals["holes"]) == (6, 2, 0)


@pytest.mark.parametrize("left", ["", "ended", "closed"])
def test_the_next_part_of_a_run_goes_on_behind_what_was_handled_of_a_sender(left: str) -> None:
    now = [0.0]
    first, second = AckTracker(lambda: now[0], quiet_seconds=1.0), AckTracker()
    feed(first, 1, 2)
    if left:
        first.goodbye(("a", 1), {"rows": 4, "seq": 3})
    if left == "closed":
        for _ in range(4):
            now[0] += 0.4
            first.close()
        assert first.senders()["a/1"]["closed"]
    state = json.loads(json.dumps(first.state()))
    second.carry(state, {"a"}, 2)
    assert second.acks() == [Ack("a", 2, 2, 0, 0)]
    assert second.totals()["pushed"] == second.totals()["elsewhere"] == 0
    third = numbered(3, incarnation=2)
    third.rows = 2
    assert not second.admit(numbered(2, incarnation=2))
    assert second.admit(third)
    second.count_inserted(third)
    assert second.acks() == [Ack("a", 2, 3, 2, 0)]
    assert second.totals()["pushed"] == 2
    other = AckTracker()
    other.carry(state, {"b"}, 2)
    assert other.acks() == []


def test_dropped_chunks_are_handled_and_counted_by_reason() -> None:
    ledger = AckTracker()
    feed(ledger, 1)
    for sequence, reason in [(2, "data"), (4, "data"), (3, "version")]:
        chunk = numbered(sequence)
        assert ledger.admit(chunk)
        ledger.count_dropped(chunk, reason)
    assert ledger.drops == {"data": 4, "version": 2}
    assert ledger.acks() == [Ack("a", 1, 4, 2, 6)]
    assert ledger.totals()["dropped"] == 6
    assert not ledger.admit(numbered(3))


def test_news_are_reported_once() -> None:
    ledger = AckTracker()
    feed(ledger, 1)
    assert [ack.handled for ack in ledger.acks(news=True)] == [1]
    assert ledger.acks(news=True) == []
    assert [ack.handled for ack in ledger.acks()] == [1]
    feed(ledger, 2)
    assert [ack.handled for ack in ledger.acks(news=True)] == [2]


def test_older_incarnations_are_refused_with_the_reason() -> None:
    ledger = AckTracker()
    feed(ledger, 1, 2)
    feed(ledger, 1, incarnation=2)
    ledger.acks()
    assert [ack.incarnation for ack in ledger.acks()] == [2]
    assert feed(ledger, 3, 3) == [False, False]
    assert ledger.drops == {OLDER_INCARNATION: 2}
    assert ledger.totals()["duplicates"] == 2
    assert Ack("a", 1, 3, 4, 2) in ledger.acks()
    assert [ack.incarnation for ack in ledger.acks()] == [2]
    assert feed(ledger, 3) == [False]  # its ack was lost
    assert Ack("a", 1, 3, 4, 2) in ledger.acks()


def test_a_new_replay_misses_only_what_has_no_ack() -> None:
    ledger = AckTracker()  # the one before it had told the sender that 1 to 4 were handled
    chunks = {sequence: numbered(sequence, acked=4) for sequence in range(1, 9)}
    for sequence in (7, 8):  # 5 and 6 were on the way when it died
        assert ledger.admit(chunks[sequence])
        ledger.count_inserted(chunks[sequence])
    assert ledger.account("a", 1).handled == 4
    assert ledger.totals()["holes"] == 4
    admitted = []
    for sequence in (5, 6, 7, 8):  # sent again
        admitted.append(ledger.admit(chunks[sequence]))
        if admitted[-1]:
            ledger.count_inserted(chunks[sequence])
    assert admitted == [True, True, False, False]
    assert ledger.acks() == [Ack("a", 1, 8, 8, 0)]
    assert ledger.totals()["holes"] == 0


def test_what_another_shard_has_handled_is_no_hole() -> None:
    ledger = AckTracker()
    feed(ledger, 1, 2, 4)  # 3 is lost, comes again elsewhere with 4 to 6
    chunk = numbered(7, acked=6)
    assert ledger.admit(chunk)
    ledger.count_inserted(chunk)
    totals = ledger.totals()
    assert (totals["inserted"], totals["holes"], totals["elsewhere"]) == (8, 0, 6)
    assert totals["pushed"] == 14
    assert ledger.account("a", 1).handled == 7


def test_the_end_is_waited_for() -> None:
    ledger = AckTracker()
    feed(ledger, 1, 3)
    for _ in range(2):  # it may come twice
        ledger.goodbye(("a", 1), {"rows": 8, "seq": 5})  # 2 and 4 are on the way
        assert ledger.totals()["holes"] == 4
    feed(ledger, 2)
    assert ledger.totals()["holes"] == 2
    feed(ledger, 4)
    assert ledger.totals()["holes"] == 0
    assert ledger.acks() == [Ack("a", 1, 5, 8, 0)]


def test_a_goodbye_may_be_all_that_comes() -> None:
    ledger = AckTracker()
    ledger.goodbye(("a", 1), {"rows": 6, "seq": 4, "acked": 3, "acked_rows": 6})
    assert ledger.totals()["holes"] == 0
    assert ledger.acks() == [Ack("a", 1, 4, 0, 0)]
    ledger.goodbye(("b", 1), {"rows": 6, "seq": 4})  # all three chunks are lost
    assert ledger.totals()["holes"] == 6


def test_accounts_of_every_sender() -> None:
    ledger = AckTracker()
    feed(ledger, 3, 5)
    assert ledger.senders() == {
        "a/1": {
            "rows": 10,
            "base": 4,
            "inserted": 4,
            "dropped": 0,
            "holes": 2,
            "env_steps": 50,
            "episodes": 5,
            "goodbye": False,
            "guest": False,
            "place": 0,
            "closed": False,
        }
    }
    ledger.goodbye(("a", 1), {"rows": 10, "seq": 6})
    assert ledger.senders()["a/1"]["goodbye"]
    with pytest.raises(KeyError):
        ledger.account("b", 1)


def test_restored_ledger_stores_nothing_twice() -> None:
    ledger = AckTracker()
    feed(ledger, 1, 2, 4)
    feed(ledger, 1, incarnation=2)
    state = json.loads(json.dumps(ledger.state()))  # plain values
    restored = AckTracker()
    restored.restore(state)
    assert restored.totals() == ledger.totals()
    assert feed(restored, 1, 2, incarnation=2) == [False, True]


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 2**32), chunks=st.integers(1, 20))
def test_any_order_with_repeats_ends_in_the_same_account(seed: int, chunks: int) -> None:
    random = Random(seed)
    arrivals = list(range(1, chunks + 1)) + random.choices(range(1, chunks + 1), k=chunks)
    random.shuffle(arrivals)
    ledger, stored = AckTracker(), []
    for sequence in arrivals:
        chunk = numbered(sequence)
        if ledger.admit(chunk):
            stored.append(sequence)
            ledger.count_inserted(chunk)
        totals = ledger.totals()
        assert totals["inserted"] == 2 * len(stored)
        assert totals["pushed"] == 2 * max(stored)
        assert totals["holes"] == 2 * (max(stored) - len(stored))
        assert totals["pushed"] == totals["inserted"] + totals["dropped"] + totals["holes"]
    assert sorted(stored) == list(range(1, chunks + 1))
    assert ledger.acks() == [Ack("a", 1, chunks, 2 * chunks, 0)]


def test_places_and_fences_outlive_a_process() -> None:
    ledger = AckTracker()
    for name in ("b", "a", "c"):
        feed_one(ledger, name, guest=name != "b")
    # Senders of the run itself are never fenced.
    assert ledger.fence({"b", "c"}) == [2]
    packed, state = AckTracker(), AckTracker()
    packed.unpack(msgpack.unpackb(msgpack.packb(ledger.pack())))
    state.restore(ledger.state())
    for other in (packed, state):
        assert other.senders() == ledger.senders()
        assert [other.account(name, 1).place for name in "bac"] == [0, 1, 2]
        assert other.fenced == {"b", "c"}
        feed_one(other, "d")
        assert other.account("d", 1).place == 3
        assert [key[0] for key in other.senders()] == list("bacd")


def feed_one(ledger: AckTracker, sender: str, *, guest: bool = False) -> None:
    chunk = chunk_of("FM", sender=sender)
    chunk.rows = 2
    assert ledger.admit(chunk)
    ledger.account(sender, 1).guest = guest
    ledger.count_inserted(chunk)
    ledger.pack()
