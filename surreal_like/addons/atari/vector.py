"""Vector code of ale-py: N games in step, in threads of its own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from surreal_like.addons.atari.atari import AtariSettings, atari_settings
from surreal_like.addons.atari.emulator import PREFIX, Frame, import_ale, rom_of
from surreal_like.data.spec import compare
from surreal_like.env.environment import Info, VectorStep
from surreal_like.env.registry import given_frame_spec, is_wrapped
from surreal_like.env.step_results import step_rewards
from surreal_like.env.vector_base import CheckedVector, Flags
from surreal_like.env.wrappers import horizon

INFO_KEYS = ("lives", "frame_number", "episode_frame_number")

_OURS = ("episodic_life", "num_threads")


def make_atari_vector(
    env_config: Mapping[str, Any], seeds: Sequence[int], *, evaluation: bool = False
) -> AtariVector | None:
    """Builds the games of a config; returns None where N single Envs must be stepped.

    These are configs with wrappers, with action repeat, with a horizon of episodes, or with other
    keys of info than INFO_KEYS. Raises what AtariVector raises, and SpecError where the config's
    specs are not those of the game.
    """
    keys = tuple(env_config.get("info_keys") or ())
    limited = horizon(env_config.get("limit_episode_length")) is not None
    if is_wrapped(env_config, evaluation) or limited or not set(keys) <= set(INFO_KEYS):
        return None
    game = str(env_config["env_name"]).removeprefix(PREFIX)
    vector = AtariVector(game, atari_settings(env_config, evaluation), seeds=seeds, info_keys=keys)
    vector.obs_spec = compare(given_frame_spec(env_config), vector.obs_spec, "obs_spec")
    vector.action_spec = compare(env_config.get("action_spec"), vector.action_spec, "action_spec")
    return vector


class AtariVector(CheckedVector):
    """N games with the same frames, rewards and ends as N :class:`AtariEnv` with the same seeds.

    The stacks and clipped rewards of ale-py are switched off. Its ``episodic_life`` begins a new
    game after a lost life; so it only reports lost lives, and the step after one, whose action is
    ignored, is the first row of the next episode.

    Args:
        game: such as ``Pong``.
        settings: preprocessing of the game.
        seeds: one for each game.
        info_keys: keys out of INFO_KEYS that ``info`` holds.

    Raises:
        MissingExtra: the emulator is not installed.
        ConfigError: there is no such game.
    """

    def __init__(
        self,
        game: str,
        settings: AtariSettings,
        *,
        seeds: Sequence[int],
        info_keys: Sequence[str] = (),
    ) -> None:
        import_ale(f"{PREFIX}{game}")
        module = importlib.import_module("ale_py.vector_env")
        self._games = module.AtariVectorEnv(
            rom_of(game),
            len(seeds),
            **{key: value for key, value in vars(settings).items() if key not in _OURS},
            num_threads=settings.num_threads,
            stack_num=1,
            reward_clipping=False,
            life_loss_info=settings.episodic_life,
            episodic_life=False,
            autoreset_mode="NextStep",
        )
        actions = int(self._games.single_action_space.n)
        super().__init__(
            len(seeds),
            {"type": "uint8", "dim": list(settings.frame_shape)},
            {"type": "discrete", "dim": [actions]},
            metadata={},
            info_keys=info_keys,
        )
        self._episodic = settings.episodic_life
        self._seeds: npt.NDArray[np.int64] | None = np.array(seeds, np.int64)
        self._lives = np.zeros(self.num_envs, np.int32)
        self._terminates = self._truncates = self._none

    def _reset(self) -> tuple[Frame, Info]:
        """Begins a new game in every stream; the first time with the seeds."""
        obs, info = self._games.reset(seed=self._seeds)
        self._seeds = None
        self._lives = info["lives"]
        self._terminates = self._truncates = self._none
        return obs[:, 0].copy(), self._name(info)

    def _step(self, actions: npt.NDArray[Any], ended: Flags) -> VectorStep:
        first = ended
        obs, reward, terminated, truncated, info = self._games.step(actions)
        raw = step_rewards(reward)
        given = self._name(info)
        lives = info["lives"]
        lost = terminated & (lives > 0) & (lives < self._lives) & self._episodic
        self._lives = lives
        terminated, truncated = self._ends(first, np.array(terminated), np.array(truncated))
        lost &= terminated
        rewards = raw
        if raw[first].any():
            # The reward of the step after a lost life counts for the game only.
            given["raw_reward"] = raw
            rewards = np.where(first, np.float32(0), raw)
        if lost.any():
            given["life_lost"] = lost
        return obs[:, 0].copy(), rewards, terminated, truncated, given

    def close(self) -> None:
        """Ends the threads; may be called twice."""
        self._games = None

    def _ends(self, first: Flags, *ends: Flags) -> tuple[Flags, Flags]:
        """Returns the ends of episodes; an end at a first row is moved to the next row."""
        terminated, truncated = ends
        at_first = first & (terminated | truncated)
        late = self._terminates, self._truncates
        self._terminates = self._truncates = self._none
        if at_first.any():
            self._terminates, self._truncates = terminated & first, truncated & first
        return (terminated & ~first) | late[0], (truncated & ~first) | late[1]

    def _name(self, info: dict[str, Any]) -> Info:
        return {key: np.array(info[key], np.int64) for key in self._info_keys if key in INFO_KEYS}
