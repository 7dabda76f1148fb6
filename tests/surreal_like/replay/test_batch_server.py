"""The replay server over real sockets, stepped by hand."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import sections_of
from session.errors import SurrealError, describe
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.process.service import IDLE_SECONDS, Frame
from session.wire import AddressBook, Identity, Message, Wire
from session.wire.requests import Request
from session.wire.roles import GUEST, Grant
from session.wire.socket_state import poll
from surreal_like.data.batch import Sampled
from surreal_like.data.columns import manifest_of, plain_columns
from surreal_like.experience.chunk import Chunk
from surreal_like.replay import batch_server
from surreal_like.replay.batch_requests import ReplayClient
from surreal_like.replay.batch_server import ReplayService
from surreal_like.replay.chunk_validator import ChunkValidator
from surreal_like.replay.kinds import UniformReplay
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.tuple_replay import TupleReplay
from tests.polling import until
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.cluster import Cluster
from tests.surreal_like.replay.cluster import config as cluster_config

PEERS = (("agent-0", "agent"), ("agent-10", "agent"), ("learner", "learner"))
ENDS = ("experience", "acks", "batches", "priorities")


def config(**replay: Any) -> Config:
    whole = BASE_CONFIG.copy()
    whole.algorithm = "none"
    whole.env_config.env_name = "toy:none"
    whole.env_config.num_envs = 2
    whole.session_config.sender.flush_iteration = 5
    whole.session_config.learner.batches_per_request = 2
    defaults = {"capacity": 1000, "min_size": 4, "batch_size": 4}
    whole.learner_config.replay.update(defaults | replay)
    return whole


class Faulty(TupleReplay):
    """An author's replay of which one method raises from its `good`-th call on."""

    method, good, error = "", 0, ValueError

    def insert(self, exp_tuple: Any) -> None:
        self._call("insert")

    def sample(self, batch_size: int) -> Any:
        self._call("sample")
        return [0] * batch_size

    def aggregate_batch(self, sample: Any) -> Any:
        self._call("aggregate_batch")
        rows = {name: np.zeros(len(sample), np.float32) for name in ("rewards", "dones")}
        return {"obs": rows["dones"], "obs_next": rows["dones"], "actions": rows["dones"], **rows}

    def evict(self) -> int:
        self._call("evict")
        return 0

    def _call(self, method: str) -> None:
        if method == Faulty.method:
            Faulty.good -= 1
            if Faulty.good < 0:
                raise Faulty.error("wrong")


FAULTY = f"{__name__}:Faulty"


class _NoClient:
    """The side of a learner that has died."""

    def tick(self) -> None:
        """Does nothing."""

    def sockets(self) -> list[Any]:
        return []


