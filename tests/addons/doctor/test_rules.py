"""Rules of ``surreal-like doctor``: each one on a run that it is about, and on good ones."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from session.process.clock import boot_number
from session.process.heartbeat import Beat, State, write_beat
from session.show.run_view import RunView
from surreal_like.addons.doctor.facts import CURVES, Facts
from surreal_like.addons.doctor.rules import BOTTLENECKS, ODDITIES, Rule, diagnose, in_one_line
from tests.session.made_run import STARTED, made_config, made_line, made_run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "troubleshooting.md"
LIFE_SECONDS = 20.0
GOOD = {"waiting_share": 0.1, "experience": {"pushed": 1000, "inserted": 1000, "dropped": 0}}
SHARD = {"idle_seconds": 15.0, "waiting_sample_seconds": 2.0, "waiting_insert_seconds": 2.0}
FAST = {"step_seconds": 0.05, "act_seconds": 0.1}
SLOW = {"step_seconds": 0.9, "act_seconds": 0.1}
LACKS = {"line": {"waiting_share": 0.8, "latency": FAST}, "replay": {"waiting_sample_seconds": 14}}
WAITS = {"waiting_share": 0.7}
ONE = {"prefetch_requests": 1, "batches_per_request": 1}
FAR = {**FAST, "request_seconds": 0.2, "answer_seconds": 0.01}


def look(
    path: Path,
    *,
    line: Mapping[str, Any] | None = None,
    beats: Mapping[str, Mapping[str, float]] | None = None,
    replay: Mapping[str, float] | None = None,
    events: tuple[Mapping[str, Any], ...] = (),
    learns_from: int = 0,
    ahead: float = 0.0,
    boot: float = boot_number(),
    launcher: str = "local",
    transport: str = "ipc",
    failed: tuple[str, ...] = (),
    **settings: Any,
) -> RunView:
    """The view of a run of 20 s that is well, but for these."""
    more = {**GOOD, **(line or {})}
    lines = [made_line(steps, greedy=1.0) | more for steps in range(0, 2001, 100)]
    for each in lines:
        each["iterations"] *= each["env_steps"] > learns_from
    folder = made_run(path / "run", lines, config=made_config(launcher=launcher, **settings))
    folder.events.write_text(
        "".join(json.dumps({"time": STARTED, **each}) + "\n" for each in events)
    )
    for name, status in {"replay-0": {**SHARD, **(replay or {})}, **(beats or {})}.items():
        born = int(1000 * (time.time() - LIFE_SECONDS))
        now = time.time() + ahead
        state = State.failed if name in failed else State.running
        beat = Beat(name, born, state, 1, now, status=dict(status))
        beat.boot, beat.began = boot, beat.now - LIFE_SECONDS
        write_beat(folder.alive, beat)
    folder.addresses.write_text(json.dumps({"replay-0.batches": {"connect": f"{transport}://a"}}))
    view = RunView(folder, curves=CURVES)
    view.refresh()
    return view


SHARE = {"env_steps": 1000.0}
DEAD: dict[str, Any] = {"beats": {"agent-0": SHARE, "agent-1": SHARE}, "failed": ("agent-1",)}
LIMITED: dict[str, dict[str, Any]] = {
    "missing part": {"line": WAITS, "failed": ("replay-0",)},
    "no agent": {**DEAD, "failed": ("agent-0", "agent-1"), "line": {"waiting_share": 0.8}},
    "first rows": {"learns_from": 1500},
    "learner": {},
    "replay": {"line": WAITS, "replay": {"idle_seconds": 1.0, "waiting_sample_seconds": 18.0}},
    "too few rows": {**LACKS, "learner_config__replay__samples_per_insert": 0.9},
    "environments": {**LACKS, "line": {"waiting_share": 0.8, "latency": SLOW}},
    "agents": LACKS,
    "network": {"line": {**WAITS, "latency": FAR}, "transport": "tcp"},
    "prefetch": {"line": WAITS, "session_config__learner": ONE},
    "machine": {"line": WAITS},
}
FULL = {"event": "not_written", "component": "learner", "detail": "no space left on device"}
QUEUE = {"learner_config__replay__type": "FIFOReplay"}
ODD: dict[str, dict[str, Any]] = {
    "full replay": {"line": {**WAITS, "replay": {"size": 100_000}}},
    "lag": {
        **QUEUE,
        "line": {"lag": {"mean_versions": 30.0, "max_versions": 40, "mean_updates": None}},
    },
    "old rows": {
        "line": {"experience": {"pushed": 99, "inserted": 99, "dropped": 0, "too_old": 1}}
    },
    "slow agent": {
        "beats": {
            f"agent-{number}": {"env_steps": steps}
            for number, steps in enumerate((2000.0, 400.0, 2200.0))
        }
    },
    "evaluation": {"line": {"eval": None}},
    "disk": {"events": (FULL,)},
    "dropped rows": {"line": {"experience": {"pushed": 100, "inserted": 50, "dropped": 50}}},
    "lost rows": {
        "line": {"experience": {"pushed": 100, "inserted": 90, "dropped": 0, "holes": 10}}
    },
    "missing components": DEAD,
    "clock": {"ahead": 7.0, "boot": 1.0},
}


def applied(rules: tuple[Rule, ...], view: RunView) -> list[str]:
    return [rule.name for rule in rules if rule.apply(Facts(view))]


@pytest.mark.parametrize("name", [rule.name for rule in BOTTLENECKS])
def test_the_first_rule_that_applies_is_the_bottleneck(name: str, tmp_path: Path) -> None:
    assert applied(BOTTLENECKS, look(tmp_path, **LIMITED[name]))[0] == name


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_found_alone(name: str, tmp_path: Path) -> None:
    assert applied(ODDITIES, look(tmp_path, **ODD[name])) == [name]


def test_a_policy_whose_rows_lag_is_named(tmp_path: Path) -> None:
    lags = {name: {"lag": {"mean_versions": lag}} for name, lag in (("left", 2.0), ("right", 30.0))}
    specs: dict[str, Any] = {"obs_spec": {}, "action_spec": {}}
    policies = {name: {"agents": [name], **specs} for name in lags}
    given: dict[str, Any] = {**QUEUE, "policies": policies, "line": {"policies": lags}}
    view = look(tmp_path, **given)
    found = next(each for each in ODDITIES if each.name == "lag").apply(Facts(view))
    assert found is not None
    assert found.numbers == "30.0 versions of policy right on average, the limit is 20"


@pytest.mark.parametrize("rule", [*BOTTLENECKS, *ODDITIES], ids=lambda rule: rule.name)
def test_a_rule_does_not_apply_beyond_its_limit(rule: Rule, tmp_path: Path) -> None:
    if rule.name == "restarts":
        return  # below
    facts = Facts(look(tmp_path, **(LIMITED | ODD)[rule.name]))
    assert rule.see(facts, rule.limit)
    if rule.name == "disk":
        facts.disk_errors, facts.free_bytes = (), int(2e9)
        assert rule.see(facts, 3.0)
    below = "below this" in rule.looked_at or "up to this" in rule.looked_at
    assert not rule.see(facts, 0.0 if below else rule.limit * 1e6)


def test_of_a_good_run_the_learner_sets_the_pace_and_nothing_is_odd(tmp_path: Path) -> None:
    view = look(tmp_path, line={"latency": FAST})
    assert applied(BOTTLENECKS, view) == ["learner"]
    assert applied(ODDITIES, view) == []
    assert in_one_line(view).endswith("agents wait 10 %); odd: nothing")
    without = look(tmp_path / "without", line={"latency": FAST}, session_config__agent__num=0)
    assert in_one_line(without).endswith("learner waits 10 % of its time); odd: nothing")


def test_components_of_this_machine_have_its_clock(tmp_path: Path) -> None:
    assert applied(ODDITIES, look(tmp_path, ahead=-7.0)) == []


def test_one_agent_that_lives_is_enough(tmp_path: Path) -> None:
    assert applied(BOTTLENECKS, look(tmp_path, **DEAD)) == ["learner"]


def test_restarts_are_those_of_the_result(tmp_path: Path) -> None:
    result = {"status": "stopped", "components": {"agent-0": {"restarts": 2}, "ps": {}}}
    view = RunView(made_run(tmp_path, [made_line(100, greedy=1.0)], result=result))
    view.refresh()
    assert in_one_line(view).endswith("odd: restarts (agent-0 2x)")


def test_a_disk_that_was_full_in_an_earlier_part_of_the_run_is_not_odd(tmp_path: Path) -> None:
    earlier = {**FULL, "time": STARTED - 100.0}
    assert applied(ODDITIES, look(tmp_path, events=(earlier,))) == []


def test_what_a_component_counts_is_compared_with_its_life(tmp_path: Path) -> None:
    facts = Facts(look(tmp_path, learns_from=500))
    assert facts.busy_share == pytest.approx(0.25, abs=0.01)
    assert facts.lacking_share == pytest.approx(0.1, abs=0.01)
    assert facts.held_share == pytest.approx(0.1, abs=0.01)
    assert facts.waiting_share == pytest.approx(0.1)
    # The first line with steps is that of second 1, the first one with updates that of second 6.
    assert facts.filling_share == pytest.approx(5 / 19)


def test_before_the_first_line_there_is_nothing_to_say(tmp_path: Path) -> None:
    view = RunView(made_run(tmp_path))
    view.refresh()
    assert in_one_line(view) == ""


def test_without_a_network_it_is_not_the_network(tmp_path: Path) -> None:
    view = look(tmp_path, line={**WAITS, "latency": FAR})
    assert applied(BOTTLENECKS, view) == ["machine"]


def test_before_the_first_update_no_part_is_named(tmp_path: Path) -> None:
    line = made_line(100, greedy=1.0, iterations=0)
    view = RunView(made_run(tmp_path, [line]), curves=CURVES)
    view.refresh()
    assert in_one_line(view) == "no part limits the others; odd: nothing"


def test_of_counted_time_no_bottleneck_is_named(tmp_path: Path) -> None:
    view = look(tmp_path, launcher="serial", **LIMITED["replay"])
    assert diagnose(view).bottleneck is None
    assert in_one_line(view) == "odd: nothing"


def rows(title: str) -> list[tuple[str, str, str]]:
    section = PAGE.read_text().partition(f"\n{title}\n")[2].partition("\n#")[0]
    return re.findall(r"^\* (.+) \((.+?)\): (.+)$", section.replace("`", ""), re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "rules"),
    [("### Which part is it?", BOTTLENECKS), ("### What is odd", ODDITIES)],
)
def test_the_page_states_the_same_rules(title: str, rules: tuple[Rule, ...]) -> None:
    assert rows(title) == [(rule.name, f"{rule.limit:g}", rule.looked_at) for rule in rules]


def test_a_folder_is_only_read(tmp_path: Path) -> None:
    view = look(tmp_path)
    before = files(view.folder)
    diagnose(view)
    assert files(view.folder) == before


def files(folder: RunFolder) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
