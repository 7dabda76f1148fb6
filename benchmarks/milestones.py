"""Results that take minutes to hours: one run for each row and seed, in several sittings.

Each run is the command that a user would type, as in learn.py. Its numbers and its curve are added
to benchmarks/results/<name>.json when it ends; a run that is there already (same row, seed and
fingerprint of the experiment) is left out. One of ours that was cut goes on from the folder that
--keep names, and has lost at most five minutes; one of a peer begins anew. Prints a table of all
that is known; the exit code is 1 if a row that was asked for is missed or a run has failed.

    python benchmarks/milestones.py --rows bipedalwalker_ppo --hours 2
    python benchmarks/milestones.py --rows minatar_pqn minatar_dqn --seeds 101..105 --jobs 2
    python benchmarks/milestones.py --rows halfcheetah_sac --peer
    python benchmarks/milestones.py --rows "halfcheetah_sac, stable-baselines3"

--peer adds runs of stable-baselines3 with the settings of the same config, as many steps and seeds,
and the same greedy judge; a row then holds if its mean is at least 0.9 of the peer's. Rows without
a goal use up their environment steps: `surreal-like compare` compares their folders, which --keep
keeps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import recorded
from environments import PACKAGES, install
from learn import Row, config_file, experiment_of, holds, one_run, resolved
from machine import machine
from minatar_table import GAMES, WITH_A_PEER, overrides
from minatar_table import table as games_table
from peer_settings import stable_baselines3
from setting import add_scratch, add_seeds, run_folders, seeds_of
from tables import LEARNED_CRITERION, beside_peer, last_return, learned_on, loads, milestones_table
from whole import RunFailed, judged_return, progress_lines, run_script

from session.folder import LAG, RunFolder

HERE = Path(__file__).resolve().parent


def games(config: str, at_most_seconds: float) -> tuple[Row, ...]:
    """Returns a row for each game of MinAtar."""
    return tuple(
        Row(f"{config} {game}", config, None, at_most_seconds, overrides(game)) for game in GAMES
    )


ENV_NAME = "env_config.env_name"
REACH_DEMOS = ("learner_config.replay.demos.path=reach_demos",)
# Learning begins without random steps, and is looked at often.
AT_ONCE = (
    "learner_config.replay.min_size=50",
    "learner_config.algo.random_steps=0",
    "session_config.evaluator.interval_seconds=3",
)
ROWS = (
    Row("fetchreach_sac", "fetchreach_sac", -2.5, 360.0),
    Row("fetchreach_sac, demonstrations", "fetchreach_sac", -2.5, 360.0, REACH_DEMOS),
    Row("fetchreach_sac, at once", "fetchreach_sac", -2.5, 360.0, AT_ONCE),
    Row(
        "fetchreach_sac, at once, demonstrations",
        "fetchreach_sac",
        -2.5,
        360.0,
        (*AT_ONCE, *REACH_DEMOS),
    ),
    Row("doorkey_ppo", "doorkey_ppo", 0.95, 300.0),
    Row("bipedalwalker_ppo", "bipedalwalker_ppo", 285.0, 2400.0, may_miss=1),
    Row("halfcheetah_sac", "halfcheetah_sac", None, 10_800.0),
    Row("hopper_sac", "hopper_sac", None, 10_800.0),
    Row("walker2d_sac", "walker2d_sac", None, 10_800.0),
    Row("halfcheetah_td3", "halfcheetah_td3", None, 10_800.0),
    Row("halfcheetah_ppo", "halfcheetah_ppo", None, 1800.0),
    *(
        Row(f"{name.lower()}_ppo", "halfcheetah_ppo", None, 1800.0, (f"{ENV_NAME}=gym:{name}-v5",))
        for name in ("Hopper", "Walker2d")
    ),
    *games("minatar_ppo", 900.0),
    *games("minatar_pqn", 900.0),
    *games("minatar_dqn", 900.0),
    Row("cartpole_bc", "cartpole_bc", 475.0, 60.0),
    Row("pendulum_iql", "pendulum_iql", -200.0, 300.0),
    Row("pendulum_td3_bc", "pendulum_td3_bc", -200.0, 300.0),
    Row("halfcheetah_td3_bc", "halfcheetah_td3_bc", None, 10_800.0),
    Row("pong_ppo", "pong_ppo", 18.0, 10_800.0),
)

# A run that is cut loses at most five minutes.
SAVE = (
    "session_config.checkpoint.seconds=300",
    "session_config.replay.snapshot=true",
    "session_config.replay.snapshot_seconds=300",
)
PEER = "stable-baselines3"
# Ratio of means with which a row holds.
AT_LEAST = 0.9
PEERS = (
    "halfcheetah_sac",
    "hopper_sac",
    "walker2d_sac",
    "halfcheetah_td3",
    "halfcheetah_ppo",
    "hopper_ppo",
    "walker2d_ppo",
    *(f"minatar_{each} {game}" for each in ("ppo", "dqn") for game in WITH_A_PEER),
)

Kept = list[dict[str, Any]]


def chosen(words: Sequence[str]) -> list[Row]:
    """Returns the rows of some names; the name of a config stands for all of its rows.

    Raises:
        SystemExit: there is no such row; the message lists all.
    """
    known = {each.name for each in ROWS} | {each.config for each in ROWS}
    peers = peers_of([each for each in ROWS if each.name in PEERS])
    unknown = [word for word in words if word not in known | {each.name for each in peers}]
    if unknown:
        raise SystemExit(f"no row {unknown[0]!r}: there are {', '.join(sorted(known))}")
    mine = [each for each in ROWS if each.name in words or each.config in words]
    return mine + [each for each in peers if each.name in words]


def peers_of(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of the peer beside those that have one.

    Raises:
        SystemExit: none has one.
    """
    found = [replace(row, name=f"{row.name}, {PEER}") for row in rows if row.name in PEERS]
    if not found:
        raise SystemExit(f"no row with a peer: {', '.join(PEERS)} have one")
    return found


