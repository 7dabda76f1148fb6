"""The defaults of `learner_config`: networks, hyperparameters, replay, publication."""

from __future__ import annotations

from session.config.config import Config
from session.config.key import ABOVE_0, FROM_0, FROM_1, SHARE, Idle, Key, section

# Keys of a number that may change over a run. Those that a kind does not need are ignored, so that
# a user can change only `kind`.
SCHEDULE_KEYS = {
    "kind": Key(
        "linear",
        "exponential: by equal ratios; piecewise: linear between points.",
        one_of=("constant", "linear", "exponential", "piecewise"),
    ),
    "by": Key(
        "env_steps",
        "Counter of the whole run that drives it; iterations are updates.",
        one_of=("env_steps", "iterations"),
        idle=Idle("kind", ("constant",)),
    ),
    "start": Key(
        1.0,
        "Value at the beginning; of a constant always.",
        idle=Idle("kind", ("piecewise",)),
    ),
    "end": Key(
        0.05,
        "Value after `steps`, and from then on.",
        idle=Idle("kind", ("constant", "piecewise")),
    ),
    "steps": Key(
        10_000,
        "Duration from start to end, in units of `by`.",
        within=FROM_1,
        idle=Idle("kind", ("constant", "piecewise")),
    ),
    "points": Key(
        [],
        "Of piecewise: [[step, value], ...], steps rising.",
        idle=Idle("kind", ("constant", "linear", "exponential")),
    ),
}
# Replays of rows, which forget the oldest ones.
_RINGS = ("UniformReplay", "PrioritizedReplay")
_UNROLL = Idle("unroll_length", (0,))

