"""What is made of the events of a connection: made, lost, refused, or never there."""

from __future__ import annotations

import errno

from session.wire.connection_monitor import (
    BROKEN_OFF,
    LOST,
    MADE,
    OTHER_MECHANISM,
    WRONG_KEY,
    WRONG_PROTOCOL,
    ConnectionMonitor,
)

WHERE = "tcp://192.0.2.1:7 (ps.requests)"


def make(*, has_keys: bool = True) -> ConnectionMonitor:
    return ConnectionMonitor(WHERE, has_keys=has_keys, now=0.0)


def test_a_connection_is_made_and_lost() -> None:
    link = make()
    # What never was cannot be lost: a failed attempt ends with the same event.
    assert link.on_event(LOST, 0, 1.0) is None
    assert link.on_event(MADE, 0, 2.0) is True
    assert link.connected
    assert link.on_event(LOST, 0, 3.0) is False
    assert not link.connected
    assert link.ever_connected
    assert link.refusal is None


def test_a_wrong_key_is_reported_at_once() -> None:
    link = make()
    link.on_event(WRONG_KEY, 400, 0.1)
    assert link.refusal is not None
    assert link.refusal.startswith(f"refused by {WHERE}: this run does not know the key")


def test_missing_and_needless_keys_are_distinguished() -> None:
    plain, keyed, odd = make(has_keys=False), make(), make()
    plain.on_event(WRONG_PROTOCOL, OTHER_MECHANISM, 0.1)
    keyed.on_event(WRONG_PROTOCOL, OTHER_MECHANISM, 0.1)
    odd.on_event(WRONG_PROTOCOL, 0x10000001, 0.1)
    assert "missing key: it wants keys" in str(plain.refusal)
    assert "it uses no keys, but this side does" in str(keyed.refusal)
    assert "protocol error 0x10000001" in str(odd.refusal)


def test_handshakes_that_break_off_again_and_again_are_suspicious() -> None:
    link = make()
    for at in (0.0, 0.1, 0.3, 0.7):
        link.on_event(BROKEN_OFF, errno.EPIPE, at)
    assert link.suspicion is None  # a server that restarts breaks off some, too
    link.on_event(BROKEN_OFF, errno.ECONNRESET, 1.6)
    assert "breaks off every handshake" in str(link.suspicion)
    assert link.refusal is None
    link.on_event(MADE, 0, 2.0)
    assert link.suspicion is None


def test_a_server_without_time_or_keys_is_not_suspicious() -> None:
    slow, plain = make(), make(has_keys=False)
    for at in range(20):
        slow.on_event(BROKEN_OFF, errno.EAGAIN, float(at))
        plain.on_event(BROKEN_OFF, errno.EPIPE, float(at))
    assert slow.suspicion is plain.suspicion is None


def test_a_connection_that_never_comes_is_reported_once() -> None:
    link = make()
    assert link.pop_warning(4.9) is None
    assert link.pop_warning(5.0) == f"cannot connect to {WHERE}: nothing answers there"
    assert link.pop_warning(60.0) is None
    assert link.problem(60.0) is not None
    link.on_event(MADE, 0, 61.0)
    assert link.problem(100.0) is None
    link.on_event(LOST, 0, 101.0)
    assert link.pop_warning(105.9) is None
    assert link.pop_warning(106.0) is not None
