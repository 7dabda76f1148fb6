"""Which key may do what: the table by itself, and real sockets with real keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.errors import AdmissionError
from session.wire import AddressBook, Message, Wire
from session.wire.one_way_sockets import PullSocket
from session.wire.requests import DealerSocket, RouterSocket
from session.wire.roles import AGENT, EVALUATOR, GATEWAY, GUEST, NOTHING, RUN, SHARED, WATCH, Grant
from session.wire.security import Security, allow, make_keys, write_keys
from session.wire.socket_state import poll
from tests.session.wire.rig import DEADLINE_SECONDS, FINGERPRINT, Wires, free_port, until

MINE, OTHER = "agent-1000", "agent-0"
GUEST_GRANT = Grant(GUEST, (MINE, "agent-1001"))

# Endpoint, kind -> roles that may send it, besides the run's own.
MESSAGES = {
    ("replay-0.experience", "chunk"): (AGENT, GUEST, GATEWAY),
    ("replay-3.experience", "goodbye"): (AGENT, GUEST, GATEWAY),
    ("ps.requests", "hello"): (AGENT, GUEST, EVALUATOR, GATEWAY),
    ("ps.requests", "fetch"): (AGENT, GUEST, EVALUATOR, GATEWAY),
    ("ps.requests", "info"): (AGENT, GUEST, EVALUATOR, GATEWAY),
    ("ps.requests", "leave"): (AGENT, GUEST, GATEWAY),
    ("ps.requests", "accounts"): (),
    ("tensorplex.records", "tensorplex"): (AGENT, GUEST, EVALUATOR, GATEWAY),
    ("loggerplex.records", "loggerplex"): (AGENT, GUEST, EVALUATOR, GATEWAY),
    ("tensorplex.requests", "status"): (),
    ("learner.control", "evaluated"): (EVALUATOR, GATEWAY),
    ("learner.control", "pause"): (),
    ("learner.control", "resume"): (),
    ("learner.control", "stop"): (),
    ("learner.control", "status"): (),
    ("replay-0.batches", "sample"): (),
    ("replay-0.batches", "counts"): (),
    ("replay-0.batches", "drain"): (),
    ("replay-0.batches", "fence"): (),
    ("replay-0.batches", "roll_back"): (),
    ("replay-0.priorities", "priorities"): (),
}
ENTERED = {
    AGENT: {"experience", "acks", "requests", "records"},
    GUEST: {"experience", "acks", "requests", "records"},
    EVALUATOR: {"control", "requests", "records"},
    GATEWAY: {"experience", "acks", "control", "requests", "records"},
}


@pytest.mark.parametrize("role", [AGENT, GUEST, EVALUATOR, GATEWAY])
@pytest.mark.parametrize(("endpoint", "kind"), MESSAGES)
def test_the_table(endpoint: str, kind: str, role: str) -> None:
    name = "eval-0" if role == EVALUATOR else MINE
    refusal = Grant(role, (name,)).refusal(endpoint, kind, name)
    assert (refusal is None) == (role in MESSAGES[endpoint, kind])
    assert Grant(RUN).refusal(endpoint, kind, "anything") is None
    assert NOTHING.refusal(endpoint, kind, name) is not None


@pytest.mark.parametrize("role", [AGENT, GUEST, EVALUATOR, GATEWAY])
def test_an_endpoint_without_business_is_not_entered(role: str) -> None:
    everywhere = {*(endpoint for endpoint, _ in MESSAGES), "replay-0.acks"}
    everywhere |= {"learner.parameters", "ps.join"}
    entered = {each for each in everywhere if Grant(role).enters(each)}
    assert {each.rpartition(".")[2] for each in entered} == ENTERED[role]
    assert "tensorplex.requests" not in entered
    assert all(Grant(RUN).enters(each) for each in everywhere)
    assert not any(NOTHING.enters(each) for each in everywhere)


def test_a_key_speaks_under_its_own_names() -> None:
    assert GUEST_GRANT.owns(MINE)
    assert not GUEST_GRANT.owns(OTHER)
    assert not GUEST_GRANT.owns("agent-10000")
    assert SHARED[AGENT].owns("agent-7")
    assert not SHARED[AGENT].owns("agent")
    assert not SHARED[AGENT].owns("learner")
    refusal = GUEST_GRANT.refusal("ps.requests", "fetch", OTHER)
    assert refusal == "its key of the role 'guest' is for agent-1000, agent-1001 only"
    assert GUEST_GRANT.refusal("ps.requests", "info", WATCH) is None
    assert GUEST_GRANT.refusal("ps.requests", "fetch", WATCH) is not None


def test_a_grant_is_a_line() -> None:
    for grant in (GUEST_GRANT, SHARED[AGENT], Grant(RUN), NOTHING):
        assert Grant.decode(grant.encode()) == grant
    assert Grant.decode("") == NOTHING


class Run:
    """The endpoints of a run that are asked here, and a joined machine's and an evaluator's keys.

    Args:
        wires: makes the sockets.
        folder: for keys.
    """

    def __init__(self, wires: Wires, folder: Path) -> None:
        self.wires = wires
        keys = make_keys(AGENT, EVALUATOR)
        write_keys(folder, keys)
        self.security = Security.load(folder)
        self.guest = self._with(make_keys(), "client")
        self.evaluator = self._with(keys, EVALUATOR)
        allow(folder, self.guest.client_public.decode(), GUEST_GRANT)
        names = ("replay-0.experience", "ps.requests", "learner.control")
        self.book = AddressBook.tcp({name: free_port() for name in names})
        self.rejected: list[tuple[str, str, str]] = []
        self.wire = wires.make(
            self.book,
            "ps",
            security=self.security,
            on_reject=lambda *what: self.rejected.append(what),
        )
        self.experience: PullSocket = self.wire.pull("replay-0.experience")
        self.requests: RouterSocket = self.wire.router("ps.requests")
        self.control: RouterSocket = self.wire.router("learner.control")

    def _with(self, keys: dict[str, str], owner: str) -> Security:
        public, secret = (keys[f"{owner}.{half}"].strip().encode() for half in ("pub", "key"))
        return Security(None, self.security.server_public, b"", public, secret)

    def client(self, security: Security, name: str) -> Wire:
        return self.wires.make(self.book, name, security=security)

    def answer(self, dealer: DealerSocket, kind: str) -> str:
        """The kind of what is answered, by a server that notes whatever reaches it."""
        until(lambda: dealer.send(kind))
        found: list[Message] = []
        for _ in range(int(DEADLINE_SECONDS / 0.001)):
            for router in (self.requests, self.control):
                if (request := router.receive()) is not None:
                    router.reply(request, "noted")
            if (message := dealer.receive()) is not None:
                found.append(message)
                break
            poll([], 0.001)
        return found[0].kind


@pytest.fixture
def run(wires: Wires, tmp_path: Path) -> Run:
    return Run(wires, tmp_path / "keys")


def test_a_guest_asks_what_it_may_and_is_refused_the_rest(run: Run) -> None:
    dealer = run.client(run.guest, MINE).dealer("ps.requests")
    for kind in ("hello", "fetch", "info", "leave"):
        assert run.answer(dealer, kind) == "noted"
    assert run.answer(dealer, "accounts") == "refused"
    assert run.requests.counters.rejected == 1
    (rejected,) = run.rejected
    assert rejected == (
        "ps.requests",
        MINE,
        "a key of the role 'guest' may not send 'accounts' to ps.requests",
    )


def test_a_guest_under_another_name_is_refused_and_logged_once(run: Run) -> None:
    dealer = run.client(run.guest, "learner").dealer("ps.requests")
    for _ in range(3):
        assert run.answer(dealer, "hello") == "refused"
    assert run.requests.counters.rejected == 3
    ((_, name, reason),) = run.rejected
    assert (name, "is for agent-1000, agent-1001 only" in reason) == ("learner", True)


def test_experience_comes_under_the_own_names_only(run: Run) -> None:
    for name, kind in ((OTHER, "chunk"), (MINE, "nonsense"), (MINE, "chunk")):
        push = run.client(run.guest, name).push("replay-0.experience")
        until(lambda push=push, kind=kind: push.send(Message(kind)))  # type: ignore[misc]
    message = until(run.experience.receive)
    while run.experience.counters.rejected < 2:
        assert run.experience.receive() is None
        poll([run.experience], 0.01)
    assert (message.sender.name, message.kind) == (MINE, "chunk")
    assert message.grant == GUEST_GRANT
    assert message.sender.fingerprint == FINGERPRINT


def test_a_guest_does_not_get_to_the_control_endpoint(run: Run) -> None:
    wire = run.client(run.guest, MINE)
    dealer = wire.dealer("learner.control")
    with pytest.raises(AdmissionError, match=r"learner\.control"):
        until(dealer.check)
    line = until(run.wire.check)[0]
    assert "learner.control: refused a connection" in line
    assert "a key of the role 'guest' has no business here" in line


def test_an_evaluator_scores_and_does_not_command(run: Run) -> None:
    dealer = run.client(run.evaluator, "eval-0").dealer("learner.control")
    assert run.answer(dealer, "evaluated") == "noted"
    for kind in ("pause", "stop", "resume", "status"):
        assert run.answer(dealer, kind) == "refused"
    assert run.answer(run.client(run.evaluator, MINE).dealer("learner.control"), "evaluated") == (
        "refused"
    )
