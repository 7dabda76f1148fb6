"""Declares the command that explains what limits a run, and its line in other commands."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=(
        Command(
            "doctor",
            "watch",
            "RUN",
            "what limits a run, and what is odd in it",
            "main.addons.doctor.doctor:run",
        ),
    ),
    hooks={"findings": "surreal_like.addons.doctor.rules:in_one_line"},
)
