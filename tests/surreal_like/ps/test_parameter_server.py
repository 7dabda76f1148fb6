"""The parameter server over real sockets: publications in, answers out, hello, accounts, end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import main.ps
from session.errors import AdmissionError, DeadlineError, RefusedError
from session.folder import RunFolder
from session.process.handshake import Handshake
from session.wire import AddressBook, Identity, Message, Wire, connection_monitor
from session.wire.codec import encode
from session.wire.schema import SENDERS_LIMIT
from surreal_like.ps.parameter_client import ParameterClient
from surreal_like.ps.schemas import ANSWERS, CLIENT_TOTALS
from tests.surreal_like.agent.rig import LEARNER_INCARNATION, LearnerPeer, Rig, make_rig
from tests.surreal_like.agent.rig import rig as rig

ACCOUNT = {
    "pushed": 10,
    "inserted": 8,
    "dropped": 1,
    "unacked": 1,
    "env_steps": 9,
    "episodes": 2,
    "final": False,
}


def client(rig: Rig, wire: Wire | None = None) -> ParameterClient:
    wire = wire or rig.wire("agent-0")
    return ParameterClient(wire.dealer("ps.requests"), rig.clock)


def served(rig: Rig, version: int, *, policy: str = "default") -> None:
    """Waits until the server has a version."""
    service: Any = rig.frames["ps"]

    def there() -> bool:
        return service._service is not None and service._service.status()["version"] == version

    rig.until(there)


def hello(rig: Rig, wire: Wire, **changes: Any) -> Handshake:
    values: dict[str, Any] = {
        "name": wire.identity.name,
        "incarnation": wire.identity.incarnation,
        "fingerprint": rig.config.fingerprint(),
        "spec_hash": rig.context("agent-0").spec_hash,
    }
    return Handshake(wire.dealer("ps.requests"), rig.clock, **{**values, **changes})


def welcomed(rig: Rig, said: Handshake) -> Any:
    def there() -> bool:
        said.tick()
        return said.welcome is not None

    rig.until(there)
    return said.welcome


def test_the_newest_parameters_are_fetched_with_all_that_is_known_of_them(rig: Rig) -> None:
    learner, asking = LearnerPeer(rig), client(rig)
    assert asking.fetch(5.0) is None
    learner.publish()
    published = learner.publish(env_steps=77)
    served(rig, 2)
    fetched = asking.fetch(5.0)
    assert fetched is not None
    assert fetched.order == (LEARNER_INCARNATION, 2)
    assert (fetched.flat == published.flat).all()
    assert fetched.manifest == published.manifest
    assert fetched.info == published.info
    assert fetched.iteration == 20


def test_a_client_that_is_current_gets_no_parameters_again(rig: Rig) -> None:
    learner, asking = LearnerPeer(rig), client(rig)
    learner.publish()
    served(rig, 1)
    assert asking.fetch(5.0) is not None
    assert asking.fetch(5.0) is None
    assert asking.newest.order == (LEARNER_INCARNATION, 1)
    assert rig.frames["ps"]._service.status()["fetches"] == 1  # type: ignore[union-attr]


def test_info_comes_without_the_parameters(rig: Rig) -> None:
    learner, asking = LearnerPeer(rig), client(rig)
    assert asking.fetch_info(5.0).order == (0, 0)
    published = learner.publish()
    served(rig, 1)
    newest = asking.fetch_info(5.0)
    assert newest.order == (LEARNER_INCARNATION, 1)
    assert newest.info == published.info
    assert asking.have == (0, 0)


def test_a_server_that_comes_late_gets_the_newest_at_once() -> None:
    with make_rig() as rig:
        learner = LearnerPeer(rig)
        learner.publish()
        learner.publish()
        rig.start("ps", main.ps.build)
        served(rig, 2)


def test_a_client_never_steps_back(rig: Rig) -> None:
    new, asking = LearnerPeer(rig), client(rig)
    new.version = 4
    new.publish()
    served(rig, 5)
    assert asking.fetch(5.0) is not None
    asking.have = (LEARNER_INCARNATION, 6)
    assert asking.fetch(5.0) is None
    assert asking.have == (LEARNER_INCARNATION, 6)


def test_publications_that_do_not_decode_are_dropped_and_the_server_lives(rig: Rig) -> None:
    wire = rig.wire("learner", LEARNER_INCARNATION)
    socket = wire.publisher("learner.parameters")
    rig.until(socket.new_subscribers)
    socket.publish(Message("parameters", {"version": 1}))
    socket.publish(Message("parameters", {"version": "x", "manifest": [1]}, {"flat": np.ones(3)}))
    asking = client(rig)
    assert asking.fetch(5.0) is None


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        ("fetch", {"policy": "default"}, "'fetch': 'have' is missing"),
        ("fetch", {"policy": [1], "have": [0, 0]}, "'fetch': 'policy' is a list of 1"),
        ("fetch", {"policy": "default", "have": 3}, "'fetch': 'have' is 3, expected a list of 2"),
        ("fetch", {"policy": "default", "have": [0, 0], "account": {}}, "'account' is a dict of 0"),
        ("leave", {}, "'leave': 'account' is missing"),
        ("hello", {"name": "agent-0"}, "'hello': 'protocol' is missing"),
        ("dance", {}, "knows no 'dance'"),
    ],
)
def test_a_bad_request_is_refused_in_words(
    rig: Rig, kind: str, fields: dict[str, Any], reason: str
) -> None:
    socket = rig.wire("agent-0").dealer("ps.requests")
    with pytest.raises(RefusedError, match=reason):
        socket.request(kind, fields, timeout_seconds=5.0)


def test_hello_is_welcomed_with_the_newest_version_and_the_number_of_starts(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    first = welcomed(rig, hello(rig, rig.wire("agent-0", 100)))
    assert (first.starts, first.incarnation, first.version) == (1, 100, (0, 0))
    learner.publish()
    served(rig, 1)
    second = welcomed(rig, hello(rig, rig.wire("agent-0", 90)))
    assert (second.starts, second.incarnation) == (2, 101)
    assert (second.version, second.iteration) == ((LEARNER_INCARNATION, 1), 10)
    # The same process over a new connection, because the first was lost before the reply.
    assert welcomed(rig, hello(rig, rig.wire("agent-0", 90))) == second


def test_another_config_is_refused_on_both_sides_and_logged_once_here(rig: Rig) -> None:
    wire = rig.wire("agent-0", 100, fingerprint=b"\1" * 8)
    for _ in range(2):
        said = hello(rig, wire, fingerprint="01" * 32)
        with pytest.raises(AdmissionError, match="fingerprint 0101010101010101, this run has"):
            welcomed(rig, said)
        with pytest.raises(AdmissionError, match="fingerprint 0101010101010101, this run has"):
            client(rig, wire).fetch(5.0)
    rig.pass_time(0.5)
    refusals = rig.events("refused")
    assert len(refusals) == len(set(refusals)) == 2  # one of the hello, one of the fetch
    assert all("fingerprint 0101010101010101" in refusal for refusal in refusals)


def test_a_replaced_process_is_refused_whatever_it_asks(rig: Rig) -> None:
    old, new = rig.wire("agent-0", 100), rig.wire("agent-0", 200)
    welcomed(rig, hello(rig, old))
    welcomed(rig, hello(rig, new))
    with pytest.raises(RefusedError, match="replaced by incarnation 200"):
        client(rig, old).fetch(5.0)
    assert client(rig, new).fetch(5.0) is None


def test_the_accounts_of_all_senders_fit_into_one_answer() -> None:
    numbers = {name: 2**44 - 1 for name, value in ACCOUNT.items() if value is not False}
    status = dict.fromkeys(("version", "waits_for_acks", "waits_above_version"), 1e15)
    clients = dict.fromkeys(CLIENT_TOTALS, 2**44 - 1)
    account = {**numbers, "final": True, "status": status, "clients": clients}
    keys = (f"{'a' * 63}/{10**15 + number}" for number in range(SENDERS_LIMIT))
    answer = Message("accounts", {"id": 1, "accounts": dict.fromkeys(keys, account)})
    answer.sender = Identity("ps", 1, bytes(8))
    schema = ANSWERS["accounts"]
    assert schema.complaint(answer) is None
    assert len(encode(answer)[0]) < schema.header_bytes
    account["status"] = {**status, "more": 1.0}
    assert schema.complaint(answer) is not None
    account["status"], account["clients"] = status, {**clients, "more": 1}
    assert schema.complaint(answer) is not None


def test_accounts_come_with_fetches_and_end_with_the_leave(rig: Rig) -> None:
    agent = client(rig, rig.wire("agent-0", 5))
    agent.fetch(5.0, ACCOUNT)
    asking = rig.wire("learner", 1).dealer("ps.requests")

    def accounts() -> Any:
        return asking.request("accounts", timeout_seconds=5.0).fields["accounts"]

    assert accounts() == {"agent-0/5": ACCOUNT}
    waiting = {**ACCOUNT, "status": {"version": 3.0, "waits_for_acks": 1.0}}
    rig.until(lambda: agent.ask_info(waiting))
    rig.until(lambda: accounts() == {"agent-0/5": waiting})
    final = {**ACCOUNT, "inserted": 9, "unacked": 0, "final": True}
    rig.until(lambda: agent.leave(final))
    agent.fetch(5.0, ACCOUNT)  # what comes after the leave message is older
    assert accounts() == {"agent-0/5": final}


def test_a_lost_answer_is_given_up_after_a_while(rig: Rig) -> None:
    asking = client(rig)
    rig.until(asking.ask)
    frame = rig.frames.pop("ps")
    assert asking.waiting
    assert not asking.ask()
    rig.clock.seconds += 59.9
    asking.receive()
    assert asking.waiting
    rig.clock.seconds += 0.2
    asking.receive()
    assert not asking.waiting
    frame.close()


def test_a_restarted_server_is_asked_again(rig: Rig) -> None:
    learner, asking = LearnerPeer(rig), client(rig)
    asking.fetch(5.0)
    rig.frames.pop("ps").close()
    rig.start("ps", main.ps.build, incarnation=6)
    learner.publish()
    served(rig, 1)
    assert asking.fetch(5.0) is not None


def test_without_a_server_a_request_ends_at_its_deadline() -> None:
    with make_rig() as rig, pytest.raises(DeadlineError, match=r"ps\.requests did not answer"):
        client(rig).fetch(0.05)


def test_the_server_leaves_when_the_run_is_over_and_no_request_comes(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    with make_rig(run=folder) as rig:
        frame = rig.start("ps", main.ps.build)
        rig.pass_time(0.1)
        folder.result.write_text('{"status": "running"}')
        rig.pass_time(1.2)
        assert not frame.finished
        folder.result.write_text('{"status": "stopped"}')
        rig.until(lambda: frame.finished)
        assert 2.0 <= rig.clock.now() < 4.5


@pytest.mark.parametrize(("status", "count"), [("running", 1), ("stopped", 0)])
def test_a_missing_learner_is_reported_unless_the_run_is_over(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, status: str, count: int
) -> None:
    monkeypatch.setattr(connection_monitor, "_LONELY_SECONDS", 0.0)
    folder = RunFolder(run_folder)
    folder.create()
    folder.result.write_text(f'{{"status": "{status}"}}')
    with make_rig(run=folder) as rig:
        # Only TCP has events of connections; nothing listens at port 1.
        rig.book = AddressBook({**rig.book, **AddressBook.tcp({"learner.parameters": 1})})
        warnings: list[str] = []
        rig.start("ps", main.ps.build).context.warn = warnings.append
        rig.pass_time(1.0)
    assert sum("(learner.parameters): nothing answers" in each for each in warnings) == count


def test_an_idle_server_stays_until_it_is_asked_to_end(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    folder.result.write_text('{"status": "stopped"}')
    with make_rig(run=folder, at_end="idle") as rig:
        frame = rig.start("ps", main.ps.build)
        rig.pass_time(3.0)
        assert not frame.finished
        frame.context.stopping = True
        rig.pass_time(0.01)
        assert frame.finished


def test_a_server_that_is_asked_to_end_answers_until_no_request_comes(rig: Rig) -> None:
    frame, asking = rig.frames["ps"], client(rig)
    asking.fetch(5.0)
    frame.context.stopping = True
    for _ in range(3):
        rig.pass_time(0.9)
        asking.fetch(5.0)
    assert not frame.finished
    rig.until(lambda: frame.finished)


def patient(rig: Rig, asking: ParameterClient) -> list[Any]:
    """Asks for what is newer; the list is filled as answers come."""
    came: list[Any] = []
    rig.until(lambda: asking.ask(patient=True))

    def take() -> None:
        parameters = asking.receive()
        if parameters is not None:
            came.append(parameters.version)

    rig.stepping.append(take)
    return came


def test_a_patient_request_is_answered_by_the_next_publication(rig: Rig) -> None:
    learner = LearnerPeer(rig)
    learner.publish()
    served(rig, 1)
    one, other = client(rig), client(rig, rig.wire("agent-1"))
    first, second = patient(rig, one), patient(rig, other)
    rig.until(lambda: first == second == [1])
    assert one.ask(patient=True)
    assert other.ask(patient=True)
    rig.pass_time(1.0)
    assert first == second == [1]
    assert one.waiting
    learner.publish()
    rig.until(lambda: first == second == [1, 2])


def test_a_peer_that_asks_again_does_not_wait_twice(rig: Rig) -> None:
    learner, asking = LearnerPeer(rig), client(rig)
    came = patient(rig, asking)
    rig.clock.seconds += 61.0
    asking.receive()
    assert not asking.waiting  # given up
    assert asking.ask(patient=True)
    rig.pass_time(0.1)
    assert len(rig.frames["ps"]._service._patient) == 1  # type: ignore[union-attr]
    learner.publish()
    rig.until(lambda: came == [1])
    assert not rig.frames["ps"]._service._patient  # type: ignore[union-attr]
