"""``surreal-like tune``: runs many trials of one experiment, and shows what came of each."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, Any

from main.addons.tuning.tune_table import colour_lines, head_lines, summary, trial_table
from main.cli.arguments import SHOWN, Option, Parser, allow_change
from main.cli.live_observer import LiveTable
from main.cli.output import terminal_width
from main.cli.progress_lines import Lines
from main.cli.train import process_start
from session.config import Config
from session.errors import SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from session.launchers.registry import LOCAL
from session.program import path_from_here
from session.show.text import columns, duration, size
from surreal_like.addons.tuning.exploit_files import replay_file
from surreal_like.addons.tuning.slots import Machine, find_slots
from surreal_like.addons.tuning.start import SECONDS, notes, read_given, resolve_all, run_tuning
from surreal_like.addons.tuning.state import Trial, TrialState
from surreal_like.addons.tuning.trial import trial_name
from surreal_like.addons.tuning.tune_file import TuneFile, read_tune_file
from surreal_like.experiment.resolve_process import try_elsewhere
from surreal_like.experiment.shipped import find_experiment
from surreal_like.run.observer import RunObserver

_EXAMPLES = """examples:
  surreal-like tune configs/cartpole_asha.yaml
  surreal-like tune configs/cartpole_asha.yaml tune.trials=4 tune.scheduler=fifo
  surreal-like tune configs/cartpole_pbt.yaml tune.pbt.synch=true
  surreal-like tune --resume --folder runs/NAME tune.slots=4
  surreal-like tune --resume configs/cartpole_asha.yaml
  surreal-like tune --replay runs/NAME/trial-003
  surreal-like tune configs/cartpole_asha.yaml --host 192.0.2.7     other machines join

exit code: 0 the tuning is complete; 1 no trial has a score; 2 wrong command or file;
130 interrupted (Ctrl-C saves every trial, a second one ends everything at once)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    started = process_start() if list(argv) == sys.argv[2:] else time.time()
    stream = sys.stderr if given.json else sys.stdout
    file, folder = _read_words(given)
    found = run_tuning(
        file,
        folder=folder,
        resume=given.resume,
        retry_errors=given.retry_errors,
        watch=_watch(given, stream, file, started),
        host=given.host,
    )
    if given.json:
        print(json.dumps(found.result))
    if not given.quiet:
        width = terminal_width(stream)
        print("\n".join(summary(found.folder, found.result, file, width)), file=stream)
    if found.exit_code == 1:
        reason = found.result["reason"]
        sys.stderr.write(f"surreal-like: error: tuning {found.folder} failed: {reason}\n")
    return found.exit_code


def _watch(
    given: argparse.Namespace, stream: IO[str], file: TuneFile, started: float
) -> RunObserver:
    if given.quiet:
        return RunObserver()
    return LiveTuning(stream, started, file) if stream.isatty() else TuningLines(stream)


def _parser() -> Parser:
    return Parser(
        "tune",
        "Runs many trials of one experiment.",
        Option(
            "words",
            nargs="*",
            metavar="FILE.yaml section.key=value",
            help="a tune file, or the name of a shipped one, then settings that replace the file's "
            "(values are YAML)",
        ),
        Option("--folder", help="folder of the tuning; default: runs/<name>-<date>-<time>"),
        Option(
            "--resume",
            action="store_true",
            help="go on with the tuning in the folder; without one, with the newest of FILE, or "
            "of all",
        ),
        allow_change("key of the file"),
        Option(
            "--replay",
            metavar="TRIAL",
            help="train one run with the settings, and their changes, that led to this trial's "
            "weights",
        ),
        Option(
            "--retry-errors", action="store_true", help="with --resume: also the trials given up"
        ),
        Option(
            "--host",
            metavar="ADDRESS",
            help="address of this machine, where others reach it: prints the line with which they "
            "join",
        ),
        SHOWN,
        examples=_EXAMPLES,
    )


def _read_words(given: argparse.Namespace) -> tuple[TuneFile, Path | None]:
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


