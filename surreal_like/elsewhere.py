"""Names of other libraries, and what does the same here: for the error of a failed import."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Each value names something that exists: a public name, a setting or a page.
NAMES_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        # stable-baselines3
        "BaseCallback": "docs/callbacks.md",
        "DummyVecEnv": "env_config.num_envs",
        "EvalCallback": "session_config.evaluator.num",
        "Monitor": "env_config.metric_keys",
        "SubprocVecEnv": "env_config.num_envs and session_config.agent.num",
        "VecFrameStack": "env_config.frame_stack",
        "VecNormalize": "learner_config.model.normalize_obs and "
        "learner_config.algo.normalize_rewards",
        "make_vec_env": "env_config.num_envs",
        "set_random_seed": "session_config.seed",
        # RLlib
        "AlgorithmConfig": "Config",
        "PPOConfig": "PPO",
        "SampleBatch": "RolloutWorker",
        "Tuner": "tune",
        # TorchRL
        "Collector": "RolloutWorker",
        "SyncDataCollector": "RolloutWorker",
        "TensorDictReplayBuffer": "UniformReplay",
        # CleanRL, Tianshou
        "Args": "learner_config.algo",
        "OffpolicyTrainer": "Trainer",
        "PrioritizedReplayBuffer": "PrioritizedReplay",
        "ReplayBuffer": "UniformReplay and learner_config.replay",
        "VectorReplayBuffer": "UniformReplay",
        "make_env": "check_env and docs/your_own_environment.md",
    }
)
