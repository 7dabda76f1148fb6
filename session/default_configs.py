"""The default configs: every setting there is, with its meaning, unit and default value.

Over each key stands one sentence, with the unit in brackets. A user's file holds only what differs.
A default decides what a user may give: a value of the same kind. None takes anything; `{}` takes
any keys; a placeholder such as `_str_` must be given. CHOICES lists the texts to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from session.config import Config
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from session.merge import leaves

# What is learned: networks, hyperparameters, replay. Algorithms add their own keys.
BASE_LEARNER_CONFIG = Config(
    {
        # Architecture of the networks: the keys are the algorithm's.
        "model": {},
        # Hyperparameters: the algorithm adds its own keys.
        "algo": {
            # Discount factor of one step.
            "gamma": 0.99,
            # Rewards that are summed before the bootstrap value [steps].
            "n_step": 1,
            # Each reward is kept within +- this for learning, before any sum; 0: as it is.
            "reward_clip": 0.0,
            # Then multiplied by this.
            "reward_scale": 1.0,
            # Then this is added.
            "reward_shift": 0.0,
        },
        # What is stored, and how it is sampled.
        "replay": {
            # Dotted path of the Replay class.
            "type": "surreal_like.replay.uniform_replay:UniformReplay",
            # Size of one batch of the learner [rows].
            "batch_size": 64,
            # What all shards together keep before the oldest rows go [rows].
            "capacity": 100_000,
            # Sampling starts when so many rows can be sampled [rows].
            "min_size": 1000,
            # How often each row is sampled on average, by making either side wait; 0: no relation.
            "samples_per_insert": 0.0,
            # How far the samples may run ahead or behind of that relation [samples]; 0: chosen.
            "tolerance": 0.0,
            # Upper bound of the memory of the stored rows [bytes]; 0: none.
            "max_bytes": 0,
            # A full FIFOReplay: block makes agents wait, drop_oldest loses unrolls, counted.
            "when_full": "block",
            # Share of a FIFOReplay's batches that was learned from before; 0.5: half the streams.
            "replay_proportion": 0.0,
            # What all shards of a FIFOReplay together keep for that [rows].
            "replay_capacity": 100_000,
            # How the age of the policy that acted decides what UniformReplay or a ring draws.
            "age": {
                # Rows acted with parameters older than this are not drawn [versions]; 0: all are.
                "max_versions": 0,
                # The probability to be drawn halves with so much age [versions]; 0: it does not.
                "half_life_versions": 0.0,
            },
            # How PrioritizedReplay samples; the others leave it alone.
            "priority": {
                # Rows are drawn in proportion to priority ** alpha; 0: all alike.
                "alpha": 0.6,
                # Weights make up for that as (N P) ** -beta: a schedule; 0: not at all, 1: fully.
                "beta": {
                    # constant, linear, exponential, or piecewise (linear between points).
                    "kind": "constant",
                    # What moves it, counted over the whole run: env_steps, or iterations (updates).
                    "by": "iterations",
                    # The value at the beginning; of a constant at any time.
                    "start": 0.4,
                    # The value after `steps`, and from then on.
                    "end": 1.0,
                    # How long the way from start to end takes.
                    "steps": 100_000,
                    # Of piecewise: [[step, value], ...], steps rising.
                    "points": [],
                },
                # Least priority of any row.
                "epsilon": 1e-6,
            },
            # Number of replay processes; agents are spread over them.
            "replay_shards": 1,
            # Rows to remove although there is room, every session_config.replay.evict_interval.
            "evict_rule": {
                # Rows older than this go [seconds]; 0: no such rule.
                "max_age_seconds": 0.0,
                # Rows acted with parameters older than this go [versions]; 0: no such rule.
                "max_version_lag": 0,
                # Rows beyond this number go, the oldest first [rows]; 0: no such rule.
                "max_rows": 0,
            },
        },
        # How often the learner publishes its parameters.
        "parameter_publish": {
            # Shortest time between two publications [seconds].
            "min_publish_interval": 0.05,
            # Publish every so many updates [updates].
            "every": 1,
        },
        # Where the learner computes: auto takes a GPU if there is one; else cpu, cuda, cuda:1.
        "device": "auto",
        # The run fails after so many updates in a row that gave NaN or infinity [updates].
        "max_bad_updates": 10,
    }
)

# The environment that agents and evaluators step.
BASE_ENV_CONFIG = Config(
    {
        # Which environment: gym:CartPole-v1, or the dotted path module.path:Class.
        "env_name": "_str_",
        # Keyword arguments of the environment's constructor.
        "env_args": {},
        # Environments in one agent [streams].
        "num_envs": 8,
        # How an agent steps its environments: native (their own vector code), sync or process.
        "vector": "native",
        # With process: worker processes of one agent, at most num_envs; 0: one per core, or two.
        "workers": 0,
        # Parts of a dict of observations that are left out.
        "drop_keys": [],
        # Wrappers of each environment, the innermost first: dotted paths, or {wrapper, args}.
        "wrappers": [],
        # An episode is truncated after so many steps [steps]; None, 0 or negative: never.
        "limit_episode_length": None,
        # How often the environment repeats each action [frames].
        "action_repeat": 1,
        # Newest observations that are seen at once, on a new first axis [frames]; 0 or 1: one.
        "frame_stack": 0,
        # Clip actions to their bounds; otherwise one outside is an error.
        "clip_action": True,
        # Keys of the environment's info that travel with experience.
        "info_keys": [],
        # Type and shape of observations, stacked; empty: the environment's, else checked by those.
        "obs_spec": {},
        # Type and shape of actions; empty: the environment's, else checked against those.
        "action_spec": {},
        # Entries that replace those of env_args in evaluation.
        "eval_mode": {},
    }
)

# Processes, files and the network: nothing here changes what is learned from the same experience.
BASE_SESSION_CONFIG = Config(
    {
        # Folder that holds everything of one run; None: runs/<config name>-<date>-<time>.
        "folder": None,
        # Seed of the run: every component derives its own from it.
        "seed": 0,
        # Folders in which the user's own modules are looked for, after all others.
        "import_path": [],
        # What components do when the run is over: exit, or idle until they are stopped.
        "at_end": "exit",
        # The processes that step environments.
        "agent": {
            # How many are started [processes].
            "num": 2,
            # How many the run may be scaled up to [processes]; 0: twice num.
            "max": 0,
            # When new parameters are fetched: episode, episode:<n>, step or step:<n>.
            "fetch_parameter_mode": "episode",
            # Shortest time between two fetches [seconds].
            "fetch_interval_seconds": 0.1,
            # Threads for the numerics of one agent [threads].
            "threads": 1,
        },
        # The processes that play without exploration, for the scores.
        "evaluator": {
            # How many are started [processes].
            "num": 1,
            # Environments in one evaluator [streams]; 0: one per episode, at most 100.
            "num_envs": 0,
            # Pause between two evaluations [seconds].
            "interval_seconds": 1.0,
            # Which actions are played: the best ones, or sampled ones. A list has one mode per
            # evaluator (eval-0 plays the first) and begins again where there are more evaluators.
            # The first mode judges: stop rule, checkpoints/best and result.json depend on its
            # evaluations only; those of other modes are shown.
            "mode": ["eval_deterministic"],
            # Threads for the numerics of one evaluator [threads].
            "threads": 1,
        },
        # The process that updates the networks.
        "learner": {
            # Time between two lines of progress.jsonl [seconds].
            "report_seconds": 1.0,
            # Requests for batches under way at once, over all shards [requests].
            "prefetch_requests": 2,
            # Batches in the answer to one request [batches].
            "batches_per_request": 8,
            # Threads for the numerics of the learner [threads].
            "threads": 1,
        },
        # The processes that store experience.
        "replay": {
            # Time between two passes of learner_config.replay.evict_rule [seconds]; 0: never.
            "evict_interval": 0.0,
            # High-water mark of the sockets that carry experience [messages].
            "high_water_mark": 8,
            # Save the rows when the run ends or the process is told to stop, and go on with them.
            "snapshot": False,
        },
        # The parameter server: it needs no settings.
        "ps": {},
        # How agents send experience.
        "sender": {
            # Steps of each stream in one chunk [steps].
            "flush_iteration": 100,
            # A shorter chunk goes after this time [seconds]; 0: only full ones go; None: after 5 s,
            # where replay takes whole unrolls only full ones.
            "flush_time": None,
            # An agent waits when so much was sent that replay has not confirmed [bytes].
            "max_unacked_bytes": 67_108_864,
            # An agent waits when so many chunks are unconfirmed, which bounds how old rows get.
            "max_unacked_chunks": 8,
            # Chunks go again when confirmations have stood still for so long [seconds].
            "resend_seconds": 2.0,
            # An agent goes to the next replay shard when its own is away for so long [seconds].
            "failover_seconds": 5.0,
            # Where streams are cut into chunks: every flush_iteration steps, or at episode ends.
            "cut": "steps",
        },
        # Metrics.
        "tensorplex": {
            # Time between two reports of each kind of component.
            "update_schedule": {
                # Of agents [seconds].
                "agent": 1.0,
                # Of the learner [seconds].
                "learner": 1.0,
                # Of replay shards [seconds].
                "replay": 1.0,
                # Of evaluators [seconds].
                "eval": 1.0,
            },
            # Curves of how many agents share a chart, as a text; auto: all up to 8 agents, else 8.
            "bins": "auto",
            # Local HTTP port with the newest values as Prometheus text; 0: none.
            "prometheus_port": 0,
            # What a client keeps while the server is away [records]; then the oldest go, counted.
            "buffer": 10_000,
            # Start TensorBoard as a component of the run.
            "start_tensorboard": False,
        },
        # Logs.
        "loggerplex": {
            # Least level that is logged.
            "level": "info",
            # Begin the log files anew instead of appending.
            "overwrite": False,
            # A log file is rotated at this size [bytes].
            "rotate_bytes": 50_000_000,
        },
        # When the learner saves itself, and what is kept.
        "checkpoint": {
            # Save every so many updates [iterations]; 0: only by time.
            "period": 0,
            # Save after this time at the latest, the first time after 10 s, and less often where
            # saving takes more than 1 % of it [seconds]; 0: only by updates.
            "seconds": 60.0,
            # Newest checkpoints that are kept [checkpoints].
            "keep_history": 2,
            # Best checkpoints that are kept: best, then best-2 and so on [checkpoints]; 0: none.
            "keep_best": 1,
            # Checkpoint whose networks a new run begins with: RUN, RUN:latest, RUN:12000; "": none.
            "start_from": "",
        },
        # Signs of life.
        "heartbeat": {
            # Time between two beats [seconds].
            "interval": 1.0,
            # A running component that is silent for so long is lost [seconds].
            "timeout": 30.0,
            # The same while it starts [seconds].
            "starting_seconds": 120.0,
        },
        # When the run ends: at the goal (eval_return, or a metric), or at the first budget.
        "stop": {
            # Goal: mean return of greedy episodes, confirmed by as many again; None: no goal.
            "eval_return": None,
            # Budget of all agents together [environment steps]; None: none.
            "env_steps": None,
            # Budget of the learner [updates]; None: none.
            "iterations": None,
            # Budget of time [seconds; rounds in the serial launcher]; None: none.
            "seconds": None,
            # Episodes of one evaluation [episodes].
            "eval_episodes": 100,
            # Name of a metric whose value is a goal, with above; None: none.
            "metric": None,
            # The goal is met when that metric is above this value; None: no goal.
            "above": None,
        },
        # How components are started and kept alive.
        "launcher": {
            # What connects the components of one machine: ipc (files) or tcp.
            "transport": "ipc",
            # The run fails when one component was restarted more often than this within the window.
            "max_restarts": 5,
            # That window [seconds].
            "restart_window_seconds": 60.0,
            # Time that components get for a clean end before they are killed [seconds].
            "grace_seconds": 10.0,
            # Shell command before that of each component in tmux, plan: source venv/bin/activate.
            "preamble_cmd": "",
            # SIGTERM to the learner: end, the run ends; resume, it saves and is started again.
            "on_sigterm": "end",
            # Address of this machine where others may join, by keys; None: nobody can.
            "host": None,
        },
        # What keeps strangers out of a run that can be reached from other machines.
        "security": {
            # Bind beyond this machine without keys: anybody who can connect can do anything.
            "insecure": False,
            # Connections to one endpoint at once [connections]; further ones are ended.
            "max_connections": 1000,
            # A peer that has not proved its key by then is disconnected [seconds].
            "handshake_seconds": 5.0,
        },
        # What one process of each kind asks of its machine, where a launcher can reserve it.
        "resources": {
            # Of an agent.
            "agent": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of an evaluator.
            "evaluator": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of the learner.
            "learner": {
                # Processor time [cores].
                "cpu": 2.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 4_294_967_296,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of a replay shard.
            "replay": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 4_294_967_296,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of the parameter server.
            "ps": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of the server of metrics.
            "tensorplex": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 536_870_912,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of the server of logs.
            "loggerplex": {
                # Processor time [cores].
                "cpu": 0.25,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 536_870_912,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # Of TensorBoard.
            "tensorboard": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
        },
        # How a run becomes objects of a Kubernetes cluster.
        "kubernetes": {
            # What the names of all its objects begin with; None: the experiment's name.
            "name": None,
            # Namespace of the objects, which must exist; None: that of kubectl's context.
            "namespace": None,
            # Context of kubectl; None: its current one.
            "context": None,
            # Image of all containers.
            "image": "surreal-like:cpu",
            # When a node fetches the image: Always, IfNotPresent or Never.
            "image_pull_policy": "IfNotPresent",
            # Storage class of the volumes; None: the cluster's default.
            "storage_class": None,
            # Sizes of the volumes.
            "volume_bytes": {
                # Checkpoints, progress and result [bytes].
                "learner": 10_737_418_240,
                # Event files [bytes].
                "tensorplex": 5_368_709_120,
                # Logs [bytes].
                "loggerplex": 5_368_709_120,
            },
            # Keys of the taints that agents and evaluators tolerate: of nodes that may vanish.
            "spot_taints": [
                "cloud.google.com/gke-spot",
                "kubernetes.azure.com/scalesetpriority",
                "spot",
            ],
            # Labels by which such nodes are known, as key=value.
            "spot_labels": [
                "cloud.google.com/gke-spot=true",
                "kubernetes.azure.com/scalesetpriority=spot",
                "eks.amazonaws.com/capacityType=SPOT",
                "karpenter.sh/capacity-type=spot",
            ],
            # Put agents and evaluators on such nodes where there is room.
            "prefer_spot": False,
            # Labels that a node must have for agents and evaluators, as in {pool: cheap}.
            "node_selector": {},
            # What the pods of a role have beside that, in the words of Kubernetes: nodeSelector,
            # tolerations, affinity, topologySpreadConstraints, priorityClassName,
            # serviceAccountName, imagePullSecrets, runtimeClassName, annotations, env. A role is a
            # key of resources, or all, as in {learner: {nodeSelector: {pool: gpu}}}.
            "pods": {},
            # Let only the run's own pods reach its ports, where the network plugin supports it.
            "network_policy": True,
            # Size limit of /tmp, and of the run folder in pods without a volume, which a replay
            # shard exceeds by its memory; requested as ephemeral storage [bytes]; 0: no limit.
            "scratch_bytes": 536_870_912,
            # Remove all objects but the volumes so long after the end [seconds]; None: never.
            "ttl_seconds": None,
        },
        # Upper bound of any message between components [bytes].
        "max_message_bytes": 268_435_456,
        # One chunk in so many carries time stamps of its way [chunks].
        "trace_every": 16,
    }
)

# A whole experiment: what a user's file is extended by, after the algorithm has added its defaults.
BASE_CONFIG = Config(
    {
        # Registry name, dotted path package.module:Class, or path of a file.
        "algorithm": "_str_",
        "learner_config": BASE_LEARNER_CONFIG,
        "env_config": BASE_ENV_CONFIG,
        "session_config": BASE_SESSION_CONFIG,
    }
)

# The texts of which one must be taken, by dotted key.
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "learner_config.replay.when_full": ("block", "drop_oldest"),
        "env_config.vector": ("native", "sync", "process"),
        "session_config.at_end": ("exit", "idle"),
        "session_config.evaluator.mode": ("eval_deterministic", "eval_stochastic"),
        "session_config.sender.cut": ("steps", "episodes"),
        "session_config.loggerplex.level": ("debug", "info", "warning", "error", "critical"),
        "session_config.launcher.transport": ("ipc", "tcp"),
        "session_config.launcher.on_sigterm": ("end", "resume"),
        "session_config.kubernetes.image_pull_policy": ("Always", "IfNotPresent", "Never"),
    }
)


def check_choices(config: Config) -> None:
    """Raises ConfigError for the first value in `config`, or entry of a list, that is none of its
    CHOICES.
    """
    for path, given in leaves(config).items():
        choices = CHOICES.get(path)
        if choices is None:
            continue
        for value in given if isinstance(given, list) else [given]:
            if value not in choices:
                hint = did_you_mean(f"{value}", choices, lead="; ")
                expected = f"expected one of {', '.join(choices)}{hint}"
                raise ConfigError(f"{path} is {value!r}, {expected}")