def is_peer(row: Row) -> bool:
    """Returns True if a row is the peer's."""
    return row.name.endswith(f", {PEER}")


def peer_experiment(row: Row) -> dict[str, Any]:
    """Returns what the peer's script gets: every value stands in the config of our own run."""
    return stable_baselines3(resolved(row.config, row.overrides))


def peer_run(python: str, row: Row, seed: int, folder: Path) -> dict[str, Any]:
    """Runs the peer once, in its own environment; returns the numbers of the run.

    Args:
        python: interpreter of that environment.
        row: of the peer.
        seed: of the run.
        folder: gets what `surreal-like plot` and `compare` read of a run.

    Raises:
        SystemExit: the run has failed; the message names it.
    """
    experiment = json.dumps(peer_experiment(row))
    load, began = os.getloadavg()[0], time.monotonic()
    limit = 4 * row.at_most_seconds
    try:
        words = (str(seed), repr(time.time()), experiment)
        found = run_script(python, "sb3_equal.py", *words, seconds=limit)
    except RunFailed as error:
        raise SystemExit(f"{row.name}, seed {seed}: {error}") from None
    curve = found.pop("curve")
    write_run(folder, row, seed, curve)
    return {
        "curve": curve_of(curve),
        "seed": seed,
        "load_before": round(load, 2),
        "command_seconds": round(time.monotonic() - began, 2),
        "greedy_seconds": None,
        **found,
    }


def curve_of(lines: Kept) -> list[list[float]]:
    """Returns environment steps and greedy mean return of each evaluation in lines of progress."""
    found = [line["eval"] for line in lines if line.get("eval")]
    points = {each["env_steps"]: each["mean_return"] for each in found}
    return [[steps, round(mean, 4)] for steps, mean in sorted(points.items())]


