"""Pages show what was measured last, and say of each number what it is."""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from docs.generate import MEASURED, ROOT, ZOO, with_cards, with_tables
from main.cli.plan import worthwhile_ms
from session.folder import RunFolder
from surreal_like.experiment.preflight import flow_of
from surreal_like.run.request import RunRequest
from tests.docs.results import names_with, result, shown_result

pytestmark = pytest.mark.usefixtures("quick")

TABLES_OF = importlib.import_module("tables")
CHANGED = TABLES_OF.CHANGED

PARTS = ("storage", "views", "replay", "parameters", "scale", "actor", "learner", "systems")
NAMES = (*PARTS, "gateway", "curve", "multi_agent", "batched", "kept", "group", "recording")
# Further kinds of tables, by their key in the kept results.
TABLES = (
    "learned",
    "samples",
    "milestones",
    "targets",
    "gateway_soak",
    "scaling",
    "updates",
    "fleet",
)
# Whole trainings take minutes: a round less.
LEAST_ROUNDS = {"systems": 2}


@pytest.mark.parametrize("page", MEASURED, ids=lambda page: page.stem)
def test_tables_are_those_of_the_results(page: Path) -> None:
    text = page.read_text()
    assert with_tables(text) == text, "run: python docs/generate.py"


def test_the_page_of_trained_policies_has_what_their_cards_say() -> None:
    text = ZOO.read_text()
    assert with_cards(text) == text, "run: python docs/generate.py"
    assert "cartpole_pqn" in text.partition("<!-- generated: configs/trained -->")[2]


@pytest.mark.parametrize("name", [*NAMES, *(name for key in TABLES for name in names_with(key))])
def test_every_result_is_shown(name: str) -> None:
    shown_result(name)


def group_of(better: str, *peers: tuple[str, float]) -> dict[str, Any]:
    value = {"min": 1.0, "median": 1.0, "max": 1.0}
    sides = {label: {"label": label, "value": value} for label, _ in (("ours", 1.0), *peers)}
    ratios = {label: {"median": ratio} for label, ratio in peers}
    line = {"what": "in, small", "side": "ours", "ratios": ratios}
    named = {"name": "Rows, small", "unit": "rows/s", "better": better}
    return {**named, "rounds": 3, "sides": sides, "lines": [line]}


def rows_of_summary(*groups: dict[str, Any], named: str = "") -> list[str]:
    found = {"machine": result("replay")["machine"], "peers": {}, "groups": groups}
    return str(TABLES_OF.summary(found, named)).split("\n\n")[0].splitlines()[2:]


@pytest.mark.parametrize(("better", "best"), [("more", "0.5"), ("less", "2")])
def test_a_summary_has_the_best_way_of_each_peer_bold_where_it_is_ahead(
    better: str, best: str
) -> None:
    ways = (("Peer, packed", 0.5), ("Peer, columns", 2.0), ("Tie", 1.0), ("with 1", 0.5))
    title, peer, tie = rows_of_summary(group_of(better, *ways))
    assert title.startswith("|**Rows**, rows/s")
    assert peer.startswith("|in, small|1|Peer, ")
    assert peer.endswith(f"|1|**{best} x**|")
    assert tie == "|||Tie|1|1 x|"


def test_a_summary_has_the_groups_that_were_asked_for() -> None:
    made = group_of("more", ("Peer", 2.0))
    assert rows_of_summary(made, {**made, "name": "Frames"}, named="Frames") == [
        "|**Frames**, rows/s|||||",
        "|in, small|1|Peer|1|2 x|",
    ]


@pytest.mark.parametrize("name", [*PARTS, "batched", "kept"])
def test_performance_shows_each_row_in_which_a_peer_is_ahead(name: str) -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    text = TABLES_OF.summary(result(name))
    ahead = re.findall(r"^\|.*\|([^|]+\|[^|]+\|\*\*[^|]+\*\*)\|$", text, re.MULTILINE)
    assert [row for row in ahead if row not in page] == []
    assert bool(ahead) == (name in ("storage", "replay", "parameters", "actor", "batched"))


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole_ppo", "cartpole_impala"])
def test_plan_says_of_measured_learners_whether_several_are_faster(name: str) -> None:
    config = RunRequest(ROOT / "configs" / f"{name}.yaml").resolve().config
    flow = flow_of(config)
    assert flow is not None
    [learner] = [each for each in (part.outside for part in flow.parts()) if each is not None]
    sizes = [each.size for each in learner.optimizers.values()]  # type: ignore[attr-defined]
    algo = config.learner_config.algo
    steps = algo.get("num_sgd_iter", 1) * algo.get("minibatches", 1)
    [found] = [each for each in result("group")["groups"] if each["name"] == f"One update, {name}"]
    one, two = (found["sides"][side]["value"]["median"] for side in ("one", "two"))
    assert (one / steps > worthwhile_ms(sizes, 2)) == (two < one)


