"""The defaults of the section `tune` of a tune file."""

from __future__ import annotations

from session.config import Config
from session.config.key import FROM_0, FROM_1, SOME_TIME, Key, Range, section
from session.config.session_defaults import BUDGETS

TPE = "tpe"

_ASHA = {
    "grace_period": Key(1.0, "Time of the first rung."),
    "reduction_factor": Key(3.0, "One of this number of trials goes on at a rung."),
    "max_time": Key(0.0, "End of each trial; 0: its budget in stop."),
}
_MEDIAN = {
    "grace_period": Key(1.0, "Time before which no trial stops."),
    "min_samples": Key(3, "Number of other trials that must have reported by then."),
}
_PBT = {
    "perturbation_interval": Key(
        0.0, "Time between two comparisons of a trial with the others; it must be given."
    ),
    "burn_in_period": Key(0.0, "Time before the first comparison."),
    "quantile_fraction": Key(0.25, "Share of the population that loads others, 0 to 0.5."),
    "resample_probability": Key(0.25, "Probability of a new value instead of a changed one."),
    "perturbation_factors": Key([1.2, 0.8], "One of them multiplies a number."),
    "synch": Key(False, "Compare all trials at the same time."),
    "checkpoint": Key(
        "every_report", "every_report, or upper: only trials in the upper quantile save."
    ),
    "max_age": Key(
        2.0,
        "Oldest checkpoint that is loaded, in intervals of the donor; 0: any.",
        unit="intervals",
    ),
    "explore": Key(
        None,
        "file.py:function or package.module:function, which changes explored settings last.",
    ),
}

# The section `tune` of a tune file. Times are in units of the key `time`.
TUNE_CONFIG = Config(
    {
        "tune": section(
            "The tuning of an experiment.",
            {
                "trials": Key(8, "Trials for each point of the grid.", within=FROM_1),
                "seed": Key(0, "All draws of the tuning follow from it."),
                "metric": Key(
                    "train.mean_return_100", "A number of progress.jsonl, by its dotted name."
                ),
                "mode": Key("max", "max or min of the metric is best.", one_of=("max", "min")),
                "min_episodes": Key(
                    20,
                    "Episodes that must have ended before a train. or metrics. number is a score.",
                    unit="episodes",
                ),
                "time": Key("env_steps", "Unit of a trial's progress.", one_of=tuple(BUDGETS)),
                "report_every": Key(
                    0.0,
                    "Time between two reports of a trial; 0: the interval of the scheduler, a "
                    "tenth of it with pbt unless synch; fifo: never.",
                ),
                "scheduler": Key(
                    "fifo",
                    "Rule that ends trials early; replay: set by tune --replay only.",
                    one_of=("fifo", "asha", "median", "pbt", "replay"),
                ),
                "asha": section("Asynchronous successive halving.", _ASHA),
                "median": section("The median stopping rule.", _MEDIAN),
                "pbt": section("Population based training.", _PBT),
                "replay": section(
                    "Times and settings of a run that follows those of a trial; set by tune "
                    "--replay only.",
                    {"changes": []},
                ),
                "search": Key(
                    "random",
                    "Proposes settings of new trials; tpe needs the extra tune.",
                    one_of=("random", TPE),
                ),
                "tpe": section(
                    "Proposals of tpe.",
                    {
                        "startup_trials": Key(
                            10, "Random proposals before the first that follows scores."
                        )
                    },
                ),
                "stop": section(
                    "Budgets of each trial; they replace those of the experiment.",
                    {
                        name: Key(None, "Budget of a trial; None: none.", optional="_num_")
                        for name in BUDGETS
                    },
                    within=SOME_TIME,
                ),
                "stop_at_goal": Key(
                    False, "End the tuning when the first trial meets the goal of the experiment."
                ),
                "seconds": Key(
                    None,
                    "Budget of the whole tuning, of all its parts together; None: none.",
                    unit="seconds",
                    within=SOME_TIME,
                    optional="_num_",
                ),
                "launcher": Key(
                    "serial", "Launcher of a trial: serial, one process and repeatable, or local."
                ),
                "slots": Key(
                    0,
                    "Trials that work here at the same time; 0: as many as have cores; -1: none, "
                    "other machines join.",
                    within=Range(-1),
                ),
                "trial_cores": Key(
                    0.0, "Cores of a trial; 0: 1 if serial, else those its components ask for."
                ),
                "trial_gpus": Key(0.0, "GPUs of a trial, such as 0.5; 0: it sees all of them."),
                "trial_memory_bytes": Key(
                    0, "Memory of a trial; 0: that of replay and of its processes.", unit="bytes"
                ),
                "max_resident": Key(
                    0, "Trials that have processes, working or not; 0: as many as have memory."
                ),
                "max_failures": Key(
                    2,
                    "Deaths of a trial after which it is still started again; -1: any number.",
                    within=Range(-1),
                ),
                "fail_fast": Key(False, "End the tuning at the first trial that is given up."),
            },
            within=FROM_0,
        )
    }
)

# -- of `session_config.learner` in a trial -------------------------------------------------------

REPORT_EVERY = Key(
    0.0,
    "Time between two reports of a trial to its tuning; 0: never. Set by `tune` only.",
)
REPORT_BY = Key(
    "env_steps",
    f"Unit of that time: {', '.join(BUDGETS)}.",
    one_of=tuple(BUDGETS),
)
REPORT_TIMEOUT = Key(
    600.0,
    "A trial without an answer of its tuning for this time saves and ends.",
    unit="seconds",
)
