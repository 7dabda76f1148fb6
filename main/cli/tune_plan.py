"""``surreal-like plan`` of a tune file: its trials, slots and memory; starts nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from session.config import Config
from session.errors import SurrealError, UsageError
from session.launchers.registry import LOCAL
from session.show.text import columns, duration, size


def tune_file_of(words: Sequence[str]) -> Path | None:
    """Returns the file among the words if it is a tune file, else None."""
    for word in words:
        if "=" not in word and os.path.isfile(word):
            try:
                keys = Config.load_file(word)
            except SurrealError:
                return None
            return Path(word) if {"space", "tune"} & set(keys) else None
    return None


def show_tuning(given: argparse.Namespace, path: Path) -> int:
    """Prints the plan of a tuning; returns the exit code.

    Raises:
        UsageError: an option belongs to plans of experiments.
        ConfigError: the file is wrong.
    """
    # Not at the top: plans of experiments do not need them.
    from main.cli.tune_table import trial_table
    from surreal_like.experiment.resolve import try_elsewhere
    from surreal_like.tuning.slots import Machine, find_slots
    from surreal_like.tuning.start import SECONDS, notes, resolve_all
    from surreal_like.tuning.state import Trial
    from surreal_like.tuning.trial import trial_name
    from surreal_like.tuning.tune_file import read_tune_file

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
