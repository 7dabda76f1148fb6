"""Pages show what was measured last, and say of each number what it is."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from docs.generate import ROOT
from tests.docs.results import names_with, result, shown_result

PAGES = {"gateway": "gateway", "curve": "several_machines"}
PARTS = ("storage", "views", "replay", "parameters", "scale", "actor", "learner", "systems")
NAMES = (*PARTS, *PAGES)
# Whole trainings take minutes: a round less.
LEAST_ROUNDS = {"systems": 2}


@pytest.mark.parametrize("name", NAMES)
def test_every_result_is_shown(name: str) -> None:
    page = (ROOT / "docs" / f"{PAGES.get(name, 'performance')}.md").read_text()
    assert f"<!-- generated: benchmarks/results/{name}.json -->" in page


@pytest.mark.parametrize("name", NAMES)
def test_every_number_names_its_component(name: str) -> None:
    found = result(name)
    assert {"processor", "cores", "date", "versions", "command"} <= set(found["machine"])
    for group in found["groups"]:
        assert group["about"]
        assert group["rounds"] >= LEAST_ROUNDS.get(name, 3)
        for side in group["sides"].values():
            assert side["did"]
            value = side["value"]
            assert value["min"] <= value["median"] <= value["max"]
            # A share of time may be none.
            assert value["min"] > 0 or (group["unit"][0] == "%" and not value["min"])
        for line in group["lines"]:
            assert {line["side"], *line["ratios"]} <= set(group["sides"])


def test_a_ratio_is_of_rounds_and_lies_between_the_extremes() -> None:
    for name in NAMES:
        for group in result(name)["groups"]:
            for line in group["lines"]:
                ours = group["sides"][line["side"]]["value"]
                for peer, ratio in line["ratios"].items():
                    theirs = group["sides"][peer]["value"]
                    assert ours["min"] / theirs["max"] * 0.99 <= ratio["median"]
                    assert ratio["median"] <= ours["max"] / theirs["min"] * 1.01


def line(second: float, iterations: int, sampled: int) -> dict[str, Any]:
    return {
        "wall_seconds": second,
        "iterations": iterations,
        "version": iterations,
        "experience": {"sampled": sampled},
    }


def test_a_rate_is_of_rows_that_were_learned_from_without_the_beginning() -> None:
    rate = importlib.import_module("whole").rate
    late = [line(5.0 + second, 1 + second, 100 * second) for second in range(9)]
    beginning = [line(0.0, 0, 0), line(1.0, 1, 0), line(3.0, 2, 0)]
    result = {"iterations": 9, "experience": {"sampled": 10**6}}
    assert rate([*beginning, *late, result]) == 100.0


def test_a_run_without_updates_has_no_rate() -> None:
    whole = importlib.import_module("whole")
    with pytest.raises(whole.RunFailed, match="before its speed"):
        whole.rate([line(0.0, 0, 0), line(1.0, 0, 0)])


def test_time_runs_from_the_first_update() -> None:
    after = importlib.import_module("whole").After(2.0)
    lines = [line(50.0, 0, 0), line(51.0, 1, 0), line(52.5, 2, 0), line(53.0, 3, 0)]
    assert [after(each) for each in lines] == [False, False, False, True]


@pytest.mark.parametrize("name", names_with("gateway_soak"))
def test_the_soak_that_was_kept_is_long_enough_and_shown(name: str) -> None:
    kept = shown_result(name)
    seen = kept["gateway_soak"]
    assert kept["clients"] == 256
    assert seen[-1]["minutes"] >= 20
    begun = [each["sessions"] for each in seen]
    assert begun == sorted(set(begun))
