"""Declares recordings: their settings and commands."""

from __future__ import annotations

from session.addons import AddOn, Command

_ROOM = "surreal_like.addons.recording"
ADD_ON = AddOn(
    keys={
        "session_config.record": f"{_ROOM}.defaults:RECORD",
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
            "data",
            "use",
            "DIR",
            "what a recording holds",
            "main.addons.recording.data:run",
        ),
    ),
    hooks={
        "recorder": f"{_ROOM}.hooks:make_recorder",
        "components": f"{_ROOM}.sources:make_components",
        "check": f"{_ROOM}.check:check_recording",
        "replay": f"{_ROOM}.defaults:choose_replay",
    },
    files=("main/data.py",),
    needs=("analysis",),
)
