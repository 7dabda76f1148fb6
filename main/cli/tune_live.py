"""``tune`` on a terminal: the table of trials, redrawn in place, and events as lines above it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from main.cli.tune_pages import exploits_text, states_text
from main.cli.tune_table import trial_table
from session.process.periodic import Every
from session.program import path_from_here
from session.show.text import decimal, duration, short_time, size
from surreal_like.experiment.machine import find_available_bytes
from surreal_like.tuning.exploit import exploit_text
from surreal_like.tuning.state import OVER, Trial, TrialState
from surreal_like.tuning.tune_file import TuneFile
from surreal_like.tuning.tuning import Tuning
from surreal_like.tuning.watch import TuneWatch

if TYPE_CHECKING:
    from main.cli.live_table import Canvas

_DRAW_SECONDS = 0.5


class LiveTune(TuneWatch):
    """Draws the state of a tuning; between two events at most twice a second.

    Args:
        stream: a terminal.
        file: of the tuning.
        started: start of the command, in seconds since 1970.
    """

    def __init__(self, stream: IO[str], file: TuneFile, started: float) -> None:
        # Imported late: it is slow, and torch is imported in parallel at this point.
        from main.cli.live_table import Canvas

        self._file, self._started = file, started
        self._canvas: Canvas | None = Canvas(stream)
        self._canvas.draw_preparation(file.name)
        self._due = Every(seconds=_DRAW_SECONDS, clock=time.monotonic)
        self._path = Path()
        # Trial -> its newest exploit in words, until it reports again.
        self._loads: dict[str, str] = {}
        self._drawn: list[str] = []

    def begin(self, path: Path, tuning: Tuning) -> None:
        """Draws the first table."""
        self._path = path
        self._draw(tuning)

    def on_message(self, text: str) -> None:
        """Writes one line above the table."""
        self._write(text, "bold")

    def exploited(self, exploit: Mapping[str, Any]) -> None:
        """Writes an exploit above the table."""
        skipped = "skipped" in exploit
        if not skipped:
            where = "in place" if exploit["in_place"] else "starts again"
            self._loads[exploit["recipient"]] = f"{where}, {short_time(exploit['seconds'])}"
        self._write(exploit_text(exploit), "yellow" if skipped else "")

    def reported(self, trial: Trial) -> None:
        """Forgets how the trial has loaded another one."""
        self._loads.pop(trial.name, None)

    def failed(self, trial: Trial) -> None:
        """Writes the death of a process above the table."""
        then = "given up" if trial.state is TrialState.error else "it is tried again"
        self._write(f"{trial.name} failed, {then}: {trial.reason}", "yellow")

    def finished(self, trial: Trial) -> None:
        """Writes the end of a trial above the table."""
        self._write(f"{trial.name} ended, score {decimal(trial.score)}: {trial.reason}", "")

    def look(self, tuning: Tuning) -> None:
        """Draws the table again if something in it has changed."""
        if self._due():
            self._draw(tuning)

    def end(self) -> None:
        """Removes the table; the lines above it stay."""
        if self._canvas is not None:
            self._canvas.close()
            self._canvas = None

    def _draw(self, tuning: Tuning) -> None:
        if self._canvas is None:
            return
        width, height = self._canvas.size
        head = head_lines(self._file.name, self._path, tuning, time.time() - self._started)
        rows = [
            {**asdict(each), "doing": tuning.doing(number) or self._loads.get(each.name, "")}
            for number, each in enumerate(tuning.trials)
        ]
        table = trial_table(
            rows,
            width=width,
            # Empty lines: above the head, below it, and the line of the cursor.
            height=height - len(head) - 3,
            budget=self._file.budget,
            mode=self._file.tune.mode,
        )
        if (drawn := [*head, *table]) != self._drawn:
            self._drawn = drawn
            self._canvas.draw_lines(head, table)

    def _write(self, text: str, style: str) -> None:
        if self._canvas is not None:
            self._canvas.write(f"{duration(time.time() - self._started)}  {text}", style)


def head_lines(name: str, path: Path, tuning: Tuning, seconds: float) -> list[str]:
    """Returns the lines above the table: what it is, trials by state, slots, exploits, best."""
    states = Counter(each.state for each in tuning.trials)
    trials = states_text({str(each): states[each] for each in TrialState if states[each]})
    exploits = sum(each.generation for each in tuning.trials)
    more = [f"slots {tuning.working} of {tuning.slots}"]
    if exploits or tuning.skipped:
        more.append(exploits_text(exploits, tuning.skipped))
    if (best := tuning.best) is not None:
        more.append(f"best {decimal(best.score)} {best.name}")
    more.append(f"{size(find_available_bytes())} memory free")
    over = sum(each.state in OVER for each in tuning.trials)
    return [
        f"{name} · {duration(seconds)} · {path_from_here(path)}",
        f"{over} of {len(tuning.trials)} trials over: {trials}",
        " · ".join(more),
    ]
