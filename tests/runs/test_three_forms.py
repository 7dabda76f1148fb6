"""An algorithm with a `learn` of its own, one of functions, one of a loss and a plan: the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runs.command import Train, clean, without_real_times
from tests.runs.test_serial import digest

FORMS = ("OwnLearn", "Built", "Planned")
FILE = Path(__file__).with_name("three_forms.py")


def lines(train: Train) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = without_real_times(train.progress)
    # The id depends on the name of the algorithm, and the name of an operator on the form.
    operators = [list(line["plan"].pop("operators").values()) for line in found]
    return [{**line, "run_id": "", "o": o} for line, o in zip(found, operators, strict=True)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_three_forms_are_equal(tmp_path: Path) -> None:
    runs = []
    for form in FORMS:
        words = ("--algorithm", f"{FILE}:{form}", "--env", "gym:CartPole-v1", "--seed", "3")
        stop = "session_config.stop={iterations: 25, eval_episodes: 5}"
        with Train(tmp_path / form, *words, "--on", "serial", "--quiet", stop) as train:
            assert train.wait(100) == 0, train.words
        assert train.result["iterations"] == 25
        assert clean(train.result)
        runs.append(train)
    first, *others = runs
    assert lines(first)[-1]["learn"]["loss"] is not None
    for other in others:
        assert digest(other) == digest(first)
        assert lines(other) == lines(first)
