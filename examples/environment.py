"""An environment of your own: a ball falls, and a paddle catches it."""

import numpy as np

from surreal_like import Env


class Catch(Env):
    """The paddle goes left, stays, or goes right. A ball that is caught pays 1, a missed one -1."""

    obs_spec = {"type": "float32", "dim": [3]}
    action_spec = {"type": "discrete", "dim": [3]}
    metadata = {"render_fps": 4}

    def __init__(self, height=6):
        self.height = height

    def reset(self):
        self.ball, self.paddle = self.rng.integers(-2, 3, size=2)
        self.left = self.height
        return self.look(), {}

    def step(self, action):
        self.paddle = np.clip(self.paddle + action - 1, -2, 2)
        self.left -= 1
        landed = self.left == 0
        reward = (1.0 if self.paddle == self.ball else -1.0) if landed else 0.0
        return self.look(), reward, landed, False, {}

    def look(self):
        return np.array([self.ball, self.paddle, self.left / self.height], np.float32)

    def render(self):
        """Draws the ball above the paddle, for `surreal-like play`."""
        image = np.zeros((self.height + 1, 5, 3), np.uint8)
        image[self.height - self.left, self.ball + 2] = [255, 160, 0]
        image[self.height, self.paddle + 2] = [80, 160, 255]
        return image.repeat(32, axis=0).repeat(32, axis=1)
