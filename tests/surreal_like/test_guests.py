"""What a joined machine says of itself counts no further than the rows that replay has taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import zmq

import main.ps
from session.wire import Identity, Message
from session.wire.requests import Request
from session.wire.roles import GUEST, WATCH, Grant
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.data.sender import Sender
from surreal_like.experience.row_accounts import RowAccounts
from surreal_like.replay.chunk_accounts import AckTracker
from tests.surreal_like.agent.rig import make_rig
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.test_batch_server import Bench, config

CLAIM = 10**9
SENDER = Identity("agent-1000", 5, bytes(8))
GRANT = Grant(GUEST, ("agent-1000",))
ACCOUNT = {
    **dict.fromkeys(("pushed", "inserted", "env_steps", "episodes"), CLAIM),
    **dict.fromkeys(("dropped", "unacked"), 0),
}
REQUESTS: dict[str, dict[str, Any]] = {
    "fetch": {"have": [0, 0], "account": {**ACCOUNT, "final": True}},
    "info": {"account": {**ACCOUNT, "final": False}},
    "leave": {"account": {**ACCOUNT, "final": True}},
}
# Rows of chunks are as many as replay gets; their numbers are claims.
CHUNK = {"seq": 2, "acked": 1, "acked_rows": CLAIM - 1, "rows": CLAIM, "env_steps": CLAIM}
EXPERIENCE: dict[str, tuple[str, dict[str, Any], int]] = {
    "chunk": ("FM", CHUNK, 2),
    "chunk without columns": ("", CHUNK, 0),
    "chunk of another policy": ("FM", {**CHUNK, "policy": "other"}, 2),
    "chunk of a snapshot": ("FM", {**CHUNK, "policy": "default-5"}, 2),
    "chunk of an older process": ("FM", CHUNK, 2),
    "goodbye": ("", {"seq": 1, "rows": CLAIM, "env_steps": CLAIM, "episodes": CLAIM}, 0),
}
POLICIES = {"one policy": [DEFAULT_POLICY], "two policies": ["left", "right"]}


class Door:
    """A parameter server and a shard, to which a joined machine sends what it likes."""

    def __init__(self, stack: ExitStack, folder: Path, policies: list[str]) -> None:
        context: zmq.Context[Any] = zmq.Context()
        stack.callback(context.destroy, 0)
        self._bench = stack.enter_context(closing(Bench(context, folder, config())))
        self._bench.until(lambda: self._bench.service)
        rig = stack.enter_context(make_rig())
        frame = rig.start("ps", main.ps.build)
        rig.until(lambda: frame._service)
        self.policies, self.refused = policies, list[str]()
        service: Any = frame._service
        self.ps: Any = service
        service._policies = policies
        service._requests.refuse = lambda request, reason, **more: self.refused.append(reason)

    @property
    def intake(self) -> Any:
        """The receiver of the shard."""
        return self._bench.service._intake

    @property
    def policy(self) -> str:
        """The policy whose rows the shard keeps."""
        policy: str = self.intake._policy
        return policy

    @property
    def ledger(self) -> AckTracker:
        """The accounts of the shard."""
        ledger: AckTracker = self.intake.ledger
        return ledger

    def ask(self, kind: str, policy: str, sender: Identity = SENDER) -> None:
        fields = {"id": 1, "policy": policy, **REQUESTS[kind]}
        self.ps._answer(Request(b"x", Message(kind, fields, sender=sender, grant=GRANT)))

    def push(self, what: str, sender: Identity = SENDER, grant: Grant = GRANT, **more: Any) -> None:
        rows, fields, _ = EXPERIENCE[what]
        kind = what.partition(" ")[0]
        message = chunk_of(rows or "F").to_message() if kind == "chunk" else Message(kind)
        arrays = message.arrays if rows else {}
        given = Message(kind, {**message.fields, **fields, **more}, arrays, sender, grant)
        self.intake._take(given)

    def accounts(self) -> RowAccounts:
        """The accounts of the run, from all that the two report."""
        accounts = RowAccounts(steps_per_row=1)
        for key, account in self.ps._accounts.items():
            accounts.add_sender(key, account)
        senders = {
            Sender.parse(key)._replace(policy=policy).key: rows
            for policy in self.policies
            for key, rows in self.ledger.senders().items()
        }
        accounts.add_shard("replay-0/7", {"sampled": 0, "senders": senders})
        return accounts


@pytest.fixture(params=POLICIES)
def door(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Door]:
    with ExitStack() as stack:
        yield Door(stack, tmp_path, POLICIES[request.param])


@pytest.mark.parametrize("what", [*REQUESTS, *EXPERIENCE])
def test_claims_of_a_guest_count_no_further_than_its_rows(door: Door, what: str) -> None:
    taken = 0
    if what in REQUESTS:
        for policy in (
            *door.policies,
            *(f"{each}-{n}" for each in door.policies for n in (5, 2000)),
        ):
            door.ask(what, policy)
        assert set(door.ps._accounts) <= {f"{SENDER.name}/5", f"{SENDER.name}:left/5",
                                          f"{SENDER.name}:right/5"}  # fmt: skip
    else:
        if what == "chunk of an older process":
            first: dict[str, Any] = {
                "seq": 1,
                "acked": 0,
                "acked_rows": 0,
                "rows": 2,
                "env_steps": 2,
            }
            door.push("chunk", SENDER._replace(incarnation=9), **first)
            taken += 2
        door.push(what)
        taken = (taken + EXPERIENCE[what][2]) * len(door.policies)
    accounts = door.accounts()
    assert accounts.senders
    rows = accounts.rows()
    assert max(accounts.env_steps, accounts.episodes, rows.pushed) <= taken
    assert rows.pushed == rows.inserted + rows.dropped + rows.holes + rows.unacked


def test_what_a_guest_says_of_its_episodes_is_marked(door: Door) -> None:
    episode = {"return": 499.0, "length": 10, "metrics": {"task": 1.0}}
    # The first rows, which decide the columns here, are never those of a guest.
    door.push("chunk", Identity("agent-0", 5, bytes(8)), Grant(), policy=door.policy)
    door.push("chunk", policy=door.policy, finished=[episode])
    (finished,) = door.intake.pop_finished(b"learner")
    assert finished == {**episode, "metrics": {}, "guest": True}


@pytest.mark.parametrize(
    ("agents", "decide", "counts"), [(0, False, True), (1, False, False), (1, True, True)]
)
def test_episodes_of_clients_count_beside_own_agents_only_where_a_key_says_so(
    agents: int, decide: bool, counts: bool, tmp_path: Path
) -> None:
    settings = config()
    settings.session_config.agent.num = agents
    settings.session_config["gateway"] = {"clients_decide": decide}
    episode = {"return": 1e6, "length": 10, "metrics": {"my/score": 1.0}}
    marked = {**episode, "metrics": {}, "guest": True}
    context: zmq.Context[Any] = zmq.Context()
    with ExitStack() as stack:
        stack.callback(context.destroy, 0)
        bench = stack.enter_context(closing(Bench(context, tmp_path, settings)))
        bench.until(lambda: bench.service)
        intake: Any = bench.service._intake
        for name in ("gateway-0", "agent-0"):
            given = chunk_of("FM").to_message()
            fields = {**given.fields, "seq": 1, "finished": [episode]}
            intake._take(Message("chunk", fields, given.arrays, Identity(name, 5, bytes(8))))
        assert intake.pop_finished(b"learner") == [episode if counts else marked, episode]


@pytest.mark.parametrize("inserted", [0, 8])
def test_a_guest_is_an_agent_once_replay_has_rows_of_it(inserted: int) -> None:
    accounts = RowAccounts()
    rows = dict.fromkeys(("rows", "base", "dropped", "env_steps", "episodes"), 0)
    guest = {**rows, "inserted": inserted, "guest": True}
    accounts.add_shard("replay-0/1", {"sampled": 0, "senders": {"agent-1000/5": guest}})
    assert accounts.counts(Sender("agent-1000", 5)) == bool(inserted)
    assert accounts.counts(Sender("agent-0", 5))


def test_no_guest_makes_accounts_of_policies_that_do_not_exist(door: Door) -> None:
    for kind in REQUESTS:
        for number in range(100):
            door.ask(kind, f"{door.policies[0]}-{number}")
            door.ask(kind, f"other{number}")
    assert not door.ps._accounts
    assert sum("with an account: snapshots have none" in each for each in door.refused) == 300
    assert sum("but this run has" in each for each in door.refused) == 300


def test_a_machine_that_only_asks_whether_the_run_goes_on_makes_no_account(door: Door) -> None:
    for incarnation in range(1, 100):
        door.ask("info", door.policies[0], Identity(WATCH, incarnation, bytes(8)))
    assert not door.ps._accounts
    assert not door.refused


def test_a_snapshot_that_does_not_exist_is_refused_without_an_event(door: Door) -> None:
    name = f"{door.policies[0]}-7"
    for kind, fields in (("fetch", {"have": [0, 0], "patient": True}), ("info", {})):
        message = Message(kind, {"id": 1, "policy": name, **fields}, sender=SENDER, grant=GRANT)
        door.ps._answer(Request(b"x", message))
    assert door.refused == [f"'agent-1000' asks for {name}: there is no such snapshot"] * 2
    assert not door.ps._patient


@pytest.mark.parametrize("what", ["chunk of another policy", "chunk of a snapshot"])
def test_rows_of_another_policy_are_dropped(door: Door, what: str) -> None:
    door.push(what)
    assert door.ledger.drops == {"wrong policy": 2}


@pytest.mark.parametrize(
    ("key", "sender"),
    [
        ("agent-0/17", Sender("agent-0", 17)),
        ("agent-1000:left/17", Sender("agent-1000", 17, "left")),
        ("agent/1", Sender("agent", 1)),
    ],
)
def test_a_sender_is_read_from_its_key(key: str, sender: Sender) -> None:
    assert Sender.parse(key) == sender
    assert sender.key == key


@pytest.mark.parametrize(
    ("given", "policy", "snapshot"),
    [
        ("left", "left", None),
        ("left-5", "left", 5),
        ("left-05", "left", 5),
        ("left-x", "left-x", None),
        ("left-5-6", "left-5-6", None),
        ("5", "5", None),
    ],
)
def test_a_sender_is_read_from_its_message(given: str, policy: str, snapshot: int | None) -> None:
    for grant in (GRANT, Grant()):
        sender = Sender.of(Message("fetch", {"policy": given}, sender=SENDER, grant=grant))
        assert sender == Sender("agent-1000", 5, policy, snapshot, grant.guest)
        assert sender.account == f"agent-1000:{policy}"
    assert Sender.of(Message("accounts", sender=SENDER), "first").policy == "first"
