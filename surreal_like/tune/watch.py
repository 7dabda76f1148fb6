"""Reports of a running tuning."""

from __future__ import annotations

from pathlib import Path

from surreal_like.tune.state import Changed, Trial
from surreal_like.tune.tuning import Tuning


class TuneWatch:
    """Receives reports about a tuning; override methods to show them."""

    def begin(self, path: Path, tuning: Tuning) -> None:
        """Called before the first trial is started."""

    def on_message(self, text: str) -> None:
        """Receives a message of one line."""

    def on_change(self, trial: Trial, change: Changed) -> None:
        """Receives a change of the state of a trial."""

    def on_report(self, trial: Trial) -> None:
        """Receives a report of a trial, whose time and score are new."""
