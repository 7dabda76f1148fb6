"""The evaluation of a run's last parameters: when it is made, and how long it is waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import NOTICE
from session.process.heartbeat import Beat, State
from surreal_like.coordinator.coordinator import RunCoordinator
from surreal_like.coordinator.final_evaluation import FinalEvaluation, why_none
from surreal_like.coordinator.stop_rule import ASKED, LEFT, Verdict
from tests.api.stage import Stage, experiment
from tests.surreal_like.coordinator.test_stop_rule import score

BUDGET = Verdict("stopped", None, "budget used")
LIMIT = "60 s (session_config.evaluator.final_seconds)"


@pytest.mark.parametrize(
    ("verdict", "words", "why"),
    [
        (BUDGET, {}, ""),
        (Verdict("stopped", True, "goal reached"), {}, ""),
        (Verdict("interrupted", None, "Ctrl-C"), {}, ""),
        (Verdict("stopped", None, "stopped by asha at 4"), {}, ""),
        (BUDGET, {"num": 0}, "the run has no evaluators"),
        (BUDGET, {"final_seconds": 0}, "session_config.evaluator.final_seconds is 0"),
        (Verdict("failed", None, "learner: ValueError"), {}, "the run failed"),
        (Verdict("interrupted", None, NOTICE), {}, "the run goes on later"),
        (Verdict("interrupted", None, ASKED), {}, "the run goes on later"),
        (Verdict("interrupted", None, LEFT), {}, "the run goes on later"),
    ],
)
def test_which_ends_get_one(verdict: Verdict, words: dict[str, Any], why: str) -> None:
    session = experiment().session_config
    session.evaluator.update(words)
    assert why_none(verdict, session) == why


def begun(seconds: float = 60.0) -> FinalEvaluation:
    final = FinalEvaluation(100)
    final.begin((1, 5), {"default": "abc"}, until=10.0 + seconds, seconds=seconds)
    return final


def test_it_is_waited_for_until_all_its_episodes_are_over() -> None:
    final = begun()
    assert not final.over(11.0)
    assert not final.add(score(3.0, version=4))
    assert final.add({**score(3.0, version=5), "episodes": 40})
    assert not final.over(11.0)
    assert final.add(score(2.0, version=5))
    assert final.over(11.0)
    # Another evaluator has less.
    final.add({**score(9.0, version=5), "episodes": 70})
    found = final.result()["final_eval"]
    assert {key: found[key] for key in ("mean_return", "episodes", "version", "hash")} == {
        "mean_return": 2.0,
        "episodes": 100,
        "version": 5,
        "hash": "abc",
    }


def test_what_was_played_by_the_deadline_counts_with_its_number() -> None:
    final = begun()
    final.add({**score(3.0, version=5), "episodes": 2})
    assert final.over(70.0)
    assert final.result()["final_eval"]["episodes"] == 2


def test_without_any_the_result_has_the_reason() -> None:
    final = FinalEvaluation(100)
    assert final.result()["final_eval"] is None
    assert "not come to its end" in final.result()["final_eval_reason"]
    final = begun()
    assert final.over(70.0)
    assert final.result() == {
        "final_eval": None,
        "final_eval_reason": f"no episode was over within {LIMIT}",
    }
    final.skip("interrupted: Ctrl-C")
    # Of a wait that is over already evaluators have ended for that reason.
    final.on_beats([Beat("eval-0", 1, State.done, 1, 0.0)])
    assert final.result()["final_eval_reason"] == "interrupted: Ctrl-C"


@pytest.mark.parametrize(
    ("states", "over"),
    [
        ({"eval-0": State.done, "eval-1": State.done, "agent-0": State.running}, True),
        ({"eval-0": State.done, "eval-1": State.running}, False),
        # Started again, or not yet there.
        ({"eval-0": State.failed}, False),
        ({"agent-0": State.done}, False),
    ],
)
def test_nothing_is_waited_for_once_all_evaluators_have_ended(
    states: dict[str, State], over: bool
) -> None:
    final = begun()
    for _ in range(2):
        final.on_beats([Beat(name, 1, state, 1, 0.0) for name, state in states.items()])
    assert final.over(11.0) is over
    left = ", and no evaluator is left" * over
    assert final.result()["final_eval_reason"] == f"no episode was over within {LIMIT}{left}"


class Ending:
    """A learner whose run is to end, and the evaluations that a test reports to it."""

    def __init__(self, stage: Stage) -> None:
        for name in ("ps", "replay-0", "learner"):
            stage.start(name)
        self.coordinator: RunCoordinator = stage.service("learner").coordinator
        self._learners = self.coordinator.learners
        self._flat = np.zeros(self._learners.flat_bytes["flat"], np.uint8)

    def report(self, mean: float, *, confirm: bool = False, iteration: int = 0) -> dict[str, Any]:
        """Reports an evaluation of the newest version."""
        incarnation, version = self._learners.published
        found = {**score(mean, version=version, confirm=confirm), "mean_length": 1.0}
        found |= {"incarnation": incarnation, "iteration": iteration}
        return self.coordinator._add_evaluation(found, {"flat": self._flat})

    @property
    def over(self) -> bool:
        return self.coordinator._final.over(self.coordinator.context.clock.now())

    def result(self) -> dict[str, Any]:
        assert self.coordinator.verdict is not None
        self.coordinator._write_result(self.coordinator.verdict)
        return dict(self.coordinator.folder.read_result() or {})


@pytest.fixture
def ending(tmp_path: Path) -> Any:
    stage = Stage(experiment("session_config.stop.eval_return=50"), tmp_path / "run")
    try:
        yield Ending(stage)
    finally:
        stage.close()


def test_it_changes_neither_verdict_nor_goal(ending: Ending) -> None:
    ending.report(3.0)
    ending.coordinator.end(Verdict("stopped", False, "budget used"))
    assert not ending.over
    # As good as the goal, and no confirmation is asked for.
    assert ending.report(99.0) == {"confirm": False, "best": 99.0}
    assert ending.over
    result = ending.result()
    assert (result["status"], result["goal_met"]) == ("stopped", False)
    assert result["solved"]["greedy_seconds"] is None
    for name in ("eval", "best_eval", "final_eval"):
        assert result[name]["mean_return"] == 99.0
    assert result["final_eval"]["hash"] == ending._learners.digests()["default"]


def test_none_is_made_of_the_very_version_that_has_met_the_goal(ending: Ending) -> None:
    assert ending.report(60.0)["confirm"]
    ending.report(58.0, confirm=True)
    assert ending.over
    result = ending.result()
    assert result["goal_met"] is True
    assert result["final_eval"]["mean_return"] == 58.0
    assert result["final_eval"]["hash"] == ending._learners.digests()["default"]


def test_one_is_made_where_updates_came_after_the_goal(ending: Ending) -> None:
    ending.report(60.0)
    ending._learners.learner.iteration = 1
    ending.report(58.0, confirm=True)
    assert not ending.over


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("Ctrl-C", "interrupted", "interrupted: Ctrl-C"),
        ("interrupted", "interrupted", "interrupted"),
        ("memory", "failed", "failed: memory"),
        # The end that goes on already.
        ("again", "stopped", None),
    ],
)
def test_an_end_at_once_does_not_wait_for_it(
    ending: Ending, reason: str, status: str, why: str | None
) -> None:
    ending.coordinator.end(BUDGET)
    ending.coordinator._stop(reason, status)
    assert ending.over is (why is not None)
    assert why is None or ending.coordinator._final.result()["final_eval_reason"] == why


def test_the_interruption_that_ends_a_run_may_be_repeated(ending: Ending) -> None:
    for _ in range(2):
        ending.coordinator._stop("Ctrl-C", "interrupted")
    assert not ending.over
