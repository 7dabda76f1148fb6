"""Declares tunings: a command, and the settings of a trial."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    commands=(
        Command(
            "tune",
            "run",
            "FILE.yaml [key=value]",
            "run many trials of one experiment",
            "main.cli.tune",
        ),
    ),
)
