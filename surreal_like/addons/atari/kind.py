"""Games of Atari as a kind of environments: `atari:GAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surreal_like.addons.atari.atari import AtariEnv, atari_settings
from surreal_like.addons.atari.emulator import PREFIX, list_games
from surreal_like.addons.atari.vector import make_atari_vector
from surreal_like.env.environment import VectorEnv
from surreal_like.env.kinds import Config, EnvironmentKind, Wanted, is_installed


class Atari(EnvironmentKind):
    """Games of Atari."""

    def build(self, wanted: Wanted) -> Any:
        """Builds one game."""
        return AtariEnv(wanted.rest, atari_settings(wanted.env_config, wanted.evaluation))

    def list_names(self) -> Sequence[str]:
        """Returns the names of all games."""
        return [f"{PREFIX}{name}" for name in list_games()]

    def missing_extra(self, name: str) -> str:
        """Returns the extra with the emulator if that is not installed."""
        return "" if is_installed("ale_py") else "atari"

    def make_native(
        self, env_config: Config, seeds: Sequence[int], *, seed: int, evaluation: bool
    ) -> VectorEnv | None:
        """Builds the games of a config in one object that steps all."""
        return make_atari_vector(env_config, seeds, evaluation=evaluation)
