"""A token is exchanged for names, addresses and config; each refusal is one clear line."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq

from session.errors import AdmissionError, UsageError
from session.folder import RunFolder
from session.launchers.launcher import free_ports
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.wire import Address, AddressBook, Identity, Message, Wire
from session.wire.roles import GUEST, Grant
from session.wire.security import Security, write_keys
from session.wire.socket_state import poll
from surreal_like.addons.join.admission_client import (
    Admission,
    Invitation,
    NotNowError,
    default_folder,
    request_admission,
)
from surreal_like.addons.join.admission_server import ENDPOINT, REQUESTS, JoinServer
from surreal_like.addons.join.agents import further_line, join_line
from surreal_like.addons.join.tokens import Admissions, Token, TokenFolder, make_token
from surreal_like.experiment.user_code import file_hash
from tests.polling import until
from tests.surreal_like.agent.rig import make_config

OPEN = ("replay-0.experience", "replay-0.acks", "ps.requests")
ALL = (*OPEN, "replay-0.batches", "learner.control", ENDPOINT)


class Host:
    """The machine of a run, with its join server only: a thread that answers.

    Args:
        path: for the run folder.
        endpoints: of the run.
    """

    def __init__(self, path: Path, endpoints: Sequence[str] = ALL) -> None:
        self.folder = RunFolder(path / "run")
        self.folder.create()
        write_keys(self.folder.keys)
        self.config = make_config(launcher={"host": "127.0.0.1"})
        self.book = AddressBook.tcp(free_ports(endpoints))
        self.folder.addresses.write_text(self.book.dump())
        component = Component("ps", "ps", "main.ps", binds=(ENDPOINT,))
        launch = Launch(component, self.config, Topology([component]), self.book, self.folder)
        self._zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context = Context(
            launch, self._zmq, clock=CountedClock(), incarnation=1, pause=lambda *_: None
        )
        self.events: list[str] = []
        self.context.event = (  # type: ignore[method-assign]
            lambda kind, detail="", **fields: self.events.append(f"{kind}: {detail}")
        )
        self.join_server = JoinServer(self.context)
        self._ending = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._ending:
            if not self.join_server.tick():
                poll(self.join_server.wait_on(), 0.01)

    def again(self) -> None:
        """The parameter server dies and another one comes."""
        self._end_thread()
        self.context.wire.close(0)
        self.join_server = until(self._rebound)
        self._ending = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _rebound(self) -> JoinServer | None:
        # A closed socket gives its port back a moment later, from another thread.
        with suppress(UsageError):
            return JoinServer(self.context)
        return None

    def _end_thread(self) -> None:
        self._ending = True
        self._thread.join()

    @property
    def address(self) -> str:
        return self.book[ENDPOINT].connect.removeprefix("tcp://")

    def token(self, uses: int = 1) -> str:
        return make_token(self.folder.keys, uses)

    def pass_time(self, seconds: float) -> None:
        """Lets the run's clock advance."""
        clock = self.context.clock
        assert isinstance(clock, CountedClock)
        for _ in range(round(1000 * seconds)):
            clock.advance()

    def close(self) -> None:
        self._end_thread()
        self.context.close()
        self._zmq.destroy(0)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


@pytest.fixture
def invitation(host: Host, tmp_path: Path) -> Invitation:
    return Invitation(host.address, host.token(), 2, folder=tmp_path / "guest")


def elsewhere(invitation: Invitation, tmp_path: Path, **changes: Any) -> Invitation:
    """The same invitation on another machine."""
    return replace(invitation, folder=tmp_path / "elsewhere", **changes)


def test_a_token_brings_names_config_and_addresses(host: Host, invitation: Invitation) -> None:
    admission = request_admission(invitation)
    assert admission.names == ("agent-1000", "agent-1001")
    assert admission.config.fingerprint() == host.config.fingerprint()
    session = admission.config.session_config
    assert (session.launcher.host, session.launcher.transport) == (None, "ipc")
    assert session.folder == str(invitation.folder)
    # Of what only the run's own parts need it hears nothing.
    assert set(admission.addresses) == set(OPEN)
    assert all(admission.addresses[name] == host.book[name] for name in OPEN)
    assert host.events == ["joined: a machine with agent-1000, agent-1001"]


def test_the_key_of_a_joined_machine_is_allowed_from_then_on(
    host: Host, invitation: Invitation
) -> None:
    admission = request_admission(invitation)
    key = (admission.folder.keys / "client.pub").read_bytes().strip()
    assert Security.load(host.folder.keys).grant(key) == Grant(GUEST, admission.names)
    assert not (admission.folder.keys / "server.key").exists()
    assert key != (host.folder.keys / "client.pub").read_bytes().strip()