class Bench:
    """One served shard with a sender and a learner beside it."""

    def __init__(self, context: zmq.Context[Any], folder: Path, settings: Config) -> None:
        names = [f"replay-0.{end}" for end in ENDS]
        self.addresses = AddressBook.ipc(names, folder)
        component = Component("replay-0", "replay", "main.replay", binds=tuple(names))
        self.clock = CountedClock()
        self.config = settings
        others = [
            Component(name, kind, f"main.{kind}", 0, (), tuple(names)) for name, kind in PEERS
        ]
        topology = Topology([component, *others])
        launch = Launch(component, settings, topology, self.addresses, None)
        self.context = context
        own = Context(launch, context, clock=self.clock, incarnation=7)
        self.frame = Frame(own, self._build)
        self.fingerprint = bytes.fromhex(settings.fingerprint()[:16])
        self.sender = self.wire("agent-0", 11)
        self.push = self.sender.push("replay-0.experience")
        self.acks = self.sender.subscriber("replay-0.acks", name="agent-0")
        self.kind = load_replay_class(settings.learner_config)
        self.client = self.make_client()
        self.sent = 0
        self.rows = 0
        self.ack_messages: list[Any] = []

    def make_client(self, incarnation: int = 1) -> ReplayClient:
        """A learner's side."""
        return ReplayClient(
            self.wire("learner", incarnation),
            self.clock,
            shards=["replay-0"],
            batch_size=4,
            batches_per_request=2,
            collate=self.kind.collate(self.config.learner_config),
        )

    def take_learner_away(self) -> None:
        """The learner dies with its sockets; replay has seen that they are closed."""
        self.client.sockets()[0]._wire.close(0)
        router, self.client = self.service._batches, _NoClient()  # type: ignore[assignment]
        asked = next(iter(self.service._parked))[0]
        self.until(lambda: not router.reply(asked, "counts"))

    def _build(self, context: Any) -> ReplayService:
        return ReplayService(context, self.kind(**sections_of(self.config)))

    def wire(self, name: str, incarnation: int) -> Wire:
        return Wire(self.context, self.addresses, Identity(name, incarnation, self.fingerprint))

    def send(
        self,
        *,
        obs: int = 3,
        sequence: int | None = None,
        patient: bool = True,
        filled: float = 0.0,
        action: int = 0,
        stamps: Mapping[str, float] | None = None,
    ) -> bool:
        """One chunk of 5 x 2 rows; False if nobody took it for a while."""
        shape = (5 + self.kind.overlap, 2)
        columns: dict[str, Any] = {
            "step_type": np.ones(shape, np.uint8),
            "reward": np.ones(shape, np.float32),
            "discount": np.ones(shape, np.float32),
            "version": np.zeros(shape, np.int64),
            "obs": np.zeros((*shape, obs), np.float32),
            "action": np.full(shape, action, np.int64),
        }
        if sequence is None:
            self.sent += 1
            self.rows += 10
        finished = [{"return": float(self.sent), "length": 5, "metrics": {}}]
        chunk = Chunk(
            columns,
            sequence or self.sent,
            [0, 1],
            rows=self.rows,
            env_steps=self.rows,
            episodes=self.sent,
            finished=finished,
            overlap=self.kind.overlap,
            filled=filled,
            stamps=dict(stamps or {}),
        )
        deadline = time.monotonic() + (5.0 if patient else 0.2)
        while time.monotonic() < deadline:
            if self.push.send(chunk.to_message()):
                return True
            self.step()
        assert not patient
        self.sent, self.rows = self.sent - 1, self.rows - 10
        return False

    def until(self, condition: Callable[[], Any]) -> None:
        """Steps everybody until something is so."""
        self.step()
        until(condition, step=self.step)

    def step(self) -> None:
        self.clock.advance()
        self.frame.step()
        self.client.tick()
        while (message := self.acks.receive()) is not None:
            self.ack_messages.append(message.fields["senders"])
        poll(self.client.sockets(), 0.001)

    def ack(self) -> Any:
        # An entry without senders goes to all subscribers.
        return next(
            (reported["agent-0"] for reported in reversed(self.ack_messages) if reported), None
        )

    def counts(self) -> Any:
        def asked() -> bool:
            self.client.ask_counts()
            return bool(self.client.counts())

        self.until(asked)
        for _ in range(100):  # what was sent before is told by now
            self.step()
        asked()
        for _ in range(100):
            self.step()
        return next(iter(self.client.counts().values()))

    @property
    def service(self) -> ReplayService:
        """What is served; it is built with the first step."""
        assert isinstance(self.frame._service, ReplayService)
        return self.frame._service

    def let(self, milliseconds: int) -> None:
        """Lets counted time pass."""
        for _ in range(milliseconds):
            self.step()

    def leave_room_before_the_next_sign_of_life(self) -> None:
        """Twice a second everybody hears that this replay lives, and what there is to say."""
        while self.clock.now() % 0.5 > 0.3:
            self.clock.advance()

    def close(self) -> None:
        self.frame.close()
        self.sender.close(0)
        for socket in self.client.sockets():
            socket._wire.close(0)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    context: zmq.Context[Any] = zmq.Context()
    made: list[Bench] = []

    def build(**replay: Any) -> Bench:
        made.append(Bench(context, tmp_path, config(**replay)))
        return made[-1]

    yield build
    for bench in made:
        bench.close()
    context.destroy(0)


def record(patch: pytest.MonkeyPatch, of: object, name: str, note: Callable[[], None]) -> None:
    real = getattr(of, name)

    def call(*given: Any, **named: Any) -> Any:
        note()
        return real(*given, **named)

    patch.setattr(of, name, call)


