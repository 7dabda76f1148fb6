"""Flows: golden sequences of pulls, what signals and errors do, and naive twins."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from session.errors import RunError
from surreal_like.data.batch import Batch
from surreal_like.dataflow import NOT_READY, PASSED, STALLED, Flow, Operator, from_items
from tests.surreal_like.dataflow.scripts import LETTERS, Script, pulled, word


def odd(number: int) -> bool:
    return number % 2 == 1


def test_building_runs_nothing() -> None:
    asked = []

    def items() -> Any:
        asked.append("items")
        yield 1

    script = Script("a b")
    flow = from_items(items()).for_each(asked.append).filter(asked.append).batch(2).flatten()
    Script("x").zip(script).union(flow).duplicate(2)
    assert not asked
    assert not script.pulls


GOLDEN = {
    "filter": (from_items(range(6)).filter(odd), "P 1 P 3 P 5 END"),
    "batch": (from_items(range(5)).batch(2), "P [0, 1] P [2, 3] P [4] END"),
    "combine": (from_items([1, 2, 3]).combine(lambda x: [x] * (x - 1)), "P 2 3 3 END"),
    "flatten": (from_items([[1, 2], [], [3]]).flatten(), "1 2 P 3 END"),
    "signals": (Script("N a S P b").for_each(str.upper), "N A S P B END"),
    "zip": (Script("a1 N a2 a3").zip(Script("b1 S S b2")), "('a1', 'b1') N P ('a2', 'b2') END"),
    "zip stalls": (Script("a1 S").zip(Script("S S b1")), "P S ('a1', 'b1') END"),
}


@pytest.mark.parametrize(("flow", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_golden(flow: Flow, expected: str) -> None:
    assert pulled(flow) == expected
    with pytest.raises(StopIteration):
        flow.pull()


@pytest.mark.parametrize("letter", ["N", "S"])
def test_a_function_that_is_not_ready_gets_the_same_item_again(letter: str) -> None:
    calls = []

    def every_third(item: str) -> Any:
        calls.append(item)
        return LETTERS[letter] if len(calls) % 3 else item

    source = Script("x y")
    assert pulled(source.for_each(every_third), 2) == f"{letter} {letter}"
    assert source.pulls == 1
    calls.clear()
    flow = Script("x y").for_each(every_third)
    assert pulled(flow) == f"{letter} {letter} x {letter} {letter} y END"
    assert calls == ["x"] * 3 + ["y"] * 3


@pytest.mark.parametrize(
    ("owner", "place"), [("DQN", "the plan of DQN"), ("", "its flow")], ids=["plan", "script"]
)
def test_an_error_loses_its_item_and_names_its_operator(owner: str, place: str) -> None:
    def refuse(item: int) -> int:
        if item == 1:
            raise ValueError("one")
        return item

    flow = from_items(range(3)).for_each(lambda x: x).for_each(refuse).for_each(lambda x: x)
    if owner:
        flow.name_plan(owner)
    assert flow.pull() == 0
    with pytest.raises(ValueError, match="one") as raised:
        flow.pull()
    assert raised.value.__notes__ == [f"in refuse, operator 3 of {place}"]
    assert pulled(flow) == "2 END"


def test_scripts_skip_signals() -> None:
    assert list(Script("N a P b N")) == ["a", "b"]
    assert next(Script("P a")) == "a"
    assert Script("N a P b c").take(2) == ["a", "b"]
    with pytest.raises(StopIteration):
        next(Script("N"))


def test_show_prints(capsys: pytest.CaptureFixture[str]) -> None:
    Script("a N b c").show(2)
    assert capsys.readouterr().out == "a\nb\n"


class Network:
    """Other processes: the source has an item after some waiting."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stopping = False

    def tick_script(self) -> bool:
        self.log.append("tick")
        return not self.stopping

    def wait_script(self) -> None:
        self.log.append("wait")


def test_a_script_waits_at_the_source_and_ends_with_a_stop_request() -> None:
    source, network = Script("N a b"), Network()
    source.outside = network
    flow = source.for_each(str.upper)
    assert next(flow) == "A"
    assert network.log == ["tick", "wait", "tick"]
    network.stopping = True
    assert list(flow) == []


def test_a_script_that_can_never_go_on_raises() -> None:
    stalled = Operator("lift", lambda item: STALLED, lambda: "a crane")
    with pytest.raises(RunError, match=r"all operators of the plan wait .*: lift for a crane"):
        next(Script("a").for_each(stalled))


def test_two_sources_of_the_same_batches_are_refused() -> None:
    one, other = Script("a"), Script("b")
    one.outside = other.outside = Network()
    with pytest.raises(ValueError, match=r"script and script of the plan of X .*duplicate"):
        one.union(other).name_plan("X")
    one.for_each(str.upper).name_plan("X")


