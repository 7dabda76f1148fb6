"""Reports of a running tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from surreal_like.tuning.state import Changed, Trial
from surreal_like.tuning.tuning import Tuning


class TuneWatch:
    """Receives reports about a tuning; override methods to show them.

    One that raises is dropped with a warning, and the tuning goes on.
    """

    def begin(self, path: Path, tuning: Tuning) -> None:
        """Called before the first trial is started.

        Args:
            path: folder of the tuning.
            tuning: its ``trials``, ``best`` and counts; to be read only.
        """

    def on_message(self, text: str) -> None:
        """Receives a message of one line."""

    def on_change(self, trial: Trial, change: Changed) -> None:
        """Receives every change of the state of a trial."""

    def started(self, trial: Trial) -> None:
        """Receives a trial whose process is started, for the first time or again."""

    def reported(self, trial: Trial) -> None:
        """Receives a trial that has reported, whose time and score are new."""

    def exploited(self, exploit: Mapping[str, Any]) -> None:
        """Receives an exploit, or one that was skipped, as a line of ``pbt.jsonl``."""

    def failed(self, trial: Trial) -> None:
        """Receives a trial whose process has died; it is pending again, or given up."""

    def finished(self, trial: Trial) -> None:
        """Receives a trial that has ended as planned."""

    def look(self, tuning: Tuning) -> None:
        """Called at least twice a second, so it must be fast."""

    def end(self) -> None:
        """Called after the last report, and if the tuning could not begin."""
