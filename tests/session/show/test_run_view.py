"""The model of what is shown of a run, from the files that a run writes."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from main.cli.live_table import render
from session.launchers.status import ComponentStatus, status_row
from session.process.component import Component, Topology
from session.process.heartbeat import Beat, State, write_beat
from session.show.components import ComponentRow, component_row
from session.show.overview import overview, share_of
from session.show.run_view import RunView
from tests.session.fake_run import FakeRun
from tests.session.made_run import made_config, made_line, made_run

STOP = {"eval_return": 475, "env_steps": 10_000, "seconds": 100}


class Made:
    """A run folder that is written by hand, and its view."""

    def __init__(self, path: Path, **stop: Any) -> None:
        wanted = {f"session_config__stop__{key}": each for key, each in (STOP | stop).items()}
        self.config = made_config(**wanted)
        self.folder = made_run(path, config=self.config)
        names = ("ps", "replay-0", "learner", "agent-0")
        topology = Topology(Component(name, name.split("-")[0], "main") for name in names)
        self.folder.topology.write_text(json.dumps(topology.to_dict()))
        self.view = RunView(self.folder)

    def line(self, env_steps: int, **changed: Any) -> None:
        with self.folder.progress.open("a") as file:
            file.write(json.dumps(made_line(env_steps, **changed)) + "\n")
        self.view.refresh()

    def beat(
        self,
        name: str,
        state: str,
        *,
        age: float = 0.0,
        doing: str = "",
        busy: float = 0.0,
        **status: float,
    ) -> None:
        beat = Beat(name, 1, State(state), 1, time.time() - age, busy, doing, status=status)
        write_beat(self.folder.alive, beat)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "r")


def test_a_run_in_the_queue_of_a_cluster_waits(made: Made) -> None:
    made.view.running = True
    waits = component_row(status_row("core", None, state=State.waiting), timeout_seconds=10.0)
    made.view.components = {"core": waits}
    assert made.view.state == "waiting"
    made.view.components = {"learner": waits}
    assert made.view.state == "running"


def test_states_of_components(made: Made) -> None:
    made.beat("learner", "running", doing="building the learner", busy=60.0)
    made.beat("eval-0", "running", doing="evaluating version 7: 3 of 100 episodes")
    made.beat("agent-0", "running", age=made.config.session_config.heartbeat.timeout + 1)
    made.beat("agent-1", "running", age=5.0, doing="saving a checkpoint", busy=60.0)
    made.beat("ps", "done", age=1000.0)
    made.beat("agent-7", "starting")
    made.view.refresh()
    rows = made.view.components
    assert rows["learner"].state == "running"
    assert rows["learner"].momentary
    assert rows["eval-0"].doing == "evaluating version 7: 3 of 100 episodes"
    assert not rows["eval-0"].momentary
    assert rows["agent-0"].state == "silent"
    assert not rows["agent-1"].momentary
    assert rows["ps"].state == "done"
    assert (rows["agent-7"].state, rows["replay-0"].state) == ("starting", "waiting")
    made.view.refresh(components={"replay-0": {"restarts": 0}})
    assert made.view.components["replay-0"].state == "starting"
    assert list(rows) == ["ps", "replay-0", "learner", "agent-0", "agent-1", "agent-7", "eval-0"]


def test_a_control_knows_more_than_the_files(made: Made) -> None:
    run = FakeRun(made.folder)
    run.line = made_line(700)
    run.rows["ps"] = ComponentStatus(
        "ps", State.running, 1, 0.1, 1, None, "", "its window closed", 3.0
    )
    made.folder.progress.unlink()
    made.beat("learner", "failed")
    made.view.refresh(run)
    assert made.view.line == run.line
    assert made.view.components["learner"].state == "failed"
    assert made.view.components["ps"].last_death == "last death: its window closed 3.0 s ago"
    assert made.view.components["replay-0"].state == "waiting"
    run.line = made_line(800)
    made.view.refresh(run)
    assert made.view.line == run.line


def test_a_component_that_never_started_is_not_starting_in_a_run_that_is_over(made: Made) -> None:
    made.folder.result.write_text(json.dumps({"status": "stopped"}))
    made.view.refresh()
    assert made.view.components == {}


def test_budgets_come_in_the_order_in_which_they_end(made: Made) -> None:
    # Nothing is known of the rate of steps before the first report.
    assert [budget.name for budget in made.view.budgets()] == ["seconds", "env_steps"]
    rates = {"env_steps_per_second": 200.0, "updates_per_second": 20.0}
    made.line(4000, greedy=237.5, rates=rates)
    steps, seconds = made.view.budgets()
    assert (steps.name, steps.share, steps.left_seconds) == ("env_steps", 0.4, 30.0)
    assert (seconds.name, seconds.left_seconds) == ("seconds", 60.0)
    assert made.view.goals() == [("greedy return", 475.0, 237.5)]


def test_the_budget_that_comes_first_does_not_change_with_every_report(made: Made) -> None:
    def first(env_steps: int, per_second: float) -> str:
        made.line(env_steps, rates={"env_steps_per_second": per_second}, wall_seconds=50.0)
        return made.view.budgets()[0].name

    assert first(5000, 90.0) == "seconds"
    assert first(5000, 110.0) == "seconds"
    assert first(5000, 200.0) == "env_steps"
    assert first(5000, 90.0) == "env_steps"
    assert first(5000, 50.0) == "seconds"


def test_a_run_that_is_over_shows_its_own_rates(made: Made) -> None:
    made.line(1000)
    assert made.view.rates["env_steps_per_second"] == 100.0
    result = {"status": "stopped", "rates": {"env_steps_per_second": 43.0}}
    made.folder.result.write_text(json.dumps(result))
    assert made.view.rates["env_steps_per_second"] == 43.0


def test_a_metric_of_ones_own_may_be_the_goal(tmp_path: Path) -> None:
    made = Made(tmp_path / "r", eval_return=None, metric="my/score", above=3)
    assert made.view.goals() == [("my/score", 3.0, None)]
    made.line(100, metrics={"my/score": {"mean": 1.5}})
    assert made.view.goals() == [("my/score", 3.0, 1.5)]


def test_the_training_return_may_be_the_goal(tmp_path: Path) -> None:
    made = Made(tmp_path / "r", eval_return=None, metric="return/train", above=-6)
    assert made.view.goals() == [("return/train", -6.0, None)]
    made.line(1000, episodes=1000, train={"mean_return_100": -7.5})
    assert made.view.goals() == [("return/train", -6.0, -7.5)]
    assert made.view.missing_metric() == ""


def test_a_goal_that_no_episode_reports_is_said(tmp_path: Path) -> None:
    made = Made(tmp_path / "r", eval_return=None, metric="my/score", above=3)
    made.line(1000, episodes=1000, metrics={"other": {"mean": 1.5}})
    assert "no episode has reported the metric my/score" in made.view.missing_metric()


@pytest.mark.parametrize("metric", ["return/train", "my/score"])
def test_a_goal_that_only_guests_could_reach_is_said(tmp_path: Path, metric: str) -> None:
    made = Made(tmp_path / "r", eval_return=None, metric=metric, above=3)
    guests = {"mean_return_100": 9.0}
    made.line(1000, episodes=1000, train={"mean_return_100": None}, guests=guests)
    assert "all that have ended are of joined machines" in made.view.missing_metric()
    made.line(1100, episodes=1000, train={"mean_return_100": 1.0}, guests=guests)
    assert "joined machines" not in made.view.missing_metric()


def test_a_sink_that_fails_in_this_part_of_the_run_is_shown(made: Made) -> None:
    began = made.config["run"]["started"]
    for seconds, cause in ((-1.0, "of an earlier part"), (1.0, "no key"), (2.0, "no key")):
        event = {"time": began + seconds, "component": "tensorplex", "event": "not_written"}
        with made.folder.events.open("a") as file:
            file.write(json.dumps({**event, "detail": f"sink wandb: {cause}"}) + "\n")
    for _ in range(2):
        assert made.view.lasting() == ["tensorplex: not_written: sink wandb: no key"]
    assert "tensorplex: not_written: sink wandb: no key" in overview(made.view)
    assert "tensorplex: not_written: sink wandb: no key" in [
        f"{each['component']}: {each['event']}: {each['detail']}" for each in made.view.new_events()
    ]


def test_telemetry_that_was_killed_at_the_end_is_shown(made: Made) -> None:
    codes = {"tensorplex": -9, "loggerplex": 0, "agent-0": -9}
    ends = {name: {"restarts": 0, "exit_code": code} for name, code in codes.items()}
    result = {"status": "stopped", "components": ends}
    made.folder.result.write_text(json.dumps(result))
    [said] = made.view.lasting()
    assert said == (
        "tensorplex: ended with exit code -9: what it had not written by then to tensorboard is "
        "lost"
    )
    assert said in overview(made.view)


def test_points_that_a_sink_lost_after_the_last_event_are_shown(made: Made) -> None:
    lost = "tensorplex: not_written: points lost on the way to tensorboard: 76"
    made.beat("tensorplex", "done", dropped_points=76.0)
    made.line(1000)
    assert not made.view.lasting()
    made.folder.result.write_text(json.dumps({"status": "stopped"}))
    assert made.view.lasting() == [lost]
    assert lost in overview(made.view)
    said = {"component": "tensorplex", "event": "not_written", "detail": "sink wandb: lost: 76"}
    with made.folder.events.open("a") as file:
        file.write(json.dumps({**said, "time": time.time()}) + "\n")
    assert made.view.lasting() == ["tensorplex: not_written: sink wandb: lost: 76"]


def test_the_newest_task_of_a_run_is_shown(made: Made) -> None:
    made.line(100, task={"number": 0, "settings": {}})
    assert "\ntask" not in overview(made.view)
    made.line(200, task={"number": 2, "settings": {"size": 6, "wind": 0.5}})
    assert "\ntask 2: size 6, wind 0.5\n" in overview(made.view)


def test_the_overview_has_numbers_conditions_and_components(made: Made) -> None:
    made.line(
        4000,
        greedy=237.5,
        replay={"size": 50_000},
        repeated_iterations=7,
        standstill="nothing moves",
    )
    first, numbers, conditions, components = overview(made.view).split("\n\n")
    assert first.splitlines()[1:] == ["running on local · after 00:40", "nothing moves"]
    assert numbers.splitlines() == [
        "env steps   4,000             100/s  greedy return    237.5  best 237.5",
        "updates       400  10/s, 7 repeated  training return    0.0  last 100 episodes",
        "episodes       80                    policy lag         2.5  versions, - updates",
        "replay     50,000              50 %  sampled              -  times each row",
        "                                     learner waits     25 %",
    ]
    assert conditions.splitlines() == [
        "goal    ━━━━━━━━━━━━────────────  237.5 of 475.0 greedy return",
        "budget  ━━━━━━━━━━──────────────  4,000 of 10,000 env steps, 01:00 left",
        "budget  ━━━━━━━━━━──────────────  00:40 of 01:40",
    ]
    assert components.splitlines()[1].split() == ["ps", "waiting", "0"]


def of_policy(number: int, greedy: float) -> dict[str, Any]:
    return {
        "iteration": 1000 * number,
        "version": 10 * number,
        "lag": {"mean_versions": 0.5 * number},
        "train": {"mean_return_100": None},
        "eval": {"mean_return": greedy},
        "rates": {"agent_steps_per_second": 2345.0, "updates_per_second": 2.5 * number},
    }


def test_the_overview_has_a_line_for_each_of_several_policies(tmp_path: Path) -> None:
    made = Made(tmp_path / "r", eval_return=None, eval_returns={"left": 100, "right": 20})
    made.line(4000, policies={"left": of_policy(1, 25.0), "right": of_policy(2, 20.0)})
    policies, conditions = overview(made.view).split("\n\n")[2:4]
    assert policies.splitlines() == [
        "policy  updates  version  lag  train return  greedy return  rows/s  updates/s",
        "left      1,000       10  0.5             -           25.0   2,345        2.5",
        "right     2,000       20  1.0             -           20.0   2,345        5.0",
    ]
    assert conditions.splitlines()[0] == (
        "goal    ━━━━━━──────────────────  25.0 of 100.0 left, 20.0 of 20.0 right"
    )
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False).print(render(made.view, 1.0))
    drawn = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert set(policies.splitlines()) < set(drawn)
    assert conditions.splitlines()[0] in drawn


def test_the_overview_shows_the_sessions_and_the_slowest_gateway(made: Made) -> None:
    made.line(4000, greedy=237.5)
    assert "clients" not in overview(made.view)
    now = time.time()
    for name, p50 in (("gateway-0", 0.002), ("gateway-1", 0.004)):
        status = {"sessions": 3.0, "latency_p50_seconds": p50}
        write_beat(made.folder.alive, Beat(name, 1, State.running, 1, now, status=status))
    made.beat("gateway-2", "running")
    made.view.refresh()
    (line,) = [each for each in overview(made.view).splitlines() if each.startswith("clients")]
    assert line.split() == ["clients", "6", "p50", "4.0", "ms", "learner", "waits", "25", "%"]
    ended = Beat("gateway-0", 1, State.done, 1, now, status={"sessions": 3})
    late = Beat("gateway-1", 1, State.running, 1, now - 1e6, status={"sessions": 3})
    for beat in (ended, late):
        write_beat(made.folder.alive, beat)
    made.view.refresh()
    assert made.view.components["gateway-0"].sessions is None
    assert made.view.components["gateway-1"].sessions is None


def test_a_narrow_terminal_does_without_some_columns_of_components(made: Made) -> None:
    work = "rows in 1,234/s, rows out 12,345/s"
    made.view.components = {
        "replay-0": ComponentRow(
            "replay-0", State.running, 12345, 0.5, 0, None, "", work=work, rss_bytes=5e7
        )
    }
    whole = overview(made.view).splitlines()[-2:]
    assert overview(made.view, 200).splitlines()[-2:] == whole
    narrow = overview(made.view, 80).splitlines()[-2:]
    assert max(map(len, whole)) > 80 >= max(map(len, narrow))
    assert narrow[0].split() == ["component", "state", "work", "pid", "restarts"]
    assert work in narrow[1]


def test_the_overview_of_a_run_that_is_over_has_its_outcome_and_no_budgets(made: Made) -> None:
    made.line(4000, greedy=500.0, standstill="nothing moves")
    result = {"status": "stopped", "goal_met": True, "reason": "475\nreached"}
    made.folder.result.write_text(json.dumps(result))
    text = overview(made.view)
    assert "goal met · after 00:40 · 475 reached" in text
    assert "budget" not in text
    assert "nothing moves" not in text


@pytest.mark.parametrize(
    ("reached", "wanted", "share"),
    [
        (None, 10.0, 0.0),
        (5.0, 10.0, 0.5),
        (11.0, 10.0, 1.0),
        (-3.0, 10.0, -0.3),
        (-300.0, -100.0, 1 / 3),
        (-90.0, -100.0, 1.0),
        (-5.0, 0.0, 0.0),
        (0.0, 0.0, 1.0),
    ],
)
def test_the_reached_share_of_a_goal(reached: float | None, wanted: float, share: float) -> None:
    assert share_of(reached, wanted) == pytest.approx(share)
