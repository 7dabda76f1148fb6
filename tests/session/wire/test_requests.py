"""Requests and their answers: each finds its own, none is lost in silence, none waits for ever."""

import time
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from session.errors import DeadlineError, RefusedError
from session.wire import AddressBook, Message
from session.wire.requests import Request, RouterSocket
from session.wire.sockets import Socket, poll
from tests.session.wire.rig import DEADLINE_SECONDS, Wires, until


def test_an_answer_finds_the_one_who_asked(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    dealers = [wires.make(book, f"agent-{i}").dealer("ps.requests") for i in range(3)]
    ids = [until(lambda d=d, i=i: d.send("fetch", {"have": i})) for i, d in enumerate(dealers)]  # type: ignore[misc]
    for _ in dealers:
        request = until(router.receive)
        who, have = request.message.sender.name, request.message.fields["have"]
        router.reply(request, "parameters", {"text": f"{who} {have}"}, {"flat": np.ones(2)})
    for number, (dealer, request_id) in enumerate(zip(dealers, ids, strict=True)):
        answer = until(dealer.receive)
        assert answer.fields == {"text": f"agent-{number} {number}", "id": request_id}
        assert answer.arrays["flat"].sum() == 2


def answer_once(router: RouterSocket, reply: Callable[[Request], object]) -> Callable[..., None]:
    """A pause for the asker in which the other side works."""

    def pause(sockets: Sequence[Socket], seconds: float) -> None:
        if (request := router.receive()) is not None:
            reply(request)
        poll(sockets, 0.001)

    return pause


def test_a_blocking_request_gets_its_own_answer_and_no_older_one(
    book: AddressBook, wires: Wires
) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    pause = answer_once(router, lambda r: router.reply(r, "info", {"was": r.message.kind}))
    dealer = wires.make(book, pause=pause).dealer("ps.requests")
    until(lambda: dealer.send("fetch"))
    answer = dealer.request("info", timeout_seconds=DEADLINE_SECONDS)
    assert answer.fields == {"was": "info", "id": 2}


def test_a_refusal_raises_its_reason(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    pause = answer_once(router, lambda r: router.refuse(r, "no parameters yet"))
    dealer = wires.make(book, pause=pause).dealer("ps.requests")
    with pytest.raises(RefusedError, match="no parameters yet"):
        dealer.request("fetch", timeout_seconds=DEADLINE_SECONDS)


def test_a_request_that_nobody_answers_ends_at_its_deadline(
    book: AddressBook, wires: Wires
) -> None:
    dealer = wires.make(book).dealer("ps.requests")
    start = time.monotonic()
    with pytest.raises(DeadlineError, match=r"ps\.requests did not answer 'fetch' within 0\.1 s"):
        dealer.request("fetch", timeout_seconds=0.1)
    assert 0.1 <= time.monotonic() - start < 1.0


def test_a_request_ends_when_its_component_is_asked_to_stop(
    book: AddressBook, wires: Wires
) -> None:
    looks = iter([False, False])
    dealer = wires.make(book, stopping=lambda: next(looks, True)).dealer("ps.requests")
    start = time.monotonic()
    with pytest.raises(DeadlineError):
        dealer.request("fetch", timeout_seconds=60)
    assert time.monotonic() - start < 2.0


def test_answers_for_a_peer_that_is_full_are_held_until_it_reads(
    book: AddressBook, wires: Wires
) -> None:
    router = wires.make(book, "ps").router("ps.requests", high_water_mark=1)
    dealer = wires.make(book).dealer("ps.requests", high_water_mark=1)
    block = {"flat": np.zeros(1 << 19)}
    count = 20
    for _ in range(count):
        until(lambda: dealer.send("fetch"))
        router.reply(until(router.receive), "parameters", arrays=block)

    def answer() -> Message | None:
        router.receive()
        return dealer.receive()

    assert [until(answer).fields["id"] for _ in range(count)] == list(range(1, count + 1))
    assert router.counters.unanswered == 0


def test_answers_for_a_peer_that_has_gone_are_counted(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    dealer = wires.make(book).dealer("ps.requests")
    until(lambda: dealer.send("fetch"))
    request = until(router.receive)
    dealer.close()

    def gone() -> int:
        router.reply(request, "parameters")
        return router.counters.unanswered

    assert until(gone) == 1


def test_a_request_without_an_id_is_no_request(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    push = wires.make(book).dealer("ps.requests")
    until(push.writable)
    for fields in ({}, {"id": "1"}, {"id": True}, {"id": None}):
        push.raw.send_multipart(push._encode(Message("fetch", dict(fields))))
    until(lambda: push.send("fetch", {"good": True}))
    assert until(router.receive).message.fields["good"] is True
