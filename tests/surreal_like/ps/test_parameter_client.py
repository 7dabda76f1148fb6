"""What the asking side makes of answers, good and bad."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from session.errors import DecodeError, RefusedError
from session.wire import Message
from session.wire.requests import RouterSocket
from surreal_like.data.parameters import Parameters
from surreal_like.ps.parameter_client import Newest, ParameterClient
from surreal_like.ps.schemas import ANSWERS
from tests.surreal_like.agent.rig import LearnerPeer, Rig, make_rig


@pytest.fixture
def rig() -> Iterator[Rig]:
    with make_rig() as made:
        yield made


Reply = Callable[[RouterSocket, Any], object]


def answered(
    rig: Rig, reply: Reply, *, info: bool = False, have: tuple[int, int] = (0, 0)
) -> tuple[ParameterClient, Any]:
    """A client that has asked once, and what it made of the reply."""
    router = rig.wire("ps").router("ps.requests")
    client = ParameterClient(rig.wire("agent-0").dealer("ps.requests", ANSWERS), rig.clock)
    client.have = have
    rig.until(client.ask_info if info else client.ask)
    came: list[Any] = []

    def take() -> bool:
        if (request := router.receive()) is not None:
            reply(router, request)
        parameters = client.receive()
        if parameters is not None:
            came.append(parameters)
        return not client.waiting

    rig.until(take)
    return client, came


def parameters(rig: Rig) -> Parameters:
    return LearnerPeer(rig).publish()


def test_parameters_are_taken_once(rig: Rig) -> None:
    published = parameters(rig)
    fields = published.fields()

    def twice(router: RouterSocket, request: Any) -> None:
        router.reply(request, "parameters", fields, {"flat": published.flat})
        router.reply(request, "parameters", fields, {"flat": published.flat})

    client, came = answered(rig, twice)
    rig.pass_time(0.02)
    assert client.receive() is None
    assert [each.order for each in came] == [published.order] == [client.have]
    assert client.newest == Newest(published.order, published.info)


def test_older_parameters_are_not_taken(rig: Rig) -> None:
    older = parameters(rig)

    def stale(router: RouterSocket, request: Any) -> None:
        router.reply(request, "parameters", older.fields(), {"flat": older.flat})

    client, came = answered(rig, stale, have=(older.incarnation, 2))
    assert not came
    assert client.have == (older.incarnation, 2)


def test_what_was_not_asked_is_ignored(rig: Rig) -> None:
    def wrong_first(router: RouterSocket, request: Any) -> None:
        known = request.message.fields["id"]
        request.message.fields["id"] = known + 7
        router.reply(request, "refused", {"reason": "not for you"})
        request.message.fields["id"] = known
        router.reply(request, "empty")

    client, came = answered(rig, wrong_first)
    assert not came
    assert client.newest.order == (0, 0)


def test_a_refusal_is_an_error(rig: Rig) -> None:
    with pytest.raises(RefusedError, match="has been replaced"):
        answered(rig, lambda router, request: router.refuse(request, "it has been replaced"))


@pytest.mark.parametrize("kind", ["parameters", "not_modified"])
def test_an_answer_without_its_fields_is_not_taken(rig: Rig, kind: str) -> None:
    published = parameters(rig)

    def wrong_first(router: RouterSocket, request: Any) -> None:
        router.reply(request, kind, {"version": 1})
        router.reply(request, "parameters", published.fields(), {"flat": published.flat})

    client, came = answered(rig, wrong_first)
    assert [each.order for each in came] == [published.order]
    assert client.socket.counters.rejected == 1


def test_parameters_that_do_not_fit_their_manifest_are_an_error(rig: Rig) -> None:
    published = parameters(rig)
    fields = published.fields()
    moved: list[list[Any]] = [list(entry) for entry in published.manifest]
    moved[-1][3] += 8
    for wrong, flat in (({}, published.flat[8:]), ({"manifest": moved}, published.flat)):
        message = Message("parameters", {**fields, **wrong}, {"flat": flat})
        with pytest.raises(DecodeError, match="manifest"):
            Parameters.from_message(message)


def test_news_of_the_end_come_with_every_kind_of_answer(rig: Rig) -> None:
    info = {
        "time": 1.0,
        "iteration": 4,
        "message": "",
        "hash": "",
        "env_steps": 0,
        "final": True,
    }
    fields = {"version": 3, "incarnation": 9, "iteration": 4, "info": info}

    def end(router: RouterSocket, request: Any) -> None:
        router.reply(request, "info", fields)

    client, _ = answered(rig, end, info=True)
    assert client.newest.final
    assert client.newest.order == (9, 3)
    assert client.have == (0, 0)
