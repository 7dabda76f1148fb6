"""The gateway over real sockets: every row of its protocol, and where the rows of clients go."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from main.cli import clients
from session.folder import RunFolder
from session.stream.protocols import Encoding
from session.wire.access import revoke_token, write_token
from session.wire.frames import pack_frame
from surreal_like.experiment.machine import replay_need
from surreal_like.gateway import admission
from surreal_like.gateway.clients.surreal_client import connect
from surreal_like.gateway.messages import Request
from surreal_like.gateway.sessions import Session
from tests.surreal_like.gateway.rig import Client, Stage, make_stage
from tests.surreal_like.gateway.test_surreal_client import Playing

UNROLLS = {"replay": {"type": "FIFOReplay"}}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with make_stage() as made:
        yield made


def test_P7_welcome(stage: Stage) -> None:
    welcome = Client(stage).hello(name="robot", client="mine 1")
    assert welcome.pop("resume").startswith("1.")
    assert 0 <= welcome.pop("seed") < 1 << 31
    assert welcome.pop("server").startswith("surreal_like ")
    assert welcome.pop("version") in (0, 1)
    assert welcome == {
        "kind": "welcome",
        "v": 1,
        "session": 1,
        "resumed": False,
        "seq": 0,
        "mode": "train",
        "num_envs": 1,
        "obs_spec": {"type": "float32", "dim": [2]},
        "action_spec": {"type": "discrete", "dim": [3]},
        "max_message_bytes": (1 << 16) + 2 * 8 + 32 * 2,
        "grace_seconds": 30.0,
        "idle_seconds": 300.0,
    }


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


def test_B1_all_requests_that_wait_are_answered_together(stage: Stage) -> None:
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


def test_B4_requests_wait_for_the_first_parameters() -> None:
    with make_stage(publish=False) as stage:
        client = stage.client()
        client.send(kind="reset", seq=1, observation=[0, 1])
        stage.rig.pass_time(5.1)
        assert client.next() == {"kind": "wait", "seq": 1, "reason": "parameters"}
        stage.learner.publish()
        assert client.next()["version"] == 1


def test_P9_a_late_answer_is_announced_and_comes_in_the_end() -> None:
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


def test_E5_a_full_window_holds_requests_back(stage: Stage) -> None:
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


def test_E5_acks_wake_a_gateway_only_while_the_window_is_full(stage: Stage) -> None:
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


def test_E5_the_window_grows_with_the_sessions(stage: Stage) -> None:
    window = stage.service._recorder.sender.window
    for _ in range(3):
        stage.client()
    stage.rig.pass_time(0.2)
    assert window.max_chunks == 24


# -- errors


def before_welcome(stage: Stage, payload: bytes) -> dict[str, Any]:
    client = Client(stage)
    client.send_bytes(pack_frame(payload))
    answer = client.next()
    assert client.gone()
    return answer


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (b"\xc0", "malformed"),
        (b"", "malformed"),
        (b'{"kind": "hello", "v": 0}', "bad_version"),
        (b'{"kind": "hello", "v": 1, "name": "a b"}', "bad_hello"),
        (b'{"kind": "hello", "v": 1, "num_envs": 2}', "bad_hello"),
        (b'{"kind": "step"}', "bad_seq"),
        (b'{"kind": "bye"}', "wrong_state"),
        (b'{"kind": "what"}', "unknown_kind"),
        (b"{}", "malformed"),
    ],
)
def test_P9_before_the_welcome_every_error_is_fatal(
    stage: Stage, payload: bytes, code: str
) -> None:
    answer = before_welcome(stage, payload)
    assert answer["kind"] == "error"
    assert answer["code"] == code
    assert answer["fatal"]


def test_P9_errors_that_are_not_fatal_change_nothing(stage: Stage) -> None:
    client = stage.client()
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("wrong_state", {"kind": "step", "seq": 1, "reward": 1, "observation": [0, 0]}),
        ("bad_seq", {"kind": "reset", "seq": 2, "observation": [0, 0]}),
        ("bad_observation", {"kind": "reset", "seq": 1, "observation": [0]}),
        ("unknown_kind", {"kind": "?"}),
        ("bad_metric", {"kind": "metrics", "values": 1}),
        ("wrong_state", {"kind": "hello", "v": 1}),
    ]
    for code, fields in wrong:
        answer = client.ask(**fields)
        assert (answer["kind"], answer["code"], answer["fatal"]) == ("error", code, False)
    assert client.request("reset")["kind"] == "action"
    for code, change in (("bad_reward", {"reward": True}), ("bad_action", {"action": 3})):
        answer = client.ask(
            **{"kind": "step", "seq": 2, "reward": 1, "observation": [0, 0], **change}
        )
        assert answer["code"] == code
    assert client.request("step")["kind"] == "action"
    assert stage.finish()["pushed"] == 2


def test_P9_overlap(stage: Stage) -> None:
    client = stage.client()
    request = {"reward": 1.0, "observation": [0.0, 0.0]}
    first, second = (
        pack_frame(_packed({"kind": kind, "seq": seq, **request}))
        for kind, seq in (("reset", 1), ("step", 2))
    )
    client.send_bytes(first + second)
    answers = [client.next(), client.next()]
    assert sorted(each.get("code", "") for each in answers) == ["", "overlap"]


def _packed(fields: dict[str, Any]) -> bytes:
    from surreal_like.gateway.payloads import encode

    return encode(fields, Encoding.msgpack)


def test_P9_twenty_errors_in_a_row_are_too_many(stage: Stage) -> None:
    client = stage.client()
    for _ in range(19):
        assert not client.ask(kind="?")["fatal"]
    client.request("reset")
    for _ in range(19):
        assert not client.ask(kind="?")["fatal"]
    # The last one is answered like all others, and then the session ends.
    assert client.ask(kind="?")["code"] == "unknown_kind"
    answer = client.next()
    assert answer["code"] == "too_many_errors"
    assert answer["fatal"]
    assert client.gone()


def test_before_the_welcome_a_message_that_is_announced_too_large_is_refused_at_once(
    stage: Stage,
) -> None:
    client = Client(stage)
    client.send_bytes(struct.pack("<I", 12 << 10))
    answer = client.next()
    assert (answer["code"], answer["fatal"]) == ("oversize", True)
    assert "the limit is 8192" in answer["message"]
    assert client.gone()
    # It is the limit of strangers only.
    other = stage.client()
    other.request("reset")
    assert other.request("step", unknown=["x" * 3000] * 4)["kind"] == "action"


def test_P9_a_message_that_is_too_large_ends_the_connection_and_not_the_session(
    stage: Stage,
) -> None:
    client = Client(stage)
    resume = client.hello()["resume"]
    client.send_bytes(struct.pack("<I", 1 << 20))
    answer = client.next()
    assert (answer["code"], answer["fatal"]) == ("oversize", True)
    assert "the limit is 65616" in answer["message"]
    assert client.gone()
    assert Client(stage).hello(resume=resume)["resumed"]


def test_P9_a_defect_ends_one_connection_and_no_other_session(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, other = stage.client(), stage.client()
    healthy.request("reset")
    receive = stage.gateway.receive

    def broken(session: Session, request: Request, now: float) -> None:
        receive(session, request, now if session.number == 1 else 1 // 0)

    monkeypatch.setattr(stage.gateway, "receive", broken)
    answer = other.request("reset")
    assert (answer["code"], answer["fatal"]) == ("internal", True)
    assert other.gone()
    assert healthy.request("step")["kind"] == "action"

    def logged() -> bool:
        return any("ZeroDivisionError" in each.get("text", "") for each in stage.rig.records)

    stage.rig.until(logged)


def test_P2_the_other_encoding_is_malformed(stage: Stage) -> None:
    client = stage.client(encoding=Encoding.json)
    client.encoding = Encoding.msgpack
    assert client.ask(kind="ping")["code"] == "malformed"
    assert client.gone()


def test_E2_with_unrolls_the_client_may_not_correct_an_action() -> None:
    with make_stage(learner=UNROLLS) as stage:
        client = stage.client()
        client.request("reset")
        answer = client.request("step", action=1)
        assert answer["code"] == "bad_action"
        assert "leave action out" in answer["message"]


# -- sessions


def test_S1_a_repeated_request_counts_once(stage: Stage) -> None:
    client = stage.client()
    for kind in ("reset", "step", "step", "end"):
        answer = client.request(kind)
        client.seq -= 1
        assert client.request(kind) == answer
    account = stage.finish()
    assert account["pushed"] == 4
    assert account["env_steps"] == 3


def test_S2_a_session_goes_on_over_another_connection(stage: Stage) -> None:
    first = Client(stage)
    welcome = first.hello()
    first.request("reset")
    answer = first.request("step")
    first.close()
    second = Client(stage)
    again = second.hello(resume=welcome["resume"])
    assert again["resumed"]
    assert again["session"] == welcome["session"]
    assert again["seq"] == second.seq + 2
    assert again["resume"] != welcome["resume"]
    second.seq = 1
    assert second.request("step") == answer
    second.request("end")
    account = stage.finish()
    assert (account["pushed"], account["env_steps"], account["episodes"]) == (3, 2, 1)


def test_S2_a_session_is_taken_over_from_a_connection_that_stands(stage: Stage) -> None:
    first = Client(stage)
    resume = first.hello()["resume"]
    first.request("reset")
    second = Client(stage)
    assert second.hello(resume=resume)["resumed"]
    assert first.gone()
    second.seq = 1
    assert second.request("step")["kind"] == "action"


def test_S2_an_answer_that_is_owed_goes_to_the_newest_connection() -> None:
    with make_stage(publish=False) as stage:
        first = Client(stage)
        resume = first.hello()["resume"]
        first.send(kind="reset", seq=1, observation=[0, 1])
        stage.rig.pass_time(0.1)
        first.close()
        second = Client(stage)
        assert second.hello(resume=resume)["seq"] == 1
        stage.learner.publish()
        assert second.next()["seq"] == 1


def test_S2_an_unknown_secret_begins_a_new_session(stage: Stage) -> None:
    welcome = Client(stage).hello(resume="1.0123")
    assert not welcome["resumed"]
    assert welcome["seq"] == 0


def test_S3_episodes_without_an_end_are_cut(stage: Stage) -> None:
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


def test_S4_a_silent_client_is_sent_away() -> None:
    with make_stage(gateway={"idle_seconds": 10.0}) as stage:
        client = stage.client()
        stage.rig.pass_time(10.2)
        goodbye = client.next()
        assert (goodbye["reason"], goodbye["reconnect"]) == ("idle", True)
        assert client.gone()


def test_S5_a_dead_client_frees_its_place_after_the_grace_time() -> None:
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


def test_S6_a_newcomer_needs_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slot_bytes = stage.service._recorder.slot_bytes
    # Four rows of a chunk, one that repeats, one frame.
    assert slot_bytes == 6 * replay_need(stage.rig.config).row_bytes
    welcome = Client(stage).hello()
    left = [(256 << 20) + slot_bytes - 1]
    monkeypatch.setattr(admission, "find_available_bytes", lambda: left[0])
    busy = Client(stage).hello()
    assert busy["kind"] == "busy"
    assert "memory" in busy["reason"]
    # A session that is there needs nothing more.
    assert Client(stage).hello(resume=welcome["resume"])["resumed"]
    left[0] += 1
    assert Client(stage).hello()["kind"] == "welcome"


def test_S6_a_full_gateway_is_busy_and_a_newcomer_gets_the_place_of_an_absent_client(
    stage: Stage,
) -> None:
    clients = [stage.client() for _ in range(3)]
    assert stage.service.ready
    clients.append(stage.client())
    assert not stage.service.ready
    newcomer = Client(stage)
    busy = newcomer.hello()
    assert busy["kind"] == "busy"
    assert busy["retry_after_seconds"] > 0
    assert newcomer.gone()
    clients[2].close()
    stage.rig.pass_time(0.1)
    assert Client(stage).hello()["session"] == 5


def test_K4_the_host_may_be_a_variable_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    with make_stage(gateway={"host": "$(POD_IP)"}) as stage:
        assert stage.client().request("reset")["kind"] == "action"


def is_sent_away(client: Client, reason: str) -> None:
    goodbye = client.next()
    assert (goodbye["kind"], goodbye["reason"]) == ("goodbye", reason)
    assert goodbye["reconnect"]
    assert client.gone()


def test_S7_a_stopped_gateway_lets_episodes_end_and_sends_its_rows(stage: Stage) -> None:
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


def test_S7_an_episode_that_does_not_end_is_cut_at_the_deadline() -> None:
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


def test_S9_a_session_is_sent_to_connect_again_after_an_episode() -> None:
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


def test_S9_with_several_environments_the_episodes_that_were_open_are_waited_for() -> None:
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


def test_B3_sessions_that_act_are_greedy_and_not_recorded(stage: Stage) -> None:
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


def test_B3_both_modes_side_by_side(stage: Stage) -> None:
    clients = [stage.client(mode=mode) for mode in ("train", "act", "train", "act")]
    for kind in ("reset", "step", "step", "end"):
        for client in clients:
            client.request(kind)
    account = stage.finish()
    assert (account["pushed"], account["env_steps"], account["episodes"]) == (8, 6, 2)


def test_E5_robots_act_on_while_replay_takes_no_rows() -> None:
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


def test_E7_metrics_of_a_client_are_curves(stage: Stage) -> None:
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


def test_B1_a_request_waits_for_company() -> None:
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


def test_S8_when_the_run_is_over_clients_get_a_message(stage: Stage) -> None:
    client, silent = stage.client(), stage.client()
    client.request("reset")
    stage.finish()
    goodbye = client.next()
    assert (goodbye["kind"], goodbye["reason"]) == ("goodbye", "finished")
    assert not goodbye["reconnect"]
    assert silent.next()["reason"] == "finished"


def test_E8_no_seed_is_given_twice(stage: Stage) -> None:
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


def test_P8_several_environments_in_one_message() -> None:
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


def test_K2_the_last_account_has_the_totals_of_clients(stage: Stage) -> None:
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


def test_K2_the_curves_of_a_gateway_are_in_the_glossary(stage: Stage) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    section = text.partition("### What a gateway counts")[2].partition("\n### ")[0]
    documented = set(re.findall(r"^\| `gateway/(\w+)`", section, re.MULTILINE))
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


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Stage]:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    with make_stage(run=folder, gateway={"tokens": True}) as made:
        yield made


def folder_of(stage: Stage) -> Path:
    assert stage.rig.run is not None
    return stage.rig.run.client_tokens


def test_A2_a_client_needs_its_token(guarded: Stage) -> None:
    token = write_token(folder_of(guarded), "robot", modes=["act"])
    guarded.rig.pass_time(2.1)
    for wrong in ({}, {"token": "sg1-0"}, {"token": token}, {"token": token, "mode": "train"}):
        client = Client(guarded)
        answer = client.hello(**wrong)
        assert answer["code"] == "bad_token"
        assert answer["message"] == "this token is not valid here"
        assert client.gone()
    right = Client(guarded)
    welcome = right.hello(token=token, mode="act")
    assert welcome["kind"] == "welcome"
    # The secret of a session does not replace the token.
    assert Client(guarded).hello(resume=welcome["resume"], mode="act")["code"] == "bad_token"


def test_S6_the_token_is_checked_before_the_mode_and_the_number_of_environments(
    guarded: Stage,
) -> None:
    token = write_token(folder_of(guarded), "robot")
    guarded.rig.pass_time(2.1)
    guarded.gateway.draining = True
    # Each of these is wrong in a later way, too.
    answers = [
        Client(guarded).hello(token="sg1-0", num_envs=2, name="a b"),
        Client(guarded).hello(token="sg1-0", num_envs=2),
        Client(guarded).hello(token=token, num_envs=2),
        Client(guarded).hello(token=token),
    ]
    assert [each.get("code") for each in answers] == ["bad_hello", "bad_token", "bad_hello", None]
    assert answers[2]["message"] == "num_envs is 2, this gateway has sessions of 1"
    assert (answers[3]["kind"], answers[3]["reason"]) == ("busy", "this gateway is ending")


def test_A2_a_revoked_client_is_sent_away(guarded: Stage) -> None:
    token = write_token(folder_of(guarded), "robot")
    guarded.rig.pass_time(2.1)
    client = Client(guarded)
    client.hello(token=token)
    client.request("reset")
    revoke_token(folder_of(guarded), "robot")
    guarded.rig.pass_time(2.1)
    goodbye = client.next()
    assert (goodbye["reason"], goodbye["reconnect"]) == ("revoked", False)
    assert client.gone()


def test_A2_wrong_tokens_keep_no_right_one_of_their_address_out(guarded: Stage) -> None:
    token = write_token(folder_of(guarded), "robot")
    guarded.rig.pass_time(2.1)
    for _ in range(25):
        client = Client(guarded)
        assert client.hello(token="sg1-0")["code"] == "bad_token"
        assert client.gone()
    assert Client(guarded).hello(token=token)["kind"] == "welcome"
    assert guarded.gateway.counters.refused == 25
    guarded.rig.until(lambda: guarded.rig.events("client_refused"))
    assert guarded.rig.events("client_refused") == [
        "127.0.0.1: bad_token: this token is not valid here"
    ]


def test_connections_that_say_nothing_keep_no_client_of_their_address_out(stage: Stage) -> None:
    silent = [Client(stage) for _ in range(16)]
    stage.rig.until(lambda: len(stage.listener) == 16)
    assert Client(stage).hello()["kind"] == "welcome"
    assert silent[0].gone()
    assert silent[1].hello()["kind"] == "welcome"


def test_K1_the_table_of_clients(
    guarded: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = guarded.rig.run
    assert run is not None
    monkeypatch.setattr(clients, "find_run", lambda text: run)
    assert clients.run([str(run), "--token", "robot", "--mode", "train"]) == 0
    token = capsys.readouterr().out.strip()
    guarded.rig.pass_time(2.1)
    first = Client(guarded)
    first.hello(token=token, name="mine")
    first.request("reset")
    first.request("step")
    first.request("end")
    first.send(kind="metrics", values={"latency_p50_seconds": 0.0025})
    second = Client(guarded)
    second.hello(token=token, name="gone")
    second.close()
    guarded.rig.pass_time(1.1)
    assert clients.run([str(run)]) == 0
    head, mine, gone, tokens, robot = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["gateway", "session", "mode"]
    assert mine.split()[:8] == ["gateway-0", "mine", "train", "idle", "127.0.0.1", "2", "1", "2.0"]
    assert mine.split()[8] == "2.5"
    assert gone.split()[:5] == ["gateway-0", "gone", "train", "away", "-"]
    assert tokens.split() == ["token", "modes", "until"]
    # Valid until it is revoked; a revoked one is in no table.
    assert robot.split() == ["robot", "train", "never"]
    assert clients.run([str(run), "--revoke", "robot"]) == 0
    guarded.rig.pass_time(4.1)
    assert clients.run([str(run)]) == 0
    assert capsys.readouterr().out == "no sessions\n"


def test_A3_the_command_makes_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setattr(clients, "find_run", lambda text: RunFolder(tmp_path))
    assert clients.run(["latest", "--certificate", "127.0.0.1"]) == 0
    fingerprint, _, cert, key, last = capsys.readouterr().out.splitlines()
    pair = [Path(line.partition("=")[2]) for line in (cert, key)]
    assert [path.parent.name for path in pair] == ["keys", "keys"]
    assert len(fingerprint) == 64
    assert last.endswith(f"fingerprint={fingerprint}")
    tls = {"tls": {"cert": str(pair[0]), "key": str(pair[1])}}
    with make_stage(gateway=tls) as stage:
        address = f"tls://127.0.0.1:{stage.port}"

        def program(_: str) -> Any:
            with connect(address, fingerprint=fingerprint) as session:
                return session.reset([0.0, 0.0])

        assert Playing(stage, program).result() in (0, 1, 2)


def corrupted(data: bytes, rng: np.random.Generator) -> bytes:
    """A message with some bytes changed, left out or repeated."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(0, len(changed) + 1))
        part = rng.bytes(int(rng.integers(0, 9)))
        changed[at : at + int(rng.integers(0, 5))] = part
    return bytes(changed)


