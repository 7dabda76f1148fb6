"""Transforms of observations and rewards between the environment and the loss, in fixed order.

| stage | setting | where |
|---|---|---|
| stacks of frames | `env_config.frame_stack` | at the agent, and where rows are gathered |
| rewards: clip, scale, shift | `learner_config.algo.reward_*` | row by row, before any sum |
| normalised observations | `learner_config.model.normalize_obs` | in front of the network |
| bytes to [0, 1], one-hot | by the observation spec | in the network, on its device |

The order is not configurable. Experience is sent and stored untransformed.
"""
