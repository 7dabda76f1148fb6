"""Schedulers decide at each report of a trial if it goes on, saves, loads another one, or stops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTINUE, PAUSE, STOP = "continue", "pause", "stop"


@dataclass(frozen=True, slots=True)
class Load:
    """Instruction to take over the checkpoint of another trial.

    Args:
        donor: number of that trial.
        settings: settings of the recipient from then on.
    """

    donor: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """Instruction for one trial.

    Args:
        save: save a checkpoint.
        load: take over another trial, None: no.
        then: ``continue``, ``pause`` or ``stop``.
        reason: of a stop.
        skipped: reason for which an exploit was left out; empty: none was.
    """

    save: bool = False
    load: Load | None = None
    then: str = CONTINUE
    reason: str = ""
    skipped: str = ""


Decisions = dict[int, Decision]


class Scheduler:
    """Decides about trials, which are numbers; has no clock. This one lets all of them continue."""

    def report(
        self,
        trial: int,
        time: float,
        score: float | None,
        *,
        now: float | None = None,
        others_wait: bool = False,
    ) -> Decisions:
        """Returns decisions that follow from a report; empty while the trial is held.

        Args:
            trial: number of the trial.
            time: progress of its weights, in the unit of the tuning.
            score: None, NaN and infinite values are no score.
            now: wall clock [s]; None: the ages of checkpoints do not matter.
            others_wait: True if other trials wait for a slot.
        """
        return {trial: Decision()}

    def finished(self, trial: int) -> Decisions:
        """Returns decisions that follow from the end of a trial."""
        return {}

    def on_load(self, trial: int, settings: Mapping[str, Any] | None) -> None:
        """Records whether the newest load of a trial was carried out.

        Args:
            trial: number of the recipient.
            settings: that it has from now on; None: it could not be carried out.
        """

    def state(self) -> dict[str, Any]:
        """Returns plain data for :meth:`restore`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a result of :meth:`state`."""


class Fifo(Scheduler):
    """Lets every trial run to its own end."""


def valid_score(score: float | None) -> bool:
    """True for a finite number."""
    return score is not None and math.isfinite(score)


def check_mode(mode: str) -> float:
    """Returns the factor of scores with which more is better.

    Raises:
        ValueError: the mode is neither ``max`` nor ``min``.
    """
    if mode not in ("max", "min"):
        raise ValueError(f"mode is {mode!r}, expected max or min")
    return 1.0 if mode == "max" else -1.0