def test_A4_garbage_at_all_doors_hurts_no_other_session(stage: Stage) -> None:
    """A short hunt; longer ones change the seed and the number of rounds."""
    rng = np.random.default_rng(7)
    healthy = stage.client()
    healthy.request("reset")
    fields = {"observation": [0.0, 1.0], "reward": 1.0}
    messages = [
        pack_frame(_packed({"kind": kind, "v": 1, "seq": 1, **fields, "values": {"a": 1}}))
        for kind in ("hello", "reset", "step", "end", "metrics", "ping", "bye")
    ]
    texts = [pack_frame(b'{"kind": "hello", "v": 1}'), pack_frame(b'{"kind": "reset", "seq": 1}')]
    upgrade = (
        b"GET /v1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        b"Sec-WebSocket-Protocol: surreal.v1.json\r\n\r\n"
    )
    for number in range(60):
        stranger = Client(stage)
        start = [messages[0], texts[0], upgrade][number % 3]
        try:
            stranger.send_bytes(start if rng.random() < 0.7 else corrupted(start, rng))
            for _ in range(5):
                message = [*messages, *texts][rng.integers(0, 9)]
                stranger.send_bytes(corrupted(message, rng))
                stage.rig.step()
        except (BrokenPipeError, ConnectionResetError):
            pass
        stranger.close()
        assert healthy.request("step")["kind"] == "action"
    healthy.request("end")
    stage.rig.pass_time(31.0)
    assert len(stage.sessions) == 1
    assert len(stage.listener) == 1
    account = stage.finish()
    assert account["unacked"] == 0
    assert account["pushed"] == account["inserted"]


def test_values_that_would_spoil_learning_are_refused_counted_and_named_once(stage: Stage) -> None:
    client = stage.client()
    client.request("reset")
    client.seq = 1
    for _ in range(3):
        answer = client.request("step", reward=3e38)
        assert answer["code"] == "bad_reward"
        assert "from -1e+06 to 1e+06" in answer["message"]
        client.seq = 1
    assert client.request("step", reward=1e6)["kind"] == "action"
    assert stage.service._totals()["refused"] == 3
    stage.rig.until(lambda: stage.rig.events("client_refused"))
    assert len(stage.rig.events("client_refused")) == 1


@pytest.mark.parametrize(("mode", "cut"), [("train", 1), ("act", 0), ("evaluate", 0)])
def test_only_recorded_episodes_count_as_cut(stage: Stage, mode: str, cut: int) -> None:
    client = stage.client(mode=mode)
    client.request("reset")
    client.request("step")
    client.send(kind="bye")
    assert client.gone()
    assert stage.service._totals()["episodes_cut"] == cut
