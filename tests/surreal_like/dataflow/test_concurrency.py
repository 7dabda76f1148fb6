"""Several flows at once: golden sequences, shares against exact ones, queues, wrong arguments."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.dataflow import (
    NOT_READY,
    PASSED,
    STALLED,
    Queue,
    concurrently,
    dequeue,
    enqueue,
    from_items,
)
from surreal_like.errors import DataError
from tests.surreal_like.dataflow.scripts import Script, endless, pulled

# flows, weights, expected; "a" alone is an endless flow a1 a2 ...
ROUND_ROBIN: list[tuple[list[str], Any, str]] = [
    (["a", "b"], [1, 1], "a1 b1 a2 b2"),
    (["a", "b"], [2, 1], "a1 a2 b1 a3 a4 b2"),
    (["a", "b"], [1, 0.5], "a1 a2 b1 a3 a4 b2"),
    (["a", "b"], [1.5, 1], "a1 b1 a2 a3 b2 a4 b3 a5 a6 b4"),
    (["a1 N N N a2", "b"], None, "a1 b1 N N N a2 b2"),
    (["a", "S S b1 b2 S b3"], None, "a1 a2 a3 b1 a4 b2 a5 a6 b3"),
    (["a1 a2", "b1 b2 b3 b4"], None, "a1 b1 a2 b2 b3 b4 END"),
    (["a1 P P a2", "b"], None, "a1 b1 P P a2 b2"),
    (["a1 a2 N a3", "b"], ["*", 1], "a1 a2 b1 a3 b2"),
    (["a1 N N", "b1 N b2"], ["*", 1], "a1 b1 N b2"),
    (["S S S", "S S S"], None, "S"),
    (["N N", "S S"], ["*", 1], "N"),
    (["S", "b"], [1, 0.5], "b1 b2"),
]


def flow_of(words: str) -> Any:
    return endless(words) if words in ("a", "b") else Script(words)


@pytest.mark.parametrize(("flows", "weights", "expected"), ROUND_ROBIN)
def test_round_robin(flows: list[str], weights: Any, expected: str) -> None:
    flow = concurrently([flow_of(each) for each in flows], round_robin_weights=weights)
    assert pulled(flow, len(expected.split())) == expected


def test_a_star_gives_at_most_100_items_in_its_turn() -> None:
    flow = concurrently([endless("a"), endless("b")], round_robin_weights=["*", 1])
    words = pulled(flow, 102).split()
    assert words[99:] == ["a100", "b1", "a101"]


def test_other_items_are_passed() -> None:
    flow = concurrently([endless("a"), endless("b")], output_indexes=[1])
    assert pulled(flow, 4) == "P b1 P b2"
    assert pulled(concurrently([Script("a"), Script("b")], output_indexes=[])) == "P P END"


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        (["a", "b"], "a1 b1 a2 b2"),
        (["a1 N N a2", "b1 b2 b3 N"], "a1 b1 b2 b3 a2 N END"),
        (["N S a1", "S S S"], "N S a1 S END"),
        (["a1", "b1 b2"], "a1 b1 b2 END"),
        (["P P a1", "b1 b2"], "P b1 P b2 a1 END"),
        (["a1", "b1 N b2", "N c1"], "a1 b1 N c1 b2 END"),
    ],
)
def test_async(flows: list[str], expected: str) -> None:
    flow = concurrently([flow_of(each) for each in flows], mode="async")
    assert pulled(flow, len(expected.split())) == expected


def test_each_pulls_all_in_every_pull() -> None:
    flow = concurrently([Script("a1 N a2 N"), Script("b1 b2"), Script("S S S S")], mode="each")
    assert [flow.pull() for _ in range(3)] == [("a1", "b1"), ("b2",), ("a2",)]
    assert flow.pull() is NOT_READY
    with pytest.raises(StopIteration):
        flow.pull()
    hidden = concurrently([Script("a1 a2"), Script("b1 N")], mode="each", output_indexes=[1])
    assert hidden.pull() == ("b1",)
    assert hidden.pull() is PASSED
    assert concurrently([Script("S"), Script("S")], mode="each").pull() is STALLED


WEIGHTS = st.lists(st.sampled_from([Fraction(n, 4) for n in range(1, 13)]), min_size=2, max_size=4)


@given(WEIGHTS, st.integers(1, 60))
def test_each_flow_is_within_one_turn_of_its_exact_share(
    weights: list[Fraction], pulls: int
) -> None:
    flows = [endless(f"{index}_") for index in range(len(weights))]
    flow = concurrently(flows, round_robin_weights=[float(each) for each in weights])
    words = pulled(flow, pulls).split()
    counts = [sum(word.startswith(f"{index}_") for word in words) for index in range(len(flows))]
    for one, weight in zip(counts, weights, strict=True):
        for two, other in zip(counts, weights, strict=True):
            # Within a round, one flow has had its turn and another has not.
            assert abs(one / weight - two / other) < 1 + 1 / weight + 1 / other


SCRIPT = st.lists(st.sampled_from("NSP"), max_size=6)


@given(st.lists(SCRIPT, min_size=2, max_size=3), st.sampled_from(["round_robin", "async"]))
def test_nothing_is_lost_and_the_order_of_each_flow_is_kept(
    signals: list[list[str]], mode: str
) -> None:
    scripts = []
    for index, each in enumerate(signals):
        words = [f"{index}.0"]
        for number, letter in enumerate(each, 1):
            words += [letter, f"{index}.{number}"]
        scripts.append(words)
    flow = concurrently([Script(" ".join(words)) for words in scripts], mode=mode)
    came = [word for word in pulled(flow).split() if word not in ("N", "S", "P", "END")]
    for index, each in enumerate(signals):
        own = [word for word in came if word.startswith(f"{index}.")]
        assert own == [f"{index}.{number}" for number in range(len(each) + 1)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"flows": 1}, "2 flows or more, not 1"),
        ({"flows": 0}, "2 flows or more, not 0"),
        ({"mode": "lazy"}, "'lazy', expected round_robin, async, each"),
        ({"mode": "async", "round_robin_weights": [1, 2]}, r"async has no weights.*\[1, 2\]"),
        ({"round_robin_weights": ["*", "*"]}, "at least one must be a number"),
        ({"round_robin_weights": [1, 0]}, "a weight is 0, expected"),
        ({"round_robin_weights": [1, -2.5]}, "a weight is -2.5"),
        ({"round_robin_weights": [1, "x"]}, "a weight is 'x'"),
        ({"round_robin_weights": [1]}, r"1 weights \[1\] for 2 flows"),
        ({"output_indexes": [0, 2]}, "output_indexes has 2, but there are 2 flows"),
        ({"output_indexes": [-1]}, "output_indexes has -1"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, Any], words: str) -> None:
    flows = [Script("a") for _ in range(changes.pop("flows", 2))]
    with pytest.raises(ValueError, match=words):
        concurrently(flows, **changes)


def test_the_same_flow_twice_is_refused() -> None:
    flow = Script("a")
    with pytest.raises(ValueError, match="same flow twice"):
        concurrently([flow, flow])


def test_a_queue_is_bounded_and_keeps_the_order() -> None:
    queue = Queue(2)
    fill, drain = from_items("abc").for_each(enqueue(queue)), dequeue(queue)
    assert drain.pull() is STALLED
    assert "an item in queue" in str(drain.standstill())
    assert pulled(fill, 3) == "a b S"
    assert "enqueue(queue) for room in queue" in str(fill.standstill())
    assert drain.pull() == "a"
    assert pulled(fill) == "c END"
    assert pulled(drain, 3) == "b c S"


def test_two_flows_that_feed_each_other_do_not_wait() -> None:
    queue = Queue(1, "orders")
    fill = from_items(range(6)).for_each(enqueue(queue))
    flow = concurrently([dequeue(queue), fill], output_indexes=[0], round_robin_weights=[1, 3])
    came = [flow.pull() for _ in range(12)]
    assert [each for each in came if each is not PASSED] == list(range(6))
    assert flow.pull() is STALLED
    assert NOT_READY not in came


def test_a_check_refuses_and_names_its_queue() -> None:
    queue = Queue(3, "orders")
    queue.items.extend([1, -1, 2])
    drain = dequeue(queue, check=lambda item: item > 0)
    assert drain.pull() == 1
    with pytest.raises(DataError, match="check of orders refuses an item: -1"):
        drain.pull()
    assert drain.pull() == 2
    with pytest.raises(ValueError, match="size of orders is 0"):
        Queue(0, "orders")
