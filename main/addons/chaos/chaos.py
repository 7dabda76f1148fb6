"""``surreal-like chaos``: tries faults on a run, and tells what held."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from main.cli.arguments import EXPERIMENT, FOLDER, Option, Parser, request_of, seconds_of
from main.cli.runs import find_run, refuse_over
from session.errors import UsageError
from session.launchers.handle import RunHandle, open_run
from session.process.periodic import wait_until
from session.program import path_from_here
from session.show.text import MISSING, columns, count, rate
from surreal_like.experiment.shipped import is_experiment

if TYPE_CHECKING:
    from surreal_like.addons.chaos.faults import Faults, Plan

_EXAMPLES = """examples:
  surreal-like chaos latest --kill agent=30s --kill replay=60s --for 5m
  surreal-like chaos cartpole_dqn --kill agent=10s --kill learner=10s --for 2m
  surreal-like chaos latest --term replay=60s --stop agent=60s --for 10m

Times between two faults are exponential, with the mean that is given. A run that is started for it
is stopped at the end; one that goes on stays. Exit code 1: something broke.
"""
_LOOK_SECONDS = 0.05
# Share of the time, at its beginning, without faults: for the rate to compare with.
_QUIET_SHARE, _QUIET_MOST_SECONDS = 0.2, 20.0
# Time in which the last hit components must be back, and the run be over [s].
_LAST_SECONDS = 60.0


def run(argv: Sequence[str]) -> int:
    """Runs the command; returns its exit code."""
    given = _parser().parse_args(argv)
    from surreal_like.addons.chaos.faults import DISK, KILL, STOP, TERM, Faults, Plan
    from surreal_like.addons.chaos.invariants import RunFiles, check

    plans = [
        Plan(what, *_parse(what, word))
        for what in (KILL, TERM, STOP)
        for word in getattr(given, what)
    ]
    if given.disk_full:
        plans.append(Plan(DISK, "", seconds_of(given.disk_full, "--disk-full")))
    seconds = seconds_of(given.duration, "--for")
    if not plans:
        raise UsageError("nothing to try: give --kill, --term, --stop or --disk-full")
    with _open(given, plans) as handle:
        own = _names_experiment(given)
        try:
            faults = Faults(handle.folder, plans, seed=given.seed or 0)
            try:
                rates = _drive(handle, faults, seconds)
            finally:
                faults.free_disk()
        finally:
            # Also after Ctrl-C: a run that was started here must not stay.
            if own and handle.running:
                handle.stop(reason="chaos is over")
        if own or not handle.running:
            handle.wait(_LAST_SECONDS + handle.ending_seconds)
        # The events of a run that goes on are written a moment later.
        _wait(lambda: not any(check(RunFiles(handle.folder, faults.happened)).values()), 5, handle)
        run = RunFiles(handle.folder, faults.happened)
        broken = check(run)
    print(_table(plans, faults, rates), _held(broken), sep="\n\n")
    state = run.result.get("reason") if handle.folder.over else "goes on"
    print(f"\nrun {path_from_here(handle.folder.path)}: {state}")
    return int(any(broken.values()))


def _parser() -> Parser:
    kinds = {
        "kill": "kills (SIGKILL), as agent=30s",
        "term": "requests to end (SIGTERM)",
        "stop": "stops of 20 s (SIGSTOP), which hang a process",
    }
    return Parser(
        "chaos",
        "Tries faults on a run, and checks what must hold.",
        EXPERIMENT,
        *(
            Option(f"--{what}", action="append", default=[], metavar="KIND=MEAN", help=meaning)
            for what, meaning in kinds.items()
        ),
        Option(
            "--disk-full",
            metavar="MEAN",
            help="fills the disk of the run folder, if it is a small one",
        ),
        Option(
            "--for", dest="duration", default="1m", metavar="TIME", help="duration, as 90s or 10m"
        ),
        Option(
            "--on", default="local", metavar="local|tmux", help="where it starts a run of its own"
        ),
        *FOLDER,
        examples=_EXAMPLES,
    )


def _parse(what: str, word: str) -> tuple[str, float]:
    kind, equals, mean = word.partition("=")
    if not kind or not equals:
        raise UsageError(f"'{word}' is no fault: write it as agent=30s")
    return kind, seconds_of(mean, f"--{what} {kind}")


def _open(given: argparse.Namespace, plans: Sequence[Plan]) -> RunHandle:
    """Opens the run that is named, or starts one of the experiment.

    Raises:
        UsageError: it has no component for a fault; nothing was started.
    """
    words = given.words
    if not _names_experiment(given):
        handle = open_run(find_run(words[0]))
        refuse_over(handle)
        return handle
    from surreal_like.addons.chaos.faults import check_kinds
    from surreal_like.run.train import run_detached

    # However often a component is killed, that is no reason to give up.
    given.words = [*words, "session_config.launcher.max_restarts=1000000"]
    request = request_of(given)
    check_kinds(plans, request.resolve().topology)
    return run_detached(request)


def _names_experiment(given: argparse.Namespace) -> bool:
    """Returns False if the words are those of a run that goes on."""
    return len(given.words) != 1 or given.algorithm is not None or is_experiment(given.words[0])


def _drive(handle: RunHandle, faults: Faults, seconds: float) -> tuple[float, float]:
    """Lets faults come for a while; returns environment steps per second before and with them."""
    quiet = min(_QUIET_MOST_SECONDS, _QUIET_SHARE * seconds)
    _wait(lambda: handle.progress().get("env_steps", 0) > 0, _LAST_SECONDS, handle)
    before = _steps_while(handle, quiet, lambda: None)
    faults.begin()
    during = _steps_while(handle, seconds - quiet, faults.tick)
    faults.end()
    _wait(faults.all_back, _LAST_SECONDS, handle)
    if not handle.running:
        faults.cut_off()
    return before, during


def _steps_while(handle: RunHandle, seconds: float, tick: Callable[[], object]) -> float:
    began, first = time.monotonic(), handle.progress()

    def over() -> bool:
        tick()
        return time.monotonic() - began >= seconds

    _wait(over, seconds + _LOOK_SECONDS, handle)
    last = handle.progress()
    wall = last.get("wall_seconds", 0.0) - first.get("wall_seconds", 0.0)
    return float((last.get("env_steps", 0) - first.get("env_steps", 0)) / wall) if wall > 0 else 0.0


def _wait(over: Callable[[], bool], seconds: float, handle: RunHandle) -> None:
    """Waits until it is over, the time has passed, or the run has ended."""
    wait_until(lambda: not handle.running or over(), seconds, look_seconds=_LOOK_SECONDS)


def _table(plans: Sequence[Plan], faults: Faults, rates: tuple[float, float]) -> str:
    rows = []
    for plan in plans:
        found = list(faults.of(plan))
        back = [each.recovered_seconds for each in found if each.recovered_seconds is not None]
        rows.append(
            [
                f"{plan.what} {plan.kind}".strip(),
                count(len(found)),
                f"{statistics.median(back):.1f} s" if back else MISSING,
                f"{max(back):.1f} s" if back else MISSING,
            ]
        )
    head = ["fault", "times", "recovered after (median)", "(longest)"]
    steps = f"environment steps: {rate(rates[0])} before, {rate(rates[1])} with faults"
    return f"{columns(head, rows, right=(1, 2, 3))}\n\n{steps}"


def _held(broken: Mapping[str, Sequence[str]]) -> str:
    rows = [[name, "; ".join(texts[:3]) if texts else "holds"] for name, texts in broken.items()]
    return columns(["what must hold", ""], rows)
