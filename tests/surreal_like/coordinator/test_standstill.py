"""A run that stands still says so, and which component waits for what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from surreal_like.coordinator import standstill
from surreal_like.coordinator.standstill import Standstill, explain
from tests.api.stage import Stage, experiment

WAITING = {"version": 44.0, "waits_above_version": 44.0}
STEPPING = {"version": 44.0, "waits_above_version": 0.0}
FULL = {"version": 44.0, "waits_for_acks": 1.0}
NEW = {"version": 0.0}
LACKING = {"requests_waiting": 2.0, "needs_rows": 1024.0, "has_rows": 900.0}
SILENT = {"requests_waiting": 2.0, "needs_rows": 0.0}
HOLDING = {"requests_waiting": 0.0, "takes_no_rows": 1.0}
GIVING = {"requests_waiting": 0.0, "needs_rows": 0.0, "takes_no_rows": 0.0}

ALL = {"env_steps": 31.0, "updates": 30.4, "inserted": 31.0}
NO_UPDATE = {"updates": 31.0}
NO_STEP = {"env_steps": 31.0, "inserted": 31.0}


@pytest.mark.parametrize(
    ("stood", "statuses", "said"),
    [
        (
            ALL,
            {"agent-0": WAITING, "agent-1": WAITING, "replay-0": LACKING},
            "nothing has moved for 30 s: agents wait for a version above 44, learner waits for "
            "rows of replay-0 (needs 1024, has 900)",
        ),
        (
            ALL,
            {"agent-0": WAITING, "agent-1": STEPPING, "replay-0": LACKING, "replay-1": GIVING},
            "nothing has moved for 30 s: agent-0 waits for a version above 44, agent-1 waits for "
            "environments, which are slow or stand, learner waits for rows of replay-0 "
            "(needs 1024, has 900)",
        ),
        (
            ALL,
            {"agent-0": FULL, "replay-0": HOLDING, "learner": {"batches_waiting": 3.0}},
            "nothing has moved for 30 s: agents wait until replay has acknowledged rows, replay-0 "
            "takes no rows until the learner has sampled more, learner has batches and makes no "
            "update of them",
        ),
        (ALL, {"agent-0": NEW}, "nothing has moved for 30 s: agents wait for the first parameters"),
        (ALL, {}, "nothing has moved for 30 s: no agent has reported"),
        (
            NO_UPDATE,
            {"agent-0": STEPPING, "replay-0": SILENT},
            "no update for 31 s: learner waits for replay-0, which gives no batch yet",
        ),
        # Replay fills up: that takes its time.
        (NO_UPDATE, {"agent-0": STEPPING, "replay-0": LACKING}, None),
        # All that comes is dropped.
        (
            {**NO_UPDATE, "inserted": 31.0},
            {"agent-0": STEPPING, "replay-0": LACKING},
            "no update for 31 s: learner waits for rows of replay-0 (needs 1024, has 900)",
        ),
        (
            NO_STEP,
            {"agent-0": WAITING, "replay-0": GIVING},
            "no environment step for 31 s: agents wait for a version above 44",
        ),
        # Agents wait for the learner, which is at work.
        (NO_STEP, {"agent-0": FULL, "replay-0": HOLDING}, None),
        ({"inserted": 40.0}, {"agent-0": STEPPING, "replay-0": GIVING}, None),
    ],
)
def test_waiting_components_are_named_with_their_reasons(
    stood: Mapping[str, float], statuses: Mapping[str, Mapping[str, float]], said: str | None
) -> None:
    assert explain(stood, statuses) == said


def test_a_standstill_is_reported_after_30_s_and_then_after_twice_the_time() -> None:
    watch, reported = Standstill(0.0), []
    for now in range(1, 400):
        # It moves until second 10, and once again in second 300.
        numbers = {"env_steps": min(now, 10) + (now >= 300), "updates": 0}
        stood = watch.look(float(now), numbers)
        if watch.due(min(stood.values()) if len(stood) == 2 else None):
            reported.append(now)
    assert reported == [40, 70, 130, 250, 330, 360]


def test_what_rises_does_not_stand() -> None:
    watch = Standstill(0.0)
    assert watch.look(29.0, {"updates": 0}) == {}
    assert watch.look(31.0, {"updates": 0}) == {"updates": 31.0}
    assert watch.look(32.0, {"updates": 1}) == {}
    assert watch.look(61.0, {"updates": 1}) == {}
    assert watch.look(62.5, {"updates": 1}) == {"updates": 30.5}


def test_the_newest_start_of_each_component_counts_of_what_they_report() -> None:
    accounts: dict[str, Any] = {
        "agent-0/5": {"final": False, "status": FULL},
        "agent-0/7": {"final": False, "status": WAITING},
        "agent-1/9": {"final": False, "status": STEPPING},
        "agent-1/8": {"final": False, "status": FULL},
        # It has left.
        "agent-2/5": {"final": True, "status": STEPPING},
        "agent-3/5": {"final": False, "status": FULL},
        "agent-3/6": {"final": True, "status": FULL},
        # A script says nothing of it.
        "agent-4/5": {"final": False},
    }
    counts = {"replay-0/3": {"inserted": 5, "status": LACKING}}
    said = {"agent-0": WAITING, "agent-1": STEPPING, "replay-0": LACKING}
    assert standstill.reported(accounts, counts) == said
    assert standstill.reported({}, {}) == {}


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_in_which_all_wait_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(standstill, "SECONDS", 1.0)
    if not shared:
        # As on Kubernetes, where components share no folder.
        monkeypatch.setattr(
            "surreal_like.coordinator.component_reports.read_beats", lambda folder: {}
        )
    config = experiment(
        "learner_config.algo.synchronous=true",
        "learner_config.replay.batch_size=2",
        "session_config.heartbeat.timeout=1",
        "session_config.learner.report_seconds=0.1",
        algorithm="ppo",
    )
    # Twice what all agents send before they wait: nobody would start a run with that.
    config.learner_config.replay.batch_size = 4
    stage = Stage(config, tmp_path / "run")
    try:
        stage.start("ps", "replay-0", "learner", "agent-0")
        line: Any = stage.service("learner").coordinator._report
        said = stage.until(lambda: line.line.get("standstill"))
        rows = 2 * config.session_config.sender.flush_iteration
        assert said == (
            "nothing has moved for 1 s: agents wait for a version above 1, learner waits for rows "
            f"of replay-0 (needs {2 * rows}, has {rows})"
        )
    finally:
        stage.close()