def write_run(folder: Path, row: Row, seed: int, lines: Kept) -> None:
    """Writes what `surreal-like plot` and `compare` read of a run: of a peer, or of a kept curve.

    Args:
        folder: of the run.
        row: of the run.
        seed: of the run.
        lines: of its progress; they need `env_steps`, `wall_seconds`, `eval` and `train`.
    """
    place = RunFolder(folder)
    place.path.mkdir(parents=True, exist_ok=True)
    config = resolved(row.config, row.overrides)
    if is_peer(row):
        config.algorithm = f"{PEER} {config.algorithm}"
        config.learner_config = {}
    config.session_config.seed = seed
    config.dump_file(place.config)
    # What a reader of progress.jsonl expects, and nobody counted.
    others = {"iterations": 0, "episodes": 0, "lag": dict.fromkeys(LAG)}
    place.progress.write_text("".join(f"{json.dumps(others | line)}\n" for line in lines))


def write_curve(folder: Path, row: Row, run: Mapping[str, Any]) -> None:
    """Writes a run folder with the curve of a kept run."""
    lines = [
        {
            "env_steps": steps,
            "wall_seconds": 0.0,
            "eval": {"mean_return": mean, "env_steps": steps},
            "train": {"mean_return_100": None},
        }
        for steps, mean in run["curve"]
    ]
    write_run(folder, row, run["seed"], lines)


def settings_of(wanted: Row) -> str:
    """Returns the fingerprint of a row's experiment; of a peer's, its packages and settings."""
    if is_peer(wanted):
        return " ".join([*PACKAGES["sb3"], json.dumps(peer_experiment(wanted))])
    return str(experiment_of(wanted)["experiment"])


def left(
    rows: Sequence[Row], seeds: Sequence[int], kept: Kept, prints: Mapping[str, str]
) -> list[tuple[Row, int]]:
    """Returns the runs that are not kept yet, seed by seed: what is there has equal seeds."""
    done = {(run["row"], run["seed"], run["fingerprint"]) for run in kept}
    return [
        (row, seed)
        for seed in seeds
        for row in rows
        if (row.name, seed, prints[row.name]) not in done
    ]


def measured(
    runs: Sequence[tuple[Row, int]], keep: Path, *, jobs: int, until: float, python: str = ""
) -> Iterator[tuple[Row, int, dict[str, Any] | None]]:
    """Yields each run as soon as it ends; None for one that has failed, or was not started.

    Args:
        runs: to make.
        keep: folder for the run folders.
        jobs: number of runs at a time.
        until: no run starts after this moment, of `time.monotonic`.
        python: interpreter of the peer.
    """

    def make(row: Row, seed: int) -> dict[str, Any] | None:
        if time.monotonic() >= until:
            return None
        folder = keep / row.name.replace(",", "").replace(" ", "-") / f"seed-{seed}"
        try:
            if is_peer(row):
                return peer_run(python, row, seed, folder)
            cut = RunFolder(folder).config.exists()
            run = one_run(row, seed, folder, *SAVE, resume=True)
            if row.name in PEERS:
                run["judged_mean_return"] = judged_return(folder, "latest", seed)
            return run | {"resumed": cut, "curve": curve_of(progress_lines(folder))}
        except SystemExit as error:
            print(error, file=sys.stderr, flush=True)
            return None

    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(make, *run): run for run in runs}
        for future in as_completed(futures):
            yield *futures[future], future.result()


@contextmanager
def in_folder_of_data(rows: Sequence[Row], folder: Path) -> Iterator[None]:
    """Makes the recordings that rows learn from, in the folder in which these then run."""
    needed = set[str]()
    for row in rows:
        needed |= recorded.needed_by(config_file(row.config), row.overrides)
    for name in sorted(needed):
        recorded.make(name, folder)
    if not needed:
        yield
        return
    with chdir(folder):
        yield


