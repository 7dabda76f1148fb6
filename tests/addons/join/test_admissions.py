"""Each change of what a machine has passes one check: room, end of time, uses; at both endpoints.

Without sockets: a machine is a key, and the run's clock is set by hand.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from session.folder import RunFolder
from session.process.clock import CountedClock
from session.process.component import SILENT_SECONDS
from session.wire import Address, AddressBook, Identity, Message
from session.wire.requests import Request
from session.wire.roles import GUEST, WATCHER, Grant
from session.wire.security import Security, write_keys
from surreal_like.addons.join.admission_server import ENDPOINT, TUNE_ENDPOINT, Host, JoinServer
from surreal_like.addons.join.tokens import Admissions, Token, TokenFolder, make_token
from tests.surreal_like.agent.rig import make_config

DOORS = (ENDPOINT, TUNE_ENDPOINT)
OPEN = ("replay-0.experience", "ps.requests", "tune.workers", "tensorplex.records")


class Clock(CountedClock):
    """A clock that jumps."""

    def __init__(self) -> None:
        super().__init__()
        self.later = 0.0

    def now(self) -> float:
        return super().now() + self.later

    def time(self) -> float:
        return super().time() + self.later


class Router:
    """Requests as a socket would give them, and the newest answer.

    Args:
        endpoint: its name.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.waiting: deque[Request] = deque()
        self.answer: dict[str, Any] | str = ""

    def receive(self) -> Request | None:
        return self.waiting.popleft() if self.waiting else None

    def reply(self, request: Request, kind: str, fields: dict[str, Any]) -> None:
        self.answer = fields

    def refuse(self, request: Request, reason: str, *, stranger: bool) -> None:
        self.answer = reason


class Run:
    """A run or a tuning, with its join server only.

    Args:
        path: for its folder.
        door: endpoint of requests to join.
    """

    def __init__(self, path: Path, door: str = ENDPOINT) -> None:
        self.keys = path / "keys"
        write_keys(self.keys)
        self.clock = Clock()
        self.events: list[str] = []
        self.kind = "worker" if door == TUNE_ENDPOINT else "agent"
        self._router = Router(door)
        self._host = SimpleNamespace(
            wire=SimpleNamespace(
                security=Security.load(self.keys),
                router=lambda *_, **__: self._router,
                addresses=AddressBook({name: Address.same("tcp://10.0.0.7:1") for name in OPEN}),
            ),
            folder=RunFolder(path / "run"),
            config=make_config(),
            clock=self.clock,
            run_over=False,
            event=lambda kind, detail="", **_: self.events.append(f"{kind}: {detail}"),
        )
        self._door = door
        self.again()

    def again(self) -> None:
        """Another process answers from now on."""
        self.server = JoinServer(cast(Host, self._host), self._door)

    def token(self, uses: int = 1, valid_seconds: float | None = None) -> bytes:
        """Returns the secret of a new token; its end is by the clock of the run."""
        token = Token.decode(make_token(self.keys, uses)).secret
        if valid_seconds is not None:
            path = self.file(token)
            until = self.clock.time() + valid_seconds
            TokenFolder(self.keys).write(path, Admissions(uses, until))
        return token

    def file(self, token: bytes) -> Path:
        found = TokenFolder(self.keys).find(token)
        assert found is not None
        return found

    def ask(
        self, machine: str, token: bytes, agents: int = 0, clients: tuple[str, ...] = ()
    ) -> list[str] | str:
        """Returns the names that a machine gets, or the reason of a refusal."""
        fields: dict[str, Any] = {"secret": token}
        fields |= {"agents": agents} if agents else {}
        fields |= {"clients": [f"client-{name}" for name in clients]} if clients else {}
        message = Message("join", fields, sender=Identity("join"))
        self._router.waiting.append(Request(b"", message, key_of(machine)))
        self.server.tick()
        answer = self._router.answer
        return answer if isinstance(answer, str) else answer["names"]

    def addresses(self) -> set[str]:
        """Returns the endpoints in the newest answer."""
        assert isinstance(self._router.answer, dict)
        return set(self._router.answer["addresses"])

    def pass_time(self, seconds: float, *alive: str) -> None:
        """Lets the clock advance; machines that are alive send a request."""
        self.clock.later += seconds
        for machine in alive:
            self.server.on_request(key_of(machine))

    def grant(self, machine: str) -> Grant | None:
        return Security.load(self.keys).grant(key_of(machine).encode())

    @property
    def num_allowed(self) -> int:
        return len(list((self.keys / "allowed").iterdir()))


def key_of(machine: str) -> str:
    return machine.ljust(40, "0")


@pytest.fixture(params=DOORS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path, request.param)


