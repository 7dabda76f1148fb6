"""Advice on the size of a run: tables of loads and of the numbers that follow."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest

from session.show.wanted_agents import Advice, Load, want_agents, want_gateways

# Shares in which the learner and the senders wait.
IDLE, STARVED, HELD = (0.1, 0.1), (0.34, 0.0), (0.0, 0.6)


def looks(*spans: tuple[int, int, tuple[float, float]], every: int = 1) -> list[Load]:
    """Loads from 0 s on, for spans of seconds, agents and shares."""
    found = [Load(0.0, spans[0][1], *spans[0][2])]
    for seconds, agents, shares in spans:
        begin = found[-1].at
        found += [Load(begin + each, agents, *shares) for each in range(every, seconds + 1, every)]
    return found


def follow(loads: Iterable[Load]) -> list[Advice]:
    """The advice at each of these loads, as somebody who keeps all of them gets it."""
    seen: list[Load] = []
    advice: list[Advice] = []
    for load in loads:
        seen.append(load)
        advice.append(want_agents(seen, load.at, advice[-1] if advice else None))
    return advice


@pytest.mark.parametrize(
    ("loads", "number"),
    [
        pytest.param(looks((120, 4, IDLE)), 4, id="neither waits"),
        pytest.param(looks((30, 4, STARVED)), 6, id="learner has waited for 30 s"),
        pytest.param(looks((29, 4, STARVED)), 4, id="not yet for 30 s"),
        pytest.param(looks((30, 4, (0.2, 0.0))), 4, id="20 % is not more than 20 %"),
        pytest.param(looks((60, 4, IDLE), (15, 4, (0.4, 0.0))), 5, id="mean of the last 30 s"),
        pytest.param(looks((60, 4, IDLE), (9, 4, (0.4, 0.0))), 4, id="mean of the last 30 s, low"),
        pytest.param(looks((60, 4, STARVED), (30, 4, IDLE)), 4, id="earlier waiting is over"),
        pytest.param(looks((60, 4, HELD)), 3, id="senders have waited for 60 s"),
        pytest.param(looks((59, 4, HELD)), 4, id="not yet for 60 s"),
        pytest.param(looks((60, 4, (0.0, 0.5))), 4, id="50 % is not more than 50 %"),
        pytest.param(looks((60, 1, HELD)), 1, id="the last agent stays"),
        pytest.param(looks((60, 4, (0.34, 0.6))), 4, id="both wait: more agents change nothing"),
        pytest.param(looks((60, 3, STARVED), (29, 4, STARVED)), 4, id="a change has time first"),
        pytest.param(looks((60, 3, STARVED), (31, 4, STARVED)), 6, id="and does not suffice"),
        pytest.param(looks((30, 64, (0.5, 0.0))), 128, id="in proportion to what lacks"),
        pytest.param(looks((30, 64, (1.0, 0.0))), 128, id="never more than twice"),
        pytest.param(looks((60, 64, (0.0, 0.75))), 40, id="half of the surplus stays"),
        pytest.param(looks((60, 0, STARVED)), 1, id="no agent is left"),
        pytest.param(looks((40, 4, STARVED), every=20), 6, id="rare looks"),
        pytest.param(looks((20, 4, STARVED), every=20), 4, id="one rare look"),
    ],
)
def test_the_number_of_agents(loads: list[Load], number: int) -> None:
    assert want_agents(loads, loads[-1].at).number == number


@pytest.mark.parametrize("shares", [(0.201, 0.0), (0.0, 0.501)])
def test_a_change_exceeds_the_tolerance_of_autoscalers(shares: tuple[float, float]) -> None:
    """Those of Kubernetes ignore 10 % of the present number."""
    for agents in range(2, 1000):
        wanted = want_agents(looks((60, agents, shares), every=30), 60.0).number
        assert abs(wanted - agents) > 0.1 * agents


def test_looks_count_by_the_time_between_them() -> None:
    loads = [Load(0.0, 4, 0.0, 0.0), Load(20.0, 4, 0.1, 0.0), Load(21.0, 4, 0.9, 0.0)]
    loads += [Load(22.0, 4, 0.9, 0.0), Load(30.0, 4, 0.1, 0.0)]
    assert want_agents(loads, 30.0).number == 4
    assert want_agents(loads, 30.0).reason == "learner waits 15 %, agents wait -"


def test_of_a_look_that_began_earlier_only_the_end_counts() -> None:
    loads = [Load(0.0, 4, 0.0, 0.0), Load(24.0, 4, 0.9, 0.0), Load(50.0, 4, 0.0, 0.0)]
    assert want_agents(loads, 50.0).reason == "learner waits 12 %, agents wait -"


def test_the_number_changes_at_most_every_30_seconds() -> None:
    # A load around the limit, which alone would change the number with each of its turns.
    spans = [(25, 4, (share, 0.0)) for share in (0.6, 0.0) * 10]
    advice = follow(looks(*spans))
    changes = [after.since for before, after in pairwise(advice) if after.number != before.number]
    assert len(changes) > 5
    assert all(after - before >= 30.0 for before, after in pairwise(changes))
    assert {each.number for each in advice} <= {4, 5, 6, 7, 8}


def test_agents_that_join_are_wanted_at_once() -> None:
    advice = follow(looks((5, 1, IDLE), (5, 4, IDLE)))
    assert [each.number for each in advice] == [1] * 6 + [4] * 5
    assert advice[-1].since == 6.0


def test_if_followed_one_more_comes_at_a_time_until_the_learner_has_enough() -> None:
    agents, seen, numbers = 2, list[Load](), list[tuple[float, int]]()
    last = None
    for second in range(300):
        seen.append(Load(float(second), agents, max(0.0, 0.7 - 0.15 * agents), 0.0))
        last = want_agents(seen, float(second), last)
        if last.number != agents:
            agents = last.number
            numbers.append((second, agents))
    assert [number for _, number in numbers] == [3, 4]
    assert numbers[1][0] - numbers[0][0] >= 30


@pytest.mark.parametrize(
    ("sessions", "number"),
    [([0.0], 1), ([9.0], 1), ([10.0], 2), ([10.0, 8.0], 2), ([10.0, 9.0], 3), ([0.0, 0.0], 2)],
)
def test_the_number_of_gateways(sessions: list[float], number: int) -> None:
    advice = want_gateways(sessions, 10, 0.0)
    assert advice is not None
    assert advice.number == number


def test_a_wanted_gateway_stays_wanted_for_30_seconds() -> None:
    last = want_gateways([10.0], 10, 5.0)
    assert last is not None
    assert last == (2, "10 clients, 0 places free", 5.0)
    assert want_gateways([0.0], 10, 34.0, last) == last
    assert want_gateways([0.0], 10, 35.0, last) == (1, "0 clients, 10 places free", 35.0)
    assert want_gateways([], 10, 35.0, last) is None
