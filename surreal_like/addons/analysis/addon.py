"""Declares the commands that use what runs have left."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=tuple(
        Command(name, "use", usage, summary, f"main.addons.analysis.{place}")
        for name, usage, summary, place in (
            ("evaluate", "RUN", "play episodes with a trained policy", "policy:run_evaluate"),
            ("play", "RUN", "show episodes in a window or write a video", "policy:run_play"),
            ("plot", "RUN...", "draw learning curves of runs", "plot:run"),
            ("export", "RUN", "write the policy as ONNX or for PyTorch", "policy:run_export"),
            ("compare", "RUN...", "means of methods, with intervals over seeds", "compare:run"),
        )
    ),
    needs=("scripts", "video"),
    files=("notebooks",),
)
