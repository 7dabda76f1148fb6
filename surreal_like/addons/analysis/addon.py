"""Declares the commands that use what runs have left."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=tuple(
        Command(name, "use", usage, summary, f"main.addons.analysis.{name}:run")
        for name, usage, summary in (
            ("evaluate", "RUN", "play episodes with a trained policy"),
            ("play", "RUN", "show episodes in a window or write a video"),
            ("plot", "RUN...", "draw learning curves of runs"),
            ("export", "RUN", "write the policy as ONNX or for PyTorch"),
            ("compare", "RUN...", "means of methods, with intervals over seeds"),
        )
    ),
    needs=("scripts", "video"),
    files=("notebooks",),
)
