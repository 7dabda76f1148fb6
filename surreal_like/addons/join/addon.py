"""Declares machines that join a run or a tuning: a command."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    hooks={
        "ps_ends": "surreal_like.addons.join.hooks:ps_ends",
        "ps_service": "surreal_like.addons.join.hooks:make_service",
        "launched": "surreal_like.addons.join.hooks:invite",
        "token": "surreal_like.addons.join.tokens:make_token",
        "tuning_service": "surreal_like.addons.join.hooks:make_tuning_service",
    },
    commands=(
        Command(
            "join",
            "run",
            "HOST:PORT --token TOKEN",
            "work here for a run or a tuning elsewhere",
            "main.addons.join.join",
        ),
    ),
)
