"""Distributed reinforcement learning in small processes that you can see, restart and multiply.

Call first, and with all settings:

    from surreal_like import DQN, train
    model = DQN("CartPole-v1", seed=1).learn(50_000)
    action, state = model.predict(observation)
    run = train(algorithm="dqn", env="gym:CartPole-v1", folder="runs/first")

For one name see help(surreal_like.train); `make docs` builds pages with all of them.

Run an experiment, which is a YAML file or a Config (docs/configuration.md):

    A3C, BC, DDPG, DQN, IQL, Impala, PPO, PQN, R2D2, SAC, TD3    learn, predict, save, load
    train, launch            run it to its end; start it and return its controls
    tune                     many trials of one experiment (docs/tune.md)
    evaluate, evaluate_policy, play, plot   score the trained policy; show it; draw curves of runs
    load_policy, make_policy   the trained policy, a new one, for your own program
    RolloutWorker, WorkerSet, Trainer    what collects for it; a run as an object (docs/scripts.md)
    Config, ConfigError      settings with checked keys; the error of a wrong one
    BASE_LEARNER_CONFIG, BASE_ENV_CONFIG, BASE_SESSION_CONFIG    every default

Bring an environment (docs/your_own_environment.md):

    Env, VectorEnv           base classes: reset and step, of one stream or of N
    check_env                plays random steps and reports every mistake
    GymAdapter, Wrapper, FrameStack   adapt one of Gymnasium; change one; stack its frames
    make_vector_env          builds the N streams of an agent or evaluator from a config

Write an algorithm (docs/your_own_algorithm.md) or a replay (docs/your_own_replay.md):

    Algorithm                names your Agent, your Learner and their defaults
    build_algorithm          an algorithm built of functions: a loss is enough
    Agent, AgentMode         acts in training or evaluation: write act, module_dict
    Learner, Loss            write loss or learn, module_dict; a loss with its metrics
    Module                   a torch.nn.Module whose parameters are sent as one block
    to_tensor, to_float_tensor   a nest of tensors from a nest of arrays
    UniformReplay, PrioritizedReplay, FIFOReplay    replays that an algorithm can learn from
    Replay, TupleReplay, ExpTuple   write insert, sample; on batches, or on single transitions
    StringEnum               an enumeration of texts

Connect a script of your own to a run (docs/scripts.md) or a recording (docs/recordings.md):

    ExpSenderWrapper         sends the steps of an environment to replay
    ConsoleMonitor, TrainingTensorplexMonitor, EvalTensorplexMonitor    report its episodes
    TensorplexClient, LoggerplexClient   report metrics and log lines from any script
    Telemetry                collects both in a folder without a run (docs/metrics.md)
    RecordingWriter, load_recording, Recording, Episode    write episodes; read them as arrays

Names are loaded at their first use, so that processes without tensors stay small.
"""

from __future__ import annotations

from typing import Any

from surreal_like.own_packages import lead_python_path, load_package

load_package("session")
lead_python_path()

# ruff: noqa: E402  (only after it is loaded)
from session.lazy import attach
from session.version import VERSION

__version__ = VERSION


def _hint(name: str) -> str:
    """Says what here does what a name of another library does."""
    from surreal_like.algorithm.catalog import known_elsewhere, list_algorithms
    from surreal_like.other_libraries import NAMES_ELSEWHERE

    place = list_algorithms().get(name.lower(), "")
    if place:
        return f"write {place.rpartition(':')[2]}, or train(algorithm='{name.lower()}', ...)"
    if name in NAMES_ELSEWHERE:
        return f"use {NAMES_ELSEWHERE[name]}; docs/coming_from.md has the names of other libraries"
    known = known_elsewhere(name)
    return known and f"use the algorithm {known}"


_load, __dir__ = attach(__name__, __file__, _hint)
__all__ = __dir__()


def __getattr__(name: str) -> Any:
    value = _load(name)
    # A default config is copied: changes must not affect other experiments.
    return value.copy() if name.startswith("BASE_") else value
