"""The gateway over real sockets: when requests are answered, and where their rows go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from session.addons.gateway.protocols import Encoding
from tests.addons.gateway.rig import Client, Stage, make_stage
from tests.docs.test_metrics import listed

UNROLLS = {"replay": {"type": "FIFOReplay"}}


@pytest.mark.parametrize("encoding", list(Encoding))
def test_the_policy_answers_and_the_rows_arrive(stage: Stage, encoding: Encoding) -> None:
    client = stage.client(encoding=encoding)
    observations = [[0.0, float(step)] for step in range(1, 10)]
    with torch.no_grad():
        best = stage.learner.network(torch.tensor(observations)).argmax(1).tolist()
    for step, action in enumerate(best):
        answer = client.request("step" if step else "reset", observation=observations[step])
        assert answer == {"kind": "action", "seq": step + 1, "action": action, "version": 1}
    answer = client.request("end", reward=2.0)
    assert answer.pop("seed") >= 0
    assert answer == {"kind": "episode", "seq": 10, "return": 10.0, "length": 9}
    account = stage.finish()
    replay = stage.replay
    assert replay.column("obs")[:9, 0].tolist() == observations
    assert replay.column("step_type")[:, 0].tolist() == [0, *[1] * 8, 2]
    assert replay.column("action")[:9, 0].tolist() == best
    assert replay.column("version")[:9, 0].tolist() == [1] * 9
    assert account["pushed"] == account["inserted"] == 10
    assert account["unacked"] == 0
    assert account["env_steps"] == 9
    assert account["episodes"] == 1
    assert [goodbye["rows"] for goodbye in replay.goodbyes] == [10]


def test_all_requests_that_wait_are_answered_together(stage: Stage) -> None:
    clients = [stage.client() for _ in range(4)]
    seen = stage.seen_first
    seen.clear()
    for number, client in enumerate(clients):
        client.send(kind="reset", seq=1, observation=[number, 1.0])
    assert [client.next()["seq"] for client in clients] == [1] * 4
    assert sum(map(len, seen)) == 4


def test_max_batch_bounds_a_batch() -> None:
    with make_stage(gateway={"max_batch": 2}, publish=False) as stage:
        clients = [stage.client() for _ in range(3)]
        for client in clients:
            client.send(kind="reset", seq=1, observation=[0, 1])
        stage.rig.pass_time(0.1)
        stage.learner.publish()
        assert [client.next()["kind"] for client in clients] == ["action"] * 3
        assert [len(each) for each in stage.seen_first] == [2, 1]


def test_requests_wait_for_the_first_parameters() -> None:
    with make_stage(publish=False) as stage:
        client = stage.client()
        client.send(kind="reset", seq=1, observation=[0, 1])
        stage.rig.pass_time(5.1)
        assert client.next() == {"kind": "wait", "seq": 1, "reason": "parameters"}
        stage.learner.publish()
        assert client.next()["version"] == 1


def test_a_late_answer_is_announced_and_comes_in_the_end() -> None:
    with make_stage(publish=False, gateway={"answer_seconds": 3.0}) as stage:
        client = stage.client()
        client.send(kind="reset", seq=1, observation=[0, 1])
        stage.rig.pass_time(3.1)
        error = client.next()
        assert (error["code"], error["fatal"], error["seq"]) == ("unavailable", False, 1)
        client.send(kind="reset", seq=1, observation=[0, 1])
        stage.learner.publish()
        assert client.next()["kind"] == "action"
        assert client.ask(kind="ping", t=1) == {"kind": "pong", "t": 1}


def test_a_full_window_holds_requests_back(stage: Stage) -> None:
    client = stage.client()
    stage.replay.open = False
    answered = 0
    client.request("reset")
    for _ in range(100):
        client.seq += 1
        client.send(kind="step", seq=client.seq, reward=1.0, observation=[0, 1])
        stage.rig.pass_time(0.05)
        if client.receive() is None:
            break
        answered += 1
    # Eight chunks of four rows, and the row that waits for the next request.
    assert answered == 31
    stage.rig.pass_time(5.1)
    assert client.next() == {"kind": "wait", "seq": client.seq, "reason": "replay"}
    stage.replay.open = True
    assert client.next()["kind"] == "action"


def test_acks_wake_a_gateway_only_while_the_window_is_full(stage: Stage) -> None:
    service, client = stage.service, stage.client()
    acks = service._recorder.sender.socket
    client.request("reset")
    for _ in range(8):
        client.request("step")
    stage.rig.until(lambda: stage.replay.chunks)
    # One that has come and is not read would end each sleep at once.
    assert acks not in service.wait_on()
    stage.replay.open = False
    stage.rig.pass_time(0.2)
    while service._recorder.has_room:
        client.seq += 1
        client.send(kind="step", seq=client.seq, reward=1.0, observation=[0, 1])
        stage.rig.pass_time(0.05)
    assert acks in service.wait_on()
    stage.replay.open = True
    stage.rig.until(lambda: service._recorder.has_room)
    stage.learner.publish(final=True)
    stage.rig.until(lambda: service._leaving.begun)
    assert acks in service.wait_on()


def test_the_window_grows_with_the_sessions(stage: Stage) -> None:
    window = stage.service._recorder.sender.window
    for _ in range(3):
        stage.client()
    stage.rig.pass_time(0.2)
    assert window.max_chunks == 24


def test_with_unrolls_the_client_may_not_correct_an_action() -> None:
    with make_stage(learner=UNROLLS) as stage:
        client = stage.client()
        client.request("reset")
        answer = client.request("step", action=1)
        assert answer["code"] == "bad_action"
        assert "leave action out" in answer["message"]


def test_a_repeated_request_counts_once(stage: Stage) -> None:
    client = stage.client()
    for kind in ("reset", "step", "step", "end"):
        answer = client.request(kind)
        client.seq -= 1
        assert client.request(kind) == answer
    account = stage.finish()
    assert account["pushed"] == 4
    assert account["env_steps"] == 3


def test_episodes_without_an_end_are_cut(stage: Stage) -> None:
    client = stage.client()
    client.request("reset")
    client.request("step")
    client.request("reset")
    client.request("step")
    client.request("step")
    assert client.ask(kind="bye")["reason"] == "bye"
    assert client.gone()
    account = stage.finish()
    assert stage.replay.column("step_type")[:, 0].tolist() == [0, 2, 0, 1, 2]
    assert set(stage.replay.column("discount").reshape(-1).tolist()) == {1.0}
    assert account["episodes"] == 0
    assert account["pushed"] == account["inserted"] == 5


def test_a_silent_client_is_sent_away() -> None:
    with make_stage(gateway={"idle_seconds": 10.0}) as stage:
        client = stage.client()
        stage.rig.pass_time(10.2)
        goodbye = client.next()
        assert (goodbye["reason"], goodbye["reconnect"]) == ("idle", True)
        assert client.gone()


def test_a_dead_client_frees_its_place_after_the_grace_time() -> None:
    with make_stage(gateway={"grace_seconds": 5.0, "max_clients": 1}) as stage:
        client = stage.client()
        client.request("reset")
        client.request("step")
        client.close()
        stage.rig.pass_time(5.2)
        assert len(stage.sessions) == 0
        other = stage.client()
        other.request("reset", observation=[7.0, 7.0])
        other.request("end")
        stage.finish()
        assert stage.replay.column("step_type")[:, 0].tolist() == [0, 2, 0, 2]
        assert {stream for chunk in stage.replay.chunks for stream in chunk.streams} == {0}


def is_sent_away(client: Client, reason: str) -> None:
    goodbye = client.next()
    assert (goodbye["kind"], goodbye["reason"]) == ("goodbye", reason)
    assert goodbye["reconnect"]
    assert client.gone()


def test_a_stopped_gateway_lets_episodes_end_and_sends_its_rows(stage: Stage) -> None:
    playing, idle = stage.client(), stage.client()
    playing.request("reset")
    stage.frame.context.stopping = True
    is_sent_away(idle, "draining")
    assert not stage.service.ready
    newcomer = Client(stage)
    assert newcomer.hello()["kind"] == "busy"
    assert newcomer.gone()
    assert playing.request("step")["kind"] == "action"
    assert playing.request("end")["kind"] == "episode"
    is_sent_away(playing, "draining")
    stage.rig.until(lambda: stage.frame.finished, seconds=20.0)
    assert stage.replay.goodbyes
    assert stage.replay.column("discount")[:, 0].tolist() == [1, 1, 0]


def test_an_episode_that_does_not_end_is_cut_at_the_deadline() -> None:
    with make_stage(launcher={"grace_seconds": 5.0}) as stage:
        client = stage.client()
        client.request("reset")
        client.request("step")
        stage.frame.context.stopping = True
        stage.rig.pass_time(1.9)
        assert client.request("step")["kind"] == "action"
        stage.rig.pass_time(0.2)
        is_sent_away(client, "draining")
        stage.rig.until(lambda: stage.frame.finished, seconds=20.0)
        assert stage.replay.column("step_type")[:, 0].tolist() == [0, 1, 2]
        assert set(stage.replay.column("discount").reshape(-1).tolist()) == {1.0}


def test_a_session_is_sent_to_connect_again_after_an_episode() -> None:
    with make_stage(gateway={"session_seconds": 10.0}) as stage:
        client = stage.client()
        for _ in range(2):
            client.request("reset")
            client.request("end")
        client.request("reset")
        stage.rig.pass_time(10.1)
        assert client.request("step")["kind"] == "action"
        assert client.request("end")["kind"] == "episode"
        is_sent_away(client, "rebalance")


def test_with_several_environments_the_episodes_that_were_open_are_waited_for() -> None:
    with make_stage(gateway={"session_seconds": 10.0, "num_envs": 2}) as stage:
        client = stage.client(num_envs=2)
        client.request("reset", observation=[[0, 0], [1, 0]])
        stage.rig.pass_time(10.1)
        for ended in ([False, False], [True, False], [False, False], [True, False], [False, True]):
            answer = client.request(
                "step",
                observation=[[0, 1], [1, 1]],
                reward=[0, 0],
                terminated=ended,
                truncated=[False, False],
            )
            assert answer["kind"] == "action"
        is_sent_away(client, "rebalance")


def test_sessions_that_act_are_greedy_and_not_recorded(stage: Stage) -> None:
    client = Client(stage)
    assert client.hello(mode="act")["mode"] == "act"
    observations = [[0.0, float(step)] for step in range(6)]
    with torch.no_grad():
        best = stage.learner.network(torch.tensor(observations)).argmax(1).tolist()
    for step, action in enumerate(best):
        kind = "step" if step else "reset"
        assert client.request(kind, observation=observations[step])["action"] == action
    assert client.request("end")["length"] == 6
    agent = stage.service._policies.agent("act")
    assert agent.agent_mode == "eval_deterministic"
    stage.learner.publish()
    stage.rig.until(lambda: agent.version == 2)
    # A full window does not hold them back.
    stage.replay.open = False
    assert client.request("reset")["version"] == 2
    assert stage.finish()["pushed"] == 0


def test_both_modes_are_served_side_by_side(stage: Stage) -> None:
    clients = [stage.client(mode=mode) for mode in ("train", "act", "train", "act")]
    for kind in ("reset", "step", "step", "end"):
        for client in clients:
            client.request(kind)
    account = stage.finish()
    assert (account["pushed"], account["env_steps"], account["episodes"]) == (8, 6, 2)


def test_robots_act_on_while_replay_takes_no_rows() -> None:
    with make_stage(gateway={"when_full": "act"}) as stage:
        client = stage.client()
        stage.replay.open = False
        client.request("reset")
        for _ in range(60):
            assert client.request("step")["kind"] == "action"
        stage.replay.open = True
        stage.rig.until(lambda: stage.service._recorder.has_room)
        for _ in range(3):
            client.request("step")
        answer = client.request("end")
        assert (answer["return"], answer["length"]) == (64.0, 64)
        account = stage.finish()
        types = stage.replay.column("step_type")[:, 0].tolist()
        # Cut where the window was full, begun again where there was room.
        assert types.count(0) == types.count(2) == 2
        assert account["pushed"] == account["inserted"] == len(types)
        assert account["env_steps"] + stage.gateway.counters.unrecorded == 64
        assert account["episodes"] == 1


def test_metrics_of_a_client_are_curves(stage: Stage) -> None:
    client = stage.client(name="robot")
    for value in range(5):
        client.send(kind="metrics", values={"speed": value})
    assert client.ask(kind="ping")["kind"] == "pong"
    stage.rig.pass_time(1.0)
    name = "client/robot/speed"
    stage.rig.until(lambda: stage.rig.scalars("gateway/0").get(name) == 4.0)
    shown = [each for each in stage.rig.records if name in each.get("values", {})]
    assert len(shown) < 5
    names = {f"n{number}": 1.0 for number in range(63)}
    client.send(kind="metrics", values=names)
    assert client.ask(kind="metrics", values={"one/more": 1})["code"] == "bad_metric"
    client.send(kind="metrics", values={"speed": 7})
    stage.finish()
    stage.rig.until(lambda: stage.rig.scalars("gateway/0").get(name) == 7.0)


def test_a_request_waits_for_company() -> None:
    with make_stage(gateway={"batch_wait_seconds": 1.0}) as stage:
        first, second = stage.client(), stage.client()
        for client in (first, second):
            client.request("reset", observation=[0, 1])
        seen = stage.seen_first
        seen.clear()
        first.send(kind="step", seq=2, reward=1, observation=[0, 2])
        stage.rig.pass_time(0.8)
        assert first.receive() is None
        second.send(kind="step", seq=2, reward=1, observation=[0, 2])
        assert first.next()["seq"] == second.next()["seq"] == 2
        assert [len(each) for each in seen] == [2]


def test_when_the_run_is_over_clients_get_a_message(stage: Stage) -> None:
    client, silent = stage.client(), stage.client()
    client.request("reset")
    stage.finish()
    goodbye = client.next()
    assert (goodbye["kind"], goodbye["reason"]) == ("goodbye", "finished")
    assert not goodbye["reconnect"]
    assert silent.next()["reason"] == "finished"


def test_no_seed_is_given_twice(stage: Stage) -> None:
    used = []
    for _ in range(3):
        clients = [Client(stage) for _ in range(3)]
        for client in clients:
            seed = client.hello()["seed"]
            for _ in range(3):
                used.append(seed)
                client.request("reset")
                seed = client.request("end")["seed"]
        for client in clients:
            client.ask(kind="bye")
    assert len(used) == len(set(used)) == 27
    assert all(0 <= seed < 1 << 31 for seed in used)


def test_several_environments_share_one_message() -> None:
    with make_stage(gateway={"num_envs": 2}) as stage:
        client = Client(stage)
        assert client.hello(num_envs=2)["num_envs"] == 2
        answer = client.request("reset", observation=[[0, 0], [1, 0]])
        assert np.shape(answer["action"]) == (2,)
        assert answer["episodes"] == []
        ends = {"terminated": [True, False], "truncated": [False, False]}
        answer = client.request("step", observation=[[0, 1], [1, 1]], reward=[3, 1], **ends)
        assert answer["episodes"] == [{"stream": 0, "return": 3.0, "length": 1}]
        no = {"terminated": [False, False], "truncated": [False, False]}
        early = {"kind": "step", "seq": 3, "observation": [[2, 0], [1, 2]]}
        assert client.ask(**early, reward=[1, 1], **no)["code"] == "bad_reward"
        assert client.ask(**early, reward=[0, 1], **ends)["code"] == "bad_observation"
        client.request("step", observation=[[2, 0], [1, 2]], reward=[0, 1], **no)
        answer = client.request("step", observation=[[2, 1], [1, 3]], reward=[1, 1], **no)
        assert answer["episodes"] == []
        account = stage.finish()
        assert stage.replay.column("step_type").tolist() == [[0, 0], [2, 1], [0, 1], [1, 1]]
        assert account["env_steps"] == 5


def test_the_account_of_a_gateway_is_that_of_an_agent(stage: Stage) -> None:
    client = stage.client()
    for _ in range(3):
        client.request("reset")
        for _ in range(5):
            client.request("step")
        client.request("end")
    account = stage.finish()
    assert account["final"]
    assert account["pushed"] == account["inserted"] == 3 * 7
    assert account["env_steps"] == 3 * 6
    assert account["episodes"] == 3
    finished = [each for chunk in stage.replay.chunks for each in chunk.finished]
    assert [(each["return"], each["length"]) for each in finished] == [(6.0, 6)] * 3
    # Telemetry comes later than the rows.
    stage.rig.until(lambda: stage.rig.events("client_left"))
    assert stage.rig.events("client_joined")


def last_account(stage: Stage) -> dict[str, Any]:
    asking = stage.rig.wire("learner", 9).dealer("ps.requests")
    accounts = asking.request("accounts", timeout_seconds=5.0).fields["accounts"]
    account: dict[str, Any] = accounts["gateway-0/5"]
    return account


def test_the_last_account_has_the_totals_of_clients(stage: Stage) -> None:
    before = stage.client()
    before.request("reset")
    before.request("step")
    assert before.request("step", reward="much")["code"] == "bad_reward"
    before.close()
    stage.client()
    stage.finish()
    assert last_account(stage)["clients"] == {
        "sessions": 2,
        "resumed": 0,
        "refused": 1,
        "episodes_cut": 1,
        "unrecorded": 0,
    }


def test_the_last_account_is_that_of_after_the_last_acks(stage: Stage) -> None:
    client = stage.client()
    client.request("reset")
    client.request("step")
    stage.replay.open = False
    stage.learner.publish(final=True)
    # Longer than the time between two requests of an agent for the newest version.
    stage.rig.pass_time(2.0)
    assert client.next()["kind"] == "goodbye"
    stage.replay.open = True
    stage.finish()
    account = last_account(stage)
    assert (account["pushed"], account["inserted"], account["unacked"]) == (2, 2, 0)


def test_the_curves_of_a_gateway_are_in_the_glossary(stage: Stage) -> None:
    tags = {tag for _, tag in listed("### What a gateway counts")}
    documented = {tag.removeprefix("gateway/") for tag in tags if "<" not in tag}
    client = stage.client()
    client.request("reset")
    for _ in range(5):
        client.request("step")
    client.request("end")
    stage.finish()
    stage.rig.until(lambda: stage.rig.scalars("gateway/0").get("return"))
    reported = stage.rig.scalars("gateway/0")
    as_of_an_agent = {"return", "episode_length", "steps_per_second", "version_lag"}
    of_core = {".core/unacked_bytes", ".core/resent_chunks"}
    assert reported.keys() == documented | as_of_an_agent | of_core
    assert reported["batch"] == 1.0
    assert reported["return"] == 6.0
    assert 0.0 <= reported["latency_p50_seconds"] <= reported["latency_p99_seconds"]


@pytest.mark.parametrize(("mode", "cut"), [("train", 1), ("act", 0), ("evaluate", 0)])
def test_only_recorded_episodes_count_as_cut(stage: Stage, mode: str, cut: int) -> None:
    client = stage.client(mode=mode)
    client.request("reset")
    client.request("step")
    client.send(kind="bye")
    assert client.gone()
    assert stage.service._totals()["episodes_cut"] == cut
