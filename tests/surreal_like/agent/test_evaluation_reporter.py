"""Scores reach the learner, also one that is away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from session.errors import RefusedError
from session.wire.requests import RouterSocket
from surreal_like.agent.evaluation import EvaluationReporter
from tests.surreal_like.agent.rig import Rig, make_rig

FLAT = np.arange(4, dtype=np.uint8)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with make_rig() as made:
        yield made


class ControlPeer:
    """The learner's control endpoint, played by the test."""

    def __init__(self, rig: Rig, incarnation: int = 9) -> None:
        self.wire = rig.wire("learner", incarnation)
        self.router: RouterSocket = self.wire.router("learner.control")
        self.reports: list[tuple[dict[str, Any], bool]] = []
        self.answers: list[dict[str, Any]] = []
        self.silent = False
        self.refusal = ""
        rig.stepping.append(self.tick)

    def tick(self) -> None:
        while (request := self.router.receive()) is not None:
            has_flat = "flat" in request.message.arrays
            self.reports.append((request.message.fields, has_flat))
            if self.refusal:
                self.router.refuse(request, self.refusal)
            elif not self.silent:
                answer = self.answers.pop(0) if self.answers else {"confirm": False, "best": 1.0}
                self.router.reply(request, "noted", answer)


def client(rig: Rig) -> EvaluationReporter:
    return EvaluationReporter(rig.wire("eval-0").dealer("learner.control"), rig.clock)


def noted(rig: Rig, scores: EvaluationReporter) -> bool:
    """Waits until the score has been noted; gives whether it must be confirmed."""
    answers: list[bool] = []

    def there() -> bool:
        answer = scores.tick()
        if answer is not None:
            answers.append(answer)
        return bool(answers)

    rig.until(there)
    assert not scores.busy
    return answers[0]


def test_parameters_go_along_where_they_beat_the_best(rig: Rig) -> None:
    learner, scores = ControlPeer(rig), client(rig)
    for mean, best in ((2.0, 2.0), (1.5, 2.0), (3.0, 3.0)):
        learner.answers.append({"confirm": False, "best": best})
        scores.report({"mean_return": mean}, {"flat": FLAT})
        assert not noted(rig, scores)
    assert [flat for _, flat in learner.reports] == [True, False, True]


def test_the_learner_may_want_it_confirmed(rig: Rig) -> None:
    learner, scores = ControlPeer(rig), client(rig)
    learner.answers.append({"confirm": True, "best": 2.0})
    scores.report({"mean_return": 2.0}, {"flat": FLAT})
    assert noted(rig, scores)
    assert scores.best == 2.0


def test_a_score_that_is_refused_is_an_error(rig: Rig) -> None:
    router, scores = rig.wire("learner", 9).router("learner.control"), client(rig)

    def refuse() -> None:
        if (request := router.receive()) is not None:
            router.refuse(request, "'evaluated' with wrong fields")

    rig.stepping.append(refuse)
    scores.report({"mean_return": 2.0}, {"flat": FLAT})
    with pytest.raises(RefusedError, match="wrong fields"):
        noted(rig, scores)


def test_nothing_is_due_without_a_score(rig: Rig) -> None:
    scores = client(rig)
    assert scores.tick() is None
    assert not scores.busy


def test_a_learner_that_does_not_answer_is_asked_again_and_given_up_in_the_end(rig: Rig) -> None:
    learner, scores = ControlPeer(rig), client(rig)
    learner.silent = True
    scores.report({"mean_return": 2.0}, {"flat": FLAT})
    rig.until(lambda: scores.tick() or learner.reports)
    rig.clock.seconds += 5.1
    rig.until(lambda: scores.tick() or len(learner.reports) == 2)
    rig.clock.seconds += 55.0
    assert scores.tick() is False
    assert not scores.busy


def test_a_restarted_learner_gets_the_score_with_the_parameters(rig: Rig) -> None:
    first, scores = ControlPeer(rig), client(rig)
    first.answers.append({"confirm": False, "best": 50.0})
    scores.report({"mean_return": 50.0}, {"flat": FLAT})
    noted(rig, scores)
    first.silent = True
    scores.report({"mean_return": 40.0}, {"flat": FLAT})
    rig.until(lambda: scores.tick() or len(first.reports) == 2)
    rig.stepping.remove(first.tick)
    first.wire.close(0)
    second = ControlPeer(rig, 10)
    second.answers.append({"confirm": False, "best": 40.0})
    noted(rig, scores)
    assert [flat for _, flat in first.reports] == [True, False]
    assert second.reports[0][1]
