"""Settings of an experiment of ours as stable-baselines3 gets them: all of the same file.

A setting that it has not must have the value that makes no difference; an experiment whose setting
has another value is refused, so that no comparison is of unequal settings by oversight. What is
left: how weights begin, and that our processes go on beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from session.config import Config

Settings = dict[str, Any]

# Setting -> value with which ours is the algorithm that the peer has.
_OF_ALL: Settings = {
    "algo.reward_clip": 0.0,
    "algo.reward_scale": 1.0,
    "algo.reward_function": None,
    "model.torso": "",
    "model.layer_norm": False,
    "model.frozen": [],
    "parts": [],
}
_OF_ENVIRONMENT: Settings = {
    "env_args": {},
    "wrappers": [],
    "action_repeat": 1,
    "frame_stack": 0,
    "clip_action": True,
}
_OF_REPLAY: Settings = {
    "algo.normalize_rewards": False,
    "model.normalize_obs": False,
    "replay.type": "UniformReplay",
    "replay.age.max_versions": 0,
    "replay.age.half_life_versions": 0.0,
    "replay.hindsight.proportion": 0.0,
}
_OF_DRAWN_ACTIONS: Settings = {
    "model.policy": "gaussian",
    "model.log_std": 0.0,
    "model.variance": "",
}
_WANTED: Mapping[str, Settings] = {
    "dqn": {
        **_OF_REPLAY,
        "algo.distribution.kind": "none",
        "algo.dueling": False,
        "algo.double": False,
        "algo.huber_kappa": 1.0,
        "algo.adam_epsilon": 1e-8,
        "algo.cql_alpha": 0.0,
        "algo.target.mode": "hard",
        "algo.epsilon.kind": "linear",
        "algo.epsilon.by": "env_steps",
        "algo.epsilon_alpha": 0.0,
        "model.head_sizes": [],
        "model.noisy": 0.0,
    },
    "ppo": {
        "algo.n_step": 1,
        "algo.adam_epsilon": 1e-5,
        "algo.clip.kind": "constant",
        "algo.entropy.kind": "constant",
        "algo.entropy_target.value": None,
        "algo.value_clip": 0.0,
        "algo.kl.coefficient": 0.0,
        "algo.kl.stop": 0.0,
        "algo.normalize_advantages": True,
        "algo.normalize_advantages_per": "minibatch",
        "algo.adaptive_learning_rate.kl": 0.0,
        "model.memory": "",
        "model.normalize_values": False,
        **_OF_DRAWN_ACTIONS,
    },
    "sac": {
        **_OF_REPLAY,
        "algo.max_grad_norm": 0.0,
        "algo.temperature.target_entropy": None,
        "algo.cql_alpha": 0.0,
    },
    "td3": {
        **_OF_REPLAY,
        "algo.max_grad_norm": 0.0,
        "algo.twin": True,
        "algo.bc_weight": 0.0,
        "algo.noise.kind": "gaussian",
        "algo.noise.last_sigma": 0.0,
    },
}


def stable_baselines3(config: Config, but: Sequence[str] = ()) -> Settings:
    """Returns what its script, sb3_equal.py, gets of a resolved experiment.

    Args:
        config: the experiment.
        but: settings of ours, such as `algo.double`, that the peer has not, and that the page with
            the results names.

    Raises:
        SystemExit: the experiment has another setting that the peer has not; names it.
    """
    learner, env, stop = config.learner_config, config.env_config, config.session_config.stop
    algorithm = config.algorithm
    if algorithm not in _WANTED:
        raise SystemExit(f"stable-baselines3 has no {algorithm}; it has {', '.join(_WANTED)}")
    needed = {f"env_config.{key}": wanted for key, wanted in _OF_ENVIRONMENT.items()}
    for key, wanted in {**_OF_ALL, **_WANTED[algorithm]}.items():
        if key not in but:
            needed[f"learner_config.{key}"] = wanted
    for path, wanted in needed.items():
        found: Any = config
        for word in path.split("."):
            found = found[word]
        if found != wanted:
            raise SystemExit(
                f"stable-baselines3 has no {path}: it is {found!r}, and equal settings need "
                f"{wanted!r}"
            )
    streams = env.num_envs * config.session_config.agent.num
    arguments = _ARGUMENTS[algorithm](config, streams)
    model = learner.model
    images = len(env.obs_spec.dim) > 1
    return {
        "algorithm": algorithm,
        "env_name": env.env_name.removeprefix("gym:"),
        "num_envs": streams,
        "limit": env.limit_episode_length,
        "steps": int(stop.env_steps),
        # Both clip observations to +- 10.
        "normalize": {
            "obs": bool(model.normalize_obs),
            "reward": bool(learner.algo.normalize_rewards),
            "clip_reward": learner.algo.normalized_reward_clip or None,
        },
        "goal": stop.eval_return,
        "episodes": stop.eval_episodes,
        "activation": model.activation,
        "layers": list(model.hidden_sizes),
        "shared": bool(model.get("shared", True)),
        "convolutions": [list(each) for each in model.convolutions] if images else [],
        "image_features": model.image_features if images else 0,
        "arguments": arguments,
    }


def uses(experiment: Mapping[str, Any]) -> str:
    """Returns in words how often the peer, as ours, learns from each step."""
    given, streams = experiment["arguments"], experiment["num_envs"]
    if "n_epochs" in given:
        return f"{given['n_epochs']} passes over {given['n_steps'] * streams:,} steps"
    rows = given["batch_size"] * given["gradient_steps"] / (given["train_freq"] * streams)
    return f"{rows:g} samples per step"


def _of_replay(config: Config, streams: int) -> Settings:
    algo, rows = config.learner_config.algo, config.learner_config.replay
    # One update of a batch for so many environment steps.
    steps = rows.batch_size / rows.samples_per_insert
    rounds, updates = max(1.0, steps / streams), max(1.0, streams / steps)
    if rounds % 1 or updates % 1:
        raise SystemExit(f"{steps:g} steps for each update do not fit {streams} environments")
    return {
        "gamma": algo.gamma,
        "n_steps": algo.n_step,
        "learning_rate": _constant(algo, "learning_rate"),
        "batch_size": rows.batch_size,
        "buffer_size": rows.capacity,
        "learning_starts": rows.min_size,
        "train_freq": int(rounds),
        "gradient_steps": int(updates),
    }


def _constant(algo: Config, name: str) -> float:
    if algo[name].kind != "constant":
        raise SystemExit(f"stable-baselines3 gets a constant {name} only, not {algo[name].kind}")
    return float(algo[name].start)


def _dqn(config: Config, streams: int) -> Settings:
    algo, rows = config.learner_config.algo, config.learner_config.replay
    steps = config.session_config.stop.env_steps
    return {
        **_of_replay(config, streams),
        "max_grad_norm": algo.max_grad_norm,
        # Of environment steps; ours of updates.
        "target_update_interval": int(
            algo.target.period * rows.batch_size / rows.samples_per_insert
        ),
        "exploration_initial_eps": algo.epsilon.start,
        "exploration_final_eps": algo.epsilon.end,
        "exploration_fraction": algo.epsilon.steps / steps,
    }


def _ppo(config: Config, streams: int) -> Settings:
    algo, rate = config.learner_config.algo, config.learner_config.algo.learning_rate
    if rate.kind not in ("constant", "linear") or rate.by != "env_steps":
        raise SystemExit(f"stable-baselines3 gets no {rate.kind} learning_rate by {rate.by}")
    end = rate.end if rate.kind == "linear" else rate.start
    length = config.session_config.sender.flush_iteration
    if config.learner_config.replay.batch_size != streams:
        raise SystemExit("a batch has to be one unroll of each environment, as the peer's is")
    return {
        "gamma": algo.gamma,
        "gae_lambda": algo.gae_lambda,
        # Start, end, steps between them.
        "learning_rate": [rate.start, end, rate.steps],
        "n_steps": length,
        "batch_size": length * streams // algo.minibatches,
        "n_epochs": algo.num_sgd_iter,
        "clip_range": algo.clip.start,
        "ent_coef": algo.entropy.start,
        # Ours is a half of the squared error.
        "vf_coef": algo.value_weight / 2,
        "max_grad_norm": algo.max_grad_norm,
    }


def _sac(config: Config, streams: int) -> Settings:
    algo = config.learner_config.algo
    # The peer has one step size for policy, critics and temperature.
    rates = {_constant(algo, "learning_rate"), _constant(algo, "critic_learning_rate")}
    rates.add(algo.temperature.learning_rate)
    if len(rates) > 1 or algo.random_steps != config.learner_config.replay.min_size:
        raise SystemExit("stable-baselines3 has one step size, and as many random steps as rows")
    return {
        **_of_replay(config, streams),
        "ent_coef": f"auto_{algo.temperature.start}",
        "tau": algo.tau,
    }


def _td3(config: Config, streams: int) -> Settings:
    algo = config.learner_config.algo
    rates = {_constant(algo, "learning_rate"), _constant(algo, "critic_learning_rate")}
    if len(rates) > 1 or algo.random_steps != config.learner_config.replay.min_size:
        raise SystemExit("stable-baselines3 has one step size, and as many random steps as rows")
    return {
        **_of_replay(config, streams),
        "tau": algo.tau,
        "policy_delay": algo.policy_delay,
        "target_policy_noise": algo.target_noise,
        "target_noise_clip": algo.target_noise_clip,
        "action_noise": algo.noise.sigma,
    }


_ARGUMENTS: Mapping[str, Callable[[Config, int], Settings]] = {
    "dqn": _dqn,
    "ppo": _ppo,
    "sac": _sac,
    "td3": _td3,
}
