"""Requests and their answers: each finds its own, none is lost in silence, none waits for ever."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import DeadlineError, RefusedError, UsageError
from session.wire import AddressBook, Message
from session.wire.one_way_sockets import Socket
from session.wire.requests import Call, Request, RouterSocket
from session.wire.schema import Count, Schema
from session.wire.socket_state import poll
from tests.session.wire.rig import DEADLINE_SECONDS, ENDPOINTS, Wires, until


def test_an_answer_reaches_the_socket_that_asked(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    dealers = [wires.make(book, f"agent-{i}").dealer("ps.requests") for i in range(3)]
    ids = [until(lambda d=d, i=i: d.send("fetch", {"have": i})) for i, d in enumerate(dealers)]  # type: ignore[misc]
    for _ in dealers:
        request = until(router.receive)
        sender, have = request.message.sender.name, request.message.fields["have"]
        router.reply(request, "parameters", {"text": f"{sender} {have}"}, {"flat": np.ones(2)})
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


def test_a_request_that_was_lost_with_its_server_is_sent_to_the_next(
    book: AddressBook, wires: Wires
) -> None:
    first = wires.make(book, "ps")
    routers = [first.router("ps.requests")]

    def bind_again() -> RouterSocket | None:
        with suppress(UsageError):
            return wires.make(book, "ps").router("ps.requests")
        return None

    def pause(sockets: Sequence[Socket], seconds: float) -> None:
        request = routers[-1].receive()
        if request is not None and len(routers) == 2:
            routers[-1].reply(request, "info")
        elif request is not None:
            first.close(0)
            routers.append(until(bind_again))
            if book["ps.requests"].connect.startswith("inproc"):
                asker.reconnect({"ps.requests"})
        poll(sockets, 0.001)

    asker = wires.make(book, pause=pause)
    dealer = asker.dealer("ps.requests")
    assert dealer.request("fetch", timeout_seconds=DEADLINE_SECONDS).kind == "info"


def test_a_request_sent_while_a_lost_connection_ends_is_sent_to_the_next(
    run_folder: Path, wires: Wires
) -> None:
    book = AddressBook.ipc(ENDPOINTS, run_folder)
    first = wires.make(book, "ps")
    first.router("ps.requests")

    def pause(sockets: Sequence[Socket], seconds: float) -> None:
        if routers and (request := routers[0].receive()) is not None:
            routers[0].reply(request, "info")
        poll(sockets, 0.001)

    routers: list[RouterSocket] = []
    dealer = wires.make(book, pause=pause).dealer("ps.requests")
    until(dealer.writable)
    call = Call(lambda: Message("fetch"), forget=True)
    assert dealer.post(call, 0.0)
    losses = dealer.losses()
    first.close(0)
    until(lambda: dealer.losses() > losses)
    # libzmq has reported the loss, but takes this message into the queue that it ends next.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dealer, "_send_frames", lambda frames: True)
        assert dealer.post(call, 0.0)
    routers.append(wires.make(book, "ps").router("ps.requests"))

    def answered() -> Message | None:
        pause([dealer], 0.0)
        return dealer.ask(call, 0.0)

    assert until(answered).kind == "info"


def test_a_refusal_raises_its_reason(book: AddressBook, wires: Wires) -> None:
    router = wires.make(book, "ps").router("ps.requests")
    pause = answer_once(router, lambda r: router.refuse(r, "no parameters yet"))
    dealer = wires.make(book, pause=pause).dealer("ps.requests")
    with pytest.raises(RefusedError, match="no parameters yet"):
        dealer.request("fetch", timeout_seconds=DEADLINE_SECONDS)


def test_a_request_without_an_answer_ends_at_its_deadline(book: AddressBook, wires: Wires) -> None:
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


def test_all_callers_of_an_endpoint_share_one_socket_and_each_gets_its_own_replies(
    book: AddressBook, wires: Wires
) -> None:
    router, wire = wires.make(book, "ps").router("ps.requests"), wires.make(book)
    hello = wire.dealer("ps.requests", {"welcome": Schema({"starts": Count()})})
    fetch = wire.dealer("ps.requests", {"info": Schema({"version": Count()})})
    assert hello is fetch
    calls = [Call(lambda kind=kind: Message(kind), again_seconds=9.0) for kind in ("hello", "info")]  # type: ignore[misc]
    requests: list[Request] = []

    def both_arrive() -> bool:
        assert [fetch.ask(call, 0.0) for call in calls] == [None, None]
        requests.extend(filter(None, [router.receive()]))
        return len(requests) == 2

    until(both_arrive)
    # The second may be the first for which the connection was ready.
    replies = {"hello": ("welcome", "starts"), "info": ("info", "version")}
    for request in requests:
        kind, field = replies[request.message.kind]
        router.reply(request, kind, {field: 7})
    # Whichever call is asked first reads the replies of both.
    info = until(lambda: fetch.ask(calls[1], 0.0))
    welcome = until(lambda: fetch.ask(calls[0], 0.0))
    assert (welcome.kind, info.kind) == ("welcome", "info")
    assert fetch.ask(calls[0], 0.0) is fetch.ask(calls[1], 0.0) is None
    assert (router.counters.received, fetch.counters.rejected) == (2, 0)


def test_a_socket_keeps_no_call_that_its_caller_has_dropped(
    book: AddressBook, wires: Wires
) -> None:
    router, dealer = (
        wires.make(book, "ps").router("ps.requests"),
        wires.make(book).dealer("ps.requests"),
    )
    calls = [Call(lambda: Message("old"))]
    until(lambda: dealer.ask(calls[0], 0.0) or router.receive())
    assert len(dealer._calls) == 1
    calls[0] = Call(lambda: Message("new"))
    dealer.ask(calls[0], 0.0)
    assert [each() for each in dealer._calls] == calls


REPEATED, FORGETFUL = {"again_seconds": 1.0}, {"again_seconds": 5.0, "forget": True}


# Steps: "at TIME due" or "idle", "lose" a connection, "sent ID", "reply ID counts" or "ignored",
# "over TIME yes" or "no", and "rest".
@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, "at 7 due; at 7.5 due; sent 1; at 1e9 idle"),
        (REPEATED, "at 7 due; sent 1; at 7.9 idle; at 8 due; at 8.5 due; sent 2; at 9.4 idle"),
        # A late reply counts; one to another caller does not.
        (REPEATED, "at 0 due; sent 3; at 1 due; sent 5; reply 4 ignored; reply 3 counts"),
        (REPEATED, "at 0 due; sent 1; reply 1 counts; at 1 due"),
        (REPEATED, "at 0 due; sent 1; lose; at 0.1 idle; reply 1 counts"),
        (FORGETFUL, "lose; at 0 due; sent 1; at 0.1 idle; lose; at 0.2 due; reply 1 ignored"),
        (FORGETFUL, "at 0 due; sent 1; lose; at 0.1 due; sent 2; at 0.2 idle; reply 2 counts"),
        (FORGETFUL, "at 0 due; sent 1; rest; at 99 idle; reply 1 ignored; lose; at 99.1 due"),
        (REPEATED, "at 0 due; sent 1; rest; lose; at 99 idle"),
        ({**REPEATED, "give_up_at": 69.0}, "at 9 due; over 68.9 no; at 69 idle; over 69 yes"),
        ({**FORGETFUL, "give_up_at": 5.0}, "at 0 due; sent 1; lose; at 5 idle; over 5 yes"),
    ],
)
def test_when_a_call_is_sent_and_which_replies_count(settings: dict[str, Any], steps: str) -> None:
    call, now, losses = Call(lambda: Message("fetch"), **settings), math.nan, 0
    for step in steps.split("; "):
        what, *words = step.split()
        if what == "at":
            now = float(words[0])
            assert call.due(now, losses) is (words[1] == "due"), step
        elif what == "sent":
            call.on_sent(int(words[0]), now)
        elif what == "reply":
            call.reply, reply = None, Message("answer", {"id": int(words[0])})
            assert call.on_reply(reply) is (words[1] == "counts"), step
            assert call.reply is (reply if words[1] == "counts" else None), step
        elif what == "over":
            assert call.given_up(float(words[0])) is (words[1] == "yes"), step
        elif what == "rest":
            call.rest()
        else:
            losses += 1
