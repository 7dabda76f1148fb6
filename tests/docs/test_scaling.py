"""The tables of many agents: what a row shows, and that README says what was measured."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest

from docs.generate import ROOT
from tests.docs.results import MACHINE, names_with, shown_result

# docs/generate.py has put the folder of benchmarks on the path.
scaling = importlib.import_module("scaling")
VERSIONS = {"torch": "2+cpu", "numpy": "1", "pyzmq": "3"}


def found(**changed: Any) -> dict[str, Any]:
    ours = {
        "per_second": 180.0,
        "cpu": 0.0004,
        "policy_age_seconds": {"median": 0.5, "p99": 1.25},
        "memory_mib": 512,
        "exact": True,
    }
    bare = {"per_second": 200.0, "cpu": 0.0001}
    rows = [{"agents": 4, "ours": ours, "bare": bare}]
    kept = {"machine": {**MACHINE, "versions": VERSIONS}, "load": 0.25, "scaling": rows}
    return {**kept, "goals": [], "kills": None, **changed}


def test_a_row_has_the_share_of_bare_processes() -> None:
    table, where = scaling.scaling_document(found()).split("\n\n")
    assert table.splitlines()[2] == (
        "| 4 | 180 | 0.90 | 0.40 ms | 0.10 ms | 0.5 s, 1.2 s | 0.5 GiB |  |  |  |"
    )
    assert where == (
        "`python x`, today: P, 2 cores, 8.0 GiB. Python 3.11, numpy 1, pyzmq 3, torch 2. "
        "Load of the machine before: 0.2."
    )


def test_goals_and_kills_are_shown() -> None:
    kills = {"agents": 16, "killed": 4, "pushed": 30, "inserted": 28, "dropped": 2, "exact": True}
    goals = [{"agents": 1, "seconds": [None, 90.4]}]
    *_, reached, lost = scaling.scaling_document(found(goals=goals, kills=kills)).split("\n\n")
    assert reached.splitlines()[-1] == "| 1 | 90 (1 of 2) |"
    assert lost == (
        "With 16 agents, of which 4 were killed one after the other: 30 rows pushed = 28 inserted "
        "+ 2 dropped."
    )


@pytest.mark.parametrize("name", names_with("scaling"))
def test_accounts_are_exact_and_readme_says_what_was_measured(name: str) -> None:
    kept = shown_result(name)
    rows = kept["scaling"]
    assert all(row["ours"]["exact"] for row in rows)
    assert kept["kills"]["exact"]
    assert kept["kills"]["killed"] >= 4
    text = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
    by_agents = {row["agents"]: row for row in rows}
    for agents in (64, 128):
        row = by_agents[agents]
        share = row["ours"]["per_second"] / row["bare"]["per_second"]
        said = f"{agents} make {row['ours']['per_second']:,.0f} steps/s, {share:.2f} of "
        assert said in text
    assert (
        f"With 64 a step costs {1e3 * by_agents[64]['ours']['cpu']:.2f} ms of a processor" in text
    )
    assert f"RLlib's env runners need {1e3 * by_agents[16]['rllib']['cpu']:.1f} ms with 16" in text
    worst = max(row["ours"]["policy_age_seconds"]["p99"] for row in rows if row["agents"] > 1)
    assert f"below {worst:.1f} s" in text
    said = f"256 make {by_agents[256]['ours']['per_second']:,.0f}."
    assert said in text
    goals = {row["agents"]: row["seconds"] for row in kept["goals"]}
    first, last = goals[1][0], goals[64][0]
    assert f"CartPole is solved in {first:.0f} s by one of them, in {last:.0f} s by 64" in text
