"""Declares the league: a kind of opponent, and a table of all snapshots against all."""

from __future__ import annotations

from session.addons import AddOn, Opponent

_ROOM = "surreal_like.addons.league"
ADD_ON = AddOn(
    opponents=(
        Opponent(
            "snapshots_of",
            title="snapshots of {}",
            keys=f"{_ROOM}.defaults:SNAPSHOTS",
            make=f"{_ROOM}.snapshot_opponent:make_snapshot_opponent",
            learner=f"{_ROOM}.snapshots:League",
        ),
    ),
    hooks={"league": f"{_ROOM}.cross_play:play_league"},
    files=("configs/rps_league.yaml", "configs/tictactoe_league.yaml"),
)
