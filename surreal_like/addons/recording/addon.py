"""Declares recordings: their settings and commands."""

from __future__ import annotations

from session.addons import AddOn, Command

_ROOM = "surreal_like.addons.recording"
ADD_ON = AddOn(
    keys={
        "session_config.record": f"{_ROOM}.defaults:RECORD",
        "session_config.flight": f"{_ROOM}.defaults:FLIGHT",
        "session_config.dataset": f"{_ROOM}.defaults:DATASET",
        "learner_config.replay.demos": f"{_ROOM}.defaults:DEMOS",
    },
    feeds=("dataset.path",),
    commands=(
        Command(
            "record",
            "use",
            "RUN --out DIR",
            "record episodes of a trained policy",
            "main.addons.recording.record:run",
        ),
        Command(
            "rerun",
            "use",
            "RUN",
            "repeat the updates of a recorded run",
            "main.addons.recording.rerun:run",
        ),
        Command(
            "data",
            "use",
            "DIR",
            "what a recording holds",
            "main.addons.recording.data:run",
        ),
    ),
    hooks={
        "recorder": f"{_ROOM}.hooks:make_recorder",
        "learner_log": f"{_ROOM}.flight:make_flight",
        "components": f"{_ROOM}.sources:make_components",
        "check": f"{_ROOM}.check:check_recording",
        "specs": f"{_ROOM}.dataset:recorded_specs",
        "replay": f"{_ROOM}.defaults:choose_replay",
    },
    files=("main/data.py",),
    needs=("analysis",),
)
