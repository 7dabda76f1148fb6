"""An environment of several agents, by the interface of PettingZoo (parallel)."""

import numpy as np
from gymnasium import spaces


class Walkers:
    """Two walkers look for the door in the middle of a line; who is there leaves."""

    possible_agents = ["walker_0", "walker_1"]
    sees = spaces.Box(-4, 4, (2,), np.float32)
    state_space = spaces.Box(-4, 20, (3,), np.float32)
    goes = spaces.Discrete(3)

    def observation_space(self, agent):
        return self.sees

    def action_space(self, agent):
        return self.goes

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.steps = list(self.possible_agents), 0
        starts = self.rng.choice([-4, -3, -2, -1, 1, 2, 3, 4], size=2).tolist()
        self.places = dict(zip(self.agents, starts))
        return self.look(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        self.steps += 1
        for name, action in actions.items():
            self.places[name] = int(np.clip(self.places[name] + action - 1, -4, 4))
        there = {name: self.places[name] == 0 for name in actions}
        late = {name: self.steps == 20 and not there[name] for name in actions}
        rewards = {name: 1.0 if there[name] else -0.1 for name in actions}
        self.agents = [name for name in actions if not there[name] and not late[name]]
        return self.look(actions), rewards, there, late, {name: {} for name in actions}

    def look(self, names):
        both = list(self.places.values())
        own_first = {"walker_0": both, "walker_1": both[::-1]}
        return {name: np.array(own_first[name], np.float32) for name in names}

    def state(self):
        return np.array([*self.places.values(), self.steps], np.float32)
