"""Clients that get a session, or none: welcomes, tokens, full gateways, the table of clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from main.addons.gateway import clients
from session.addons.gateway.client_tokens import revoke_token, write_token
from session.folder import RunFolder
from surreal_like.addons.gateway import admission
from surreal_like.addons.gateway.clients.surreal_client import connect
from surreal_like.experiment.machine import replay_need
from tests.addons.gateway.rig import Client, Stage, make_stage
from tests.addons.gateway.test_surreal_client import Playing


def test_a_welcome_has_all_that_a_client_needs(stage: Stage) -> None:
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


def test_a_session_goes_on_over_another_connection(stage: Stage) -> None:
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


def test_a_session_is_taken_over_from_a_connection_that_stands(stage: Stage) -> None:
    first = Client(stage)
    resume = first.hello()["resume"]
    first.request("reset")
    second = Client(stage)
    assert second.hello(resume=resume)["resumed"]
    assert first.gone()
    second.seq = 1
    assert second.request("step")["kind"] == "action"


def test_an_answer_that_is_owed_goes_to_the_newest_connection() -> None:
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


def test_an_unknown_secret_begins_a_new_session(stage: Stage) -> None:
    welcome = Client(stage).hello(resume="1.0123")
    assert not welcome["resumed"]
    assert welcome["seq"] == 0


def test_a_newcomer_needs_memory(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_full_gateway_is_busy_and_a_newcomer_gets_the_place_of_an_absent_client(
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


def test_the_host_may_be_a_variable_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "127.0.0.1")
    with make_stage(gateway={"host": "$(POD_IP)"}) as stage:
        assert stage.client().request("reset")["kind"] == "action"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Stage]:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    with make_stage(run=folder, gateway={"tokens": True}) as made:
        yield made


def folder_of(stage: Stage) -> Path:
    assert stage.rig.run is not None
    return stage.rig.run.client_tokens


def test_a_client_needs_its_token(guarded: Stage) -> None:
    token = write_token(folder_of(guarded), "robot", modes=["act"])
    guarded.rig.pass_time(2.1)
    for wrong in ({}, {"token": "sg1-0"}, {"token": token, "mode": "train"}):
        client = Client(guarded)
        answer = client.hello(**wrong)
        assert answer["code"] == "bad_token"
        mine = "this token is for act, not for train"
        assert answer["message"] == (mine if "mode" in wrong else "this token is not valid here")
        assert client.gone()
    right = Client(guarded)
    # Without a mode it is the first that the token admits.
    welcome = right.hello(token=token)
    assert (welcome["kind"], welcome["mode"]) == ("welcome", "act")
    # The secret of a session does not replace the token.
    assert Client(guarded).hello(resume=welcome["resume"], mode="act")["code"] == "bad_token"


def test_the_token_is_checked_before_the_mode_and_the_number_of_environments(
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


def test_a_revoked_client_is_sent_away(guarded: Stage) -> None:
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


def test_a_session_is_resumed_only_under_the_token_that_opened_it(guarded: Stage) -> None:
    tokens = {name: write_token(folder_of(guarded), name) for name in ("robot", "other")}
    guarded.rig.pass_time(2.1)
    client = Client(guarded)
    resume = client.hello(token=tokens["robot"])["resume"]
    client.request("reset")
    theirs = Client(guarded).hello(token=tokens["other"], resume=resume)
    assert (theirs["kind"], theirs["resumed"], theirs["seq"]) == ("welcome", False, 0)
    mine = Client(guarded).hello(token=tokens["robot"], resume=resume)
    assert (mine["resumed"], mine["seq"]) == (True, 1)


def test_a_token_that_is_for_no_mode_of_a_gateway_is_refused(guarded: Stage) -> None:
    token = write_token(folder_of(guarded), "robot", modes=["dance"])
    guarded.rig.pass_time(2.1)
    answer = Client(guarded).hello(token=token)
    assert answer["code"] == "bad_token"
    assert answer["message"] == "this token is for dance, not for train, evaluate, act"


def test_clients_of_one_token_do_not_hold_all_places(guarded: Stage) -> None:
    folder = folder_of(guarded)
    tokens = {name: write_token(folder, name) for name in ("one", "two")}
    guarded.rig.pass_time(2.1)
    kinds = [Client(guarded).hello(token=tokens["one"])["kind"] for _ in range(4)]
    assert kinds == ["welcome", "welcome", "welcome", "busy"]
    assert Client(guarded).hello(token=tokens["two"])["kind"] == "welcome"


def test_wrong_tokens_keep_no_right_one_of_their_address_out(guarded: Stage) -> None:
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


def test_the_command_lists_sessions_and_tokens(
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


def test_the_command_makes_a_certificate(
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
