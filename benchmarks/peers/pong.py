"""Pong for peers: frames made by the emulator's own compiled code, as ours are.

Gray, 84 x 84, the brighter of the last two of four screens, stacks of four, rewards -1, 0 or 1.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from ale_py import roms

# Beside an old Gymnasium the package itself does not name it.
from ale_py._ale_py import ALEVectorInterface

Frames = npt.NDArray[np.uint8]
STACK = 4


class Pong(gymnasium.Env[Frames, Any]):
    """One game; what it is called with is what Gymnasium says."""

    def __init__(self) -> None:
        path = roms.get_rom_path("pong")
        if path is None:
            raise RuntimeError("the emulator has come without the game")
        self._games = ALEVectorInterface(
            rom_path=path,
            num_envs=1,
            frame_skip=4,
            stack_num=STACK,
            img_height=84,
            img_width=84,
            grayscale=True,
            maxpool=True,
            noop_max=30,
            use_fire_reset=True,
            episodic_life=False,
            life_loss_info=False,
            reward_clipping=True,
            max_episode_steps=108_000,
            repeat_action_probability=0.0,
            full_action_space=False,
            batch_size=0,
            num_threads=1,
            thread_affinity_offset=-1,
            autoreset_mode="NextStep",
        )
        self.observation_space = gymnasium.spaces.Box(0, 255, (STACK, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._games.get_action_set()))
        self.render_mode = None

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Begins a game."""
        super().reset(seed=seed)
        obs, _ = self._games.reset([0], [-1 if seed is None else seed])
        return obs[0].copy(), {}

    def step(self, action: Any) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Four screens with an action."""
        self._games.send(np.array([action], np.int32), np.ones(1, np.float32))
        obs, reward, terminated, truncated, _ = self._games.recv()
        return obs[0].copy(), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}
