"""The Tensorplex server on real sockets: files and keys, the table, bad messages, the end."""

import json
import math
import re
import shutil
import urllib.request
from typing import Any

import pytest

from session.errors import UsageError
from session.process.context import Context
from session.process.heartbeat import State
from session.tensorplex.metrics_server import Tensorplex
from session.wire import Identity, Message
from session.wire.requests import DealerSocket
from tests.add_ons import needs
from tests.session.tensorplex.reading import curves, scalars
from tests.session.tensorplex.rig import MakeRig, Rig
from tests.session.tensorplex.rig import make_rig as make_rig
from tests.session.tensorplex.test_table import beat
from tests.session.wire.rig import free_port


def received(server: Tensorplex) -> float:
    return server._rate.total


def ask(rig: Rig, server: Tensorplex, socket: DealerSocket, kind: str) -> Message:
    answers: list[Message] = []

    def answered() -> bool:
        answer = socket.receive()
        if answer is not None:
            answers.append(answer)
        return bool(answers)

    rig.pump(server, lambda: socket.send(kind) is not None)
    rig.pump(server, answered)
    return answers[0]


def test_golden_places_on_disk(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    agent, learner = rig.context("agent-9"), rig.context("learner")
    system = learner.metrics("learner/system")
    for tag in ("reward", ":reward", ".core/lag_s"):
        agent.tensorplex.add_scalar(tag, 1, 1)
        system.add_scalar(tag, 1, 1)
    learner.metrics("learner/return").add_scalars({"train": 1, "greedy": 2, "best": 2}, 1)
    rig.context("replay-0").tensorplex.add_scalar("size", 1, 1)
    rig.context("ps").tensorplex.add_scalar("fetches", 1, 1)
    rig.pump(server, lambda: received(server) >= 9)
    server.close()
    assert curves(rig.folder.tensorboard) == {
        "agent-9": ["agent.core/lag_s", "agent.reward", "agent/reward"],
        "learner": [
            "Overview/return_greedy",  # the copy that TensorBoard shows first
            "ps/fetches",  # of the group session, whose tags stand alone, too
            "return/best",
            "return/greedy",
            "return/train",
            "system.core/lag_s",
            "system.reward",
            "system/reward",
        ],
        "replay-0": ["replay/size"],
    }


def test_points_keep_value_step_and_the_time_of_their_source(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    agent = rig.context("agent-0")
    sent = []
    for step in range(700):  # more than one message holds
        rig.clock.seconds += 0.5
        agent.tensorplex.add_scalar("a", step / 2, step)
        sent.append((rig.clock.seconds, step, step / 2))
    rig.pump(server, lambda: received(server) >= 700)
    server.close()
    assert scalars(rig.folder.tensorboard, "agent/a:agent-0") == sent


def test_points_are_on_disk_while_the_server_runs(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    rig.context("agent-0").tensorplex.add_scalar("a", 1, 1)
    rig.pump(server, lambda: curves(rig.folder.tensorboard) == {"agent-0": ["agent/a"]})


def test_status_is_the_table_of_components(make_rig: MakeRig) -> None:
    rig = make_rig(heartbeat={"timeout": 10.0})
    server = Tensorplex(rig.context("tensorplex"))
    agent, ps = rig.context("agent-0", incarnation=7), rig.context("ps")
    asker = rig.context("eval-0").wire.dealer("tensorplex.requests")
    agent.tensorplex.heartbeat(State.running, 7, {"steps_per_second": 120})
    ps.tensorplex.heartbeat(State.done, 1, {})
    rig.pump(server, lambda: received(server) >= 2)
    rows = ask(rig, server, asker, "status").fields["components"]
    assert [(row["name"], row["state"], row["incarnation"]) for row in rows] == [
        ("agent-0", "running", 7),
        ("ps", "done", 1),
    ]
    assert rows[0]["status"] == {"steps_per_second": 120.0}
    assert 0 <= rows[0]["age_seconds"] < 10
    rig.clock.seconds += 11
    rows = ask(rig, server, asker, "status").fields["components"]
    assert [row["state"] for row in rows] == ["silent", "done"]


def test_other_requests_are_refused(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    answer = ask(rig, server, rig.context("eval-0").wire.dealer("tensorplex.requests"), "shell")
    assert (answer.kind, answer.fields["reason"]) == (
        "refused",
        "tensorplex.requests knows no 'shell'",
    )


SCALAR = {"kind": "scalar", "id": "agent/0", "tag": "a", "value": 1, "step": 1, "time": 1.0}
BAD: list[Any] = [
    {},
    SCALAR | {"kind": "system"},
    SCALAR | {"id": "agent/../../x"},
    SCALAR | {"id": "unknown/0"},
    SCALAR | {"tag": "a\nb"},
    SCALAR | {"value": "x"},
    SCALAR | {"step": 2**63},
    SCALAR | {"step": None},
    SCALAR | {"time": float("nan")},
    SCALAR | {"kind": "scalars", "values": 3},
    SCALAR | {"kind": "image"},
    {"kind": "heartbeat"},
    {"kind": "heartbeat", "state": "running", "status": 3},
]


def test_bad_records_are_counted_and_dropped_and_reported_once(make_rig: MakeRig) -> None:
    rig = make_rig()
    context = rig.context("tensorplex")
    server = Tensorplex(context)
    push = rig.context("agent-0").wire.push("tensorplex.records")
    bad = Message("tensorplex", {"records": [*BAD, SCALAR], "dropped": 0})
    rig.pump(server, lambda: push.send(bad))
    for records, dropped in ((3, 0), ([7], 0), ([SCALAR], "many")):
        wrong = Message("tensorplex", {"records": records, "dropped": dropped})
        rig.pump(server, lambda wrong=wrong: push.send(wrong))  # type: ignore[misc]
    rig.pump(server, lambda: push.send(Message("loggerplex", {"records": []})))
    rig.pump(server, lambda: server.status()["rejected"] >= len(BAD) + 4)
    server.close()
    assert server.status()["rejected"] == len(BAD) + 4
    assert curves(rig.folder.tensorboard) == {"agent-0": ["agent/a"]}
    # One for each kind of record and of message.
    assert refusals(context) == 6


def refusals(context: Context) -> int:
    """Events that tell of refused records, still waiting to leave."""
    records = [record for record, _ in context._channels["loggerplex"]._records]
    return sum(record.get("event") == "refused" for record in records)


@pytest.mark.slow
def test_what_clients_dropped_becomes_a_curve(make_rig: MakeRig) -> None:
    rig = make_rig()
    agent = rig.context("agent-0")
    for step in range(10_050):  # nobody listens yet
        agent.tensorplex.add_scalar("a", 1, step)
    server = Tensorplex(rig.context("tensorplex"))
    rig.pump(server, lambda: received(server) >= 10_000)
    agent.tensorplex.add_scalar("a", 1, 10_050)
    rig.pump(server, lambda: received(server) >= 10_001)
    server.close()
    assert len(scalars(rig.folder.tensorboard, "agent/a:agent-0")) == 10_001
    [(_, step, value)] = scalars(rig.folder.tensorboard, "dropped_records/agent-0")
    assert (step, value) == (549, 50)


@pytest.mark.parametrize("records", [[], [{}], [SCALAR | {"time": None}]])
def test_what_a_client_dropped_needs_no_good_record(
    make_rig: MakeRig, records: list[dict[str, Any]]
) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    push = rig.context("agent-0").wire.push("tensorplex.records")
    wrong = Message("tensorplex", {"records": records, "dropped": 3})
    rig.pump(server, lambda: push.send(wrong))
    rig.pump(server, lambda: received(server) >= len(records) and bool(server._dropped))
    server.close()
    [(_, _, value)] = scalars(rig.folder.tensorboard, "dropped_records/agent-0")
    assert value == 3


def test_newest_values_are_served_where_a_port_is_set(make_rig: MakeRig) -> None:
    port = free_port()
    rig = make_rig(tensorplex={"prometheus_port": port})
    server = Tensorplex(rig.context("tensorplex"))
    agent = rig.context("agent-0")
    agent.tensorplex.add_scalar("a", 1, 1)
    agent.tensorplex.add_scalars({"a": 2, "b": 3}, 2)
    agent.tensorplex.heartbeat(State.running, 1, {})
    rig.pump(server, lambda: received(server) >= 3)
    server.write()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert 'surreal_like_scalar{client="agent/0",tag="a"} 2.0' in text
    assert 'surreal_like_scalar{client="agent/0",tag="b"} 3.0' in text
    assert 'surreal_like_component_up{component="agent-0"} 1.0' in text


@pytest.mark.parametrize(
    ("state", "age", "shown", "event"),
    [
        ("running", 1.0, "running", 0),
        ("running", 40.0, "silent", 1),
        ("running", 700.0, "gone", 1),
        ("done", 40.0, "gone", 0),
    ],
)
def test_agents_of_machines_that_joined_are_counted_and_their_loss_is_an_event(
    make_rig: MakeRig, state: str, age: float, shown: str, event: int
) -> None:
    rig = make_rig(tensorplex={"prometheus_port": free_port()})
    context = rig.context("tensorplex")
    server = Tensorplex(context)
    for name in ("agent-0", "agent-1000"):
        server._table.beat(Identity(name), beat(state=state), rig.clock.now())
    rig.clock.seconds += age
    server.write()
    server.write()
    text = server._exposition()
    server.close()
    assert re.findall(r"(surreal_like_joined{.*)", text) == [
        f'surreal_like_joined{{state="{shown}"}} 1'
    ]
    records = [record for record, _ in context._channels["loggerplex"]._records]
    assert sum(record.get("event") == "joined_lost" for record in records) == event


@needs("gateway")
def test_the_page_has_the_disk_the_planned_components_and_the_wanted_gateways(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(tensorplex={"prometheus_port": free_port()}, gateway={"max_clients": 10})
    server = Tensorplex(rig.context("tensorplex"))
    now = rig.clock.now()
    server._table.beat(Identity("gateway-0"), beat(status={"sessions": 9.5}), now)
    text = server._exposition()
    server.close()
    absent = re.findall(r'component_up\{component="(.*)"\} 0.0', text)
    # Agents and evaluators may have been removed.
    assert absent == sorted(
        each.name
        for each in rig.context("ps").topology.components
        if each.kind not in ("agent", "evaluator", "gateway")
    )
    assert 'surreal_like_wanted{what="gateways"} 2' in text
    free, size = (
        int(re.findall(rf"^surreal_like_disk_{what}_bytes (\d+)$", text, re.MULTILINE)[0])
        for what in ("free", "size")
    )
    assert 0 < free < size == shutil.disk_usage(rig.folder.path).total


@pytest.mark.parametrize(
    ("name", "over", "up"),
    [("replay-0", 0.0, "0.0"), ("replay-0", 1.0, "1.0"), ("agent-0", 0.0, "1.0")],
)
def test_what_has_ended_is_down_if_the_run_needs_it(
    make_rig: MakeRig, name: str, over: float, up: str
) -> None:
    rig = make_rig(tensorplex={"prometheus_port": free_port()})
    server = Tensorplex(rig.context("tensorplex"))
    now = rig.clock.now()
    server._table.beat(Identity("learner"), beat(status={"run_over": over}), now)
    server._table.beat(Identity(name), beat("done"), now)
    text = server._exposition()
    server.close()
    state = "gone" if up == "0.0" else "done"
    assert f'component_up{{component="{name}"}} {up}\n' in text
    assert f'component_state{{component="{name}",state="{state}"}} 1.0\n' in text


def test_a_number_of_sessions_without_gateways_ends_no_page(make_rig: MakeRig) -> None:
    rig = make_rig(tensorplex={"prometheus_port": free_port()})
    rig.config.session_config.pop("gateway", None)
    server = Tensorplex(rig.context("tensorplex"))
    now = rig.clock.now()
    for value in (math.nan, math.inf, -1e300):
        server._table.beat(Identity("agent-1000"), beat(status={"sessions": value}), now)
        assert "surreal_like_component_up" in server._exposition()
    server.close()


def test_drain_takes_what_is_still_under_way(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    agent = rig.context("agent-0")
    for step in range(3000):
        agent.tensorplex.add_scalar("a", 1, step)
    rig.pump(server, lambda: received(server) >= 1)
    assert received(server) < 3000
    server.drain()
    assert not server.done
    rig.pump(server, lambda: received(server) >= 3000)
    assert not server.done
    rig.clock.seconds += 0.3
    rig.pump(server, lambda: server.done)
    server.close()
    assert len(scalars(rig.folder.tensorboard, "agent/a:agent-0")) == 3000


def test_drain_waits_for_the_end_of_a_rest(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    server, agent = Tensorplex(rig.context("tensorplex")), rig.context("agent-0")
    store = server.store

    def slow_store(*record: Any) -> None:
        rig.clock.seconds += 0.001
        store(*record)

    monkeypatch.setattr(server, "store", slow_store)
    for step in range(3000):
        agent.tensorplex.add_scalar("a", 1, step)
    rig.pump(server, lambda: received(server) >= 500)
    server.drain()
    rig.pump(server, lambda: server.done)
    assert received(server) == 3000
    server.close()


def end_run(rig: Rig) -> None:
    rig.folder.result.write_text(json.dumps({"status": "stopped"}))


def test_server_ends_by_itself_when_the_run_is_over_and_nothing_arrives(make_rig: MakeRig) -> None:
    rig = make_rig()
    context = rig.context("tensorplex")
    server = Tensorplex(context)
    agent = rig.context("agent-0")
    rig.clock.seconds += 10
    assert not server.done
    end_run(rig)
    agent.tensorplex.heartbeat(State.running, 1, {})
    rig.pump(server, lambda: received(server) >= 1)
    rig.clock.seconds += 1.5
    assert not server.done
    # Neither its own voice counts nor that of Loggerplex, which waits for its end.
    context.tensorplex.heartbeat(State.running, 1, {})
    rig.context("loggerplex").tensorplex.heartbeat(State.running, 1, {})
    rig.pump(server, lambda: received(server) >= 3)
    rig.clock.seconds += 1.0
    assert server.done


def test_idle_server_stays(make_rig: MakeRig) -> None:
    rig = make_rig(at_end="idle")
    server = Tensorplex(rig.context("tensorplex"))
    end_run(rig)
    rig.clock.seconds += 100
    assert not server.done


def test_without_a_folder_it_does_not_start(make_rig: MakeRig) -> None:
    with pytest.raises(UsageError, match="start it with --folder"):
        Tensorplex(make_rig().context("tensorplex", folder=False))


def test_clients_and_curves_are_bounded(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("session.tensorplex.metrics_server._CLIENTS", 5)
    monkeypatch.setattr("session.tensorplex.metrics_server._TAGS", 20)
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    some = [scalar_of(f"agent/{number}", "tag") for number in range(500)]
    many = [scalar_of("agent/0", f"tag{number}") for number in range(100)]
    for records in (some, many):
        sender = Identity("agent-0")
        server._store_message(
            Message("tensorplex", {"records": records, "dropped": 0}, sender=sender)
        )
    server.close()
    found = curves(rig.folder.tensorboard)
    assert len(found) < 30
    assert len(found["agent-0"]) == 20


def test_a_metric_that_is_too_many_takes_no_other_with_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.tensorplex.metrics_server._TAGS", 20)
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    for step in range(1, 50):
        values = {"loss": float(step), f"of {step}": 1.0, "return": 2.0 * step}
        record = {"kind": "scalars", "id": "gateway/0", "values": values, "step": step, "time": 1.0}
        sender = Identity("gateway-0")
        server._store_message(
            Message("tensorplex", {"records": [record], "dropped": 0}, sender=sender)
        )
    server.close()
    found = curves(rig.folder.tensorboard)["gateway-0"]
    assert len(found) == 20
    own = [tag for tag in found if tag.rpartition("/")[2] in ("loss", "return")]
    titles = [f"{tag}:gateway-0" for tag in own]
    assert [scalars(rig.folder.tensorboard, title)[-1][1] for title in titles] == [49, 49]
    assert server.rejected == 31


@needs("sinks")
def test_odd_names_are_changed_for_all_sinks_and_said_a_few_times(make_rig: MakeRig) -> None:
    rig = make_rig(tensorplex={"sinks": ["csv", "tensorboard"]})
    context = rig.context("tensorplex")
    server = Tensorplex(context)
    odd = [scalar_of("agent/0", f"hits@{number}") for number in range(100)]
    for records in ([*odd, scalar_of("agent/0", "hits%1"), scalar_of("agent/0", "plain")], odd):
        sender = Identity("agent-0")
        server._store_message(
            Message("tensorplex", {"records": records, "dropped": 0}, sender=sender)
        )
    server.close()
    found = curves(rig.folder.tensorboard)["agent-0"]
    assert sorted(found) == sorted(["agent/plain", *(f"agent/hits_{n}" for n in range(100))])
    lines = (rig.folder.path / "metrics.csv").read_text().splitlines()[1:]
    assert {line.split(",")[3] for line in lines} == set(found)
    # No curve mixes two metrics: the second of a name is refused, once, with both names.
    assert server.rejected == 1
    records = [record for record, _ in context._channels["loggerplex"]._records]
    details = [each["detail"] for each in records if each.get("event") == "renamed"]
    assert details[0] == "metric 'hits@0' has the curve 'agent/hits_0:agent-0'"
    assert len(details) == 10
    [refused] = [each["detail"] for each in records if each.get("event") == "refused"]
    assert "'hits%1' of 'agent/0': another one has its curve 'agent/hits_1'" in refused


def test_times_of_a_resumed_run_with_a_counted_clock_go_on(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.config["run"] = {"launcher": "serial", "seconds_before": 5.5}
    server = Tensorplex(rig.context("tensorplex"))
    record = scalar_of("agent/0", "a")  # at second 1 of this part
    server._store_message(
        Message("tensorplex", {"records": [record], "dropped": 0}, sender=Identity("agent-0"))
    )
    server.close()
    assert scalars(rig.folder.tensorboard, "agent/a:agent-0") == [(6.5, 1, 1.0)]


def scalar_of(client_id: str, tag: str) -> dict[str, Any]:
    return {"kind": "scalar", "id": client_id, "tag": tag, "value": 1.0, "step": 1, "time": 1.0}


SCRIPT = Identity("client-simulator-0", 5)


def from_script(*ids: str, dropped: int = 0, incarnation: int = 5) -> Message:
    records = [SCALAR | {"id": each} for each in ids]
    sender = SCRIPT._replace(incarnation=incarnation)
    return Message("tensorplex", {"records": records, "dropped": dropped}, sender=sender)


def test_a_script_reports_under_its_own_name_only(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    ids = ("client/simulator/0", "client/simulator/1", "agent/0", "simulator/0", "learner/x")
    server._store_message(from_script(*ids))
    server.close()
    assert server.rejected == 4
    assert curves(rig.folder.tensorboard) == {"client-simulator-0": ["simulator/a"]}


@pytest.mark.parametrize("name", ["client-agent-0", "client-learner-x"])
def test_a_script_has_no_group_of_the_run(make_rig: MakeRig, name: str) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    message = from_script(name.replace("-", "/", 2))
    message.sender = Identity(name, 1)
    server._store_message(message)
    server.close()
    assert server.rejected == 1
    assert curves(rig.folder.tensorboard) == {}


def test_scripts_speak_to_telemetry_and_to_nothing_else(make_rig: MakeRig) -> None:
    rig = make_rig()
    tensorplex, learner = rig.context("tensorplex"), rig.context("learner")
    server = Tensorplex(tensorplex)
    assert tensorplex.wire.knows(SCRIPT.name)
    assert not tensorplex.wire.knows("client-" + "x" * 57)
    assert not tensorplex.wire.knows("client-simulator/0")
    assert not learner.wire.knows(SCRIPT.name)
    server.close()


def test_scripts_take_no_place_of_agents(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.tensorplex.metrics_server._SCRIPTS", 3)
    monkeypatch.setattr("session.tensorplex.metrics_server._CLIENTS", 0)
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    for number in range(10):
        message = from_script(f"client/simulator/{number}")
        message.sender = Identity(f"client-simulator-{number}", 1)
        server._store_message(message)
    assert server.rejected == 7
    agent = Message("tensorplex", {"records": [SCALAR], "dropped": 0}, sender=Identity("agent-0"))
    server._store_message(agent)
    server.close()
    assert server.rejected == 7
    assert len(curves(rig.folder.tensorboard)) == 4


def test_of_two_scripts_of_one_name_the_newer_says_what_it_dropped(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    for incarnation, dropped in ((5, 3), (6, 7), (5, 3), (6, 7), (5, 4)):
        server._store_message(
            from_script("client/simulator/0", dropped=dropped, incarnation=incarnation)
        )
    server.close()
    lost = scalars(rig.folder.tensorboard, "dropped_records/client-simulator-0")
    assert [value for _, _, value in lost] == [3, 7]


def test_a_script_that_goes_on_does_not_keep_the_servers_of_a_run(make_rig: MakeRig) -> None:
    rig = make_rig()
    server = Tensorplex(rig.context("tensorplex"))
    end_run(rig)
    rig.clock.seconds += 3.0
    server.tick()
    server._store_message(from_script("client/simulator/0"))
    assert server.done
    # Asked to end, it takes what a script has sent just before.
    server.drain()
    rig.clock.seconds += 0.2
    server._store_message(from_script("client/simulator/0"))
    rig.clock.seconds += 0.2
    assert not server.done
    server.close()