def test_clones_see_every_item_once_and_in_order() -> None:
    first, second = from_items(range(5)).duplicate(2)
    assert pulled(first, 3) == "0 1 2"
    assert pulled(second) == "0 1 2 3 4 END"
    assert pulled(first) == "3 4 END"


def test_a_clone_is_at_most_100_items_ahead() -> None:
    first, second = from_items(range(500)).duplicate(2)
    assert len(pulled(first, 100).split()) == 100
    assert first.pull() is STALLED
    assert "100 items behind" in str(first.standstill())
    assert second.pull() == 0
    assert first.pull() == 100


def test_a_flow_is_described_by_its_operators() -> None:
    flow = from_items([1]).for_each(str).filter(odd).batch(2)
    assert flow.describe() == "from_items -> str -> filter(odd) -> batch(2)"
    one, other = from_items([1]).duplicate(2)
    both = one.for_each(str).union(other).for_each(abs)
    assert both.describe().splitlines() == [
        "  from_items -> clone 1 of 2 -> str",
        "  clone 2 of 2",
        "concurrently(async) -> abs",
    ]
    assert both.outline() == [
        "- from_items",
        "  clone 1 of 2",
        "  str",
        "- clone 2 of 2",
        "concurrently(async)",
        "abs",
    ]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: from_items([]).batch(0), r"batch\(0\)"),
        (lambda: from_items([]).duplicate(1), r"duplicate\(1\)"),
    ],
)
def test_wrong_arguments_are_refused(build: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build()


WORDS = st.lists(st.sampled_from(["N", "S", "P", "1", "2", "3", "4"]), max_size=30)


def naive(words: list[str], operator: str) -> list[str]:
    """The items that come out, by the definition, without signals."""
    items = [int(each) for each in words if each not in LETTERS]
    if operator == "for_each":
        return [str(each + 1) for each in items]
    if operator == "filter":
        return [str(each) for each in items if odd(each)]
    if operator == "combine":
        return [str(each) for each in items for _ in range(each - 1)]
    return [str(items[i : i + 3]) for i in range(0, len(items), 3)]


@given(WORDS, st.sampled_from(["for_each", "filter", "combine", "batch"]))
def test_items_are_those_of_a_naive_twin(words: list[str], operator: str) -> None:
    flow = Script(" ".join(words)).for_each(int)
    made = {
        "for_each": lambda: flow.for_each(lambda x: x + 1),
        "filter": lambda: flow.filter(odd),
        "combine": lambda: flow.combine(lambda x: [x] * (x - 1)),
        "batch": lambda: flow.batch(3),
    }[operator]()
    results = []
    while True:
        try:
            results.append(made.pull())
        except StopIteration:
            break
    items = [word(each) for each in results if each not in (NOT_READY, STALLED, PASSED)]
    assert items == naive(words, operator)
    # Signals other than PASSED come out as often as they went in: nothing waits or is lost.
    for letter in "NS":
        assert sum(word(each) == letter for each in results) == words.count(letter)


@given(WORDS, st.lists(st.integers(0, 1), max_size=60))
def test_clones_pulled_in_any_order_agree(words: list[str], order: list[int]) -> None:
    clones = Script(" ".join(words)).duplicate(2)
    seen: list[list[str]] = [[], []]
    for index in [*order, *[0, 1] * 40]:
        try:
            item = clones[index].pull()
        except StopIteration:
            continue
        if item not in (NOT_READY, STALLED, PASSED):
            seen[index].append(item)
    assert seen[0] == seen[1] == [each for each in words if each not in LETTERS]


def test_items_and_rows_are_counted_where_a_function_works() -> None:
    batch = Batch(rewards=torch.zeros(3, 2), mask=torch.tensor([[1.0, 0.0]] * 3))
    step = Operator("step", lambda item: item)
    source = from_items([[batch], [batch, 7], ["text"]])
    flow = source.for_each(step).flatten().for_each(step)
    flow.take(9)
    assert flow.counts() == {
        "step": {"items": 3, "rows": 12, "timed": 0, "seconds": 0.0},
        "flatten": {"items": 3, "rows": 12, "timed": 0, "seconds": 0.0},
        "step #2": {"items": 4, "rows": 12, "timed": 0, "seconds": 0.0},
    }


def test_one_call_in_32_is_timed() -> None:
    flow = from_items(range(70)).for_each(lambda item: item)
    list(flow)
    (counts,) = flow.counts().values()
    assert (counts["items"], counts["timed"]) == (70, 2)
    assert counts["seconds"] > 0.0
