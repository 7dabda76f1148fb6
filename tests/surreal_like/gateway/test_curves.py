"""Curves and names that clients bring: bounded, whatever sessions come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.gateway import counters
from surreal_like.gateway.counters import ClientCurves
from surreal_like.gateway.messages import Hello, Metrics, Refusal, Request
from surreal_like.gateway.sessions import Sessions, Timing
from tests.surreal_like.gateway.rig import make_stage

ROUND_TRIP = {"latency_p50_seconds": 0.01, "latency_p99_seconds": 0.02}


def sessions() -> Sessions:
    return Sessions(4, Timing(), lambda: "secret")


def hello(name: str = "") -> Hello:
    return Hello(1, "", "train", name, 1, "", "")


def with_metrics(values: dict[str, float]) -> Request:
    no = np.zeros(1, np.bool_)
    info: dict[str, Any] = {"metrics": [values]}
    return Request("step", 2, None, np.zeros(1, np.float32), no, no, None, info)


def test_sessions_without_a_name_have_the_curves_of_their_places() -> None:
    every, curves = sessions(), ClientCurves()
    names: set[str] = set()
    for _ in range(3000):
        member = every.join(hello(), "train", None, 0.0)
        assert curves.add(member, Metrics(ROUND_TRIP))
        assert member.round_trip_seconds == 0.01
        every.leave(member)
        names.update(curves.pop())
    assert names == {f"client/place-0/{name}" for name in ROUND_TRIP}


def test_two_sessions_without_a_name_have_different_curves() -> None:
    every, curves = sessions(), ClientCurves()
    for value in (1.0, 2.0):
        curves.add(every.join(hello(), "train", None, 0.0), Metrics({"speed": value}))
    assert curves.pop() == {"client/place-0/speed": 1.0, "client/place-1/speed": 2.0}


def test_names_that_change_with_each_session_share_curves_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_CURVES", 30)
    every, curves = sessions(), ClientCurves()
    names: set[str] = set()
    shown: list[bool] = []
    for number in range(200):
        member = every.join(hello(f"robot-{number}"), "train", None, 0.0)
        shown.append(curves.add(member, Metrics({**ROUND_TRIP, f"own {number}": 1.0})))
        every.leave(member)
        names.update(curves.pop())
    assert shown == [True] * 10 + [False] * 190
    assert len(names) == 30 + 64
    assert {f"client/other/{name}" for name in ROUND_TRIP} <= names


def test_the_names_of_numbers_of_episodes_are_bounded() -> None:
    curves = ClientCurves()
    curves.check_episode(with_metrics({f"n{number}": 1.0 for number in range(64)}))
    for number in range(64, 256):
        curves.check_episode(with_metrics({f"n{number}": 1.0}))
    with pytest.raises(Refusal, match="n256 is new, and clients of this gateway have used 256"):
        curves.check_episode(with_metrics({"n0": 1.0, "n256": 1.0}))
    curves.check_episode(with_metrics({"n255": 2.0}))


def test_a_gateway_keeps_its_own_curves_whatever_clients_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_CURVES", 5)
    monkeypatch.setattr(counters, "_EPISODE_NAMES", 2)
    with make_stage() as stage:
        for number in range(6):
            client = stage.client(name=f"robot-{number}")
            client.send(kind="metrics", values=ROUND_TRIP)
            client.request("reset")
            answer = client.request("end", metrics={f"height {number}".replace(" ", "-"): 1.0})
            assert answer.get("code") == (None if number < 2 else "bad_metric")
            client.send(kind="bye")
            assert client.next()["kind"] in ("goodbye", "episode")
        stage.rig.pass_time(3.0)
        stage.finish()
        scalars = stage.rig.scalars("gateway/0")
        assert scalars["latency_p50_seconds"] >= 0.0
        assert sum(name.startswith("client/") for name in scalars) == 5 + 2
        (line,) = (each for each in stage.rig.events("client_refused") if "curves:" in each)
        assert "numbers of robot-2 are shown as client/other" in line
