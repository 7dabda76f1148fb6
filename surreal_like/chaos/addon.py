"""Declares the command that tries faults on a run."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=(
        Command(
            "chaos",
            "operate",
            "RUN|CONFIG --kill agent=30s",
            "kill parts of a run at random, and check that it holds",
            "main.cli.chaos",
        ),
    ),
)
