"""The Loggerplex server on real sockets: files, order, rotation, events, bad records, the end."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from session.errors import UsageError
from session.loggerplex.log_server import Loggerplex, Reorder
from session.process.clock import WallClock
from session.process.heartbeat import Beat, State, write_beat
from session.wire import Identity, Message
from session.wire.roles import Grant
from session.wire.socket_state import poll
from tests.polling import until
from tests.session.loggerplex.test_append_file import disk_of
from tests.session.tensorplex.rig import MakeRig, Rig
from tests.session.tensorplex.rig import make_rig as make_rig

JOINED = Identity("agent-1000", 1)


def received(server: Loggerplex) -> float:
    return server._rate.total


def texts(path: Path) -> list[str]:
    """What the lines of a log say, without time and level."""
    return [line.split(": ", 1)[1] for line in path.read_text().splitlines()]


def events(rig: Rig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in rig.folder.events.read_text().splitlines()]


def test_a_line_has_time_level_component_and_text(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    rig.clock.seconds = 1_700_000_000.25
    rig.context("agent-0").log.warning("slow: %d", 3)
    rig.pump(server, lambda: received(server) >= 1)
    server.close()
    line = (rig.folder.logs / "agent-0.log").read_text()
    assert re.fullmatch(r"\d{4}(-\d\d){2} \d\d:\d\d:20\.250 WARNING  agent-0: slow: 3\n", line)
    assert (rig.folder.logs / "all.log").read_text() == line
    assert not rig.folder.events.exists()


def test_each_component_has_a_file_and_all_log_is_in_time_order(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    first, second = rig.context("agent-0"), rig.context("agent-1")
    first.log.info("a1")
    rig.clock.seconds += 0.01
    second.log.info("b2")
    rig.clock.seconds += 0.01
    first.log.info("a3")
    second.flush()
    rig.pump(server, lambda: received(server) >= 3)
    server.close()
    assert texts(rig.folder.logs / "agent-0.log") == ["a1", "a3"]
    assert texts(rig.folder.logs / "agent-1.log") == ["b2"]
    assert texts(rig.folder.logs / "all.log") == ["a1", "b2", "a3"]


def test_a_joined_machine_writes_into_the_logs_of_its_own_names_only(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    records = [
        {"time": 1.0, "level": "info", "component": name, "text": "x"}
        for name in ("learner", "agent-1000")
    ]
    message = Message("loggerplex", {"records": records, "dropped": 0}, sender=JOINED)
    message.grant = Grant("guest", (JOINED.name,))
    server._store_message(message)
    server.close()
    assert server.rejected == 1
    assert not (rig.folder.logs / "learner.log").exists()
    assert texts(rig.folder.logs / "agent-1000.log") == ["x"]


def test_a_script_writes_into_its_own_log_only(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    names = ("learner", "all", "client-simulator-1", "client-simulator-0")
    records = [{"time": 1.0, "level": "info", "component": name, "text": "x"} for name in names]
    sender = Identity("client-simulator-0", 1)
    server._store_message(Message("loggerplex", {"records": records, "dropped": 0}, sender=sender))
    server.close()
    assert server.rejected == 3
    found = sorted(path.name for path in rig.folder.logs.iterdir())
    assert found == ["all.log", "client-simulator-0.log"]


def test_scripts_take_no_place_of_agents(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.loggerplex.log_server._SCRIPTS", 3)
    monkeypatch.setattr("session.loggerplex.log_server._LOGS", 0)
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    for name in (*(f"client-simulator-{number}" for number in range(10)), "agent-0"):
        record = {"time": 1.0, "level": "info", "component": name, "text": "x"}
        fields = {"records": [record], "dropped": 0}
        server._store_message(Message("loggerplex", fields, sender=Identity(name, 1)))
    server.close()
    assert server.rejected == 7
    assert len(list(rig.folder.logs.iterdir())) == 5


def test_names_do_not_make_files_without_end(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.loggerplex.log_server._LOGS", 5)
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    names = [f"agent-{number}" for number in range(1000)]
    records = [{"time": 1.0, "level": "info", "component": name, "text": "x"} for name in names]
    server._store_message(
        Message("loggerplex", {"records": records, "dropped": 0}, sender=Identity("agent-0"))
    )
    server.close()
    assert 5 < len(list(rig.folder.logs.glob("agent-*.log"))) < 30
    assert server.rejected > 900
    refused = list(rig.contexts[0]._channels["loggerplex"]._records)
    assert len([each for each, _ in refused if each.get("event") == "refused"]) == 1


def test_one_sender_cannot_fill_the_disk(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    record = {"time": 1.0, "level": "info", "component": "agent-0", "text": "x" * 10_000}
    message = Message("loggerplex", {"records": [record], "dropped": 0}, sender=Identity("agent-0"))
    other = Message("loggerplex", {"records": [record], "dropped": 0}, sender=Identity("agent-1"))
    for _ in range(100):
        server._store_message(message, 10_000_000)
    assert server.rejected == 94
    server._store_message(other, 10_000_000)
    assert server.rejected == 94
    rig.clock.seconds += 60.0
    server._store_message(message, 10_000_000)
    assert server.rejected == 94
    server.close()
    written = sum(path.stat().st_size for path in rig.folder.logs.iterdir())
    assert written < 2_000_000


def test_records_are_on_disk_while_the_server_runs(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    rig.context("agent-0").log.info("a")
    rig.pump(server, lambda: (rig.folder.logs / "all.log").exists())
    assert texts(rig.folder.logs / "all.log") == ["a"]
    assert texts(rig.folder.logs / "agent-0.log") == ["a"]


def test_lines_cannot_be_forged_and_a_terminal_is_not_driven(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    rig.context("agent-0").log.info("one\ntwo\x1b[2J\ttab\rreturn \u00e4 \udce4")
    rig.pump(server, lambda: received(server) >= 1)
    server.close()
    lines = (rig.folder.logs / "agent-0.log").read_text().splitlines()
    assert lines[0].endswith("agent-0: one")
    assert lines[1] == "    two\\x1b[2J\ttab\\x0dreturn \u00e4 \\udce4"


def test_events_are_lines_of_json(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    agent = rig.context("agent-0")
    agent.event("start", "incarnation 5", number=3, time="never", nested={"a": [1]})
    agent.log.info("no event")
    rig.pump(server, lambda: received(server) >= 2)
    server.close()
    assert events(rig) == [
        {
            "time": 1_700_000_000.0,
            "component": "agent-0",
            "event": "start",
            "detail": "incarnation 5",
            "number": 3,
            "nested": {"a": [1]},
        }
    ]
    assert len(texts(rig.folder.logs / "agent-0.log")) == 2


def test_events_come_at_every_level(make_rig: MakeRig) -> None:
    rig = make_rig(loggerplex={"level": "error"})
    server = Loggerplex(rig.context("loggerplex"))
    agent = rig.context("agent-0")
    agent.event("start")
    agent.log.info("quiet")
    agent.log.error("loud")
    rig.pump(server, lambda: received(server) >= 2)
    server.close()
    assert [event["event"] for event in events(rig)] == ["start"]
    assert texts(rig.folder.logs / "all.log") == ["loud"]


def test_a_run_appends_to_its_log_files(make_rig: MakeRig) -> None:
    rig = make_rig()
    (rig.folder.logs / "agent-0.log").write_text("agent-0: old\n")
    server = Loggerplex(rig.context("loggerplex"))
    rig.context("agent-0").log.info("new")
    rig.pump(server, lambda: received(server) >= 1)
    server.close()
    assert texts(rig.folder.logs / "agent-0.log") == ["old", "new"]


def test_files_are_rotated_by_size(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session.loggerplex.log_server._ROTATE_BYTES", 1000)
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    agent = rig.context("agent-0")
    for number in range(30):
        agent.log.info("line %d", number)
    rig.pump(server, lambda: received(server) >= 30)
    server.close()
    for stem in ("agent-0", "all"):
        files = [rig.folder.logs / f"{stem}.log.{number}" for number in (1,)]
        files.append(rig.folder.logs / f"{stem}.log")
        assert all(file.stat().st_size <= 1000 for file in files)
        assert [text for file in files for text in texts(file)] == [f"line {i}" for i in range(30)]


GOOD = {"time": 1.0, "level": "info", "component": "agent-0", "text": "fine"}
BAD: list[Any] = [
    {},
    GOOD | {"time": "now"},
    GOOD | {"time": float("nan")},
    GOOD | {"time": 1e300},
    GOOD | {"time": -1.0},
    GOOD | {"component": "../../etc/passwd"},
    GOOD | {"component": ""},
    GOOD | {"component": "all"},
    GOOD | {"component": 3},
    GOOD | {"component": "stranger"},
    {"time": 1.0, "component": "agent-0", "text": "no level"},
    GOOD | {"event": 3},
    GOOD | {"event": "x", "fields": [1]},
    GOOD | {"event": "x", "fields": {"a": b"bytes"}},
    GOOD | {"event": "x", "fields": {"a": float("inf")}},
]


def test_bad_records_are_counted_and_dropped(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    push = rig.context("agent-0").wire.push("loggerplex.records")
    bad = Message("loggerplex", {"records": [*BAD, GOOD], "dropped": 0})
    rig.pump(server, lambda: push.send(bad))
    rig.pump(server, lambda: push.send(Message("shell", {"records": []})))
    # The refusal itself is an event, once, which the server gets over its own socket.
    rig.pump(server, lambda: received(server) >= len(BAD) + 3)
    server.close()
    assert server.status()["rejected"] == len(BAD) + 1
    assert texts(rig.folder.logs / "agent-0.log") == ["fine"]
    # One for the records, one for the message of another kind.
    assert [(event["event"], event["component"]) for event in events(rig)] == [
        ("refused", "loggerplex"),
        ("refused", "loggerplex"),
    ]
    assert sorted(path.name for path in rig.folder.logs.iterdir()) == [
        "agent-0.log",
        "all.log",
        "loggerplex.log",
    ]


def test_what_clients_dropped_leaves_a_line(make_rig: MakeRig) -> None:
    rig = make_rig()
    agent = rig.context("agent-0")
    for number in range(10_005):  # nobody listens yet
        agent.log.info("line %d", number)
    server = Loggerplex(rig.context("loggerplex"))
    rig.pump(server, lambda: received(server) >= 10_000)
    server.close()
    lines = texts(rig.folder.logs / "agent-0.log")
    dropped = [line for line in lines if not line.startswith("line")]
    assert [line for line in lines if line not in dropped] == [
        f"line {number}" for number in range(5, 10_005)
    ]
    assert dropped[0].startswith("5 log records dropped so far")


def test_full_disk_does_not_end_the_server_and_is_reported(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    agent = rig.context("agent-0")
    with disk_of(64):
        for number in range(3):
            agent.log.info("line %d", number)
        rig.pump(server, lambda: received(server) >= 3)
        for _ in range(3):
            server.write()
        assert server.status()["unwritten_bytes"] > 100
        rig.pump(server, lambda: received(server) >= 4)
    for _ in range(2):
        server.write()
    rig.context("agent-1").log.info("the last")
    rig.pump(server, lambda: (rig.folder.logs / "agent-1.log").exists())
    server.close()
    assert texts(rig.folder.logs / "agent-0.log") == ["line 0", "line 1", "line 2"]
    [event] = events(rig)
    assert event["event"] == "not_written"
    assert "agent-0.log: File too large" in event["detail"]


def test_drain_takes_what_is_still_under_way(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    agent = rig.context("agent-0")
    for number in range(2000):
        agent.log.info("line %d", number)
    rig.pump(server, lambda: received(server) >= 1)
    server.drain()
    rig.pump(server, lambda: received(server) >= 2000)
    assert not server.done
    rig.clock.seconds += 0.3
    rig.pump(server, lambda: server.done)
    server.close()
    assert texts(rig.folder.logs / "all.log") == [f"line {number}" for number in range(2000)]


@pytest.mark.parametrize(
    ("state", "age_seconds", "waits"),
    [
        ("running", 0.0, True),
        ("draining", 0.0, True),
        ("done", 0.0, False),
        ("running", 1e6, False),
    ],
)
def test_it_ends_after_tensorplex_which_reports_losses_at_its_end(
    make_rig: MakeRig, state: str, age_seconds: float, waits: bool
) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    beat = Beat("tensorplex", 1, State(state), 1, WallClock().time() - age_seconds)
    write_beat(rig.folder.alive, beat)
    server.drain()
    if waits:
        for _ in range(5):
            rig.clock.seconds += 0.3
            server.tick()
            assert not server.done
        beat.state = State.done
        write_beat(rig.folder.alive, beat)
        # A loss that is reported with the last heartbeat still has time to arrive.
        assert not server.done
    rig.pump(server, lambda: server.done)
    server.close()


def test_drain_stores_its_own_last_records(make_rig: MakeRig) -> None:
    rig = make_rig()
    context = rig.context("loggerplex")
    server = Loggerplex(context)
    # As in a process that is stopped at once: nothing has flushed the context yet.
    context.event("start", "incarnation 1")
    server.drain()

    def step() -> None:
        if not server.tick():
            poll(server.wait_on(), 0.01)
        rig.clock.seconds += 0.01

    until(lambda: server.done, step=step)
    server.close()
    assert [(event["component"], event["event"]) for event in events(rig)] == [
        ("loggerplex", "start")
    ]


def test_without_a_folder_it_does_not_start(make_rig: MakeRig) -> None:
    with pytest.raises(UsageError, match="start it with --folder"):
        Loggerplex(make_rig().context("loggerplex", folder=False))


# -- the order of merged lines -------------------------------------------------------------------


def test_lines_wait_for_earlier_ones_for_a_moment() -> None:
    merge = Reorder(0.5)
    merge.put(10.0, 100.0, b"late")
    assert merge.pop(100.4) == []
    merge.put(9.0, 100.45, b"early")
    assert merge.pop(100.5) == [b"early", b"late"]
    assert merge.pop(1000) == []


def test_clock_that_is_wrong_by_hours_delays_no_sender() -> None:
    merge = Reorder(0.5)
    merge.put(10_000.0, 100.0, b"future")
    merge.put(10.0, 100.1, b"now")
    for step in range(10):
        merge.put(-10_000.0 + step, 100.2 + step / 100, b"past")
    assert merge.pop(100.5) == [b"past"] * 10 + [b"now", b"future"]


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 0.4)), max_size=40))
def test_delays_below_the_window_never_show(sent: list[tuple[float, float]]) -> None:
    arrivals = sorted((time + delay, time) for time, delay in sent)
    merge, lines = Reorder(0.5), []
    for arrived, time in arrivals:
        lines += merge.pop(arrived)
        merge.put(time, arrived, str(time).encode())
    lines += merge.pop(float("inf"))
    assert [float(line) for line in lines] == sorted(time for time, _ in sent)


def test_lines_of_a_joined_machine_have_the_time_of_the_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Loggerplex(rig.context("loggerplex"))
    now = rig.clock.time()
    for name in ("agent-0", "agent-1000"):
        push = rig.context(name).wire.push("loggerplex.records")
        record = {"time": 1e9, "level": "info", "component": name, "text": "a", "event": "b"}
        message = Message("loggerplex", {"records": [record], "dropped": 0})
        rig.pump(server, lambda push=push, message=message: push.send(message))  # type: ignore[misc]
    rig.pump(server, lambda: server._records.counters.received >= 2)
    server.close()
    lines = map(json.loads, rig.folder.events.read_text().splitlines())
    times = {each["component"]: each["time"] for each in lines}
    assert times["agent-0"] == 1e9
    assert times["agent-1000"] >= now
