"""Declares agents on other machines: a command."""

from __future__ import annotations

from session.addons import AddOn, Command

ADD_ON = AddOn(
    hooks={
        "ps_ends": "surreal_like.join.hooks:ps_ends",
        "ps_service": "surreal_like.join.hooks:make_service",
        "launched": "surreal_like.join.hooks:invite",
        "token": "surreal_like.join.tokens:make_token",
    },
    commands=(
        Command(
            "join",
            "run",
            "HOST:PORT --token TOKEN",
            "run agents here for a run on another machine",
            "main.cli.join",
        ),
    ),
)
