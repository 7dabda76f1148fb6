"""A program with a loop of its own: it asks a running experiment what to do, over a socket."""

import gymnasium

from surreal_like.addons.gateway.clients import surreal_client

env = gymnasium.make("CartPole-v1")
with surreal_client.connect("127.0.0.1:7100") as session:
    for episode in session.episodes():
        observation, _ = env.reset(seed=episode.seed)
        action, over = session.reset(observation), False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            if over:
                session.end(float(reward), observation, truncated=truncated and not terminated)
            else:
                action = session.step(float(reward), observation)