# Without the keys of add-ons.
LEARNER_KEYS = {
    "model": Key({}, "Architecture of the networks: the keys are the algorithm's."),
    "algo": section(
        "Hyperparameters: the algorithm adds its own keys.",
        {
            "gamma": Key(0.99, "Discount factor of one step.", within=SHARE),
            "n_step": Key(
                1,
                "Number of rewards summed before the bootstrap value.",
                unit="steps",
                within=FROM_1,
            ),
            "reward_clip": Key(
                0.0,
                "Rewards are clipped to +- this for learning, before any sum; 0: no clipping.",
                within=FROM_0,
            ),
            "reward_scale": Key(1.0, "Factor for the clipped reward.", within=ABOVE_0),
            "reward_function": Key(
                None,
                "Function of the scaled rewards, float32 [M] to float32 [M], each by itself; null: "
                "none.",
                optional="_str_",
            ),
            "normalize_rewards": Key(
                False,
                "Divide rewards by the running deviation of all discounted returns.",
            ),
            "normalized_reward_clip": Key(
                0.0,
                "Normalized rewards, or sums of n_step of them, are clipped to +- this; 0: never.",
                within=FROM_0,
                idle=Idle("normalize_rewards", (False,)),
            ),
            "synchronous": Key(
                False,
                "After each unroll, or their part of a training iteration, agents wait for a "
                "version that has learned from it.",
            ),
        },
    ),
    "replay": section(
        "Storage and sampling of experience.",
        {
            "type": Key(
                "UniformReplay",
                "UniformReplay, PrioritizedReplay, FIFOReplay, that of an add-on, or "
                "package.module:Class.",
            ),
            "batch_size": Key(64, "Size of one batch of the learner.", unit="rows", within=FROM_1),
            "capacity": Key(
                100_000,
                "Capacity of all shards together; beyond it the oldest rows are removed.",
                unit="rows",
                within=FROM_1,
            ),
            "min_size": Key(
                1000, "Sampling starts at this number of rows that can be sampled.", unit="rows"
            ),
            "samples_per_insert": Key(
                0.0,
                "Samples per inserted row on average, enforced by blocking either side; 0: no "
                "limit.",
            ),
            "max_bytes": Key(0, "Upper bound of the memory of stored rows; 0: none.", unit="bytes"),
            "when_full": Key(
                "block",
                "A full FIFOReplay: block makes agents wait, drop_oldest drops and counts unrolls.",
                one_of=("block", "drop_oldest"),
                idle=Idle("type", _RINGS),
            ),
            "replay_proportion": Key(
                0.0,
                "Share of each FIFOReplay batch that was used before; 0.5: half the streams.",
                within=SHARE,
                idle=Idle("type", _RINGS),
            ),
            "replay_capacity": Key(
                100_000,
                "Capacity for replayed unrolls of all FIFOReplay shards together.",
                unit="rows",
                idle=Idle("replay_proportion", (0.0,)),
            ),
            "age": section(
                "Sampling by the age of the acting policy, in UniformReplay or a ring.",
                {
                    "max_versions": Key(
                        0,
                        "Rows from policies older than this are not sampled; 0: all are.",
                        unit="versions",
                    ),
                    "half_life_versions": Key(
                        0.0,
                        "Age after which the sampling probability halves; 0: no effect.",
                        unit="versions",
                    ),
                },
            ),
            "priority": section(
                "Sampling of PrioritizedReplay; other classes ignore it.",
                {
                    "alpha": Key(
                        0.6,
                        "Rows are sampled in proportion to priority ** alpha; 0: uniformly.",
                        within=SHARE,
                    ),
                    "beta": section(
                        "Schedule of the importance weights (N P) ** -beta; 0: no correction, "
                        "1: full.",
                        Config(SCHEDULE_KEYS)
                        | {
                            "kind": "constant",
                            "by": "iterations",
                            "start": 0.4,
                            "end": 1.0,
                            "steps": 100_000,
                        },
                        within=SHARE,
                    ),
                    "initial": Key(
                        "highest",
                        "First priority of a row: highest (of all so far), or acting: its "
                        "error by the values that the agent computed; for DQN.",
                        one_of=("highest", "acting"),
                    ),
                    "epsilon": Key(1e-6, "Minimum priority of a row.", within=ABOVE_0),
                },
                idle=Idle("type", ("UniformReplay", "FIFOReplay")),
            ),
            "iteration": section(
                "Training in turns: rows are collected, then learned from. For one shard of a "
                "replay of rows or sequences, without samples_per_insert and min_size.",
                {
                    "unroll_length": Key(
                        0,
                        "Steps of each environment before each training; 0: off.",
                        unit="steps",
                    ),
                    "num_updates_per_train_iter": Key(
                        1,
                        "Batches of a training; or passes, if it covers all rows.",
                        within=FROM_1,
                        idle=_UNROLL,
                    ),
                    "whole_replay_buffer_training": Key(
                        False,
                        "A training covers all rows, each once in a pass, in batches of about "
                        "batch_size.",
                        idle=_UNROLL,
                    ),
                    "clear_replay_buffer": Key(
                        False,
                        "Rows are removed after the training that covered them.",
                        idle=_UNROLL,
                    ),
                    "initial_collect_steps": Key(
                        0,
                        "Rows to collect in addition before the first training.",
                        unit="rows",
                        idle=_UNROLL,
                    ),
                },
            ),
            "replay_shards": Key(
                1,
                "Number of replay processes; agents are distributed over them.",
                within=FROM_1,
            ),
            "columns": Key(
                {},
                "Type and shape of the columns of a row; recorded of the agent before the start.",
            ),
            "evict_rule": section(
                "Rows that FIFOReplay never gives.",
                {
                    "max_version_lag": Key(
                        0,
                        "Rows from policies older than this are removed; 0: no such rule.",
                        unit="versions",
                    ),
                },
                idle=Idle("type", _RINGS),
            ),
        },
        within=FROM_0,
    ),
    "parameter_publish": section(
        "Publication of the learner's parameters.",
        {
            "min_publish_interval": Key(
                0.05, "Shortest time between two publications.", unit="seconds"
            ),
            "every": Key(1, "Updates between two publications.", unit="updates", within=FROM_1),
            "encoding": Key(
                "full",
                "half: float32 weights are rounded to float16 on their way to agents and "
                "evaluators.",
                one_of=("full", "half"),
            ),
        },
        within=FROM_0,
    ),
    "device": Key(
        "auto",
        "Device of the learner: auto uses a GPU if there is one; else cpu, cuda, cuda:1.",
    ),
    "gradient_columns": Key(
        {}, "Type and shape of the columns of a gradient of agents; taken from the algorithm."
    ),
    "execution_plan": Key(
        None,
        "Function that gives the dataflow of training, called with the learner; null: the "
        "algorithm's own.",
        optional="_str_",
    ),
    "parts": Key(
        [],
        "Operators behind the source of the plan: [{part: NAME, args: {weight: 0.01}}, ...]; a "
        "name, or package.module:function, which is called with the learner and args.",
    ),
}
