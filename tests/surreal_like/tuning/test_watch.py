"""Watches of a tuning: one that raises is dropped."""

from __future__ import annotations

import pytest

from surreal_like.run.observer import guarded
from surreal_like.tuning.state import Trial
from surreal_like.tuning.watch import TuneWatch


class Broken(TuneWatch):
    def reported(self, trial: Trial) -> None:
        raise KeyError(trial.name)


def test_a_watch_that_raises_is_dropped() -> None:
    trial, watch = Trial("trial-000", {}), Broken()
    assert guarded(watch, lambda each: each.finished(trial), TuneWatch) is watch
    with pytest.warns(RuntimeWarning, match="Broken has failed.*trial-000"):
        later = guarded(watch, lambda each: each.reported(trial), TuneWatch)
    assert type(later) is TuneWatch