# What another machine asks for, one request after the other; each but the first may look.
WANTS: dict[str, list[dict[str, Any]]] = {
    "looks, then agents": [{}, {"agents": 2}],
    "agents": [{"agents": 1}],
    "scripts": [{"clients": ("b/0",)}],
    "looks, then scripts": [{}, {"clients": ("b/0",)}],
    "looks, then both": [{}, {"agents": 1, "clients": ("b/0",)}],
}


def full(run: Run, uses: int) -> bytes:
    token = run.token(uses)
    for number in range(uses):
        assert run.ask(f"machine{number}", token, 1) == [f"{run.kind}-{1000 + number}"]
    return token


def expired(run: Run, uses: int) -> bytes:
    token = run.token(uses + 1, valid_seconds=8.0)
    for number in range(uses):
        run.ask(f"machine{number}", token, 1)
    assert run.ask("other", token) == []
    run.pass_time(9.0)
    return token


def expired_beside_a_silent_one(run: Run, uses: int) -> bytes:
    token = expired(run, uses)
    run.pass_time(SILENT_SECONDS, *(f"machine{number}" for number in range(1, uses)), "other")
    return token


def taken_over(run: Run, uses: int) -> bytes:
    """The place of a silent machine was given on already."""
    token = full(run, uses)
    run.pass_time(SILENT_SECONDS + 1, *(f"machine{number}" for number in range(1, uses)))
    if uses > 1:
        assert run.ask("heir", token, 1) == [f"{run.kind}-1000"]
    return token


@pytest.mark.parametrize("wants", WANTS.values(), ids=list(WANTS))
@pytest.mark.parametrize("uses", [1, 3])
@pytest.mark.parametrize("state", [full, expired, expired_beside_a_silent_one, taken_over])
def test_a_token_without_room_gives_another_machine_nothing(
    run: Run, state: Any, uses: int, wants: list[dict[str, Any]]
) -> None:
    token = state(run, uses)
    before = Admissions.load(run.file(token))
    *looks, last = wants
    for each in looks:
        assert run.ask("other", token, **each) == []
        assert run.grant("other") == Grant(WATCHER)
    answer = run.ask("other", token, **last)
    assert "this token " in answer
    after = Admissions.load(run.file(token))
    assert [each for each in after.machines if each.named] == list(before.machines)[:uses]
    assert run.grant("other") in (None, Grant(WATCHER))


@pytest.mark.parametrize("more", [{"agents": 3}, {"agents": 2, "clients": ("a/1",)}])
@pytest.mark.parametrize("uses", [1, 3])
def test_a_machine_that_has_a_place_gets_more_until_the_end_of_the_token(
    run: Run, uses: int, more: dict[str, Any]
) -> None:
    token = run.token(uses, valid_seconds=8.0)
    assert run.ask("machine", token) == []
    first = run.ask("machine", token, 2)
    names = [f"{run.kind}-{1000 + number}" for number in range(3)]
    tuning = run.kind == "worker"
    assert first == names[: 1 if tuning else 2]
    assert run.ask("machine", token, **more) == names[: 1 if tuning else more["agents"]]
    run.pass_time(9.0)
    # What it has it keeps; more is refused.
    assert run.ask("machine", token, 2) == first
    assert "has expired" in run.ask("machine", token, 2, ("a/2",))
    if not tuning:
        assert "has expired" in run.ask("machine", token, 4)
    assert run.ask("machine", token) == []


def test_a_machine_that_only_looks_may_ask_whether_the_run_goes_on_and_no_more(run: Run) -> None:
    token = run.token()
    assert run.ask("look", token) == []
    assert run.addresses() == {"ps.requests", "tune.workers"}
    grant = run.grant("look")
    assert grant == Grant(WATCHER)
    kinds = ("info", "hello", "fetch", "leave", "poll", "chunk", "tensorplex")
    for endpoint in (*OPEN, "learner.control", "replay-0.acks"):
        allowed = [kind for kind in kinds if grant.refusal(endpoint, kind, "join") is None]
        assert allowed == (["info"] if endpoint in ("ps.requests", "tune.workers") else [])
    # It can become more, where the token has room.
    assert run.ask("look", token, 1) == [f"{run.kind}-1000"]
    assert run.grant("look") == Grant(GUEST, (f"{run.kind}-1000",))
    assert run.num_allowed == 1


def test_machines_that_look_leave_nothing_that_grows(run: Run) -> None:
    token = run.token(uses=2)
    run.ask("machine", token, 1)
    for number in range(50):
        run.pass_time(SILENT_SECONDS + 1, "machine")
        assert run.ask(f"look{number}", token) == []
    assert run.num_allowed <= 3
    assert len(Admissions.load(run.file(token)).machines) <= 3
    assert len(run.server._requested_at) <= 3
    assert run.ask("machine", token, 1) == [f"{run.kind}-1000"]


