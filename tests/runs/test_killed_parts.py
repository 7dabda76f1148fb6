"""Parts of a run are killed one after the other, and the run goes on."""

import itertools
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from session.launchers.handle import RunHandle, open_run
from session.show.run_view import RunView
from surreal_like.addons.chaos.faults import KILL, STOP, TERM, Faults
from surreal_like.addons.chaos.invariants import RunFiles
from surreal_like.addons.chaos.invariants import check as check_invariants
from surreal_like.addons.doctor.facts import CURVES
from surreal_like.addons.doctor.rules import diagnose
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, ROOT, Record, Train, balanced, wait_for

PARTS = ("agent-0", "replay-0", "learner", "ps", "eval-0", "tensorplex", "loggerplex")
COUNTERS = ("env_steps", "episodes", "iterations", "frames", "wall_seconds")
# A policy that has learned nothing has about 20.
LEARNED, SOLVED = 195.0, 475.0


def kill_each(train: Train, *, every_seconds: float) -> dict[str, float]:
    """Kills each part once, the first after the first evaluation; returns when each was back."""
    train.until(lambda: train.line.get("eval"))
    back = {}
    for name in PARTS:
        began = time.monotonic()
        back[name] = train.kill(name)
        wait_for(began + every_seconds - time.monotonic())
    return back


def never_fall(progress: list[dict[str, Any]]) -> bool:
    """Whether every counter is at least what it was in the line before."""
    return all(
        after[counter] >= before[counter]
        for before, after in itertools.pairwise(progress)
        for counter in COUNTERS
    )


def check(train: Train) -> dict[str, Any]:
    result = train.result
    assert result["status"] == "stopped"
    assert {name: result["components"][name]["restarts"] for name in PARTS} == dict.fromkeys(
        PARTS, 1
    )
    assert result["components"]["agent-1"]["restarts"] == 0
    assert never_fall(train.progress)
    assert balanced(result)
    assert result["experience"]["pushed"] > 0
    # Each loss is told once; that of the log's own server may be on its way to it when it dies.
    lost = [event["detail"].partition(":")[0] for event in train.events_of("lost")]
    assert sorted({*lost, "loggerplex"}) == sorted(PARTS)
    assert len(lost) == len(set(lost))
    return result


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_part_is_killed_once(run_folder: Path, record_property: Record) -> None:
    saved_often = "session_config.checkpoint.period=200"
    with Train(run_folder, CARTPOLE, saved_often, "session_config.stop={seconds: 48}") as train:
        record_property("recovery_seconds", kill_each(train, every_seconds=4.0))
        assert train.wait(120) == 0, train.words
    result = check(train)
    assert result["best_eval"]["mean_return"] >= LEARNED
    # The new learner went on with the weights of the old one, not with new ones.
    restored, rows = sorted(train.events_of("restored"), key=lambda each: str(each["component"]))
    assert (restored["component"], rows["component"]) == ("learner", "replay-0")
    assert 0 < int(restored["detail"].removeprefix("iteration ")) < result["iteration"]
    # None, where it had waited for data since its last checkpoint.
    assert 0 <= result["repeated_iterations"] < result["iteration"]
    assert result["iterations"] == result["iteration"] + result["repeated_iterations"]
    versions = [line["version"] for line in train.progress]
    assert versions == sorted(versions)


