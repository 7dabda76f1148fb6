"""A tuning of one trial that follows the settings which led to a trial of another tuning."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from session.config.config import override
from session.errors import UsageError
from surreal_like.run.folder import TUNING
from surreal_like.tuning.lineage import check_number, read_exploits
from surreal_like.tuning.trial import TUNE_FILE, read_state
from surreal_like.tuning.tune_file import TuneFile, read_tune_file

Line = Mapping[str, Any]


def schedule_of(trial: str, exploits: Sequence[Line]) -> tuple[str, list[dict[str, Any]]]:
    """Returns the first ancestor of a trial, and the changes from its settings on.

    Args:
        trial: name.
        exploits: lines of ``pbt.jsonl``, in their order.

    Returns:
        Name of the ancestor; for each change ``time`` of the weights and ``settings``, rising.
    """
    changes: list[dict[str, Any]] = []
    # The weights came from the donor of the newest exploit before, and so on.
    for line in reversed(exploits):
        if "skipped" not in line and line["recipient"] == trial:
            changes.insert(0, {"time": line["donor_time"], "settings": line["new_settings"]})
            trial = line["donor"]
    return trial, changes


def replay_file(path: str | Path, overrides: Sequence[str] = ()) -> TuneFile:
    """Returns the tune file of a run that follows the settings which led to a trial.

    Args:
        path: folder of the trial.
        overrides: ``section.key=value``, as in :func:`read_tune_file`.

    Raises:
        UsageError: it is no trial of a tuning.
        ConfigError: the tuning is damaged, or an override is wrong.
    """
    path = Path(path)
    tuning, name = path.parent, path.name
    if not os.path.isfile(tuning / TUNING):
        raise UsageError(f"{path} is no trial of a tuning: {tuning} has no {TUNING}")
    trials = read_state(tuning)["trials"]
    names = [each["name"] for each in trials]
    if name not in names:
        raise UsageError(f"tuning {tuning} has no trial {name}; there are {len(names)}")
    file = read_tune_file(tuning / TUNE_FILE)
    ancestor, changes = schedule_of(name, read_exploits(tuning, names, file.space.mutable))
    number, planned = names.index(ancestor), file.settings()
    check_number(tuning, len(trials), len(planned))
    # A trial that has loaded others has other settings now than at its start.
    settings = planned[number] if trials[number]["generation"] else trials[number]["settings"]
    first = {"time": 0.0, "settings": dict(settings)}
    seed = int((file.experiment.get("session_config") or {}).get("seed", 0)) + number
    words = [
        override("space", {}),
        override("tune.trials", 1),
        override("tune.scheduler", "replay"),
        override("tune.search", "random"),
        override("tune.replay", {"changes": [first, *changes]}),
        override("tune.report_every", file.report_every),
        override("session_config.seed", seed),
    ]
    found = read_tune_file(tuning / TUNE_FILE, [*words, *overrides])
    return replace(found, name=f"{tuning.resolve().name}-{name}")