def test_results_are_judged_as_now() -> None:
    learn, samples, targets = map(importlib.import_module, ("learn", "samples", "targets"))
    for row in [row for name in names_with("learned") for row in result(name)["learned"]]:
        assert len(row["runs"]) >= 3
        [now] = [each for each in learn.ROWS if each.name == row["name"]]
        assert json.loads(json.dumps(learn.judged(now, row["runs"]))) == row
    for row in [row for name in names_with("samples") for row in result(name)["samples"]]:
        [now] = [each for each in samples.ROWS if each.name == row["name"]]
        found = samples.judged(now, row["ours"]["runs"], row["peer"]["runs"])
        assert json.loads(json.dumps(found)) == row
    for name in names_with("targets"):
        found = targets.judge_all(importlib.import_module(name).TARGETS, result(name))
        assert json.loads(json.dumps(found)) == result(name)["targets"]


@pytest.mark.slow
def test_only_a_run_of_the_same_settings_and_code_is_not_repeated(tmp_path: Path) -> None:
    learn = importlib.import_module("learn")
    short = ("session_config.stop={iterations: 1}", "session_config.evaluator.num=0")
    row = learn.Row("multi_cartpole_ppo, short", "multi_cartpole_ppo", 400.0, 60.0, short)
    numbers = {"greedy_seconds": 2.0, "greedy_env_steps": 9, "best_mean_return": 400.0}
    kept = {"seed": 7, **numbers, "made_by": learn.made_by(row)}
    assert learn.measure(row, [7], tmp_path, [kept])["runs"] == [kept]
    changed = {**kept, "made_by": {**kept["made_by"], "code": "0"}}
    [run] = learn.measure(row, [7], tmp_path, [changed])["runs"]
    assert run["iterations"] >= 1
    assert run["made_by"] == kept["made_by"]


@pytest.mark.slow
def test_a_run_that_was_cut_goes_on_and_one_that_has_ended_is_taken(tmp_path: Path) -> None:
    whole, milestones = map(importlib.import_module, ("whole", "milestones"))
    folder = tmp_path / "run"
    words = [
        *(str(ROOT / "configs" / "pendulum_sac.yaml"), "session_config.evaluator.num=0"),
        "session_config.stop={iterations: 4000, seconds: 120}",
        *(each.replace("300", "1") for each in milestones.SAVE),
    ]
    with whole.training(*words, "--seed", "1", folder=folder) as process:
        saved = RunFolder(folder).checkpoints / "replay-0"
        while process.poll() is None and not list(saved.glob("*/state.json")):
            time.sleep(0.1)
        process.kill()
    lines = whole.progress_lines(folder)
    assert lines[-1]["iterations"] < 4000
    result = whole.result_of(*words, seed=1, folder=folder, resume=True)
    assert result["iterations"] >= 4000
    after = whole.progress_lines(folder)
    assert after[: len(lines)] == lines
    assert {line["run_id"] for line in after} == {lines[0]["run_id"]}
    text = (folder / "logs" / "all.log").read_text()
    assert re.search(r"replay-0: restored: [\d,]+ rows", text)
    assert whole.result_of("no such file", seed=1, folder=folder, resume=True) == result
    with pytest.raises(whole.RunFailed, match="has a result of an earlier run"):
        whole.result_of(*words, seed=1, folder=folder)


