"""Declares tunings: their command, their folders in other commands, and settings of a trial."""

from __future__ import annotations

from session.addons import AddOn, Command

_ROOM = "surreal_like.addons.tuning"
_LEARNER = "session_config.learner"
ADD_ON = AddOn(
    keys={
        f"{_LEARNER}.report_every": f"{_ROOM}.tune_defaults:REPORT_EVERY",
        f"{_LEARNER}.report_by": f"{_ROOM}.tune_defaults:REPORT_BY",
        f"{_LEARNER}.report_timeout_seconds": f"{_ROOM}.tune_defaults:REPORT_TIMEOUT",
    },
    commands=(
        Command(
            "tune",
            "run",
            "FILE.yaml [key=value]",
            "run many trials of one experiment",
            "main.addons.tuning.tune:run",
        ),
    ),
    hooks={
        "work": f"{_ROOM}.worker:work",
        "reporter": f"{_ROOM}.reporter:make_reported",
        "open": f"{_ROOM}.handle:TuningHandle",
        "facts": "main.addons.tuning.tune_table:tuning_facts",
        "page": "main.addons.tuning.tune_table:tuning_page",
        "plan": "main.addons.tuning.tune:plan_tuning",
    },
    needs=("copies",),
    files=(
        "main/trial.py",
        "configs/cartpole_asha.yaml",
        "configs/cartpole_pbt.yaml",
        "configs/cartpole_tpe.yaml",
    ),
)
