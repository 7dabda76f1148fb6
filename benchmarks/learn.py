"""Goals and times of the shipped experiments: `make learn` runs them all.

Each run is the command that a user would type, in fresh processes, with a seed that was not used
for tuning; the clock is that of its result.json. Prints a table and writes
benchmarks/results/<name>.json; the exit code is 1 if a row has failed.

    python benchmarks/learn.py                                   all rows, three seeds each
    python benchmarks/learn.py --rows cartpole_ppo memory_ppo --name some --keep runs/learn
    python benchmarks/learn.py --group learn_multi --resume      several agents: make learn-multi

--resume keeps the runs of the file that were made with the same settings, code and processor, and
makes only the others; the file is written after each row.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from games import MEASURES
from machine import RESULTS, code_version, machine, spread, write_result
from setting import add_seeds, run_folders, seeds_of
from tables import LEARNED_CRITERION, learned_table
from whole import RunFailed, result_of

from session.config import Config
from session.errors import SurrealError
from surreal_like.run.request import RunRequest

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"


def config_file(name: str) -> Path:
    """Returns the file of an experiment: a shipped one, or one that is only measured here."""
    return next(each for place in (CONFIGS, HERE) for each in place.rglob(f"{name}.yaml"))


GRACE_SECONDS = 60.0
WITHOUT_HINDSIGHT = ("learner_config.replay.hindsight.proportion=0",)
# Judged by drawn actions: without preferences, the best one may be right everywhere by chance.
WITHOUT_BONUS = ("learner_config.parts=[]", "session_config.evaluator.mode=[eval_stochastic]")
WITHOUT_MEMORY = ("learner_config.model.memory=''",)


@dataclass(frozen=True)
class Row:
    """Requirements of one experiment.

    Args:
        name: of the row.
        config: file of the experiment, without .yaml.
        goal: mean return of greedy episodes, confirmed; of several policies by their names, all at
            once; None: all environment steps are used.
        at_most_seconds: from the command's start, on two cores.
        overrides: of settings, as on the command line.
        below: the best evaluation has to stay below this instead; None: the goal has to be met.
        may_miss: number of runs that need not meet the requirements.
        at_most: measure in games.py -> largest value after the run.
    """

    name: str
    config: str
    goal: float | Mapping[str, float] | None
    at_most_seconds: float
    overrides: tuple[str, ...] = ()
    below: float | None = None
    may_miss: int = 0
    at_most: Mapping[str, float] = field(default_factory=dict)


def row(config: str, goal: float, at_most_seconds: float) -> Row:
    """Returns the row of an experiment as shipped."""
    return Row(config, config, goal, at_most_seconds)


def both(config: str, goal: float, at_most_seconds: float) -> Row:
    """Returns the row of an experiment with the policies left and right, which both must learn."""
    return Row(config, config, {"left": goal, "right": goal}, at_most_seconds)


def main_alone(config: str, goal: float | None, at_most_seconds: float, **at_most: float) -> Row:
    """Returns the row of an experiment in which one policy, main, learns."""
    wanted = None if goal is None else {"main": goal}
    bounds = {name.replace("_", " "): bound for name, bound in at_most.items()}
    return Row(config, config, wanted, at_most_seconds, at_most=bounds)


def without_memory(config: str) -> Row:
    """Returns the row of the same experiment without memory: the network can only guess."""
    return Row(f"{config}, no LSTM", config, 0.95, 60.0, WITHOUT_MEMORY, below=0.6)


def without_hindsight(config: str) -> Row:
    """Returns the row of the same experiment without hindsight: no goal is ever reached."""
    return Row(f"{config}, no hindsight", config, -6.9, 60.0, WITHOUT_HINDSIGHT, below=-14.5)


# The same experiment with four carts, of which each policy plays two.
FOUR_AGENTS = (
    "env_config.env_args.agents=4",
    "env_config.policy_mapping={cart_0: left, cart_1: left, cart_2: right, cart_3: right}",
)
# Against one that plays rock, paper and scissors in turn.
ROUND = ("policies.other.fixed=surreal_like.policies.rock_paper_scissors:Round",)
# Rows of several agents.
MULTI = (
    both("multi_cartpole_ppo", 400.0, 300.0),
    replace(
        both("multi_cartpole_ppo", 400.0, 300.0),
        name="multi_cartpole_ppo, 4 agents",
        overrides=FOUR_AGENTS,
    ),
    both("multi_cartpole_mixed", 150.0, 300.0),
    both("multi_cartpole_impala", 350.0, 600.0),
    main_alone("rps_heuristic", 13.5, 300.0),
    replace(main_alone("rps_heuristic", 13.5, 300.0), name="rps_heuristic, Round", overrides=ROUND),
    main_alone("rps_heuristic_lstm", 9.0, 480.0),
    main_alone("rps_league", None, 300.0, best_answer=0.3),
    main_alone("tictactoe_league", 0.94, 480.0, lost=0.02),
    main_alone("connect_four_ppo", 0.9, 480.0),
    replace(row("simple_spread_ppo", -32.0, 600.0), at_most={"landmarks left": 2.5}),
    row("speaker_listener_ppo", -15.0, 600.0),
)
ROWS = (
    row("cartpole_ppo", 475.0, 15.0),
    row("cartpole_dqn", 475.0, 20.0),
    row("cartpole_pqn", 475.0, 60.0),
    row("cartpole_qrdqn", 475.0, 60.0),
    row("cartpole_rainbow", 475.0, 60.0),
    row("cartpole_apex", 475.0, 60.0),
    row("cartpole_impala", 475.0, 40.0),
    row("cartpole_a3c", 475.0, 60.0),
    row("memory_ppo", 0.95, 60.0),
    without_memory("memory_ppo"),
    row("memory_impala", 0.95, 60.0),
    without_memory("memory_impala"),
    row("memory_a3c", 0.95, 90.0),
    without_memory("memory_a3c"),
    row("memory_r2d2", 0.95, 120.0),
    Row("memory_r2d2, no LSTM", "memory_r2d2", 0.95, 120.0, ("algorithm=dqn",), below=0.6),
    row("target_a3c", -0.16, 90.0),
    row("bitflip_dqn", -6.9, 60.0),
    without_hindsight("bitflip_dqn"),
    row("chain_rnd", 0.95, 60.0),
    Row("chain_rnd, no bonus", "chain_rnd", 0.95, 60.0, WITHOUT_BONUS, below=0.01),
    row("pendulum_sac", -165.0, 300.0),
    row("pendulum_td3", -165.0, 180.0),
    row("pendulum_ddpg", -165.0, 180.0),
    row("acrobot_ppo", -85.0, 120.0),
    row("acrobot_dqn", -85.0, 120.0),
    row("lunarlander_ppo", 235.0, 480.0),
    *MULTI,
)
# Not part of `make learn`: takes minutes per run and needs an extra package.
LONG = ("lunarlander_ppo",)
_SEVERAL = [each.name for each in MULTI]
# Name of a file of results -> the rows that it usually has.
GROUPS = {
    "learn": [each.name for each in ROWS if each.name not in (*LONG, *_SEVERAL)],
    "learn_multi": _SEVERAL,
}


def one_run(
    wanted: Row, seed: int, folder: Path, *overrides: str, resume: bool = False
) -> dict[str, Any]:
    """Runs the train command to its end; returns the numbers of the run.

    Args:
        wanted: row to run.
        seed: of the experiment.
        folder: of the run.
        overrides: further settings.
        resume: True to go on with a run that was cut.

    Raises:
        SystemExit: the run has failed; the message names it.
    """
    config = config_file(wanted.config)
    load, began = os.getloadavg()[0], time.monotonic()
    stop = Config.load_file(config).session_config.stop
    limit = max(float(stop.seconds), wanted.at_most_seconds) + GRACE_SECONDS
    try:
        words = [str(config), *wanted.overrides, *overrides]
        result = result_of(*words, seed=seed, folder=folder, seconds=limit, resume=resume)
    except RunFailed as error:
        raise SystemExit(f"{wanted.name}, seed {seed}: {error}") from None
    return {
        "seed": seed,
        "load_before": round(load, 2),
        "command_seconds": round(time.monotonic() - began, 2),
        **outcome_of(result),
        **{name: round(MEASURES[name](folder), 4) for name in wanted.at_most},
    }


def resolved(config: str, overrides: Sequence[str] = ()) -> Config:
    """Returns the whole config of an experiment, with some settings changed."""
    return _resolve_once(config, tuple(overrides)).copy()


@cache
def _resolve_once(config: str, overrides: tuple[str, ...]) -> Config:
    # A process that imports the environment each time: runs of a table share their row.
    return RunRequest(config_file(config), overrides=overrides).resolve().config


def experiment_of(wanted: Row) -> dict[str, Any]:
    """Returns the fingerprint of a row's experiment, and its goals and budgets.

    Raises:
        SystemExit: it cannot be resolved here, such as for an environment that is not installed.
    """
    try:
        config = resolved(wanted.config, wanted.overrides)
    except SurrealError as error:
        raise SystemExit(f"{wanted.name}: {error}") from None
    stop = {key: value for key, value in config.session_config.stop.to_dict().items() if value}
    return {"experiment": str(config.recorded["fingerprint"]), "stop": stop}


def made_by(wanted: Row) -> dict[str, Any]:
    """Returns what a run of a row depends on, apart from its seed; raises as `experiment_of`."""
    now = machine()
    return {
        **experiment_of(wanted),
        "code": code_version(),
        "processor": f"{now['cores']} x {now['processor']}",
    }


def outcome_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Extracts from a result.json the time at which the goal was met, and the rates of the run."""
    solved = result["solved"] or {}
    seconds = solved.get("greedy_seconds")
    policies = {
        name: numbers["eval"]["mean_return"] for name, numbers in result.get("policies", {}).items()
    }
    return {
        "goal_met": result["goal_met"],
        "greedy_seconds": None if seconds is None else round(seconds, 2),
        "greedy_env_steps": solved.get("greedy_env_steps"),
        "confirmed": (result["eval"] or {}).get("confirmed"),
        "mean_return": (result["eval"] or {}).get("mean_return"),
        "best_mean_return": (result["best_eval"] or {}).get("mean_return"),
        # Not the evaluations that met the goal: those are the ones that were good enough.
        "last_mean_return": (result.get("final_eval") or {}).get("mean_return"),
        "last_episodes": (result.get("final_eval") or {}).get("episodes"),
        "env_steps": result["env_steps"],
        "iterations": result["iterations"],
        "rates": result["rates"],
        "lag": result["lag"],
        **({"policies": policies} if policies else {}),
    }


