"""Declares the mirror: a component, its settings, and runs at URLs."""

from __future__ import annotations

from session.addons import AddOn

_ROOM = "session.addons.mirror"
ADD_ON = AddOn(
    keys={
        "session_config.mirror": f"{_ROOM}.defaults:MIRROR",
        "session_config.mirror_seconds": f"{_ROOM}.defaults:MIRROR_SECONDS",
        "session_config.mirror_bytes_per_second": f"{_ROOM}.defaults:MIRROR_BYTES_PER_SECOND",
    },
    telemetry=("mirror",),
    hooks={
        "check": f"{_ROOM}.hooks:check_mirror",
        "components": f"{_ROOM}.hooks:make_components",
        "pods": f"{_ROOM}.hooks:refuse_pods",
        "fetch": f"{_ROOM}.fetch:fetch_run",
        "runs_at": f"{_ROOM}.fetch:list_runs",
    },
    needs=("copies",),
    files=("main/mirror.py",),
)