def test_a_token_is_void_once_it_was_used(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    request_admission(invitation)
    with pytest.raises(AdmissionError, match=r"this token has been used by another machine; get"):
        request_admission(elsewhere(invitation, tmp_path))


def test_a_machine_that_comes_back_gets_its_names_again(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    assert request_admission(invitation).names == ("agent-1000", "agent-1001")
    another = elsewhere(invitation, tmp_path, token=host.token(), agents=1)
    host.again()
    assert request_admission(another).names == ("agent-1002",)
    assert request_admission(replace(invitation, agents=1)).names == ("agent-1000",)
    assert request_admission(replace(invitation, agents=3)).names == (
        "agent-1000",
        "agent-1001",
        "agent-1003",
    )


def test_many_machines_join_with_one_token_each_with_names_and_a_key_of_its_own(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    many = replace(invitation, token=host.token(uses=2), agents=1)
    one, two = (replace(many, folder=tmp_path / name) for name in ("one", "two"))
    admitted = [request_admission(each) for each in (one, two)]
    assert [each.names for each in admitted] == [("agent-1000",), ("agent-1001",)]
    third = replace(many, folder=tmp_path / "three")
    with pytest.raises(NotNowError, match="this token is used up: 2 machines have joined with it"):
        request_admission(third)
    host.again()
    assert request_admission(two).names == ("agent-1001",)


def test_names_of_a_machine_that_is_silent_for_ten_minutes_go_to_the_next(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    many = replace(invitation, token=host.token(uses=2), agents=1)
    one, two, three = (replace(many, folder=tmp_path / name) for name in ("one", "two", "three"))
    keys = [request_admission(each).folder.keys / "client.pub" for each in (one, two)]
    host.pass_time(400.0)
    first, second = (path.read_text().strip() for path in keys)
    host.join_server.on_request(second)
    host.pass_time(300.0)
    assert request_admission(three).names == ("agent-1000",)
    security = Security.load(host.folder.keys)
    assert security.grant(first.encode()) is None
    assert security.grant(second.encode()) == Grant(GUEST, ("agent-1001",))
    # It comes back as one that is new; there is no place, until another is silent.
    with pytest.raises(NotNowError, match="is used up"):
        request_admission(one)
    host.pass_time(601.0)
    assert request_admission(one).names == ("agent-1001",)
    assert len(list((host.folder.keys / "allowed").iterdir())) == 2


def test_a_token_for_one_machine_never_admits_another(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    request_admission(invitation)
    host.pass_time(1000.0)
    with pytest.raises(AdmissionError, match="used by another machine"):
        request_admission(elsewhere(invitation, tmp_path))


def test_an_expired_token_admits_those_that_have_joined(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    token = host.token(uses=2)
    request_admission(replace(invitation, token=token))
    tokens = TokenFolder(host.folder.keys)
    path = tokens.find(Token.decode(token).secret)
    assert path is not None
    tokens.write(path, replace(Admissions.load(path), until=1.0))
    host.pass_time(2.0)
    assert request_admission(replace(invitation, token=token)).names[0] == "agent-1000"
    with pytest.raises(AdmissionError, match=r"this token has expired 00:\d\d ago"):
        request_admission(elsewhere(invitation, tmp_path, token=token))


def test_a_shared_folder_has_the_address(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    assert request_admission(replace(invitation, address=str(host.folder))).names
    later = replace(invitation, address=str(tmp_path / "later"))
    with pytest.raises(NotNowError, match=r"later is not the folder of a run that was started: it"):
        request_admission(later)
    closed = RunFolder(tmp_path / "closed")
    closed.create()
    closed.addresses.write_text(AddressBook.tcp({"ps.requests": 7}).dump())
    with pytest.raises(NotNowError, match="was launched without --host"):
        request_admission(replace(invitation, address=str(closed)))


def test_a_key_that_was_taken_away_stays_out(host: Host, invitation: Invitation) -> None:
    request_admission(invitation)
    (file,) = (host.folder.keys / "allowed").iterdir()
    file.unlink()
    with pytest.raises(AdmissionError, match="the key of this machine has been taken away"):
        request_admission(invitation)


def test_a_wrong_secret_is_refused(host: Host, invitation: Invitation) -> None:
    public = Token.decode(invitation.token).server_public
    with pytest.raises(AdmissionError, match="wrong token: this run has given no such token"):
        request_admission(replace(invitation, token=Token(public, b"x" * 16).encode()))
    assert host.events[0].startswith("refused: ps.join: wrong token")
    assert request_admission(invitation).names


def test_wrong_tokens_lock_no_machine_out_and_leave_one_line_a_minute(
    host: Host, invitation: Invitation
) -> None:
    public = Token.decode(invitation.token).server_public

    def try_wrong(numbers: range) -> None:
        for number in numbers:
            wrong = Token(public, bytes([number]) * 16).encode()
            with pytest.raises(AdmissionError, match="wrong token"):
                request_admission(replace(invitation, token=wrong))

    try_wrong(range(30))
    assert len(host.events) == 1
    assert request_admission(invitation).names
    host.pass_time(60.001)
    try_wrong(range(1))
    assert host.events[-1].endswith("(29 more since the last such line)")


def test_the_token_of_another_run_does_not_open(host: Host, invitation: Invitation) -> None:
    secret = Token.decode(invitation.token).secret
    other, _ = zmq.curve_keypair()
    with pytest.raises(AdmissionError, match="breaks off every handshake"):
        request_admission(replace(invitation, token=Token(other, secret).encode()))


@pytest.mark.slow
def test_a_missing_server_is_reported_in_time(host: Host, invitation: Invitation) -> None:
    (port,) = free_ports(["x"]).values()
    with pytest.raises(UsageError, match=r"nothing answers at tcp://127\.0\.0\.1:\d+: is the addr"):
        request_admission(replace(invitation, address=f"127.0.0.1:{port}"))


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":7", "host:seven", "host:0", "host:70000"]
)
def test_what_is_no_address_is_refused(invitation: Invitation, address: str) -> None:
    with pytest.raises(UsageError, match="is no address: write it as HOST:PORT"):
        request_admission(replace(invitation, address=address))


def test_a_run_that_goes_on_later_has_no_place_now(host: Host, invitation: Invitation) -> None:
    host.folder.result.write_text('{"status": "interrupted", "reason": "got SIGTERM"}')
    with pytest.raises(NotNowError, match="the run is over"):
        request_admission(invitation)


def test_a_run_that_is_over_admits_no_machine(host: Host, invitation: Invitation) -> None:
    host.folder.result.write_text('{"status": "stopped"}')
    with pytest.raises(AdmissionError, match="the run is over"):
        request_admission(invitation)


@pytest.mark.parametrize("agents", [-1, 1001])
def test_a_wrong_number_of_agents_is_refused(invitation: Invitation, agents: int) -> None:
    with pytest.raises(AdmissionError, match=f"'agents' is {agents}, expected a whole number"):
        request_admission(replace(invitation, agents=agents))


def test_only_joining_is_possible_there(host: Host, invitation: Invitation) -> None:
    admission = request_admission(invitation)
    assert "ps.join knows no 'fetch'" in ask(host, admission, "fetch", {})
    assert "'secret' is missing" in ask(host, admission, "join", {"agents": 1})
    wrong = {"agents": 1, "secret": "text"}
    assert "'secret' is 'text', expected" in ask(host, admission, "join", wrong)


@pytest.mark.parametrize(
    "names", [["learner"], ["agent-0"], ["client-a/0"], [3], ["client-a"] * 51]
)
def test_no_other_names_than_those_of_scripts_are_handed_out(
    host: Host, invitation: Invitation, names: list[Any]
) -> None:
    admission = request_admission(invitation)
    fields = {"secret": Token.decode(invitation.token).secret, "clients": names}
    assert "'clients' is " in ask(host, admission, "join", fields)
    (file,) = (host.folder.keys / "allowed").iterdir()
    assert file.read_text().splitlines()[1] == "guest agent-1000 agent-1001"


def test_a_machine_has_some_names_of_scripts_and_not_more(invitation: Invitation) -> None:
    request_admission(replace(invitation, clients=tuple(f"a/{number}" for number in range(50))))
    request_admission(replace(invitation, clients=("a/0",)))
    with pytest.raises(AdmissionError, match="at most 50 names of scripts"):
        request_admission(replace(invitation, clients=("b/0",)))


def ask(host: Host, admission: Admission, kind: str, fields: dict[str, Any]) -> str:
    """How a request that is none is answered."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    book = AddressBook({ENDPOINT: Address.same(f"tcp://{host.address}")})
    security = Security.load(admission.folder.keys)
    wire = Wire(context, book, Identity("x"), security=security)
    try:
        with pytest.raises(AdmissionError) as refused:
            wire.dealer(ENDPOINT).request(kind, fields, timeout_seconds=5.0)
    finally:
        wire.close(0)
        context.destroy(0)
    return str(refused.value)


# -- the user's own algorithm ---------------------------------------------------------------------


def own_algorithm(host: Host, path: Path) -> Path:
    file = path / "mine.py"
    file.write_text("ours = 1\n")
    host.config.algorithm = f"{file}:Mine"
    host.config["recorded"] = {"algorithm_sha256": file_hash(file)}
    return file


def test_the_same_file_is_kept_beside_the_agents(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.py"
    copy.write_bytes(own_algorithm(host, tmp_path).read_bytes())
    admission = request_admission(replace(invitation, algorithm=copy))
    assert (admission.folder.code / "mine.py").read_text() == "ours = 1\n"


def test_another_file_is_refused_with_both_hashes(
    host: Host, invitation: Invitation, tmp_path: Path
) -> None:
    ours = file_hash(own_algorithm(host, tmp_path))
    other = tmp_path / "other.py"
    other.write_text("theirs = 1\n")
    with pytest.raises(AdmissionError) as refused:
        request_admission(replace(invitation, algorithm=other))
    assert ours in str(refused.value)
    assert file_hash(other) in str(refused.value)
    # That was no use of the token.
    with pytest.raises(AdmissionError, match=r"copy it to the joining machine and give --algor"):
        request_admission(elsewhere(invitation, tmp_path))
    assert request_admission(elsewhere(invitation, tmp_path, algorithm=tmp_path / "mine.py")).names


def test_an_algorithm_that_is_not_there_is_reported(invitation: Invitation, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--algorithm .*none\.py: there is no such file"):
        request_admission(replace(invitation, algorithm=tmp_path / "none.py"))


# -- folders and lines ----------------------------------------------------------------------------


def test_a_folder_of_something_else_is_left_alone(invitation: Invitation) -> None:
    assert invitation.folder is not None
    invitation.folder.mkdir()
    (invitation.folder / "thesis.tex").touch()
    with pytest.raises(UsageError, match="is not empty: choose another with --folder"):
        request_admission(invitation)


def test_the_same_token_is_not_used_twice_at_once(invitation: Invitation) -> None:
    admission = request_admission(invitation)
    other = RunFolder(admission.folder.path)
    other.lock()
    try:
        with pytest.raises(UsageError, match="agents of this token run here already"):
            request_admission(invitation)
    finally:
        other.unlock()


def test_each_token_has_its_own_folder(host: Host) -> None:
    one, two = host.token(), host.token()
    assert default_folder(one) == default_folder(one)
    assert default_folder(one) != default_folder(two)
    assert default_folder(one).name not in one


def test_the_line_says_it_all(host: Host, invitation: Invitation) -> None:
    line = further_line(host.folder.path)
    start, _, token = line.rpartition(" ")
    assert start == f"surreal-like join {host.address} --token"
    assert request_admission(replace(invitation, token=token)).names


def test_a_run_that_cannot_be_joined_has_no_line(host: Host, tmp_path: Path) -> None:
    assert join_line(RunFolder(tmp_path)) is None
    with pytest.raises(UsageError, match="it was launched without --host"):
        further_line(tmp_path)
    host.folder.addresses.write_text(AddressBook.ipc(OPEN, tmp_path).dump())
    assert join_line(host.folder) is None
    host.folder.result.write_text('{"status": "stopped"}')
    with pytest.raises(UsageError, match=r"no machine can join run .*: it is over"):
        further_line(host.folder.path)


def test_a_door_needs_keys(tmp_path: Path, host: Host) -> None:
    component = Component("ps", "ps", "main.ps", binds=(ENDPOINT,))
    launch = Launch(component, host.config, Topology([component]), host.book, None)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made = Context(launch, context, clock=CountedClock(), incarnation=1, pause=lambda *_: None)
    with pytest.raises(UsageError, match=r"ps\.join needs the run folder with its keys"):
        JoinServer(made)
    made.close()
    context.destroy(0)


STRANGE: list[Any] = [
    *(None, True, -1, 0, 2**64 - 1, -(2**63), 1e300, float("nan"), float("inf")),
    *("", "x" * 70, b"x" * 65, [], [[]], [None], {}, {"a": {"b": [1]}}, {1: None}),
    *(msgpack.ExtType(1, b"x"), [msgpack.ExtType(5, b"")], msgpack.Timestamp(1, 2)),
]


@pytest.mark.parametrize("name", ["secret", "agents", "clients", "algorithm_sha256", "unknown"])
def test_no_type_of_value_passes_where_it_is_not_expected(name: str) -> None:
    good = {"secret": b"x" * 16, "agents": 1, "clients": ["client-a"], "algorithm_sha256": "x"}
    schema = REQUESTS["join"]
    assert schema.complaint(Message("join", good)) is None
    fitting = {"secret": (bytes,), "clients": (list,), "algorithm_sha256": (str,)}.get(name, ())
    wrong = 0
    for value in STRANGE:
        complaint = schema.complaint(Message("join", {**good, name: value}))
        assert complaint is None or f"'{name}'" in complaint
        if complaint is None:
            assert type(value) in fitting
        wrong += complaint is not None
    assert wrong >= len(STRANGE) - 2
