"""When parameters are asked for: modes, intervals, and the look for the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like.agent.fetcher import Fetcher, parse_mode
from surreal_like.data.parameters import Parameters
from surreal_like.ps.parameter_client import Newest
from tests.clock import HandClock


class Client:
    """Stands for the client: notes what is asked, answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.accounts: list[Any] = []
        self.waiting = False
        self.newest = Newest()
        self.have = (0, 0)
        self.answer: Parameters | None = None

    def ask(self, account: Mapping[str, Any] | None = None, *, patient: bool = False) -> bool:
        self.asked.append("patient" if patient else "fetch")
        self.accounts.append(account)
        self.waiting = True
        return True

    def ask_info(self, account: Mapping[str, Any] | None = None) -> bool:
        self.asked.append("info")
        self.accounts.append(account)
        self.waiting = True
        return True

    def receive(self) -> Parameters | None:
        self.waiting = False
        return self.answer


class Bench:
    """A fetcher whose first fetch is over."""

    def __init__(self, mode: str, interval_seconds: float = 0.0, *, renews: bool = False) -> None:
        self.client, self.clock = Client(), HandClock()
        self.fetcher = Fetcher(
            self.client,  # type: ignore[arg-type]
            self.clock,
            mode=mode,
            interval_seconds=interval_seconds,
            account=lambda: {"pushed": 1},
            renews=renews,
        )
        self.fetcher.tick()
        self.fetcher.tick()
        self.client.asked.clear()

    def step(self, ended: int = 0, seconds: float = 0.01) -> None:
        """One vector step, its tick, and the answer if it asked."""
        self.clock.seconds += seconds
        self.fetcher.count(ended)
        self.fetcher.tick()
        if self.client.waiting:
            self.fetcher.tick()

    @property
    def fetches(self) -> int:
        return self.client.asked.count("fetch")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("episode", ("episode", 1)),
        ("episode:3", ("episode", 3)),
        ("step", ("step", 1)),
        ("step:10", ("step", 10)),
    ],
)
def test_modes_of_fetching_are_parsed(text: str, parsed: tuple[str, int]) -> None:
    assert parse_mode(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "steps", "step:", "step:0", "step:-1", "step:x", "episode:1.5"]
)
def test_other_modes_are_refused_by_the_name_of_their_key(text: str) -> None:
    with pytest.raises(ConfigError, match=r"agent\.fetch_parameter_mode is"):
        parse_mode(text)


def test_the_first_fetch_waits_for_nothing() -> None:
    client = Client()
    fetcher = Fetcher(client, HandClock(), mode="episode:100", interval_seconds=5.0)  # type: ignore[arg-type]
    fetcher.tick()
    assert client.asked == ["fetch"]
    assert client.accounts == [None]


def test_episode_fetches_once_per_step_in_which_a_stream_ended() -> None:
    bench = Bench("episode")
    for ended in (0, 0, 1, 0, 3, 0):
        bench.step(ended)
    assert bench.fetches == 2


@pytest.mark.parametrize(
    ("mode", "ended", "fetches"),
    [
        ("episode:3", [1, 1, 1, 1, 1, 1], 2),
        ("episode:3", [2, 2, 2, 2], 2),
        ("episode:2", [0, 0, 0], 0),
        ("step", [0, 0, 0], 3),
        ("step:2", [1, 1, 1, 1, 1], 2),
    ],
)
def test_modes_count_episodes_or_steps(mode: str, ended: list[int], fetches: int) -> None:
    bench = Bench(mode)
    for each in ended:
        bench.step(each)
    assert bench.fetches == fetches


def test_fetches_are_not_closer_than_the_interval() -> None:
    bench = Bench("step", interval_seconds=0.1)
    for _ in range(100):
        bench.step(seconds=0.01)
    assert 9 <= bench.fetches <= 10


def test_one_request_is_in_flight_and_its_answer_is_taken_at_the_next_step() -> None:
    bench = Bench("step")
    bench.client.answer = Parameters(np.zeros(0, np.uint8), (), 1, 1, 1)
    bench.clock.seconds += 1.0
    bench.fetcher.count(0)
    assert bench.fetcher.tick() is None
    bench.fetcher.count(0)
    assert bench.fetcher.tick() is bench.client.answer
    assert bench.fetches == 1


def test_each_fetch_carries_the_account() -> None:
    bench = Bench("step")
    bench.step()
    assert bench.client.accounts == [{"pushed": 1}] * 2


def test_without_a_fetch_it_looks_for_the_end_once_a_second() -> None:
    bench = Bench("episode")
    for _ in range(25):
        bench.step(seconds=0.125)
    assert bench.client.asked == ["info"] * 3
    # What it waits for may be said in no other message.
    assert bench.client.accounts == [{"pushed": 1}] * 4
    bench.client.newest = Newest((9, 3), {"final": True}, final=True)
    assert bench.fetcher.client.newest.final
    assert bench.fetcher.lag == 3


@pytest.mark.parametrize("mode", ["episode", "episode:100", "step:1000000"])
def test_a_policy_is_renewed_once_a_second_in_an_episode_without_an_end(mode: str) -> None:
    bench = Bench(mode, renews=True)
    for _ in range(25):
        bench.step(seconds=0.125)
    assert bench.client.asked == ["fetch"] * 3
    # The shortest time between two fetches holds for these as well; then it looks for the end.
    slow = Bench("episode", interval_seconds=2.5, renews=True)
    for _ in range(41):
        slow.step(seconds=0.125)
    assert slow.client.asked == ["info", "info", "fetch", "info", "info"]


def test_what_is_wanted_is_fetched_whatever_the_mode() -> None:
    bench = Bench("episode")
    assert bench.fetcher.idle
    bench.fetcher.want()
    assert not bench.fetcher.idle
    bench.fetcher.tick()
    assert bench.client.asked == ["fetch"]


def test_newer_parameters_are_waited_for_at_once_whatever_mode_and_interval() -> None:
    bench = Bench("episode:100", interval_seconds=1000.0)
    bench.fetcher.want_newer()
    assert not bench.fetcher.idle
    bench.fetcher.tick()
    assert bench.client.asked == ["patient"]
    bench.fetcher.tick()
    assert bench.fetcher.idle