def test_a_recording_that_was_cut_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, codes = importlib.import_module("recorded"), iter([1, 0])

    def run(words: Sequence[str], cwd: Path, **options: object) -> SimpleNamespace:
        (cwd / words[-1]).mkdir()
        return SimpleNamespace(returncode=next(codes))

    monkeypatch.setattr(recorded.subprocess, "run", run)
    with pytest.raises(SystemExit, match="demos could not be made"):
        recorded.make("demos", tmp_path)
    assert not (tmp_path / "demos").exists()
    for _ in range(2):
        recorded.make("demos", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["demos"]


def test_each_shipped_experiment_has_a_kept_run() -> None:
    text = (ROOT / "docs" / "results.md").read_text()
    listed = text.partition("What clients of a gateway play")[2].partition(")")[0]
    clients = set(re.findall(r"`(\w+)\.yaml`", listed))
    kept = {row["config"] for name in names_with("learned") for row in result(name)["learned"]}
    kept |= {run["row"].split()[0] for run in result("milestones")["milestones"]}
    tunings = {"cartpole_asha", "cartpole_pbt", "cartpole_tpe"}
    shipped = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    # A config is a promise: a kept result shows what it reaches.
    assert shipped - kept - tunings - clients == set()
    assert clients == {"cartpole_remote", "cartpole_browser"}
    others = [ROOT / "README.md", *(ROOT / "configs").rglob("*.yaml")]
    scattered = re.compile(r"not (been )?(trained|tried)( yet| to the end)", re.I)
    assert [path.name for path in others if scattered.search(path.read_text())] == []


def test_the_steps_that_the_advice_names_are_medians_that_were_measured() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    advice = text.partition("## Which algorithm for my problem?")[2].partition("\n## ")[0]
    named = re.findall(r"\d{1,3}(?:,\d{3})+", advice)
    rows = result("learn")["learned"]
    medians = {f"{round(row['env_steps']['median']):,}" for row in rows if row["env_steps"]}
    assert named
    assert set(named) <= medians
    found = {row["name"]: row for row in rows}
    ppo, dqn = found["cartpole_ppo"], found["cartpole_dqn"]
    assert "took half as many seconds as those of `dqn`" in advice
    assert 0.45 < ppo["seconds"]["median"] / dqn["seconds"]["median"] < 0.6
    least, most = (round(dqn["last_mean_return"][each]) for each in ("min", "max"))
    assert ppo["last_mean_return"]["min"] == 500
    assert f"every seed still had 500, where those of `dqn` had {least} to {most}" in advice
    seconds = [found[f"acrobot_{each}"]["seconds"]["median"] for each in ("dqn", "ppo")]
    assert ("on Acrobot `dqn` was faster here" in advice) == (seconds[0] < seconds[1])
    steps = [found[f"memory_{each}"]["env_steps"]["median"] for each in ("ppo", "impala")]
    assert "`ppo` needed less than a tenth of the steps of `impala`" in advice
    assert steps[0] < steps[1] / 10


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


STEPS = {
    "results": (
        *("learn", "lunarlander", "milestones", "samples", "cartpole_peers"),
        "learn_multi",
    ),
    "gateway": ("gateway",),
}


@pytest.mark.parametrize("page", STEPS)
def test_environment_steps_that_were_counted_otherwise_are_said_to_be(page: str) -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / f"{page}.md").read_text())
    assert "nvironment steps" in text
    dates = re.findall(r'"date": "([\d-]+)"', json.dumps([result(name) for name in STEPS[page]]))
    assert dates
    note = f"measured before the change of {CHANGED}" in text
    assert any(date < CHANGED for date in dates) == note


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


def test_a_result_of_an_earlier_run_is_taken_for_no_other(tmp_path: Path) -> None:
    whole = importlib.import_module("whole")
    (tmp_path / "result.json").write_text('{"status": "stopped"}')
    config = ROOT / "configs" / "cartpole_dqn.yaml"
    with pytest.raises(whole.RunFailed, match="has a result of an earlier run"):
        whole.result_of(str(config), seed=1, folder=tmp_path)
    with pytest.raises(whole.RunFailed, match="has a result of an earlier run"):
        whole.ours(config, tmp_path, 1, ())


def test_a_run_that_missed_its_goal_gives_no_trained_policy(tmp_path: Path) -> None:
    zoo = importlib.import_module("zoo")
    folder = tmp_path / "cartpole_dqn" / "seed-101"
    folder.mkdir(parents=True)
    result = {"status": "stopped", "goal_met": False, "reason": "budget of 60 seconds used"}
    (folder / "result.json").write_text(json.dumps(result))
    with pytest.raises(SystemExit, match=r"cartpole_dqn, seed 101 has .* budget of 60 seconds"):
        zoo.trained_run(zoo.rows()["cartpole_dqn"], 101, tmp_path)
    (folder / "result.json").write_text(json.dumps({**result, "goal_met": True}))
    assert zoo.trained_run(zoo.rows()["cartpole_dqn"], 101, tmp_path).path == folder


def test_time_runs_from_the_first_update() -> None:
    after = importlib.import_module("whole").After(2.0)
    lines = [line(50.0, 0, 0), line(51.0, 1, 0), line(52.5, 2, 0), line(53.0, 3, 0)]
    assert [after(each) for each in lines] == [False, False, False, True]


@pytest.mark.parametrize("name", names_with("gateway_soak"))
def test_the_soak_that_was_kept_is_long_enough(name: str) -> None:
    kept = result(name)
    seen = kept["gateway_soak"]
    assert kept["clients"] == 256
    assert seen[-1]["minutes"] >= 20
    begun = [each["sessions"] for each in seen]
    assert begun == sorted(set(begun))
