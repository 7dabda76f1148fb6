"""The window of unacked chunks: tables of events, and a twin replay that loses and restarts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.wire import Message
from surreal_like.experience.send_window import Kept, SenderWindow
from tests.examples import examples

ROWS = 10
BYTES = 100


def window(*, max_bytes: int = 10_000, max_chunks: int = 1000) -> SenderWindow:
    return SenderWindow(max_bytes, max_chunks)


def resuming() -> SenderWindow:
    return SenderWindow(10_000, 1000, resumes=True)


def keep(sender: SenderWindow, count: int = 1) -> None:
    for _ in range(count):
        sender.keep(Kept(sender.next_sequence, Message("chunk"), ROWS, BYTES))


def send_all(sender: SenderWindow, now: float = 0.0) -> list[int]:
    """Sends what can go; gives the numbers."""
    sent = []
    while (kept := sender.next_to_send()) is not None:
        sent.append(kept.sequence)
        sender.sent(now)
    return sent


def test_chunks_leave_in_order_and_stay_until_acked() -> None:
    sender = window()
    keep(sender, 3)
    assert send_all(sender) == [1, 2, 3]
    assert (sender.pushed, sender.unacked, sender.unacked_bytes) == (30, 30, 300)
    sender.on_acks(0.1, 7, 2, 20)
    assert (sender.unacked, sender.inserted, sender.dropped) == (10, 20, 0)
    assert (sender.acked, sender.acked_rows) == (2, 20)
    assert not sender.empty
    sender.on_acks(0.2, 7, 3, 25)
    assert sender.empty
    assert (sender.inserted, sender.dropped, sender.resent) == (25, 5, 0)


def test_a_number_out_of_turn_is_refused() -> None:
    sender = window()
    with pytest.raises(ValueError, match="chunk 2 kept, 1 is next"):
        sender.keep(Kept(2, Message("chunk"), ROWS, BYTES))


@pytest.mark.parametrize(
    ("max_bytes", "kept", "ready"),
    [(300, 0, True), (300, 2, True), (300, 3, False), (299, 2, False), (1, 0, True), (1, 1, False)],
)
def test_a_full_window_is_not_ready(max_bytes: int, kept: int, ready: bool) -> None:
    sender = window(max_bytes=max_bytes)
    keep(sender, kept)
    assert sender.ready is ready


@pytest.mark.parametrize(("max_chunks", "kept", "ready"), [(2, 1, True), (2, 2, False)])
def test_so_many_chunks_are_enough(max_chunks: int, kept: int, ready: bool) -> None:
    sender = window(max_chunks=max_chunks)
    keep(sender, kept)
    assert sender.ready is ready


@pytest.mark.parametrize(("bound", "filled"), [({}, 0.02), ({"max_chunks": 4}, 0.5)])
def test_its_filled_share_is_that_of_bytes_or_chunks(bound: dict[str, int], filled: float) -> None:
    sender = window(**bound)
    assert sender.filled == 0.0
    keep(sender, 2)
    assert sender.filled == filled


@pytest.mark.parametrize("bound", [{"max_bytes": 200}, {"max_chunks": 2}])
def test_acks_make_it_ready_again(bound: dict[str, int]) -> None:
    sender = window(**bound)
    keep(sender, 2)
    send_all(sender)
    assert not sender.ready
    sender.on_acks(0.1, 7, 1, 10)
    assert sender.ready


def test_a_lost_connection_sends_the_unacked_again() -> None:
    sender = window()
    keep(sender, 3)
    send_all(sender)
    sender.on_acks(0.1, 7, 1, 10)
    sender.lost()
    assert send_all(sender) == [2, 3]
    assert sender.resent == 2
    keep(sender)
    assert send_all(sender) == [4]


def test_a_restarted_replay_gets_what_is_unacked_and_counts_from_zero() -> None:
    sender = window()
    keep(sender, 3)
    send_all(sender)
    sender.on_acks(0.1, 7, 1, 10)
    sender.on_acks(0.2, 8)
    assert send_all(sender) == [2, 3]
    sender.on_acks(0.3, 8, 3, 20)
    assert sender.empty
    assert (sender.inserted, sender.dropped) == (30, 0)


def test_the_first_replay_that_answers_is_no_restart() -> None:
    sender = window()
    keep(sender)
    send_all(sender)
    sender.on_acks(0.1, 7)
    assert send_all(sender) == []


def test_acks_of_an_older_replay_are_ignored() -> None:
    sender = window()
    keep(sender, 2)
    send_all(sender)
    sender.on_acks(0.1, 8, 1, 10)
    sender.on_acks(0.2, 7, 2, 20)
    assert (sender.acked, sender.replay) == (1, 8)


@pytest.mark.parametrize("ack", [(0, 0), (1, 10), (9, 90), ()], ids=str)
def test_acks_that_say_nothing_new_change_nothing(ack: tuple[int, ...]) -> None:
    sender = window()
    keep(sender, 2)
    send_all(sender)
    sender.on_acks(0.1, 7, 1, 10)
    sender.on_acks(0.2, 7, *ack)
    assert (sender.acked, sender.inserted, sender.unacked) == (1, 10, 10)


def test_a_number_that_stands_still_is_sent_again_after_the_resend_time() -> None:
    sender = window()
    keep(sender, 2)
    send_all(sender, now=5.0)
    for now, again in ((5.1, []), (6.9, []), (7.0, [1, 2]), (8.9, []), (9.0, [1, 2])):
        sender.on_acks(now, 7, 0, 0)
        sender.resend_if_still(now)
        assert send_all(sender, now=now) == again, now


def test_progress_begins_the_resend_time_anew() -> None:
    sender = window()
    keep(sender, 2)
    send_all(sender, now=5.0)
    sender.on_acks(6.9, 7, 1, 10)
    sender.resend_if_still(7.5)
    assert send_all(sender) == []
    sender.resend_if_still(8.9)
    assert send_all(sender, now=8.9) == [2]


def test_a_chunk_that_was_just_sent_after_a_long_pause_is_not_sent_twice() -> None:
    sender = window()
    keep(sender)
    send_all(sender, now=0.0)
    sender.on_acks(0.1, 7, 1, 10)
    keep(sender)
    send_all(sender, now=100.0)
    sender.resend_if_still(100.1)
    assert send_all(sender) == []


def test_without_anything_under_way_nothing_is_sent_again() -> None:
    sender = window()
    keep(sender)
    sender.resend_if_still(50.0)
    assert sender.next_to_send() is not None
    assert sender.resent == 0


def test_a_ack_overtakes_what_waits_to_be_sent_again() -> None:
    sender = window()
    keep(sender, 3)
    send_all(sender)
    sender.lost()
    sender.on_acks(0.1, 7, 2, 20)
    assert send_all(sender) == [3]


def offer(sender: SenderWindow, count: int = 1) -> list[int]:
    """Cuts chunks as a sender does; gives the numbers of those that are kept."""
    kept = []
    for _ in range(count):
        if not sender.skip():
            kept.append(sender.next_sequence)
            keep(sender)
    return kept


def test_what_an_earlier_process_has_sent_is_skipped() -> None:
    sender = resuming()
    sender.on_acks(0.1, 7, 3, 30)
    assert offer(sender, 5) == [4, 5]
    assert send_all(sender) == [4, 5]
    assert (sender.pushed, sender.inserted, sender.unacked, sender.acked) == (50, 30, 20, 3)
    sender.on_acks(0.2, 7, 3, 30)
    assert (sender.pushed, sender.inserted, sender.unacked, sender.acked) == (50, 30, 20, 3)
    sender.on_acks(0.2, 7, 5, 50)
    assert sender.empty
    assert (sender.pushed, sender.inserted, sender.dropped, sender.resent) == (50, 50, 0, 0)


def test_what_is_under_way_before_the_first_ack_is_acked_with_it() -> None:
    sender = resuming()
    assert offer(sender, 2) == [1, 2]
    send_all(sender)
    # Of the process before; its own two are duplicates.
    sender.on_acks(0.1, 7, 4, 40)
    assert sender.empty
    # Rows of all processes are those of the sender.
    assert (sender.acked, sender.pushed, sender.inserted) == (2, 40, 40)
    assert offer(sender, 3) == [5]
    assert (sender.pushed, sender.inserted, sender.acked) == (50, 40, 4)
    send_all(sender)
    sender.on_acks(0.2, 7, 5, 50)
    assert (sender.inserted, sender.dropped) == (50, 0)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_replay_that_has_lost_what_it_had_acked_gets_it_again(kept: int) -> None:
    sender = resuming()
    sender.on_acks(0.1, 7)
    assert offer(sender, 4) == [1, 2, 3, 4]
    send_all(sender)
    sender.on_acks(0.2, 7, 3, 30)
    sender.on_acks(0.3, 8, kept, kept * ROWS)
    assert sender.again
    assert send_all(sender) == []
    assert offer(sender, 4) == [1, 2, 3, 4][kept:]
    assert send_all(sender) == [1, 2, 3, 4][kept:]
    sender.on_acks(0.4, 8, 4, 40)
    assert sender.empty
    assert (sender.pushed, sender.inserted, sender.dropped) == (40, 40, 0)


def test_a_replay_that_goes_on_gets_only_what_is_unacked() -> None:
    sender = resuming()
    sender.on_acks(0.1, 7)
    offer(sender, 4)
    send_all(sender)
    sender.on_acks(0.2, 7, 2, 20)
    sender.on_acks(0.3, 8, 3, 30)
    assert not sender.again
    assert send_all(sender) == [4]
    assert (sender.pushed, sender.inserted, sender.unacked) == (40, 30, 10)


def test_rows_of_an_earlier_part_of_the_run_are_not_those_of_this_one() -> None:
    sender = resuming()
    sender.on_acks(0.1, 7, 3, 0)
    assert offer(sender, 5) == [4, 5]
    send_all(sender)
    assert (sender.pushed, sender.inserted, sender.unacked) == (20, 0, 20)
    sender.on_acks(0.2, 7, 5, 10, 10)
    assert (sender.pushed, sender.inserted, sender.dropped, sender.unacked) == (20, 10, 10, 0)


def test_one_that_resumes_waits_for_the_first_acks() -> None:
    sender = resuming()
    assert not sender.ready
    sender.on_acks(0.1, 7)
    assert sender.ready


def test_only_a_window_that_resumes_skips() -> None:
    sender = window()
    sender.on_acks(0.1, 7, 3, 30)
    assert offer(sender, 2) == [1, 2]
    assert sender.acked == 0


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_rows_that_replay_has_dropped_before_are_dropped_in_the_sum(dropped: int) -> None:
    sender = resuming()
    sender.on_acks(0.1, 7, 5, (5 - dropped) * ROWS, dropped * ROWS)
    assert offer(sender, 8) == [6, 7, 8]
    send_all(sender)
    sender.on_acks(0.2, 7, 8, (8 - dropped) * ROWS, dropped * ROWS)
    assert (sender.pushed, sender.inserted, sender.dropped) == (80, 80 - 10 * dropped, 10 * dropped)


def test_a_goodbye_that_was_handled_is_skipped() -> None:
    sender = resuming()
    sender.on_acks(0.1, 7, 3, 20)
    assert offer(sender, 2) == []
    assert sender.skip()
    assert not sender.skip()
    assert sender.empty
    assert (sender.pushed, sender.inserted) == (20, 20)


class TwinReplay:
    """A replay as simple as can be: remembers every row of every start, in order."""

    def __init__(self) -> None:
        self.incarnation = 1
        self.handled = 0
        self.inserted = self.dropped = 0
        self.ever: list[int] = []

    def take(self, sequence: int, acked: int, accept: bool) -> None:
        self.handled = max(self.handled, acked)
        if sequence != self.handled + 1:
            return
        self.handled = sequence
        self.ever.append(sequence)
        if accept:
            self.inserted += ROWS
        else:
            self.dropped += ROWS

    def restart(self) -> None:
        self.incarnation += 1
        self.handled = self.inserted = self.dropped = 0


OFTEN = ["keep", "send", "arrive", "tell"]
SELDOM = ["refuse", "lose", "restart", "late", "wait"]
EVENTS = st.lists(st.sampled_from([*OFTEN, *OFTEN, *SELDOM]), max_size=120)


@settings(max_examples=examples(150))
@given(EVENTS)
def test_whatever_happens_every_chunk_is_handled_and_none_is_missed(events: list[str]) -> None:
    sender, replay, now = window(), TwinReplay(), 0.0
    pipe: list[tuple[int, int]] = []
    late: list[tuple[int, int, int]] = []
    for event in [*events, "keep", *["send", "arrive", "wait", "tell"] * 40]:
        now += 0.1
        if event == "keep":
            keep(sender)
        elif event == "send" and (kept := sender.next_to_send()) is not None:
            pipe.append((kept.sequence, sender.acked))
            sender.sent(now)
        elif event in ("arrive", "refuse") and pipe:
            replay.take(*pipe.pop(0), accept=event == "arrive")
        elif event == "lose":  # the connection: what is under way is gone, and that is seen
            pipe.clear()
            sender.lost()
        elif event == "restart":
            pipe.clear()
            sender.lost()
            replay.restart()
        elif event == "late":
            late.append((replay.incarnation, replay.handled, replay.inserted))
        elif event == "wait":
            now += 2.0
        elif event == "tell":
            for each in late:
                sender.on_acks(now, *each)
            late.clear()
            sender.on_acks(now, replay.incarnation, replay.handled, replay.inserted)
            sender.resend_if_still(now)
        assert sender.pushed == sender.inserted + sender.dropped + sender.unacked
    assert sender.empty
    # After a restart some are handled again by the new one, but none is ever left out.
    assert set(replay.ever) == set(range(1, sender.next_sequence))


AGAIN = st.lists(
    st.sampled_from([*OFTEN, *OFTEN, "refuse", "again", "late", "restart"]), max_size=120
)


@settings(max_examples=examples(150))
@given(AGAIN)
def test_processes_that_send_the_same_send_each_chunk_until_it_is_handled(
    events: list[str],
) -> None:
    """A sender that resumes is killed again and again; so is replay, with all that it has."""
    sender, replay, now = resuming(), TwinReplay(), 0.0
    pipe: list[int] = []
    late: list[tuple[int, int, int, int]] = []
    count = 12
    rounds = ["keep", "send", "arrive", "wait", "tell"]
    for event in [*events, *rounds * 40]:
        now += 0.1
        if event == "keep" and sender.next_sequence <= count:
            offer(sender)
        elif event == "send" and (kept := sender.next_to_send()) is not None:
            pipe.append(kept.sequence)
            sender.sent(now)
        elif event in ("arrive", "refuse") and pipe:
            replay.take(pipe.pop(0), acked=0, accept=event == "arrive")
        elif event == "again":
            sender = resuming()
            late.clear()
        elif event == "late":
            late.append((replay.incarnation, replay.handled, replay.inserted, replay.dropped))
        elif event == "restart":  # what is under way may come to the next one
            replay.restart()
            replay.ever.clear()
        elif event == "wait":
            now += 2.0
        elif event == "tell":
            for each in late:
                sender.on_acks(now, *each)
            late.clear()
            last = replay.incarnation, replay.handled, replay.inserted, replay.dropped
            sender.on_acks(now, *last)
            sender.resend_if_still(now)
        assert sender.pushed == sender.inserted + sender.dropped + sender.unacked
    assert sender.empty
    # Each once, in its order.
    assert replay.ever == list(range(1, count + 1))
    assert sender.pushed == count * ROWS
    assert (sender.inserted, sender.dropped) == (replay.inserted, replay.dropped)


def test_another_shard_gets_what_is_not_acked_and_counts_on_its_own() -> None:
    sender = window()
    keep(sender, 3)
    send_all(sender)
    sender.on_acks(0.1, 500, 1, 10)
    sender.at(1)
    assert send_all(sender) == [2, 3]
    sender.on_acks(0.2, 7, 3, 20)  # a shard may have started earlier than the other
    assert (sender.inserted, sender.dropped) == (30, 0)
    keep(sender, 1)
    sender.at(0)
    assert send_all(sender) == [4]
    sender.on_acks(0.3, 500, 4, 20)
    assert (sender.inserted, sender.dropped, sender.unacked) == (40, 0, 0)
