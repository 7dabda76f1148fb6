"""Sink `csv`: all curves of a run in one long file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from session.addons.sinks.addon import CSV_FILE
from session.loggerplex.append_file import AppendFile
from session.tensorplex.sinks.sink import Point, ShownRun, Sink

_COLUMNS = ("time", "env_steps", "component", "tag", "value")


class CsvFile(Sink):
    """Appends one line for each point to ``metrics.csv`` of the run folder."""

    def __init__(self, run: ShownRun) -> None:
        file = AppendFile(run.folder.path / CSV_FILE, lines=True)
        self.files = (file,)
        if not file.path.exists():
            file.add(_lines([_COLUMNS]))
        self._file = file

    def add(self, points: Sequence[Point]) -> None:
        """Appends lines."""
        rows = [(p.time, p.step, p.place.component, p.place.tag, p.value) for p in points]
        if rows:
            self._file.add(_lines(rows))


def _lines(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