def test_what_is_sent_is_inserted_acked_and_sampled(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send()
    bench.send()
    bench.until(lambda: bench.ack() == [11, 2, 20, 0])
    bench.until(lambda: bench.client.waiting)
    sampled = bench.client.next()
    assert sampled is not None
    assert sampled.columns["obs"].shape == (4, 3)
    assert sampled.columns["rewards"].tolist() == [1, 1, 1, 1]
    assert sampled.incarnation == 7


@pytest.mark.parametrize(("filled", "waits"), [(0.5, False), (0.49, True)])
def test_a_sender_that_would_soon_wait_is_acked_at_once(
    make: Callable[..., Bench], filled: float, waits: bool
) -> None:
    bench = make()
    bench.send()
    bench.until(bench.ack)
    bench.leave_room_before_the_next_sign_of_life()
    intake = bench.service._intake
    # However long the chunk takes to come, it is not time for the others.
    intake.acks._news_at = math.inf
    bench.send(filled=filled)
    bench.until(lambda: intake.inserts.total == 20)
    assert intake.acks._news is waits
    intake.acks._news_at = 0.0
    bench.until(lambda: bench.ack() == [11, 2, 20, 0])


@pytest.mark.parametrize(("min_size", "wanted"), [(4, False), (15, True)])
def test_experience_gathers_while_no_request_waits_for_rows(
    make: Callable[..., Bench], min_size: int, wanted: bool
) -> None:
    bench = make(min_size=min_size)
    bench.step()
    if not wanted:
        bench.send()
        bench.until(lambda: bench.client.waiting)
    # Chunks that come at once need no rest.
    bench.let(10)

    def wakes() -> bool:
        return "replay-0.experience" in [socket.endpoint for socket in bench.service.wait_on()]

    assert wakes()
    bench.until(lambda: bool(bench.service._parked) is wanted)
    bench.send()
    bench.until(lambda: bench.service._intake.inserts.total == bench.rows)
    assert wakes() is wanted
    assert bench.service.rest_seconds() < IDLE_SECONDS
    # What has come is taken in all the same, whatever woke replay.
    bench.send()
    bench.until(lambda: bench.service._intake.inserts.total == bench.rows)
    bench.let(40)
    assert wakes()
    assert bench.service.rest_seconds() == IDLE_SECONDS


def test_replay_sleeps_no_longer_than_until_acks_are_due(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send()
    bench.until(bench.ack)
    bench.leave_room_before_the_next_sign_of_life()
    intake = bench.service._intake
    intake.acks._news_at = math.inf
    bench.send()
    bench.until(lambda: intake.inserts.total == 20)
    bench.let(40)
    intake.acks._news_at = bench.clock.now() + 0.003
    assert bench.service.rest_seconds() == pytest.approx(0.003)
    bench.let(5)
    assert not intake.acks._news


def test_a_batch_is_not_answered_before_there_is_enough(make: Callable[..., Bench]) -> None:
    bench = make(min_size=15)
    bench.send()
    for _ in range(200):
        bench.step()
    assert bench.client.waiting == 0
    bench.send()
    bench.until(lambda: bench.client.waiting)


def test_small_answers_leave_together_and_are_asked_for_together(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    bench.send()
    bench.until(bench.ack)
    wire = bench.wire("learner", 2)
    client = ReplayClient(
        wire,
        bench.clock,
        shards=["replay-0"],
        batch_size=4,
        batches_per_request=1,
        requests_in_flight=8,
    )
    bench.until(client.sockets()[0].writable)
    done: list[str] = []
    service = bench.service
    record(monkeypatch, service, "_sample", lambda: done.append("sample"))
    record(monkeypatch, service._batches, "_send", lambda: done.append("send"))
    (shard,) = client._shards
    asked: list[int] = []

    def taken() -> bool:
        before = set(shard.asked)
        client.tick()
        asked.extend(filter(None, [len(set(shard.asked) - before)]))
        return client.next() is not None and len(asked) > 20

    bench.until(taken)
    assert asked[0] == 8
    assert min(asked) >= 4
    assert "".join(name[1] for name in done).count("aaaa" + "eeee") > 5
    wire.close(0)


def test_a_learner_that_was_refused_asks_again(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    refused: list[int] = []
    real = UniformReplay.sample_columns

    def at_first_none(replay: UniformReplay, batch_size: int) -> dict[str, Any]:
        if len(refused) < 4:
            refused.append(batch_size)
            raise SurrealError("none can be drawn just now")
        return real(replay, batch_size)

    monkeypatch.setattr(UniformReplay, "sample_columns", at_first_none)
    bench.send()
    bench.until(lambda: bench.client.waiting)
    assert len(refused) == 4


def test_a_chunk_that_comes_twice_is_stored_once(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send()
    bench.send(sequence=1)
    bench.send()
    bench.until(lambda: bench.ack() == [11, 2, 20, 0])
    counts = bench.counts()
    assert (counts["inserted"], counts["duplicates"]) == (20, 10)


def test_a_chunk_that_does_not_fit_is_dropped_and_counted(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send()
    bench.send(obs=4)
    bench.until(lambda: bench.ack() == [11, 2, 10, 10])
    assert sum(bench.counts()["dropped"].values()) == 10


def test_the_limiter_lets_the_sender_wait_and_drain_lets_it_in(make: Callable[..., Bench]) -> None:
    bench = make(samples_per_insert=1.0)
    bench.client._fields["batch_size"] = 1 << 10  # asks for more than the band ever holds
    while bench.send(patient=False):
        pass
    bench.until(bench.ack)
    stored = bench.ack()[2]
    assert stored < bench.rows
    bench.client.drain()
    bench.until(lambda: bench.ack()[2] == bench.rows)
    assert bench.counts()["draining"]


def test_the_last_report_has_everything(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    reported: dict[str, float] = {}
    tensorplex = bench.frame.context.tensorplex
    monkeypatch.setattr(
        type(tensorplex), "add_scalars", lambda self, row, step: reported.update(row)
    )
    bench.send()
    bench.until(bench.ack)
    # Its axis is that of the run, which the learner's first request has.
    bench.until(lambda: bench.service._learners)
    assert reported == {}
    bench.frame.close()
    assert reported[".core/inserted"] == reported[".core/size"] == 10
    assert reported[".core/dropped"] == 0
    assert all(tag.startswith(".core/") for tag in reported)


def test_goodbye_is_acked_and_reported(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.send()
    fields = {"seq": 2, "rows": 10, "env_steps": 10, "episodes": 1}
    bench.until(lambda: bench.push.send(Message("goodbye", fields)))
    bench.until(lambda: bench.ack() is not None and bench.ack()[1] == 2)
    sender = bench.counts()["senders"]["agent-0/11"]
    assert sender["goodbye"]
    assert (sender["rows"], sender["inserted"], sender["holes"]) == (10, 10, 0)


def test_episodes_that_ended_before_the_first_request_are_reported(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    for _ in range(3):
        bench.send()
    bench.until(lambda: bench.ack() is not None and bench.ack()[1] == 3)
    bench.counts()
    reported = [episode["return"] for episode in bench.client.pop_finished()]
    assert reported == [1, 2, 3]


def test_each_finished_episode_is_reported_once(make: Callable[..., Bench]) -> None:
    bench = make()
    bench.counts()
    bench.client.pop_finished()
    for _ in range(3):
        bench.send()
    bench.until(lambda: bench.ack() is not None and bench.ack()[1] == 3)
    reported: list[float] = []

    def all_reported() -> bool:
        bench.client.ask_counts()
        reported.extend(episode["return"] for episode in bench.client.pop_finished())
        return len(reported) >= 3

    bench.until(all_reported)
    assert reported == [1, 2, 3]


@pytest.mark.parametrize(
    "message",
    [
        Message("chunk", {}),
        Message("chunk", {"seq": 1}, {"step_type": np.zeros((2, 2), np.uint8)}),
        Message("goodbye", {}),
        Message("nonsense", {}),
    ],
)
def test_bad_experience_is_rejected_and_the_server_lives(
    make: Callable[..., Bench], message: Message
) -> None:
    bench = make()
    bench.until(lambda: bench.push.send(message))
    bench.send()
    bench.until(lambda: bench.ack() == [11, 1, 10, 0])


def _spoil(chunk: Message, **columns: Any) -> Message:
    """The same chunk with other columns; None: without that one."""
    arrays = {**chunk.arrays, **columns}
    given = {name: array for name, array in arrays.items() if array is not None}
    return Message("chunk", dict(chunk.fields), given)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"reward": None}, "chunk without a column 'reward' of float32"),
        ({"step_type": None}, "chunk without a column 'step_type' of uint8"),
        ({"reward": np.ones((5, 2), np.float64)}, "chunk without a column 'reward' of float32"),
        ({"obs": np.zeros((4, 2, 3), np.float32)}, "all begin with [T, N] = (5, 2)"),
        ({"obs": np.zeros((5, 3, 3), np.float32)}, "all begin with [T, N] = (5, 2)"),
        ({"lead_in/obs": np.zeros((3, 9, 3), np.float32)}, "do not fit its observations"),
    ],
)
def test_a_chunk_that_cannot_be_read_is_dropped_acknowledged_and_counted(
    make: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    columns: dict[str, Any],
    said: str,
) -> None:
    bench = make()
    reported: list[str] = []
    bench.until(lambda: bench.service)
    wire = bench.frame.context.wire
    monkeypatch.setattr(wire, "_on_reject", lambda *words: reported.append(words[2]))
    send = bench.push.send
    bench.send()
    monkeypatch.setattr(bench.push, "send", lambda message: send(_spoil(message, **columns)))
    bench.send()
    bench.send()
    monkeypatch.setattr(bench.push, "send", send)
    bench.send()
    bench.until(lambda: bench.ack() == [11, 4, 20, 20])
    counts = bench.counts()
    assert counts["dropped"] == {"wrong columns": 20}
    sender = counts["senders"]["agent-0/11"]
    assert (sender["rows"], sender["base"], sender["holes"]) == (40, 0, 0)
    assert len(reported) == 1
    assert said in reported[0]
    assert wire.counters()["replay-0.experience"].rejected == 2


def test_a_sender_whose_chunks_are_refused_goes_on_and_counts_them(tmp_path: Path) -> None:
    settings = cluster_config(1)
    settings.session_config.sender.max_unacked_chunks = 3
    cluster = Cluster(tmp_path, settings)
    cluster.start(0)
    sender = cluster.senders[0]
    to_message = Chunk.to_message
    try:
        cluster.send(0, chunks=2)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Chunk, "to_message", lambda chunk: _spoil(to_message(chunk), reward=None))
            cluster.send(0, chunks=5)
        cluster.send(0, chunks=2)
        cluster.until(cluster.acked)
        window = sender.window
        assert (window.pushed, window.inserted, window.dropped) == (90, 40, 50)
        assert window.resent == 0
    finally:
        cluster.close()


def test_what_a_sender_says_does_not_count_as_received_with_a_chunk_that_cannot_be_read(
    make: Callable[..., Bench],
) -> None:
    bench = make()
    bench.send()
    fields = {"seq": 2, "rows": 10**9, "env_steps": 10**9, "episodes": 1, "streams": [0, 1]}
    fields |= {"policy": "default", "finished": [], "tail": False, "overlap": 1, "stamps": {}}
    fields |= {"acked": 0, "acked_rows": 0, "filled": 0.0}
    # As many rows as one likes, in no bytes.
    arrays = {"step_type": np.zeros((10**9, 10**6, 0), np.uint8)}
    bench.until(lambda: bench.push.send(Message("chunk", fields, arrays)))
    bench.until(lambda: bench.ack() == [11, 2, 10, 0])


@pytest.mark.parametrize(
    ("agent", "learner", "unknown"),
    [(1.0, 1.0, set()), (2.0, 1.0, {"sent"}), (1.0, 3.0, {"sampled"})],
)
def test_no_duration_lies_between_two_machines(
    make: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    agent: float,
    learner: float,
    unknown: set[str],
) -> None:
    monkeypatch.setattr("surreal_like.replay.receiver.boot_number", lambda: 1.0)
    monkeypatch.setattr("surreal_like.replay.batch_requests.boot_number", lambda: learner)
    bench = make()
    bench.send(stamps={"first": 0.1, "stepped": 0.2, "cut": 0.3, "boot": agent, "sent": 0.4})
    batches: list[Any] = []

    def came() -> bool:
        batches.extend(filter(None, [bench.client.next()]))
        return bool(batches)

    bench.until(came)
    stamps = batches[0].stamps
    every = {"first", "stepped", "cut", "boot", "sent", "inserted", "asked", "sampled", "answered"}
    assert set(stamps) == (every | {"requested", "received"}) - unknown
    assert stamps["requested"] <= stamps["received"]


@pytest.mark.parametrize("method", ["insert", "sample", "aggregate_batch", "evict"])
@pytest.mark.parametrize(("error", "certain"), [(ValueError, True), (OSError, False)])
def test_a_certain_error_of_an_authors_replay_ends_the_run_with_its_place(
    make: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    error: type[Exception],
    certain: bool,
) -> None:
    for name, value in (("method", method), ("good", 1), ("error", error)):
        monkeypatch.setattr(Faulty, name, value)
    bench = make(type=FAULTY)
    bench.config.session_config.replay.evict_interval = 0.01
    with pytest.raises(error) as caught:
        bench.until(lambda: bench.send() and bench.client.next() and False)
    assert bench.frame.is_hopeless(caught.value) is certain
    place = rf"{error.__name__}\('wrong'\), in Faulty\._call \(tests/.*/test_batch_server\.py:\d+\)"
    assert re.fullmatch(place, describe(caught.value))


def test_a_replay_is_proven_after_some_chunks_and_some_batches(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_server, "_PROVEN", 3)
    bench = make(type=FAULTY)
    monkeypatch.setattr(bench.client, "tick", lambda: None)
    for _ in range(4):
        bench.send()
    bench.until(lambda: bench.ack() == [11, 4, 40, 0])
    assert not bench.service.proven
    monkeypatch.undo()
    monkeypatch.setattr(batch_server, "_PROVEN", 3)
    bench.until(lambda: bench.client.next() and bench.service.proven)


@pytest.mark.parametrize(
    ("socket", "item"),
    [
        ("_batches", Request(b"x", Message("counts", {"id": 1}))),
        (
            "_priorities",
            Message(
                "priorities",
                {"replay": 7},
                {"indices": np.zeros(1, np.int64), "priorities": np.ones(1, np.float32)},
            ),
        ),
    ],
)
def test_a_flood_of_one_socket_leaves_time_for_the_others(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, socket: str, item: Any
) -> None:
    bench = make()
    bench.until(lambda: bench.service)
    flood = iter([item] * 1000)
    with monkeypatch.context() as patch:
        patch.setattr(getattr(bench.service, socket), "receive", lambda: next(flood))
        assert bench.service.tick()
        assert len(list(flood)) == 1000 - 64
    bench.step()
    assert not bench.service.tick()


def test_priorities_that_cannot_leave_at_once_leave_later(make: Callable[..., Bench]) -> None:
    bench = make(type="PrioritizedReplay")
    late = ReplayClient(bench.wire("learner", 1), bench.clock, shards=["replay-0"], batch_size=4)
    indices = {"indices": np.arange(4, dtype=np.int64)}
    # Nobody is there yet.
    late.update_priorities(Sampled(indices, 0, 7, {}), np.full(4, 0.5, np.float32))
    bench.send()
    before = bench.counts()["mass"]

    def lower() -> bool:
        late.tick(ask=False)
        return bool(bench.counts()["mass"] < before)

    bench.until(lower)
    late.sockets()[0]._wire.close(0)


def test_a_bad_request_is_refused(make: Callable[..., Bench]) -> None:
    bench = make()
    dealer = bench.wire("somebody", 1).dealer("replay-0.batches")
    answers = []

    def answered() -> bool:
        if (answer := dealer.receive()) is not None:
            answers.append(answer)
        return len(answers) == 2

    bench.until(lambda: dealer.send("sample", {"batch_size": -1, "batches": 1}))
    bench.until(lambda: dealer.send("dance"))
    bench.until(answered)
    assert [answer.kind for answer in answers] == ["refused", "refused"]
    dealer._wire.close(0)


def test_unrolls_are_passed_on_whole_and_learned_from_once(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=60)
    for _ in range(4):
        bench.send()
    bench.until(lambda: bench.client.waiting == 2)
    for _ in range(2):
        sampled = bench.client.next()
        assert sampled is not None
        assert sampled.columns["obs"].shape == (6, 4, 3)
        assert sampled.columns["rewards"].shape == (5, 4)
    for _ in range(50):
        bench.step()
    assert bench.client.next() is None
    counts = bench.counts()
    assert (counts["inserted"], counts["sampled"], counts["size"]) == (40, 40, 0)


def test_the_queue_holds_the_sender_back(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=40)
    bench.client.tick = lambda *, ask=True: False  # type: ignore[method-assign]
    for _ in range(4):
        bench.send()
    bench.until(lambda: bench.ack() == [11, 4, 40, 0])
    while bench.send(patient=False):
        pass  # into the buffers of the sockets, which are bounded
    for _ in range(50):
        bench.step()
    assert bench.ack() == [11, 4, 40, 0]
    del bench.client.tick
    bench.client.drain()
    bench.until(lambda: bench.ack()[2] == 10 * bench.sent)


def test_both_sides_waiting_is_counted_while_it_lasts(make: Callable[..., Bench]) -> None:
    """By the counted clock: a step is a millisecond, and nothing else passes time."""
    bench = make(type="FIFOReplay", capacity=40)
    bench.until(lambda: bench.service.status()["requests_waiting"] == 2)
    since = bench.clock.now()
    before = bench.service.status()
    bench.let(100)
    after = bench.service.status()
    # Two requests wait for the same rows at the same time.
    waited = after["waiting_sample_seconds"] - before["waiting_sample_seconds"]
    assert waited == pytest.approx(bench.clock.now() - since)
    assert after["waiting_insert_seconds"] == 0

    bench.client.tick = lambda *, ask=True: False  # type: ignore[method-assign]
    for _ in range(8):  # two batches for the requests, and a full queue
        bench.send()
    bench.until(lambda: bench.ack() == [11, 8, 80, 0])
    since = bench.clock.now()
    before = bench.service.status()
    bench.let(100)
    after = bench.service.status()
    waited = after["waiting_insert_seconds"] - before["waiting_insert_seconds"]
    assert waited == pytest.approx(bench.clock.now() - since)
    assert after["waiting_sample_seconds"] == before["waiting_sample_seconds"]

    del bench.client.tick
    bench.until(lambda: bench.service.status()["requests_waiting"] == 0)
    bench.until(lambda: bench.client.waiting >= 2)
    bench.let(2)
    before = bench.service.status()
    bench.let(100)
    after = bench.service.status()
    assert after["waiting_insert_seconds"] == before["waiting_insert_seconds"]


def test_replayed_rows_are_counted_apart(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=60, replay_proportion=0.5)
    replayed: list[int] = []
    for _ in range(6):
        bench.send()
    while len(replayed) < 5:
        bench.until(lambda: bench.client.waiting)
        sampled = bench.client.next()
        assert sampled is not None
        replayed.append(int(sampled.columns["replayed"].sum()))
    assert replayed == [0, 2, 2, 2, 2]
    counts = bench.counts()
    assert (counts["inserted"], counts["sampled"], counts["size"]) == (60, 60, 0)
    assert counts["replayed"] == 40


def test_how_far_the_learner_is_travels_with_its_requests(make: Callable[..., Bench]) -> None:
    bench = make(type="PrioritizedReplay")
    bench.client.version, bench.client.env_steps, bench.client.iteration = 5, 300, 40
    bench.until(lambda: bench.service.status()["requests_waiting"] == 2)
    replay = bench.service._replay
    assert (replay.newest_version, replay.env_steps, replay.iteration) == (5, 300, 40)
    # A learner that went on from a checkpoint has made fewer updates, but versions only rise.
    bench.client.version, bench.client.env_steps, bench.client.iteration = 4, 300, 20
    bench.send()

    def ack_messages() -> bool:
        bench.client.next()  # only then is more asked for
        return replay.iteration == 20

    bench.until(ack_messages)
    assert (replay.newest_version, replay.env_steps) == (5, 300)


def test_the_row_an_agent_leaves_with_is_dropped_and_counted(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=60)
    bench.send()
    bench.kind = type("Shorter", (bench.kind,), {"overlap": 0})
    bench.send()
    bench.until(lambda: bench.ack() == [11, 2, 10, 10])
    assert bench.counts()["dropped"] == {"short unroll": 10}


def test_each_sender_gets_its_own_acks_and_all_see_that_replay_lives(make: Any) -> None:
    bench = make()
    other = bench.wire("agent-10", 11).subscriber("replay-0.acks", name="agent-10")
    ack_messages: list[Any] = []

    def both_acked() -> bool:
        while (message := other.receive()) is not None:
            ack_messages.append(message.fields["senders"])
        return bool(ack_messages) and bench.ack() is not None and {} in bench.ack_messages

    bench.send()
    bench.until(both_acked)
    assert bench.ack() == [11, 1, 10, 0]
    assert set(map(len, ack_messages)) == {0}


def test_what_a_dead_learner_asked_for_goes_to_its_successor(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=60)
    bench.until(lambda: bench.service.status()["requests_waiting"] == 2)
    bench.take_learner_away()
    for _ in range(2):
        bench.send()
    bench.until(lambda: bench.ack() == [11, 2, 20, 0])
    bench.let(20)
    bench.client = bench.make_client(incarnation=2)
    bench.until(lambda: bench.client.waiting)
    assert bench.counts()["sampled"] == 20


def test_no_batch_of_a_training_goes_to_a_lost_connection(make: Callable[..., Bench]) -> None:
    iteration = {**BASE_CONFIG.learner_config.replay.iteration, "unroll_length": 5}
    bench = make(
        type="UniformReplay",
        samples_per_insert=0.0,
        iteration=iteration,
    )
    bench.until(lambda: bench.service.status()["requests_waiting"] == 2)
    bench.take_learner_away()
    bench.client = bench.make_client()
    [socket] = bench.client.sockets()
    # The same learner, whose socket has connected again.
    socket._last_id = 10  # type: ignore[attr-defined]
    bench.until(lambda: bench.service._learners["learner"][1] > 10)
    for _ in range(BASE_CONFIG.session_config.agent.num):
        bench.send()
    bench.until(lambda: bench.client.waiting)
    sampled = bench.client.next()
    assert sampled is not None
    assert sampled.last


def test_an_older_learner_is_not_answered_any_more(make: Callable[..., Bench]) -> None:
    bench = make(type="FIFOReplay", capacity=60)
    bench.until(lambda: bench.service.status()["requests_waiting"] == 2)
    older, bench.client = bench.client, bench.make_client(incarnation=2)
    bench.until(lambda: bench.service._learners["learner"][0] == 2)
    for _ in range(2):
        bench.send()
    bench.until(lambda: bench.client.waiting)
    older.tick()
    assert not older.waiting
    older.sockets()[0]._wire.close(0)


def test_rows_that_are_none_of_this_run_are_dropped_counted_and_reported_once(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make()
    reported: list[str] = []
    bench.until(lambda: bench.service)
    monkeypatch.setattr(
        bench.frame.context.wire, "_on_reject", lambda *words: reported.append(words[2])
    )
    bench.service._intake._validator = ChunkValidator(
        {"obs_spec": {}, "action_spec": {"type": "discrete", "dim": [2]}, "frame_stack": 0}
    )
    for action in (99, 0, 99, 1):
        bench.send(action=action)
    bench.until(lambda: bench.ack() == [11, 4, 20, 20])
    assert bench.counts()["dropped"] == {"wrong values": 20}
    assert reported == ["action: 99 at [0, 0] of [5, 2], expected 0 to below 2"]


def test_rows_of_a_joined_agent_beyond_the_bounds_are_dropped_and_named_once(
    make: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(columns=plain_columns(manifest_of(chunk_of("FMMM").columns, axes=2)))
    reported: list[str] = []
    bench.until(lambda: bench.service)
    monkeypatch.setattr(
        bench.frame.context.wire, "_on_reject", lambda *words: reported.append(words[2])
    )
    guest = Identity("agent-1000", 3, bytes(8))
    for number, reward in enumerate((1.0, 3e38, 1e12, 2.0), 1):
        made = chunk_of("FMMM", sequence=number)
        made.rows = 4 * number
        message = made.to_message()
        rewards = np.where(made.columns["step_type"] == 0, 0, reward).astype(np.float32)
        message.arrays = {**message.arrays, "reward": rewards}
        message.sender, message.grant = guest, Grant(GUEST, ("agent-*",))
        bench.service._intake._take(message)
    assert bench.counts()["dropped"] == {"wrong values": 8}
    assert len(reported) == 1
    assert reported[0].startswith("reward: 3.0000")