def judged(wanted: Row, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Builds a row of the table: its runs, their times, and whether every run passed."""
    met = [run for run in runs if run["greedy_seconds"] is not None]
    return {
        "name": wanted.name,
        "config": wanted.config,
        "overrides": list(wanted.overrides),
        "goal": wanted.goal,
        "below": wanted.below,
        "at_most_seconds": wanted.at_most_seconds,
        **({"at_most": dict(wanted.at_most)} if wanted.at_most else {}),
        "seconds": spread([run["greedy_seconds"] for run in met]) if met else None,
        "env_steps": spread([run["greedy_env_steps"] for run in met]) if met else None,
        "best_mean_return": spread([run["best_mean_return"] for run in runs]),
        **_afterwards(runs),
        "met": len(met),
        "passed": sum(not holds(wanted, run) for run in runs) <= wanted.may_miss,
        "runs": runs,
    }


def _afterwards(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the range of the evaluations after the runs; of runs of before there is none."""
    found = [run.get("last_mean_return") for run in runs]
    known = [mean for mean in found if mean is not None]
    return {"last_mean_return": spread(known)} if len(known) == len(runs) else {}


def holds(wanted: Row, run: Mapping[str, Any]) -> bool:
    """Returns True if one run met the requirements of its row."""
    if wanted.below is not None:
        return bool(run["best_mean_return"] < wanted.below)
    if any(run[name] > bound for name, bound in wanted.at_most.items()):
        return False
    if wanted.goal is None:
        return True
    seconds = run["greedy_seconds"]
    return seconds is not None and bool(seconds <= wanted.at_most_seconds)


def check_goals(rows: Iterable[Row]) -> None:
    """Checks that the shipped experiments have the goals of the rows.

    Raises:
        SystemExit: a goal differs; the message names both.
    """
    for wanted in rows:
        stop = Config.load_file(config_file(wanted.config)).session_config.stop
        goal = stop.get("eval_returns") or stop.get("eval_return")
        if goal != wanted.goal:
            raise SystemExit(f"configs/{wanted.config}.yaml ends at {goal}, not at {wanted.goal}")


def measure(
    wanted: Row, seeds: Iterable[int], keep: Path, kept: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Measures a row, one run at a time; reports each run as soon as it ends.

    Args:
        wanted: the row.
        seeds: seed of each run.
        keep: folder for the run folders.
        kept: runs that were made before; one of equal settings, code and processor is not repeated.
    """
    maker = made_by(wanted)
    known = {run["seed"]: run for run in kept if run.get("made_by") == maker}
    runs = []
    for seed in seeds:
        folder = keep / wanted.name.replace(", ", "-").replace(" ", "-") / f"seed-{seed}"
        run = known.get(seed) or {**one_run(wanted, seed, folder), "made_by": maker}
        runs.append(dict(run))
        shown = {key: run[key] for key in ("seed", "greedy_seconds", "best_mean_return")}
        print(json.dumps({"row": wanted.name, **shown}), file=sys.stderr, flush=True)
    return judged(wanted, runs)


def main() -> int:
    """Measures, prints and writes; returns 1 if a row has failed."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "",
        epilog=f"criterion: {LEARNED_CRITERION}",
    )
    names = [each.name for each in ROWS]
    parser.add_argument("--group", choices=GROUPS, default="learn", help="default: learn")
    parser.add_argument("--rows", nargs="+", choices=names, metavar="ROW", help="some of them")
    add_seeds(parser, "101..103")
    parser.add_argument("--name", help="of the file with the results; default: the group")
    parser.add_argument("--resume", action="store_true", help="keep the runs that are there")
    parser.add_argument("--keep", type=Path, help="folder for the run folders, which stay there")
    given = parser.parse_args()
    name, wanted = given.name or given.group, given.rows or GROUPS[given.group]
    rows = [each for each in ROWS if each.name in wanted]
    check_goals(rows)
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text())["learned"] if given.resume and path.exists() else []
    learned = {each["name"]: each for each in before}
    with run_folders(given.keep) as folder:
        for each in rows:
            kept = learned.get(each.name, {}).get("runs", [])
            learned[each.name] = measure(each, seeds_of(given.seeds), folder, kept)
            if given.resume or each is rows[-1]:
                found = [learned[known] for known in names if known in learned]
                result = {"machine": machine(), "criterion": LEARNED_CRITERION, "learned": found}
                write_result(name, result)
    print(learned_table(result))
    return 0 if all(learned[each.name]["passed"] for each in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