class TuningLines(Lines):
    """Writes one line per event."""

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Writes the folder and the number of trials."""
        self.on_message(f"tuning {folder}: {config.tune.trials} trials")


class LiveTuning(LiveTable):
    """Draws the trials of a tuning.

    Args:
        stream: A terminal.
        started: Start of the command, in seconds since 1970.
        file: The tune file.
    """

    def __init__(self, stream: IO[str], started: float, file: TuneFile) -> None:
        super().__init__(stream, started)
        self._file, self._path, self._slots = file, Path(), 0
        self._skipped = 0
        # Worker -> its slots.
        self._others: dict[str, int] = {}

    def begin(self, folder: RunFolder, config: Config) -> None:
        """Learns the folder and the number of slots."""
        self._path, self._slots = folder.path, config.tune.slots

    def on_event(self, event: Event) -> None:
        """Writes ends, deaths and exploits above the table, which shows the other states itself."""
        self._skipped += event.kind == "skipped"
        if event.kind in ("joined", "left", "lost") and event.component:
            # The detail of the first begins with their number.
            slots = int(event.detail.split()[0]) if event.kind == "joined" else 0
            self._others[event.component] = slots
        if event.kind not in (TrialState.running, TrialState.paused):
            bad = event.kind in (TrialState.pending, TrialState.error, "skipped")
            self._write(str(event), "yellow" if bad else "")

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        """Draws the table again if something in it has changed."""
        if self._canvas is None:
            return
        rows, (width, height) = list(components.values()), self._canvas.size
        clock, tune = self._clock(), self._file.tune
        slots = self._slots + sum(self._others.values())
        head = [
            f"{self._file.name} · {clock} · {path_from_here(self._path)}",
            *head_lines(rows, slots, self._skipped, tune.mode),
        ]
        # Empty lines: above the head, below it, and the line of the cursor.
        room = height - len(head) - 3
        table = trial_table(
            rows, width=width, height=room, budget=self._file.budget, mode=tune.mode
        )
        if (drawn := [*head, *table]) != self._drawn:
            self._drawn = drawn
            self._canvas.draw(colour_lines(head, table))


def plan_tuning(given: argparse.Namespace) -> int | None:
    """Prints the plan of a tuning; returns the exit code, None if no word is a tune file.

    Raises:
        UsageError: an option belongs to plans of experiments.
        ConfigError: the file is wrong.
    """
    path = _tune_file_of(given.words)
    if path is None:
        return None
    if given.explain or given.format or given.folder or given.on != LOCAL.name:
        raise UsageError("the plan of a tuning is one table: leave the options out")
    file = read_tune_file(path, [word for word in given.words if word != str(path)])
    config = resolve_all(file, partial(try_elsewhere, seconds=SECONDS))
    slots = find_slots(file.tune, config, Machine.here())
    tune, trials = file.tune, file.settings()
    stop = [f"{key} {value:,}" for key, value in tune.stop.items() if value is not None]
    ends = [f"after {duration(tune.seconds)}"] if tune.seconds else []
    ends += ["at the first goal"] if tune.stop_at_goal else []
    facts = [
        ["trials", f"{len(trials)}, {tune.scheduler}, settings by {tune.search}"],
        ["score", f"{tune.metric}, {tune.mode}"],
        ["stop", ", ".join(stop) or "the goal"],
        *([["tuning ends", " or ".join(ends)]] if ends else []),
        ["slots", f"{slots.num}, {slots.trial_cores:g} cores each"],
        ["memory", f"{size(slots.trial_bytes)} a trial, room for {slots.max_resident}"],
        *(["note", note] for note in (*notes(file, config), *filter(None, [slots.note]))),
    ]
    rows = [
        {**asdict(Trial(trial_name(number), settings)), "doing": ""}
        for number, settings in enumerate(trials)
    ]
    print(columns([], facts))
    print("", *trial_table(rows), sep="\n")
    return 0


def _tune_file_of(words: Sequence[str]) -> Path | None:
    """Returns the file among the words if it is a tune file, else None."""
    for word in words:
        if "=" not in word:
            try:
                keys = Config.load_file(str(find_experiment(word)))
            except SurrealError:
                return None
            return Path(word) if {"space", "tune"} & set(keys) else None
    return None
