"""The table of what the experiments learn: made of kept runs, and judged run by run."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

import pytest

from docs.generate import MEASURED, ROOT, with_tables
from tests.docs.results import names_with, result, shown_result

# docs/generate.py has put the folder of benchmarks on the path.
learn = importlib.import_module("learn")


def ran(seconds: float | None, best: float = 480.0, seed: int = 1) -> dict[str, Any]:
    return {
        "seed": seed,
        "load_before": 0.5,
        "greedy_seconds": seconds,
        "greedy_env_steps": None if seconds is None else 1000 * round(seconds),
        "best_mean_return": best,
    }


@pytest.mark.parametrize(
    ("seconds", "passed"), [((5.0, 14.9), True), ((5.0, 15.1), False), ((5.0, None), False)]
)
def test_a_row_holds_if_each_of_its_runs_was_in_time(
    seconds: tuple[float | None, ...], passed: bool
) -> None:
    row = learn.row("cartpole_ppo", 475.0, 15.0)
    assert learn.judged(row, [ran(each) for each in seconds])["passed"] is passed


@pytest.mark.parametrize(("best", "passed"), [((0.3, 0.59), True), ((0.3, 0.61), False)])
def test_without_memory_a_row_holds_if_no_run_knows_what_was_shown(
    best: tuple[float, ...], passed: bool
) -> None:
    row = learn.without_memory("memory_ppo")
    assert learn.judged(row, [ran(None, each) for each in best])["passed"] is passed


def test_rows_ask_for_what_the_experiments_ask_for() -> None:
    learn.check_goals(learn.ROWS)
    wrong = learn.row("cartpole_ppo", 474.0, 15.0)
    with pytest.raises(SystemExit, match=r"cartpole_ppo\.yaml ends at 475, not at 474"):
        learn.check_goals([wrong])


def test_every_experiment_that_learns_in_minutes_has_a_row() -> None:
    # The others take hours and are milestones, or have no goal or no environment.
    others = {"pong_apex", "pong_impala", "pong_rainbow", "cartpole_browser", "cartpole_remote"}
    # A tuning of another experiment.
    others |= {"cartpole_asha", "cartpole_pbt", "cartpole_tpe"}
    others |= {row.config for row in importlib.import_module("milestones").ROWS}
    configs = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert {row.config for row in learn.ROWS} == configs - others


def test_experiments_without_a_kept_run_are_named_in_one_place() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    listed = text.partition("### Never trained to the end")[2].strip().partition("\n\n")[0]
    untrained, rest = listed.split("`pong_ppo.yaml`", 1)
    kept = {row["config"] for name in names_with("learned") for row in result(name)["learned"]}
    kept |= {run["row"].split()[0] for run in result("milestones")["milestones"]}
    tunings = {"cartpole_asha", "cartpole_pbt", "cartpole_tpe"}
    clients = set(re.findall(r"`(\w+)\.yaml`", rest))
    shipped = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert set(re.findall(r"`(\w+)\.yaml`", untrained)) == shipped - kept - tunings - clients
    assert clients == {"cartpole_remote", "cartpole_browser"}
    # Nowhere else, where it would be forgotten.
    others = [ROOT / "README.md", *(ROOT / "configs").glob("*.yaml")]
    scattered = re.compile(r"not (been )?(trained|tried)( yet| to the end)", re.I)
    assert [path.name for path in others if scattered.search(path.read_text())] == []


@pytest.mark.parametrize("name", names_with("learned"))
def test_what_was_kept_is_shown_and_judged_as_now(name: str) -> None:
    rows = {row.name: row for row in learn.ROWS}
    for kept in shown_result(name)["learned"]:
        assert len(kept["runs"]) >= 3
        assert json.loads(json.dumps(learn.judged(rows[kept["name"]], kept["runs"]))) == kept


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.stem)
def test_tables_are_those_of_the_results(page: Any) -> None:
    text = page.read_text()
    assert with_tables(text) == text, "run: python docs/generate.py"


def test_the_steps_that_the_advice_names_are_medians_that_were_measured() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    advice = text.partition("## Which algorithm for my problem?")[2].partition("\n## ")[0]
    named = re.findall(r"\d{1,3}(?:,\d{3})+", advice)
    rows = result("learn")["learned"]
    medians = {f"{round(row['env_steps']['median']):,}" for row in rows if row["env_steps"]}
    assert named
    assert set(named) <= medians
