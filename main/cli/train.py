"""``surreal-like train``: parses the command line, trains, shows progress and result."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from main.cli.arguments import EXPERIMENT, FOLDER, HOST, SHOWN, SNAPSHOT, Option, Parser, request_of
from main.cli.live_observer import LiveTable
from main.cli.output import terminal_width
from main.cli.progress_lines import Lines
from main.cli.summary import seeds_table, summary
from session.errors import UsageError
from surreal_like.experiment.user_code import restart_archived
from surreal_like.run.folder import new_path
from surreal_like.run.observer import RunObserver
from surreal_like.run.request import RunRequest
from surreal_like.run.train import Run, run_here

_EXAMPLES = """examples:
  surreal-like train configs/cartpole_dqn.yaml
  surreal-like train configs/cartpole_dqn.yaml --seed 3 learner_config.algo.learning_rate=5e-4
  surreal-like train --algorithm dqn --env gym:Acrobot-v1 'session_config.stop={env_steps: 100000}'
  surreal-like train configs/cartpole_dqn.yaml --on serial --quiet
  surreal-like train --resume --folder runs/NAME session_config.stop.env_steps=500000

exit code: 0 goal met, or a budget used where there is no goal; 3 a budget ended before the goal;
1 failed; 2 wrong command or config; 130 interrupted (Ctrl-C ends cleanly, a second one at once)
"""


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    started = process_start() if list(argv) == sys.argv[2:] else time.time()
    given = Parser(
        "train",
        "Trains until the goal is met or a budget is used.",
        EXPERIMENT,
        Option(
            "--on",
            default="local",
            metavar="local|serial",
            help="local: processes on this machine (default); serial: one thread, repeatable",
        ),
        *FOLDER,
        SNAPSHOT,
        Option("--seeds", metavar="1..5", help="one run per seed, then a table of all (or 1,4,9)"),
        HOST,
        SHOWN,
        examples=_EXAMPLES,
    ).parse_args(argv)
    request = replace(request_of(given), started=started)
    if given.from_snapshot:
        if not given.resume:
            raise UsageError("--snapshot belongs to --resume: a new run has the installed code")
        restart_archived(request.resumed, ["train", *argv])
    if given.seeds is None:
        ended = run_here(request, _watch(given, started))
        _finish(given, ended)
        return ended.exit_code
    return _train_seeds(given, request)


def process_start() -> float:
    """Returns the start time of this process, in seconds since 1970."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2]
        ticks = int(after_name.split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.time()
    return time.time() - max(0.0, age)


def _watch(given: argparse.Namespace, started: float) -> RunObserver:
    if given.quiet:
        return RunObserver()
    stream = _stream(given)
    return LiveTable(stream, started) if stream.isatty() else Lines(stream)


def _stream(given: argparse.Namespace) -> IO[str]:
    """Returns the stream for people; standard output is reserved for --json."""
    return sys.stderr if given.json else sys.stdout


def _finish(given: argparse.Namespace, ended: Run) -> None:
    if given.json:
        print(json.dumps(ended.result))
    if not given.quiet:
        stream = _stream(given)
        width = terminal_width(stream)
        print("\n".join(summary(ended, width)), file=stream)
    if ended.exit_code == 1:
        if "Traceback" in ended.details and not given.quiet:
            sys.stderr.write(f"{ended.details}\n")
        reason = ended.result.get("reason") or "no reason was left"
        sys.stderr.write(
            f"surreal-like: error: run {ended.folder} failed: {' '.join(str(reason).split())}\n"
        )


def _train_seeds(given: argparse.Namespace, request: RunRequest) -> int:
    """Runs the seeds one after another; returns the first exit code that is not 0."""
    if given.resume:
        raise UsageError("--seeds begins new runs: leave --resume out, or resume one with --folder")
    if given.seed is not None:
        raise UsageError("give --seed for one run, or --seeds for several, not both")
    seeds = parse_seeds(given.seeds)
    stem = new_path(request.name)
    runs: dict[int, Run] = {}
    for seed in seeds:
        folder = stem.with_name(f"{stem.name}-seed{seed}")
        if given.folder:
            folder = Path(given.folder) / f"seed-{seed}"
        started = request.started if not runs else time.time()
        own = replace(request, seed=seed, folder=folder, started=started)
        runs[seed] = run_here(own, _watch(given, started))
        if runs[seed].exit_code == 130:
            break
        _finish_one(given, seed, runs[seed])
    if given.json:
        print(json.dumps({seed: ended.result for seed, ended in runs.items()}))
    if not given.quiet:
        print("\n" + seeds_table(runs), file=_stream(given))
    return next((ended.exit_code for ended in runs.values() if not ended.ok), 0)


def _finish_one(given: argparse.Namespace, seed: int, ended: Run) -> None:
    if not given.quiet:
        print(f"seed {seed}: {summary(ended)[0]}", file=_stream(given))


def parse_seeds(text: str) -> list[int]:
    """Returns the seeds of ``1..5`` or ``1,4,9``.

    Raises:
        UsageError: the text has neither form, or names a seed twice.
    """
    first, dots, last = text.partition("..")
    try:
        seeds = (
            list(range(int(first), int(last) + 1)) if dots else [int(s) for s in text.split(",")]
        )
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise UsageError(f"--seeds {text}: write it as 1..5, or as 1,4,9")
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise UsageError(f"--seeds {text}: seed {twice[0]} stands twice, its runs would be equal")
    return seeds