def table_rows(rows: Sequence[Row], kept: Kept, prints: Mapping[str, str]) -> Kept:
    """Returns for each row its runs of the present settings, and whether they hold."""
    found: Kept = []
    for row in rows:
        runs = [
            run
            for run in kept
            if run["row"] == row.name and run["fingerprint"] == prints.get(row.name)
        ]
        passed = row.goal is None or sum(not holds(row, run) for run in runs) <= row.may_miss
        found.append({"name": row.name, "goal": row.goal, "runs": runs, "passed": passed})
    means = {row.name: _mean(each) for row, each in zip(rows, found, strict=True)}
    for row, each in zip(rows, found, strict=True):
        mine, theirs = means[row.name], means.get(f"{row.name}, {PEER}")
        if mine is not None and theirs is not None:
            each["passed"] = mine >= theirs - (1 - AT_LEAST) * abs(theirs)
    return [each for each in found if each["runs"]]


def _mean(row: Mapping[str, Any]) -> float | None:
    found = [score for run in row["runs"] if (score := last_return(run)) is not None]
    return statistics.mean(found) if found else None


def document(found: Mapping[str, Any]) -> str:
    """Formats all rows that have runs, of their newest settings, and how each was measured."""
    kept: Kept = found["milestones"]
    prints = {run["row"]: run["fingerprint"] for run in kept}
    rows = table_rows([*ROWS, *peers_of(ROWS)], kept, prints)
    newest = [run for row in rows for run in row["runs"]]
    single = [row for row in rows if not row["name"].startswith("minatar")]
    parts = [milestones_table(single), beside_peer(single, PEER), games_table(newest)]
    where: dict[str, Kept] = {}
    for row in rows:
        seeds = sorted(run["seed"] for run in row["runs"])
        where.setdefault(learned_on(row["runs"][-1]["machine"], seeds), []).append(row)
    lines = []
    for text, each in where.items():
        names = ", ".join(f"`{row['name']}`" for row in each)
        runs = [run for row in each for run in row["runs"]]
        lines.append(f"* {names}: {text} {loads(runs)}")
    return "\n\n".join([*filter(None, parts), "\n".join(lines)])


def dumped(kept: Kept) -> str:
    """Returns the text of the file: a line for each run, because of its curve."""
    lines = ",\n".join(json.dumps(run) for run in kept)
    return f'{{"milestones": [\n{lines}\n]}}\n'


def main() -> int:
    """Measures what is left, prints and writes; returns 1 if a row is missed or a run failed."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "",
        epilog=f"criterion: {LEARNED_CRITERION}",
    )
    parser.add_argument("--rows", nargs="+", required=True, metavar="ROW", help="or a config")
    add_seeds(parser, "101..105")
    # A run has several processes; two runs at a time take longer each.
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; default: 1")
    parser.add_argument("--hours", type=float, help="start nothing more after that")
    parser.add_argument("--peer", action="store_true", help=f"also runs of {PEER}")
    add_scratch(parser)
    parser.add_argument("--name", default="milestones", help="of the file with the results")
    parser.add_argument("--keep", type=Path, help="folder for the run folders, which stay there")
    given = parser.parse_args()
    rows, path = chosen(given.rows), HERE / "results" / f"{given.name}.json"
    python = ""
    if given.peer:
        rows = [*rows, *peers_of(rows)]
    if any(map(is_peer, rows)):
        python = install("sb3", given.scratch)
    kept: Kept = json.loads(path.read_text())["milestones"] if path.exists() else []
    until = time.monotonic() + 3600 * given.hours if given.hours is not None else float("inf")
    failed = False
    with run_folders(given.keep) as folder, in_folder_of_data(rows, folder / "recorded"):
        prints = {row.name: settings_of(row) for row in rows}
        runs = left(rows, seeds_of(given.seeds), kept, prints)
        for row, seed, found in measured(runs, folder, jobs=given.jobs, until=until, python=python):
            failed |= found is None
            if found is not None:
                kept.append({"row": row.name, "fingerprint": prints[row.name], **found})
                kept[-1] |= {"machine": machine(), "jobs": given.jobs}
                path.write_text(dumped(kept))
                print(json.dumps({"row": row.name, "seed": seed}), file=sys.stderr, flush=True)
    table = table_rows(rows, kept, prints)
    print(milestones_table(table))
    return int(failed or not all(each["passed"] for each in table))


if __name__ == "__main__":
    sys.exit(main())