def test_a_refusal_takes_nothing_from_a_silent_machine(run: Run) -> None:
    token, other = run.token(uses=2), run.token()
    run.ask("one", token, 1)
    run.ask("two", other, clients=("b/0",))
    run.pass_time(SILENT_SECONDS + 1)
    assert "another machine reports as 'client-b/0'" in run.ask("new", token, 1, ("b/0",))
    assert run.ask("one", token, 1) == [f"{run.kind}-1000"]


def test_scripts_of_a_machine_that_has_gone_go_to_the_one_in_its_place(run: Run) -> None:
    token = run.token(uses=2)
    run.ask("one", token, 1, ("b/0",))
    run.pass_time(SILENT_SECONDS + 1)
    assert run.ask("new", token, 1, ("b/0",)) == [f"{run.kind}-1000"]
    assert run.grant("new") == Grant(GUEST, (f"{run.kind}-1000", "client-b/0"))
    assert run.grant("one") is None


def test_a_machine_has_what_all_its_tokens_gave(run: Run) -> None:
    many, single = run.token(uses=2), run.token()
    run.ask("one", many, 1)
    run.ask("one", single, 1)
    both = (f"{run.kind}-1000", f"{run.kind}-1001")
    grant = run.grant("one")
    assert grant is not None
    assert sorted(grant.names) == list(both)
    run.pass_time(SILENT_SECONDS + 1)
    assert run.ask("new", many, 1) == [both[0]]
    assert run.grant("one") == Grant(GUEST, (both[1],))
    # A key that was taken away stays out, whatever its token.
    (run.keys / "allowed").joinpath(key_file(run, "one")).unlink()
    assert "taken away" in run.ask("one", single, 1)
    assert "taken away" in run.ask("one", run.token(), 1)


def key_file(run: Run, machine: str) -> str:
    (found,) = [
        path.name
        for path in (run.keys / "allowed").iterdir()
        if path.read_text().startswith(key_of(machine))
    ]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_whatever_machines_ask_no_token_gives_more_than_it_has(run: Run, seed: int) -> None:
    draw = random.Random(seed)
    tokens = [run.token(1), run.token(3), run.token(2, valid_seconds=1500.0)]
    machines = [f"machine{number}" for number in range(8)]
    frozen: dict[bytes, Admissions] = {}
    for _ in range(150):
        run.pass_time(draw.choice([0.0, 1.0, 250.0]), *draw.sample(machines, 4))
        if draw.random() < 0.05:
            run.again()
        token, machine = draw.choice(tokens), draw.choice(machines)
        before = {each: Admissions.load(run.file(each)) for each in tokens}
        clients = tuple(draw.sample(("a/0", "a/1", "b/0"), draw.choice((0, 0, 0, 1, 2))))
        answer = run.ask(machine, token, draw.choice((0, 0, 1, 2, 5)), clients)
        after = {each: Admissions.load(run.file(each)) for each in tokens}
        if isinstance(answer, str):
            assert after == before
        check_bounds(run, after)
        over = after[tokens[2]].until or 0.0
        if run.clock.time() > over:
            assert frozen.setdefault(tokens[2], before[tokens[2]]) == after[tokens[2]]
        owner = [each.key for each in before[tokens[0]].machines if each.named]
        if owner:
            assert owner == [each.key for each in after[tokens[0]].machines if each.named]


def check_bounds(run: Run, tokens: dict[bytes, Admissions]) -> None:
    """No more machines than uses, no name twice, rights of exactly what the tokens gave."""
    names: dict[str, str] = {}
    granted: dict[str, set[str]] = {}
    for places in tokens.values():
        named = [each for each in places.machines if each.named]
        assert len(named) <= places.uses
        assert len(places.machines) - len(named) <= places.uses
        for each in places.machines:
            assert len(each.names) <= (1 if run.kind == "worker" else 5)
            granted.setdefault(each.key, set()).update((*each.names, *each.clients))
            for name in (*each.names, *each.clients):
                assert names.setdefault(name, each.key) == each.key
    numbers = [int(name.rpartition("-")[2]) for name in names if not name.startswith("client-")]
    assert sorted(numbers) == list(range(1000, 1000 + len(numbers)))
    assert run.num_allowed == len(granted)
    security = Security.load(run.keys)
    for key, given in granted.items():
        grant = security.grant(key.encode())
        assert grant is not None
        assert set(grant.names) == given
        assert grant.role == (GUEST if given else WATCHER)
