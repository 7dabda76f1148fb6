"""The defaults of `session_config`: processes, files and the network."""

from __future__ import annotations

from session.config.key import (
    ABOVE_0,
    ANY_NUMBER,
    FROM_0,
    FROM_1,
    PORT,
    SHARE_ABOVE_0,
    SOME_TIME,
    Idle,
    Key,
    Range,
    section,
)

# Budgets of a run -> the counter of `progress.jsonl` that uses each.
BUDGETS = {"env_steps": "env_steps", "iterations": "iterations", "seconds": "wall_seconds"}
# Agents of a run's own; names with further numbers are those of machines that join.
MOST_AGENTS = 1000
# Modes of evaluators.
EVALUATION_MODES = ("eval_deterministic", "eval_stochastic")

# Without the keys of add-ons.
SESSION_KEYS = {
    "folder": Key(
        None,
        "Folder of all files of one run; None: runs/<config name>-<date>-<time>.",
        optional="_str_",
    ),
    "seed": Key(0, "Seed of the run; every component derives its own seed from it."),
    "import_path": Key([], "Folders searched for the user's own modules, after all others."),
    "at_end": Key(
        "exit",
        "Components at the end of the run: exit, or idle until they are stopped.",
        one_of=("exit", "idle"),
    ),
    "agent": section(
        "The processes that step environments.",
        {
            "num": Key(2, "Number at the start.", unit="processes", within=Range(0, MOST_AGENTS)),
            "max": Key(
                0, "Maximum number when the run is scaled up; 0: twice num.", unit="processes"
            ),
            "fetch_parameter_mode": Key(
                "episode",
                "Parameters are fetched every episode, episode:<n>, step or step:<n>, and once per "
                "second, unless the algorithm is synchronous. Default of algorithms that learn "
                "from unrolls: step:N with N of sender.flush_iteration.",
            ),
            "fetch_interval_seconds": Key(
                0.1,
                "Shortest time between two fetches; default of algorithms that learn from "
                "unrolls: 0.",
                unit="seconds",
            ),
        },
    ),
    "evaluator": section(
        "The processes that play without exploration to measure scores.",
        {
            "num": Key(1, "Number at the start.", unit="processes"),
            "num_envs": Key(
                0,
                "Environments in one evaluator; 0: one per episode, at most 100.",
                unit="streams",
            ),
            "interval_seconds": Key(1.0, "Pause between two evaluations.", unit="seconds"),
            "final_seconds": Key(
                60.0,
                "Time at the end of a run in which its last parameters are evaluated; 0: they are "
                "not.",
                unit="seconds",
                within=FROM_0,
            ),
            "mode": Key(
                ["eval_deterministic"],
                "Best or sampled actions; a list has one mode per evaluator, from eval-0 on, and "
                "is repeated; only its first mode decides anything.",
                one_of=EVALUATION_MODES,
            ),
        },
    ),
    "learner": section(
        "The process that updates the networks.",
        {
            "num": Key(
                1,
                "Learners on one machine that compute each update together, from equal parts of "
                "every batch.",
                unit="processes",
                within=FROM_1,
            ),
            "report_seconds": Key(1.0, "Time between two lines of progress.jsonl.", unit="seconds"),
            "prefetch_requests": Key(
                2,
                "Outstanding requests for batches, over all shards.",
                unit="requests",
                within=FROM_1,
            ),
            "batches_per_request": Key(
                8, "Batches in the reply to one request.", unit="batches", within=FROM_1
            ),
            "threads": Key(
                1, "Threads for the computations of the learner.", unit="threads", within=FROM_1
            ),
        },
    ),
    "replay": section(
        "The processes that store experience.",
        {
            "evict_interval": Key(
                0.0,
                "Time between two calls of evict() of your own replay; 0: never.",
                unit="seconds",
            ),
            "keep": Key(
                "auto",
                "process: acked rows, except of queues, outlive a killed process; auto: the same, "
                "except of observations from 4096 bytes on where the kernel has no huge pages "
                "for shared memory.",
                one_of=("auto", "process", "none"),
            ),
            "snapshot": Key(
                False,
                "Save the rows at the end of the run or process; restore them at the next start.",
            ),
            "snapshot_seconds": Key(
                0.0,
                "Time between two snapshots while the run goes on; 0: only at the end.",
                unit="seconds",
                idle=Idle("snapshot", (False,)),
            ),
        },
    ),
    "ps": Key({}, "The parameter server; it has no settings."),
    "sender": section(
        "Transfer of experience from agents to replay.",
        {
            "flush_iteration": Key(
                100, "Steps of each stream in one chunk.", unit="steps", within=FROM_1
            ),
            "flush_time": Key(
                None,
                "Time after which a shorter chunk is sent; 0: only full chunks; None: 5 s, or "
                "only full chunks if replay accepts only whole unrolls.",
                unit="seconds",
                optional="_num_",
            ),
            "max_unacked_chunks": Key(
                8,
                "Maximum number of unacked chunks, which bounds the age of rows; beyond it, or "
                "64 MiB, an agent waits.",
                unit="chunks",
                within=FROM_1,
            ),
            "cut": Key(
                "steps",
                "End of a chunk: every flush_iteration steps, or at episode ends.",
                one_of=("steps", "episodes"),
            ),
        },
    ),
    "tensorplex": section(
        "Metrics.",
        {
            "sinks": Key(
                ["tensorboard"],
                "Files and programs that get the curves; some need the extra of their name.",
            ),
            "update_schedule": Key(
                1.0, "Time between two metric reports of a component.", unit="seconds"
            ),
            "prometheus_port": Key(
                0,
                "HTTP port of the newest values as Prometheus text, for this machine; on "
                "Kubernetes also for kubernetes.metrics_from; 0: none.",
                within=PORT,
            ),
            "debug_summaries": Key(
                0,
                "Updates between two histograms of parameters, gradients and batches; 0: none.",
            ),
            "start_tensorboard": Key(False, "Start TensorBoard as a component of the run."),
        },
    ),
    "loggerplex": section(
        "Logs.",
        {
            "level": Key(
                "info",
                "Minimum level of logged records.",
                one_of=("debug", "info", "warning", "error", "critical"),
            ),
        },
    ),
    "checkpoint": section(
        "Checkpoints of the learner.",
        {
            "period": Key(
                0, "Updates between two checkpoints; 0: only by time.", unit="iterations"
            ),
            "seconds": Key(
                60.0,
                "Maximum time between two checkpoints; 0: only by updates. The first one "
                "comes after 10 s; the time rises if saving takes more than 1 % of it.",
                unit="seconds",
            ),
            "keep_history": Key(2, "Number of newest checkpoints to keep.", unit="checkpoints"),
            "keep_best": Key(
                1,
                "Number of best checkpoints to keep: best, best-2 and so on; 0: none.",
                unit="checkpoints",
            ),
            "start_from": Key(
                "",
                "Checkpoint with the initial networks of a run: RUN, RUN:latest, RUN:12000; "
                '"": none.',
            ),
            "parts": Key(
                [],
                "Parts of the networks that a run takes from start_from, such as torso, also of "
                "another algorithm's; empty: all of the networks.",
                idle=Idle("start_from", ("",)),
            ),
        },
    ),
    "heartbeat": section(
        "Heartbeats of components.",
        {
            "timeout": Key(
                30.0,
                "A component without a heartbeat for this time is lost; while it starts, at least "
                "120 s.",
                unit="seconds",
                within=ABOVE_0,
            ),
        },
    ),
    "stop": section(
        "End of the run: at the goal (eval_return or a metric), or at the first budget.",
        {
            "eval_return": Key(
                None,
                "Goal: mean return of greedy episodes, confirmed by a second evaluation; "
                "None: no goal.",
                within=ANY_NUMBER,
                optional="_num_",
            ),
            "eval_returns": Key(
                {},
                "Goal of several policies: policy -> mean return of its agents, all in one "
                "evaluation, confirmed by a second one; empty: no goal.",
            ),
            "env_steps": Key(
                None,
                "Budget of all agents together; None: none. The run makes one update at least; "
                "agents step on until they ask for parameters again.",
                unit="environment steps",
                within=FROM_1,
                optional="_num_",
            ),
            "iterations": Key(
                None,
                "Budget of the learner; None: none.",
                unit="updates",
                within=FROM_1,
                optional="_num_",
            ),
            "seconds": Key(
                None,
                "Time budget; None: none.",
                unit="seconds; rounds in the serial launcher",
                within=SOME_TIME,
                optional="_num_",
            ),
            "eval_episodes": Key(100, "Length of one evaluation.", unit="episodes", within=FROM_1),
            "metric": Key(
                None,
                "Metric that is the goal together with above, such as return/train, without joined "
                "agents, also those of Slurm and Ray; None: none.",
                optional="_str_",
            ),
            "above": Key(
                None,
                "Threshold of that metric: the goal is reached above it; None: no goal.",
                within=ANY_NUMBER,
                idle=Idle("metric", (None,)),
                optional="_num_",
            ),
        },
    ),
    "launcher": section(
        "Start and supervision of components.",
        {
            "transport": Key(
                "ipc",
                "Transport between components of one machine: ipc (files) or tcp.",
                one_of=("ipc", "tcp"),
            ),
            "max_restarts": Key(
                5,
                "Maximum restarts of one component within the window; beyond it the run fails.",
            ),
            "grace_seconds": Key(
                10.0, "Time for a clean shutdown before a component is killed.", unit="seconds"
            ),
            "memory_share": Key(
                0.95,
                "Used share of the memory of machine or container above which a run saves and "
                "fails, and a tuning ends trials.",
                within=SHARE_ABOVE_0,
            ),
            "preamble_cmd": Key(
                "",
                "Shell command before each component in tmux and plan, and once in each Slurm job, "
                "such as source venv/bin/activate.",
            ),
            "host": Key(
                None,
                "Address of this machine at which others may join with keys; None: no joining.",
                optional="_str_",
            ),
            "snapshot": Key(
                True,
                "Keep an archive of the code in the run folder, for commands with --snapshot.",
            ),
        },
    ),
    "security": section(
        "Protection of a run that can be reached from other machines.",
        {
            "insecure": Key(
                False,
                "Bind beyond this machine without keys: every peer that can connect has all "
                "rights.",
            ),
            "max_connections": Key(
                1000,
                "Maximum open connections of one endpoint; more are closed.",
                unit="connections",
            ),
        },
    ),
    "resources": Key(
        {},
        "Resources of one process of a kind, where a launcher can reserve them, as in "
        "{learner: {cpu: 2.5, memory_bytes: 3_000_000_000, gpu: 1}}. By default a learner "
        "has 2 cores and 4 GiB, a replay 1 and 4, agents, gateways and evaluators 1 and 1, "
        "the parameter server and TensorBoard 0.5 and 1, Tensorplex 0.5 and 0.5, Loggerplex "
        "0.25 and 0.5.",
    ),
    "max_message_bytes": Key(
        268_435_456,
        "Upper bound of any message between components.",
        unit="bytes",
        within=FROM_1,
    ),
}
