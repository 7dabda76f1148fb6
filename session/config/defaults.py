"""The default configs: every setting there is, with its meaning, unit and default value.

A comment above each key explains it, with the unit in brackets. A user's file contains only
differences. A value must be of the same kind as its default. None accepts anything; `{}` accepts
any keys; a placeholder such as `_str_` must be replaced. CHOICES lists the allowed texts of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from session.config import Config
from session.config.merge import leaves
from session.did_you_mean import did_you_mean
from session.errors import ConfigError

# Learning: networks, hyperparameters, replay. Algorithms add their own keys.
BASE_LEARNER_CONFIG = Config(
    {
        # Architecture of the networks: the keys are the algorithm's.
        "model": {},
        # Hyperparameters: the algorithm adds its own keys.
        "algo": {
            # Discount factor of one step.
            "gamma": 0.99,
            # Number of rewards summed before the bootstrap value [steps].
            "n_step": 1,
            # Rewards are clipped to +- this for learning, before any sum; 0: no clipping.
            "reward_clip": 0.0,
            # Factor for the clipped reward.
            "reward_scale": 1.0,
            # Constant added to the scaled reward.
            "reward_shift": 0.0,
            # After each unroll, or their part of a training iteration, agents wait for a version
            # that has learned from it.
            "synchronous": False,
        },
        # Storage and sampling of experience.
        "replay": {
            # UniformReplay, PrioritizedReplay, SequenceReplay, FIFOReplay, or package.module:Class.
            "type": "UniformReplay",
            # Size of one batch of the learner [rows].
            "batch_size": 64,
            # Capacity of all shards together; beyond it the oldest rows are removed [rows].
            "capacity": 100_000,
            # Sampling starts at this number of rows that can be sampled [rows].
            "min_size": 1000,
            # Samples per inserted row on average, enforced by blocking either side; 0: no limit.
            "samples_per_insert": 0.0,
            # Allowed deviation from that ratio, ahead or behind [samples]; 0: automatic.
            "tolerance": 0.0,
            # Upper bound of the memory of stored rows [bytes]; 0: none.
            "max_bytes": 0,
            # A full FIFOReplay: block makes agents wait, drop_oldest drops and counts unrolls.
            "when_full": "block",
            # Share of each FIFOReplay batch that was used before; 0.5: half the streams.
            "replay_proportion": 0.0,
            # Capacity for replayed unrolls of all FIFOReplay shards together [rows].
            "replay_capacity": 100_000,
            # Sampling by the age of the acting policy, in UniformReplay or a ring.
            "age": {
                # Rows from policies older than this are not sampled [versions]; 0: all are.
                "max_versions": 0,
                # Age after which the sampling probability halves [versions]; 0: no effect.
                "half_life_versions": 0.0,
            },
            # Sampling of PrioritizedReplay; other classes ignore it.
            "priority": {
                # Rows are sampled in proportion to priority ** alpha; 0: uniformly.
                "alpha": 0.6,
                # Schedule of the importance weights (N P) ** -beta; 0: no correction, 1: full.
                "beta": {
                    # constant, linear, exponential, or piecewise (linear between points).
                    "kind": "constant",
                    # Counter of the schedule over the whole run: env_steps or iterations (updates).
                    "by": "iterations",
                    # Value at the beginning; for constant, at any time.
                    "start": 0.4,
                    # Value after `steps` and later.
                    "end": 1.0,
                    # Length from start to end, counted as `by` says.
                    "steps": 100_000,
                    # For piecewise: [[step, value], ...], steps rising.
                    "points": [],
                },
                # First priority of a row: highest (of all so far), or acting: its error by the
                # values that the agent computed; for DQN.
                "initial": "highest",
                # Minimum priority of a row.
                "epsilon": 1e-6,
                # Priority of a sequence: this share of its largest error, the rest of the mean.
                "eta": 0.9,
            },
            # Sequences of SequenceReplay; batch_size and min_size count them, capacity rows.
            "sequence": {
                # Learned steps of a sequence [steps].
                "length": 40,
                # Steps before them that only compute the state of the network [steps].
                "burn_in": 20,
                # Steps of an episode between the starts of two sequences, at most length [steps].
                "period": 20,
            },
            # Training in turns: rows are collected, then learned from, and none come meanwhile.
            # For one shard of UniformReplay, PrioritizedReplay or SequenceReplay, without
            # samples_per_insert and min_size.
            "iteration": {
                # Steps of each environment before each training [steps]; 0: off.
                "unroll_length": 0,
                # Batches of a training; or passes, if it covers all rows.
                "num_updates_per_train_iter": 1,
                # A training covers all rows, each once in a pass, in batches of about batch_size.
                "whole_replay_buffer_training": False,
                # Rows are removed after the training that covered them.
                "clear_replay_buffer": False,
                # Rows to collect in addition before the first training [rows].
                "initial_collect_steps": 0,
            },
            # Goals relabelled in hindsight, in UniformReplay and PrioritizedReplay: a sampled row
            # gets a goal that was achieved later, and the reward for that goal.
            "hindsight": {
                # Probability that a sampled row is relabelled; 0: off.
                "proportion": 0.0,
                # Goal of a row: future (achieved at a later row), final (at the newest row of the
                # episode) or episode (at any row after the first).
                "strategy": "future",
                # Reward for a goal: env (compute_reward of the environment) or
                # package.module:function of (achieved, desired, info).
                "reward": "env",
                # Part of the observations with the achieved goal.
                "achieved": "achieved_goal",
                # Part of the observations with the desired goal.
                "desired": "desired_goal",
                # First rows whose stored and computed rewards are compared [rows]; 0: none.
                "check_rows": 1000,
            },
            # Number of replay processes; agents are distributed over them.
            "replay_shards": 1,
            # Rules to remove rows early, every session_config.replay.evict_interval.
            "evict_rule": {
                # Rows older than this are removed [seconds]; 0: no such rule.
                "max_age_seconds": 0.0,
                # Rows from policies older than this are removed [versions]; 0: no such rule.
                "max_version_lag": 0,
                # The oldest rows beyond this number are removed [rows]; 0: no such rule.
                "max_rows": 0,
            },
        },
        # Publication of the learner's parameters.
        "parameter_publish": {
            # Shortest time between two publications [seconds].
            "min_publish_interval": 0.05,
            # Updates between two publications [updates].
            "every": 1,
        },
        # Device of the learner: auto uses a GPU if there is one; else cpu, cuda, cuda:1.
        "device": "auto",
        # The run fails after this number of consecutive updates with NaN or infinity [updates].
        "max_bad_updates": 10,
        # Place where gradients are computed: learner; or agent, from its own unrolls: then the plan
        # has async_gradients, and FIFOReplay holds gradients.
        "gradients_at": "learner",
        # Type and shape of the columns of such a gradient; taken from the algorithm.
        "gradient_columns": {},
        # Function that gives the dataflow of training, called with the learner: my_plan.py:function
        # or package.module:function; null: the algorithm's own.
        "execution_plan": None,
        # Operators behind the source of the plan: [{part: rnd, args: {weight: 0.01}}, ...]; a name,
        # or package.module:function, which is called with the learner and args.
        "parts": [],
    }
)

# The environment that agents and evaluators step.
BASE_ENV_CONFIG = Config(
    {
        # Environment: gym:CartPole-v1, or the dotted path module.path:Class.
        "env_name": "_str_",
        # Keyword arguments of the environment's constructor.
        "env_args": {},
        # Environments in one agent [streams].
        "num_envs": 8,
        # Execution of an agent's environments: native (their own vector code), sync or process.
        "vector": "native",
        # For process: worker processes of one agent, at most num_envs; 0: one per core, or two.
        "workers": 0,
        # Keys of a dict observation that are used; empty: all.
        "obs_keys": [],
        # Keys of a dict observation that are removed, instead.
        "drop_keys": [],
        # Wrappers of each environment, the innermost first: dotted paths, or {wrapper, args}.
        "wrappers": [],
        # Length at which an episode is truncated [steps]; None, 0 or negative: never.
        "limit_episode_length": None,
        # Number of times the environment repeats each action [frames].
        "action_repeat": 1,
        # Newest observations stacked on a new first axis [frames]; 0 or 1: one.
        "frame_stack": 0,
        # Clip actions to their bounds; otherwise an action outside is an error.
        "clip_action": True,
        # Keys of the environment's info that are sent with experience.
        "info_keys": [],
        # Keys of the info of an episode's last step whose numbers are metrics of the episode.
        "metric_keys": [],
        # Lowest and highest reward that joined machines and clients of gateways may send; None:
        # -1e6 and 1e6.
        "reward_range": None,
        # Type and shape of stacked observations, checked; empty: taken from the environment.
        "obs_spec": {},
        # Type and shape of actions, checked; empty: taken from the environment.
        "action_spec": {},
        # Entries that replace those of env_args during evaluation.
        "eval_mode": {},
    }
)

# Processes, files and the network; these settings do not change what the learner computes.
BASE_SESSION_CONFIG = Config(
    {
        # Folder of all files of one run; None: runs/<config name>-<date>-<time>.
        "folder": None,
        # Seed of the run; every component derives its own seed from it.
        "seed": 0,
        # Folders searched for the user's own modules, after all others.
        "import_path": [],
        # Components at the end of the run: exit, or idle until they are stopped.
        "at_end": "exit",
        # The processes that step environments.
        "agent": {
            # Number at the start [processes].
            "num": 2,
            # Maximum number when the run is scaled up [processes]; 0: twice num.
            "max": 0,
            # Schedule of parameter fetches: episode, episode:<n>, step or step:<n>; in addition
            # once per second, unless the algorithm is synchronous.
            "fetch_parameter_mode": "episode",
            # Shortest time between two fetches [seconds].
            "fetch_interval_seconds": 0.1,
            # Threads for the computations of one agent [threads].
            "threads": 1,
        },
        # The processes that serve environments outside of the run: clients that connect.
        "gateway": {
            # Number at the start [processes].
            "num": 0,
            # Address to listen on; beyond this machine clients need tokens and TLS.
            "host": "127.0.0.1",
            # TCP port of gateway-0; gateway-1 has the next one, and so on; 0: any free one.
            "port": 7100,
            # Environments that each session steps together [streams].
            "num_envs": 1,
            # Maximum sessions of one gateway [sessions].
            "max_clients": 256,
            # Maximum requests that are answered together [requests].
            "max_batch": 256,
            # Time for which a request may wait for company in its batch [seconds].
            "batch_wait_seconds": 0.0,
            # Requests while replay takes no more rows: wait, or act without recording rows.
            "when_full": "wait",
            # Time after which a client gets a message that its answer is late [seconds].
            "answer_seconds": 60.0,
            # Time for which a session waits for a client that has lost its connection [seconds].
            "grace_seconds": 30.0,
            # Time after which a silent client is sent away [seconds]; 0: never.
            "idle_seconds": 300.0,
            # Age at which a session is asked to connect again after an episode, so that a load
            # balancer can spread clients anew [seconds]; 0: never.
            "session_seconds": 0.0,
            # Clients need a token: surreal-like clients RUN --token NAME.
            "tokens": False,
            # TLS of the port.
            "tls": {
                # File of the certificate, PEM; None: no TLS.
                "cert": None,
                # File of its private key, PEM.
                "key": None,
            },
            # Listen beyond this machine without TLS: something in front of it encrypts.
            "plaintext": False,
            # Origins of web pages that may connect, besides the gateway's own.
            "origins": [],
            # Names of this machine that may stand in the address of a browser.
            "hosts": [],
            # Serve a page with CartPoles that learn in the browser.
            "page": False,
            # Threads for the computations of one gateway [threads].
            "threads": 1,
        },
        # The processes that play without exploration to measure scores.
        "evaluator": {
            # Number at the start [processes].
            "num": 1,
            # Environments in one evaluator [streams]; 0: one per episode, at most 100.
            "num_envs": 0,
            # Pause between two evaluations [seconds].
            "interval_seconds": 1.0,
            # Choice of actions: the best ones or sampled ones. A list has one mode per evaluator
            # (eval-0 plays the first) and is repeated if there are more evaluators. The stop rule,
            # checkpoints/best and result.json depend on evaluations of the first mode only; those
            # of other modes are displayed.
            "mode": ["eval_deterministic"],
            # Threads for the computations of one evaluator [threads].
            "threads": 1,
        },
        # The process that updates the networks.
        "learner": {
            # Time between two lines of progress.jsonl [seconds].
            "report_seconds": 1.0,
            # Time between two reports of a trial to its tuning; 0: never. Set by `tune` only.
            "report_every": 0.0,
            # Unit of that time: env_steps, iterations or seconds.
            "report_by": "env_steps",
            # A trial without an answer of its tuning for this time saves and ends [seconds].
            "report_timeout_seconds": 600.0,
            # Outstanding requests for batches, over all shards [requests].
            "prefetch_requests": 2,
            # Batches in the reply to one request [batches].
            "batches_per_request": 8,
            # Threads for the computations of the learner [threads].
            "threads": 1,
        },
        # The processes that store experience.
        "replay": {
            # Time between two passes of learner_config.replay.evict_rule [seconds]; 0: never.
            "evict_interval": 0.0,
            # High-water mark of the sockets that carry experience [messages].
            "high_water_mark": 8,
            # Save the rows at the end of the run or process; restore them at the next start.
            "snapshot": False,
        },
        # The parameter server; it has no settings.
        "ps": {},
        # Transfer of experience from agents to replay.
        "sender": {
            # Steps of each stream in one chunk [steps].
            "flush_iteration": 100,
            # Time after which a shorter chunk is sent [seconds]; 0: only full chunks; None: 5 s, or
            # only full chunks if replay accepts only whole unrolls.
            "flush_time": None,
            # Maximum amount of unacked data; beyond it an agent waits [bytes].
            "max_unacked_bytes": 67_108_864,
            # Maximum number of unacked chunks, which bounds the age of rows [chunks].
            "max_unacked_chunks": 8,
            # Chunks are sent again after this time without a new ack [seconds].
            "resend_seconds": 2.0,
            # Time without its replay shard after which an agent changes to the next one [seconds].
            "failover_seconds": 5.0,
            # End of a chunk: every flush_iteration steps, or at episode ends.
            "cut": "steps",
        },
        # Metrics.
        "tensorplex": {
            # Time between two metric reports of each kind of component.
            "update_schedule": {
                # Agents [seconds].
                "agent": 1.0,
                # The learner [seconds].
                "learner": 1.0,
                # Replay shards [seconds].
                "replay": 1.0,
                # Evaluators [seconds].
                "eval": 1.0,
            },
            # Number of agents per chart, as a text; auto: all if there are up to 8, else 8.
            "bins": "auto",
            # HTTP port that serves the newest values as Prometheus text, to this machine only; on
            # Kubernetes also to the pods of kubernetes.metrics_from; 0: none.
            "prometheus_port": 0,
            # Buffer of a client while the server is unreachable [records]; drops are counted.
            "buffer": 10_000,
            # Number of updates between two histograms of the learner's parameters, gradients and
            # batches; 0: no histograms.
            "debug_summaries": 0,
            # Start TensorBoard as a component of the run.
            "start_tensorboard": False,
        },
        # Logs.
        "loggerplex": {
            # Minimum level of logged records.
            "level": "info",
            # Overwrite the log files instead of appending.
            "overwrite": False,
            # Size at which a log file is rotated [bytes].
            "rotate_bytes": 50_000_000,
        },
        # Checkpoints of the learner.
        "checkpoint": {
            # Updates between two checkpoints [iterations]; 0: only by time.
            "period": 0,
            # Maximum time between two checkpoints [seconds]; 0: only by updates. The first one
            # comes after 10 s; the time rises if saving takes more than 1 % of it.
            "seconds": 60.0,
            # Number of newest checkpoints to keep [checkpoints].
            "keep_history": 2,
            # Number of best checkpoints to keep: best, best-2 and so on [checkpoints]; 0: none.
            "keep_best": 1,
            # Checkpoint with the initial networks of a run: RUN, RUN:latest, RUN:12000; "": none.
            "start_from": "",
        },
        # Heartbeats of components.
        "heartbeat": {
            # Time between two heartbeats [seconds].
            "interval": 1.0,
            # A running component without a heartbeat for this time is lost [seconds].
            "timeout": 30.0,
            # The same for a starting component [seconds].
            "starting_seconds": 120.0,
        },
        # End of the run: at the goal (eval_return or a metric), or at the first budget.
        "stop": {
            # Goal: mean return of greedy episodes, confirmed by a second evaluation; None: no goal.
            "eval_return": None,
            # Budget of all agents together [environment steps]; None: none. The run makes one
            # update at least. Agents go on until they ask for parameters again
            # (agent.fetch_interval_seconds); these steps count, too.
            "env_steps": None,
            # Budget of the learner [updates]; None: none.
            "iterations": None,
            # Time budget [seconds; rounds in the serial launcher]; None: none.
            "seconds": None,
            # Length of one evaluation [episodes].
            "eval_episodes": 100,
            # Name of a metric that is the goal together with above; None: none. return/train is the
            # mean return of the last 100 training episodes.
            "metric": None,
            # Threshold of that metric: the goal is reached above it; None: no goal.
            "above": None,
        },
        # Start and supervision of components.
        "launcher": {
            # Transport between components of one machine: ipc (files) or tcp.
            "transport": "ipc",
            # Maximum restarts of one component within the window; beyond it the run fails.
            "max_restarts": 5,
            # Window for counting restarts [seconds].
            "restart_window_seconds": 60.0,
            # Time for a clean shutdown before a component is killed [seconds].
            "grace_seconds": 10.0,
            # Shell command run before each component in tmux and plan: source venv/bin/activate.
            "preamble_cmd": "",
            # Address of this machine at which others may join with keys; None: no joining.
            "host": None,
            # Keep an archive of the code in the run folder, for commands with --snapshot.
            "snapshot": True,
        },
        # Protection of a run that can be reached from other machines.
        "security": {
            # Bind beyond this machine without keys: every peer that can connect has all rights.
            "insecure": False,
            # Maximum open connections of one endpoint [connections]; more are closed.
            "max_connections": 1000,
            # Time limit for a peer to prove its key, then it is disconnected [seconds].
            "handshake_seconds": 5.0,
        },
        # Resources of one process of each kind, where a launcher can reserve them.
        "resources": {
            # One agent.
            "agent": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # One gateway.
            "gateway": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # One evaluator.
            "evaluator": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # The learner.
            "learner": {
                # Processor time [cores].
                "cpu": 2.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 4_294_967_296,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # One replay shard.
            "replay": {
                # Processor time [cores].
                "cpu": 1.0,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 4_294_967_296,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # The parameter server.
            "ps": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # The metrics server.
            "tensorplex": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 536_870_912,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # The log server.
            "loggerplex": {
                # Processor time [cores].
                "cpu": 0.25,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 536_870_912,
                # Graphics processors [devices].
                "gpu": 0,
            },
            # TensorBoard.
            "tensorboard": {
                # Processor time [cores].
                "cpu": 0.5,
                # Memory, and the limit of it [bytes].
                "memory_bytes": 1_073_741_824,
                # Graphics processors [devices].
                "gpu": 0,
            },
        },
        # Objects of a run in a Kubernetes cluster.
        "kubernetes": {
            # Prefix of the names of all objects; None: the experiment's name.
            "name": None,
            # Existing namespace of the objects; None: that of kubectl's context.
            "namespace": None,
            # Context of kubectl; None: the current context.
            "context": None,
            # Image of all containers.
            "image": "surreal-like:cpu",
            # Image pull policy: Always, IfNotPresent or Never.
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
            # Keys of taints that agents and evaluators tolerate: those of spot (preemptible) nodes.
            "spot_taints": [
                "cloud.google.com/gke-spot",
                "kubernetes.azure.com/scalesetpriority",
                "spot",
            ],
            # Labels of spot nodes, as key=value.
            "spot_labels": [
                "cloud.google.com/gke-spot=true",
                "kubernetes.azure.com/scalesetpriority=spot",
                "eks.amazonaws.com/capacityType=SPOT",
                "karpenter.sh/capacity-type=spot",
            ],
            # Schedule agents and evaluators preferably on spot nodes.
            "prefer_spot": False,
            # Required node labels for agents and evaluators, as in {pool: cheap}.
            "node_selector": {},
            # Service of the gateways, for their clients: ClusterIP, NodePort or LoadBalancer.
            "gateway_service": "ClusterIP",
            # Additional Kubernetes fields for the pods of a role: nodeSelector, tolerations,
            # affinity, topologySpreadConstraints, priorityClassName, serviceAccountName,
            # imagePullSecrets, runtimeClassName, labels, annotations, env. A role is a key of
            # resources, or all, as in {learner: {nodeSelector: {pool: gpu}}}.
            "pods": {},
            # Labels of all objects and pods, as in {team: robots}; those of the run are reserved.
            "labels": {},
            # Annotations of all objects and pods.
            "annotations": {},
            # Namespaces whose pods may read session_config.tensorplex.prometheus_port; empty: the
            # port is on the loopback interface of its pod.
            "metrics_from": [],
            # Allow only the run's own pods to reach its ports, if the network plugin supports it.
            "network_policy": True,
            # Size limit of /tmp, and of the run folder in pods without a volume; for a replay shard
            # its memory is added; requested as ephemeral storage [bytes]; 0: no limit.
            "scratch_bytes": 536_870_912,
            # Time from the end to the removal of all objects but volumes [seconds]; None: never.
            "ttl_seconds": 3600,
        },
        # Upper bound of any message between components [bytes].
        "max_message_bytes": 268_435_456,
        # One chunk in this number carries time stamps of its transfer [chunks].
        "trace_every": 16,
    }
)

# Defaults of a whole experiment; a user's file is extended by them and the algorithm's defaults.
BASE_CONFIG = Config(
    {
        # Registry name, dotted path package.module:Class, or path of a file.
        "algorithm": "_str_",
        "learner_config": BASE_LEARNER_CONFIG,
        "env_config": BASE_ENV_CONFIG,
        "session_config": BASE_SESSION_CONFIG,
    }
)

# Dotted key -> allowed texts.
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "learner_config.gradients_at": ("learner", "agent"),
        "learner_config.replay.when_full": ("block", "drop_oldest"),
        "learner_config.replay.priority.initial": ("highest", "acting"),
        "learner_config.replay.hindsight.strategy": ("future", "final", "episode"),
        "env_config.vector": ("native", "sync", "process"),
        "session_config.at_end": ("exit", "idle"),
        "session_config.learner.report_by": ("env_steps", "iterations", "seconds"),
        "session_config.evaluator.mode": ("eval_deterministic", "eval_stochastic"),
        "session_config.sender.cut": ("steps", "episodes"),
        "session_config.gateway.when_full": ("wait", "act"),
        "session_config.loggerplex.level": ("debug", "info", "warning", "error", "critical"),
        "session_config.launcher.transport": ("ipc", "tcp"),
        "session_config.kubernetes.gateway_service": ("ClusterIP", "NodePort", "LoadBalancer"),
        "session_config.kubernetes.image_pull_policy": ("Always", "IfNotPresent", "Never"),
    }
)


def check_choices(config: Config) -> None:
    """Raises ConfigError for the first value, or entry of a list, that is not in its CHOICES."""
    for path, given in leaves(config).items():
        choices = CHOICES.get(path)
        if choices is None:
            continue
        for value in given if isinstance(given, list) else [given]:
            if value not in choices:
                hint = did_you_mean(f"{value}", choices, lead="; ")
                expected = f"expected one of {', '.join(choices)}{hint}"
                raise ConfigError(f"{path} is {value!r}, {expected}")
