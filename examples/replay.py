"""A replay of your own: transitions in a list, drawn uniformly."""

import random

from surreal_like import TupleReplay


class ListReplay(TupleReplay):
    def __init__(self, **configs):
        super().__init__(**configs)
        self.capacity = self.learner_config.replay.capacity
        self.min_size = self.learner_config.replay.min_size
        self.memory = []
        self.random = random.Random()

    def insert(self, exp_tuple):
        self.memory.append(exp_tuple)
        if len(self.memory) > self.capacity:
            del self.memory[0]

    def sample(self, batch_size):
        return self.random.choices(self.memory, k=batch_size)

    def start_sample_condition(self):
        return len(self.memory) >= self.min_size

    def reseed(self, seed):
        self.random.seed(seed)
