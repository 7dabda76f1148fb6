"""Declares machines that join a run or a tuning: a command."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    hooks={
        "ps_ends": "surreal_like.join.hooks:ps_ends",
        "ps_service": "surreal_like.join.hooks:make_service",
        "launched": "surreal_like.join.hooks:invite",
        "token": "surreal_like.join.tokens:make_token",
        "tuning_service": "surreal_like.join.hooks:make_tuning_service",
    },
    commands=(
        Command(
            "join",
            "run",
            "HOST:PORT --token TOKEN",
            "work here for a run or a tuning elsewhere",
            "main.cli.join",
        ),
    ),
)
