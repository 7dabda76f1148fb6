"""Declares machines that join a run or a tuning: a command."""

from __future__ import annotations

from session.addons import AddOn, Command

_ROOM = "surreal_like.addons.join"
ADD_ON = AddOn(
    hooks={
        "ps_ends": f"{_ROOM}.hooks:ps_ends",
        "ps_service": f"{_ROOM}.hooks:make_service",
        "launched": f"{_ROOM}.hooks:invite",
        "token": f"{_ROOM}.tokens:make_token",
        "admit": f"{_ROOM}.hooks:admit_script",
        "tuning_service": f"{_ROOM}.hooks:make_tuning_service",
    },
    needs=("engines",),
    commands=(
        Command(
            "join",
            "run",
            "HOST:PORT --token TOKEN",
            "work here for a run or a tuning elsewhere",
            "main.addons.join.join:run",
        ),
    ),
)
