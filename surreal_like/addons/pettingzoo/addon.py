"""Declares the environments of PettingZoo and MPE2."""

from __future__ import annotations

from session.addons import AddOn

_KIND = "surreal_like.addons.pettingzoo.kind:PettingZoo"
ADD_ON = AddOn(
    environments={"pettingzoo": _KIND, "mpe2": _KIND},
    files=(
        *(f"configs/rps_{name}.yaml" for name in ("heuristic", "heuristic_lstm", "league")),
        *(f"configs/{name}_ppo.yaml" for name in ("simple_spread", "speaker_listener")),
        *("configs/connect_four_ppo.yaml", "configs/tictactoe_league.yaml"),
    ),
)
