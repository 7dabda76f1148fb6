"""``surreal-like tune``: runs many trials of one experiment, and shows what came of each."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from main.cli.arguments import add_allow_change
from main.cli.parser import Parser
from main.cli.train import process_start
from main.cli.tune_live import LiveTune
from main.cli.tune_pages import summary
from session.errors import UsageError
from session.show.text import decimal
from surreal_like.tuning.exploit import exploit_text, replay_file
from surreal_like.tuning.start import read_given, run_tuning
from surreal_like.tuning.state import Changed, Trial
from surreal_like.tuning.tune_file import TuneFile
from surreal_like.tuning.tuning import Tuning
from surreal_like.tuning.watch import TuneWatch

_EXAMPLES = """examples:
  surreal-like tune configs/cartpole_asha.yaml
  surreal-like tune configs/cartpole_asha.yaml tune.trials=4 tune.scheduler=fifo
  surreal-like tune configs/cartpole_pbt.yaml tune.pbt.synch=true
  surreal-like tune --resume --folder runs/NAME tune.slots=4
  surreal-like tune --resume configs/cartpole_asha.yaml
  surreal-like tune --replay runs/NAME/trial-003

exit code: 0 the tuning is complete; 1 no trial has a score; 2 wrong command or file;
130 interrupted (Ctrl-C saves every trial, a second one ends everything at once)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    started = process_start() if list(argv) == sys.argv[2:] else time.time()
    stream = sys.stderr if given.json else sys.stdout
    file, folder = _given(given)
    found = run_tuning(
        file,
        folder=folder,
        resume=given.resume,
        retry_errors=given.retry_errors,
        watch=_watch(given, stream, file, started),
    )
    if given.json:
        print(json.dumps(found.result))
    if not given.quiet:
        width = shutil.get_terminal_size().columns if stream.isatty() else 0
        print("\n".join(summary(found.folder, found.result, file, width)), file=stream)
    if found.exit_code == 1:
        reason = found.result["reason"]
        sys.stderr.write(f"surreal-like: error: tuning {found.folder} failed: {reason}\n")
    return found.exit_code


def _watch(given: argparse.Namespace, stream: IO[str], file: TuneFile, started: float) -> TuneWatch:
    if given.quiet:
        return TuneWatch()
    return LiveTune(stream, file, started) if stream.isatty() else Lines(stream)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("tune", "Runs many trials of one experiment.", _EXAMPLES)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FILE.yaml section.key=value",
        help="a tune file, then settings that replace the file's (values are YAML)",
    )
    parser.add_argument("--folder", help="folder of the tuning; default: runs/<name>-<date>-<time>")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the tuning in the folder; without one, with the newest of FILE, or of all",
    )
    add_allow_change(parser, "key of the file")
    parser.add_argument(
        "--replay",
        metavar="TRIAL",
        help="train one run with the settings, and their changes, that led to this trial's weights",
    )
    parser.add_argument(
        "--retry-errors", action="store_true", help="with --resume: also the trials given up"
    )
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--quiet", action="store_true", help="show only errors")
    shown.add_argument("--json", action="store_true", help="print result.json on standard output")
    return parser


def _given(given: argparse.Namespace) -> tuple[TuneFile, Path | None]:
    """Returns the tune file and the folder of a command line.

    Raises:
        UsageError: it names no file, or several, or options that exclude each other.
    """
    words = [word for word in given.words if "=" in word]
    files = [word for word in given.words if "=" not in word]
    folder = Path(given.folder) if given.folder is not None else None
    if given.replay is not None:
        if files or given.resume:
            raise UsageError(
                "--replay takes the experiment of a trial: leave FILE and --resume out"
            )
        return replay_file(given.replay, words), folder
    if len(files) > 1:
        raise UsageError("give one tune file, as in configs/cartpole_asha.yaml")
    return read_given(
        files[0] if files else None,
        words,
        folder,
        resume=given.resume,
        retry_errors=given.retry_errors,
        allow_change=given.allow_change,
    )


class Lines(TuneWatch):
    """Writes one line per event.

    Args:
        stream: output.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def begin(self, path: Path, tuning: Tuning) -> None:
        """Writes the folder and the number of trials."""
        self.on_message(f"tuning {path}: {len(tuning.trials)} trials")

    def on_message(self, text: str) -> None:
        """Writes one line."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def exploited(self, exploit: Mapping[str, Any]) -> None:
        """Writes an exploit, or one that was skipped."""
        self.on_message(exploit_text(exploit))

    def on_change(self, trial: Trial, change: Changed) -> None:
        """Writes a change of state."""
        reason = f": {change.reason}" if change.reason else ""
        score = f", score {decimal(trial.score)}" if trial.score is not None else ""
        self.on_message(f"{trial.name} {change.before} -> {change.after}{reason}{score}")
