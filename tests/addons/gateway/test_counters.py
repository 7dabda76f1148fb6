"""Times, and what clients bring: curves, names and lines of log are bounded, whatever comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal_like.addons.gateway import counters
from surreal_like.addons.gateway.counters import ClientCurves, ClientLog, Mean, Quantiles, Times
from surreal_like.addons.gateway.messages import Metrics, Request
from surreal_like.addons.gateway.payloads import Refusal
from tests.addons.gateway.rig import join, make_sessions, make_stage

ROUND_TRIP = {"latency_p50_seconds": 0.01, "latency_p99_seconds": 0.02}


def with_metrics(values: dict[str, float]) -> Request:
    no = np.zeros(1, np.bool_)
    info: dict[str, Any] = {"metrics": [values]}
    return Request("step", 2, None, np.zeros(1, np.float32), no, no, None, info)


def test_sessions_without_a_name_have_the_curves_of_their_places() -> None:
    every, curves = make_sessions(), ClientCurves()
    names: set[str] = set()
    for _ in range(3000):
        session = join(every)
        assert curves.add(session, Metrics(ROUND_TRIP))
        assert session.round_trip_seconds == 0.01
        every.leave(session)
        names.update(curves.pop())
    assert names == {f"client/place-0/{name}" for name in ROUND_TRIP}


def test_two_sessions_without_a_name_have_different_curves() -> None:
    every, curves = make_sessions(), ClientCurves()
    for value in (1.0, 2.0):
        curves.add(join(every), Metrics({"speed": value}))
    assert curves.pop() == {"client/place-0/speed": 1.0, "client/place-1/speed": 2.0}


def test_names_that_change_with_each_session_share_curves_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters, "_CURVES", 30)
    every, curves = make_sessions(), ClientCurves()
    names: set[str] = set()
    shown: list[bool] = []
    for number in range(200):
        session = join(every, name=f"robot-{number}")
        shown.append(curves.add(session, Metrics({**ROUND_TRIP, f"own {number}": 1.0})))
        every.leave(session)
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


# -- lines of log


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def event(self, kind: str, detail: str = "") -> None:
        self.lines.append((kind, detail))

    def warning(self, msg: object, /) -> None:
        self.warnings.append(str(msg))


def test_an_address_is_named_once_a_minute_for_each_reason() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])
    for number in range(5):
        log.on_refused("10.0.0.1", f"malformed: no map {number}")
    log.on_refused("10.0.0.2", "bad_token: not valid")
    # An operator has to see that this client is set up wrongly, whatever came before.
    log.on_refused("10.0.0.1", "the client came without TLS")
    clock[0] = 60.0
    log.on_refused("10.0.0.1", "malformed: again")
    assert lines.lines == [
        ("client_refused", "10.0.0.1: malformed: no map 0"),
        ("client_refused", "10.0.0.2: bad_token: not valid"),
        ("client_refused", "10.0.0.1: the client came without TLS"),
        ("client_refused", "10.0.0.1: malformed: again (4 more since the last such line)"),
    ]


def test_sessions_of_one_address_are_named_at_most_sixty_times_a_minute() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])
    for number in range(90):
        log.on_joined("10.0.0.1", f"robot-{number}")
        log.on_left("10.0.0.1", f"robot-{number}: bye")
    log.on_joined("10.0.0.2", "other")
    kinds = [kind for kind, _ in lines.lines]
    assert (kinds.count("client_joined"), kinds.count("client_left")) == (61, 60)
    clock[0] = 60.0
    log.on_joined("10.0.0.1", "robot-90")
    assert lines.lines[-1] == (
        "client_joined",
        "robot-90 from 10.0.0.1 (30 more since the last such line)",
    )


def test_a_traceback_is_written_once_a_minute_for_each_place() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])

    def first() -> None:
        raise ValueError("one place")

    def second() -> None:
        raise KeyError("another")

    for fails in (first, second, first, first):
        try:
            fails()
        except (ValueError, KeyError) as error:
            log.on_defect(error)
    assert ["one place" in text for text in lines.warnings] == [True, False]
    assert all(text.startswith("Traceback") for text in lines.warnings)


# -- times between two reports


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, [0, 0]), (2, [1, 1]), (4, [2, 3]), (100, [50, 99]), (1000, [500, 990])],
)
def test_quantiles_by_nearest_rank(count: int, expected: list[float]) -> None:
    quantiles = Quantiles()
    for value in reversed(range(count)):
        quantiles.add(value)
    assert quantiles.pop(0.5, 0.99) == expected
    assert quantiles.pop(0.5, 0.99) == []


def test_the_newest_times_are_kept() -> None:
    quantiles = Quantiles()
    for value in range(10_000):
        quantiles.add(value)
    assert quantiles.pop(0.0) == [10_000 - 4096]


def test_a_mean_begins_anew() -> None:
    mean = Mean()
    assert mean.pop() is None
    mean.add(6.0, 2)
    mean.add(3.0)
    assert mean.pop() == 3.0
    assert mean.pop() is None


def test_times_without_values_are_left_out() -> None:
    times = Times()
    assert times.pop() == {}
    times.latency.add(0.25)
    times.batch.add(3)
    assert times.pop() == {"latency_p50_seconds": 0.25, "latency_p99_seconds": 0.25, "batch": 3.0}