class Hit:
    """A launched run whose parts are hit one after the other, with a look at what doctor says.

    Attributes:
        named: parts that doctor has named while they were away.
    """

    def __init__(self, run: RunHandle) -> None:
        self.run, self.faults = run, Faults(run.folder, ())
        self.named: set[str] = set()
        self._view = RunView(run.folder, curves=CURVES)

    def until(self, look: Callable[[], object]) -> None:
        until(look, seconds=200.0, what=lambda: self.run.status(), step=lambda: wait_for(0.1))

    def hit(self, what: str, name: str) -> None:
        """Hits a part, and waits until it is back; doctor may name no other part meanwhile."""
        self.until(lambda: not self._missing())
        self.until(lambda: self.faults.strike(what, name))
        missing: set[str] = set()

        def back() -> bool:
            missing.update(self._missing())
            return self.faults.all_back()

        self.until(back)
        assert missing <= {name}
        self.named |= missing

    def _missing(self) -> Collection[str]:
        self._view.refresh(self.run)
        return diagnose(self._view).facts.missing


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("launcher", "what"),
    [
        ("local", TERM),
        ("local", STOP),
        *(pytest.param("tmux", what, marks=pytest.mark.tmux) for what in (KILL, TERM, STOP)),
    ],
)
def test_each_part_is_hit_once(
    run_folder: Path, launcher: str, what: str, record_property: Record
) -> None:
    words = (CARTPOLE, "--on", launcher, "--folder", str(run_folder))
    stop = "session_config.stop={eval_return: 501, env_steps: 100000000, eval_episodes: 10}"
    subprocess.run([*COMMAND, "launch", *words, stop], check=True, cwd=ROOT)
    with open_run(run_folder) as run:
        hit = Hit(run)
        try:
            hit.until(lambda: run.progress().get("eval"))
            for name in PARTS:
                hit.hit(what, name)
            hit.until(lambda: run.progress()["best_eval"]["mean_return"] >= LEARNED)
        finally:
            run.stop(reason="all parts were hit")
            run.wait(180.0)
    result = dict(run.folder.read_result() or {})
    assert (result["status"], result["reason"]) == ("stopped", "all parts were hit")
    broken = check_invariants(RunFiles(run.folder, hit.faults.happened))
    assert not any(broken.values()), broken
    assert balanced(result)
    parts = result["components"]
    restarts = dict.fromkeys(PARTS, 0 if what == STOP else 1)
    assert {name: parts[name]["restarts"] for name in PARTS} == restarts
    assert {part["exit_code"] for part in parts.values()} == {0}
    if (launcher, what) == ("local", STOP):
        assert hit.named == set(PARTS)
    elif what != STOP:
        # The others may be back before the first look.
        assert hit.named
    # A process that is stopped goes on at once in tmux, which continues it.
    times = {each.name: round(each.recovered_seconds or 0.0, 3) for each in hit.faults.happened}
    record_property("recovery_seconds", times)
    rows = result["experience"]
    record_property("seen", f"{launcher}: doctor named {len(hit.named)}, {rows['pushed']} rows")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_that_hangs_is_replaced(run_folder: Path, record_property: Record) -> None:
    words = ("session_config.heartbeat.timeout=3", "session_config.stop={eval_return: 501}")
    with Train(run_folder, CARTPOLE, *words) as train:
        train.steps(1000)
        record_property("recovery_seconds", train.strike(STOP, "agent-0"))
        train.learn(200)
        train.signal(signal.SIGINT)
        assert train.wait() == 130, train.words
    assert train.result["components"]["agent-0"]["restarts"] == 1
    assert "no sign of life" in train.events_of("lost")[0]["detail"]
    assert never_fall(train.progress)
    assert balanced(train.result)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_agents_at_once(run_folder: Path, record_property: Record) -> None:
    with Train(run_folder, CARTPOLE, "session_config.stop={env_steps: 15000}") as train:
        train.steps(2000)
        record_property("recovery_seconds", train.strike(KILL, "agent-0", "agent-1"))
        assert train.wait(180) == 0, train.words
    assert never_fall(train.progress)
    assert balanced(train.result)
    assert train.result["components"]["learner"]["restarts"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_of_two_shards(run_folder: Path, record_property: Record) -> None:
    words = ("learner_config.replay.replay_shards=2", "session_config.stop={env_steps: 20000}")
    with Train(run_folder, CARTPOLE, *words) as train:
        train.steps(3000)
        record_property("recovery_seconds", train.strike(KILL, "replay-1"))
        assert train.wait(180) == 0, train.words
    assert never_fall(train.progress)
    assert balanced(train.result)
    assert train.result["experience"]["holes"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_priorities_over_two_shards_are_learned_from_though_one_is_killed(
    run_folder: Path,
) -> None:
    words = (
        "learner_config.replay.replay_shards=2",
        "learner_config.replay.type=PrioritizedReplay",
        "session_config.replay.snapshot=true",
    )
    with Train(run_folder, CARTPOLE, "--agents", "4", *words) as train:
        train.steps(6000)
        train.kill("replay-1")
        assert train.wait(240) == 0, train.words
    result = train.result
    assert result["goal_met"]
    assert result["best_eval"]["mean_return"] >= SOLVED
    assert balanced(result)
    assert result["experience"]["holes"] == result["experience"]["unacked"] == 0
    assert result["components"]["replay-1"]["restarts"] == 1
    # Both have left what they had.
    assert sorted(path.name for path in (run_folder / "checkpoints").glob("replay-*")) == [
        "replay-0",
        "replay-1",
    ]
