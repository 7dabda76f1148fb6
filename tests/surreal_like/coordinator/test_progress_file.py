"""Lines of progress and the curves beside them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import zmq

from session.config.defaults import BASE_CONFIG
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.wire import AddressBook
from surreal_like.coordinator.progress_file import ProgressLog
from surreal_like.coordinator.run_stats import RunStats
from surreal_like.learner.metrics import recent_means

COUNTS = {
    "size": 3,
    "sampleable": 2,
    "bytes": 100,
    "evicted": 1,
    "waiting_insert_seconds": 0.0,
}


@pytest.fixture
def context() -> Any:
    config = BASE_CONFIG.copy()
    config.algorithm, config.env_config.env_name = "dqn", "toy:chain"
    config["run"] = {"started": 0.0, "first_started": 0.0, "seconds_before": 0.0}
    component = Component("learner", "learner", "main.learner")
    launch = Launch(component, config, Topology([component]), AddressBook({}), None)
    zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield Context(
        launch,
        zmq_context,
        clock=CountedClock(),
        incarnation=1,
        pause=lambda sockets, seconds: None,
    )
    zmq_context.destroy(0)


@pytest.fixture
def report(context: Context, tmp_path: Path) -> Any:
    made = ProgressLog(
        context, RunStats(context.config, context.clock), tmp_path / "progress.jsonl"
    )
    yield made
    made.close()


def wait(context: Context, seconds: float) -> None:
    assert isinstance(context.clock, CountedClock)
    for _ in range(round(1000 * seconds)):
        context.clock.advance()


def test_a_line_is_appended_and_is_the_newest(report: ProgressLog, tmp_path: Path) -> None:
    report.write(7, 3, [COUNTS, COUNTS])
    report.write(8, 4, [COUNTS])
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert lines[1] == report.line
    assert [line["version"] for line in lines] == [3, 4]
    assert lines[0]["replay"] == {"size": 6, "sampleable": 4, "size_bytes": 200, "evicted": 2}


def test_the_share_of_waiting_is_that_since_the_line_before(
    report: ProgressLog, context: Context
) -> None:
    shares = []
    report.add_batch(True, context.clock.now())
    for waited in (0.5, 0.25, 0.0):
        report.add_batch(waited == 0.0, context.clock.now())
        wait(context, waited)
        asked = context.clock.now()
        # Learning from the batch is no waiting, nor is what is done after it.
        wait(context, 0.25)
        report.add_batch(True, asked)
        wait(context, 0.75 - waited)
        report.write(0, 1, [])
        shares.append(report.line["waiting_share"])
    assert shares == pytest.approx([0.5, 0.25, 0.0])


def test_senders_wait_while_shards_take_no_rows(report: ProgressLog, context: Context) -> None:
    shares = []
    # Seconds of two shards so far; the second one is started again before the last line.
    for one, other in ((0.0, 0.0), (1.0, 0.5), (2.0, 0.5), (2.0, 0.0), (2.0, 1.0)):
        wait(context, 1.0)
        report.write(0, 1, [COUNTS | {"waiting_insert_seconds": each} for each in (one, other)])
        shares.append(report.line["senders_waiting_share"])
    assert shares == pytest.approx([0.0, 0.75, 0.5, 0.0, 0.5])


def test_a_line_has_the_wanted_number_of_agents(report: ProgressLog, context: Context) -> None:
    def write(agents: int | None) -> Any:
        wait(context, 10.0)
        report.add_batch(False, context.clock.now())
        report.write(0, 1, [COUNTS], agents=agents)
        return report.line["wanted"]

    # The learner has had no batch at all.
    assert write(None) == {"agents": None, "reason": ""}
    numbers = [write(4)["agents"] for _ in range(5)]
    assert numbers == [4, 4, 4, 8, 8]
    assert report.line["wanted"]["reason"] == "learner waits 100 %, agents wait -"
    # After a pause the history begins anew.
    assert write(None)["agents"] is None
    assert write(4)["agents"] == 4


def test_quantiles_of_the_batches_that_wait_are_those_of_the_last_looks(
    report: ProgressLog, context: Context
) -> None:
    report.write(0, 1, [])
    assert report.line["batches_waiting"] == {"p10": None, "p50": None, "p90": None}
    for number in range(1000 + 101):
        report.add_batch(True, context.clock.now(), 7 if number < 100 else number - 100)
    report.write(0, 1, [])
    found = report.line["batches_waiting"]
    assert found == pytest.approx({"p10": 100.9, "p50": 500.5, "p90": 900.1})


def test_a_line_is_due_once_per_interval(report: ProgressLog, context: Context) -> None:
    seconds = context.config.session_config.learner.report_seconds
    assert not report.due()
    wait(context, seconds)
    assert [report.due(), report.due()] == [True, False]


def test_means_are_those_of_the_newest_hundred_updates(report: ProgressLog) -> None:
    for number in range(250):
        report.add_update({"loss": torch.tensor(float(number))})
    report.write(0, 1, [])
    assert report.line["learn"] == {"loss": sum(range(150, 250)) / 100}


def test_means_of_a_policy_do_not_end_with_many_updates_of_another(report: ProgressLog) -> None:
    report.add_update({"left/loss": 4.0}, "left")
    for _ in range(250):
        report.add_update({"right/loss": 1.0}, "right")
    report.write(0, 1, [])
    assert report.line["learn"] == {"left/loss": 4.0, "right/loss": 1.0}


def test_whole_numbers_are_counts_and_bad_ones_are_left_out() -> None:
    updates = [
        {"count": 1, "loss": torch.tensor(1.0), "norm": math.nan, "rate": 0.1},
        {"count": 5, "loss": torch.tensor([math.inf]).squeeze(), "norm": math.nan, "rate": 0.1},
        {"count": 9, "loss": torch.tensor(3.0), "norm": math.nan, "rate": 0.1, "late": 2.0},
    ]
    expected = {"count": 9, "loss": 2.0, "norm": None, "rate": 0.1, "late": 2.0}
    assert recent_means(updates) == expected
    assert recent_means([]) == {}


def test_tensors_and_numbers_under_one_name_mix() -> None:
    assert recent_means([{"loss": torch.tensor(1.0)}, {"loss": 3.0}]) == {"loss": 2.0}
