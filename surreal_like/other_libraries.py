"""Names of other libraries, and what does the same here: for the errors that they cause."""

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

# Keywords of stable-baselines3 -> the setting here, or the argument of `train`.
KEYWORDS_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "batch_size": "learner_config.replay.batch_size",
        "buffer_size": "learner_config.replay.capacity",
        "clip_range": "learner_config.algo.clip",
        "device": "learner_config.device",
        "ent_coef": "learner_config.algo.entropy",
        "exploration_final_eps": "learner_config.algo.epsilon.end",
        "exploration_fraction": "learner_config.algo.epsilon.steps",
        "gradient_steps": "learner_config.replay.samples_per_insert",
        "learning_starts": "learner_config.replay.min_size",
        "n_epochs": "learner_config.algo.num_sgd_iter",
        "n_steps": "session_config.sender.flush_iteration",
        "policy": "learner_config.model",
        "policy_kwargs": "learner_config.model.hidden_sizes",
        "target_update_interval": "learner_config.algo.target.period",
        "tensorboard_log": "folder",
        "train_freq": "learner_config.replay.samples_per_insert",
        "verbose": "watch, an observer of the run (docs/callbacks.md),",
        "vf_coef": "learner_config.algo.value_weight",
    }
)
