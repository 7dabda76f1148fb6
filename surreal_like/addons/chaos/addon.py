"""Declares the command that tries faults on a run."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=(
        Command(
            "chaos",
            "operate",
            "RUN|CONFIG.yaml",
            "kill parts of a run, and check what holds",
            "main.addons.chaos.chaos:run",
        ),
    ),
)
