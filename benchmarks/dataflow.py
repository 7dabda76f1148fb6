"""The plan layer alone, the check of a plan before a run, and gradients from agent to learner.

Prints tables and JSON, and writes benchmarks/results/dataflow.json; about two minutes.

    python benchmarks/dataflow.py [--rounds 5] [--seconds 0.3] [--only operators check gradient]
    python benchmarks/dataflow.py --before CHECKOUT     also updates of learners, now and before
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure, seconds_per_call  # noqa: E402
from contenders import rate  # noqa: E402
from gradients import A3C, GradientPath, Plain  # noqa: E402
from prepared import resolved  # noqa: E402
from run import one_run  # noqa: E402
from setting import Given, arguments  # noqa: E402
from tables import tables  # noqa: E402
from worker import Worker  # noqa: E402

from session.config import Config  # noqa: E402
from surreal_like.data.batch import Batch  # noqa: E402
from surreal_like.dataflow import Flow, Operator, from_items  # noqa: E402
from surreal_like.experiment.plan_check import check_plan  # noqa: E402
from surreal_like.experiment.preflight import rehearse  # noqa: E402
from surreal_like.experiment.resolve import algorithm_of  # noqa: E402

OPERATORS = 6
CALLS = 1000
# About 100,000 parameters.
HIDDEN_SIZES = [312, 312]
AGENTS = 4
LEARNERS = ("cartpole_dqn", "cartpole_ppo", "cartpole_impala", "pendulum_sac", "pendulum_td3")
# Rounds and duration of the runs.
RUNS = 3
RUN_SECONDS = 15.0


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the processor time of one call."""
    return 1e6 * seconds_per_call(call, seconds, at_once=CALLS)


def _same(item: Any) -> Any:
    return item


def operators(given: Given) -> Found:
    """Measures one item through six operators, beside the same functions called one by one."""
    batch = Batch(rewards=torch.zeros(128))
    flow: Flow = from_items(repeat(batch))
    for _ in range(OPERATORS):
        flow = flow.for_each(Operator("same", _same))

    def bare() -> Any:
        item: Any = batch
        for _ in range(OPERATORS):
            item = _same(item)
        return item

    sides = [
        Side(
            "plan",
            "surreal_like",
            "pull() of a flow of six operators; items and rows are counted, some calls timed",
            partial(microseconds, flow.pull, given.seconds),
        ),
        Side(
            "bare", "six calls", "the functions alone", partial(microseconds, bare, given.seconds)
        ),
    ]
    lines = [Line("one batch, six operators", "plan", ("bare",), "4, aim 2")]
    about = "Each operator gives its batch back. Processor time."
    title = "An item through a plan"
    return measure(Group(title, "microseconds per item", "less", about, sides, lines), given.rounds)


def check(given: Given) -> Found:
    """Measures what building and pulling a plan adds to the checks before a run."""
    config = resolved("cartpole_ppo")
    sides = [
        Side(
            "with",
            "with the plan",
            "agent, learner and replay are built, the plan is pulled once with zeros",
            partial(_rehearse, config, check_plan),
        ),
        Side(
            "without",
            "without it",
            "agent, learner and replay are built",
            partial(_rehearse, config, lambda *given: {}),
        ),
    ]
    lines = [Line("configs/cartpole_ppo.yaml", "with", ("without",), "150 ms more, aim 50 ms")]
    title = "Checks before a run"
    group = Group(title, "milliseconds", "less", "In one process, imports done.", sides, lines)
    return measure(group, given.rounds)


def _rehearse(config: Config, check: Callable[..., object]) -> float:
    with patch("surreal_like.experiment.preflight.check_plan", check):
        begin = time.process_time()
        rehearse(config, algorithm_of(config, None), starts_here=True)
        return 1e3 * (time.process_time() - begin)


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the duration of one call."""
    calls, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        call()
        calls += 1
    return 1e3 * (time.perf_counter() - begin) / calls


def gradient(given: Given) -> Found:
    """Measures a gradient from its agent to the parameters, beside its bytes over plain ipc."""
    ours = GradientPath(given.folder / "path", HIDDEN_SIZES)
    plain = Plain(given.folder, ours.size)
    sides = [
        Side(
            "row",
            "surreal_like",
            "sender, replay server, learner: one at a time, until it is applied",
            partial(milliseconds, ours.one, given.seconds),
        ),
        Side(
            "plain",
            "plain ipc",
            "DEALER to DEALER in another process, which adds them to an array and replies",
            partial(milliseconds, plain.one, given.seconds),
        ),
    ]
    lines = [Line(f"{ours.size:,} parameters", "row", ("plain",), "4, aim 2.5")]
    about = "Float32. Ours makes two hops: to the replay server, and from there to the learner."
    group = Group("A gradient", "milliseconds", "less", about, sides, lines)
    try:
        return measure(group, given.rounds)
    finally:
        ours.close()
        plain.close()


def gradients(given: Given) -> Found:
    """Measures the gradients of a whole run beside those of agents that send none."""
    seconds = RUN_SECONDS
    stop = f"session_config.stop={{seconds: {seconds}}}"
    report = "session_config.learner.report_seconds=0.5"
    words = (f"session_config.agent.num={AGENTS}", "session_config.evaluator.num=0", stop, report)
    folders = (given.folder / f"run-{number}" for number in count())

    def run() -> float:
        rates = one_run(A3C, words, None, next(folders))["steady_rates"]
        return float(rates["updates_per_second"])

    with ExitStack() as stack:
        script = str(HERE / "ours" / "gradients.py")
        workers = [stack.enter_context(Worker(sys.executable, script)) for _ in range(AGENTS)]

        def dropped() -> float:
            for worker in workers:
                worker.start("compute", seconds=seconds / 2)
            return sum(rate(worker.finish()) for worker in workers)

        dropped()  # starts their processes
        sides = [
            Side("run", "surreal_like", "the train command, each gradient applied by itself", run),
            Side(
                "dropped",
                "without learner",
                "RolloutWorker and Policy.compute_gradients in as many processes; nothing is sent",
                dropped,
            ),
        ]
        lines = [Line("configs/cartpole_a3c.yaml", "run", ("dropped",), "0.6")]
        about = f"{AGENTS} agents of 8 environments, unrolls of 16 steps."
        group = Group("Gradients of a run", "gradients/s", "more", about, sides, lines)
        return measure(group, min(RUNS, given.rounds))


def learners(given: Given) -> Found:
    """Measures the updates of learners beside those of another checkout."""
    assert given.before is not None  # else it is left out
    script = str(HERE / "ours" / "learning.py")
    with ExitStack() as stack:
        now, before = (
            stack.enter_context(Worker(sys.executable, script, str(folder)))
            for folder in (HERE.parent, given.before)
        )

        def learn(worker: Worker) -> dict[str, float]:
            asked = {"seconds": given.seconds}
            return {name: rate(worker.ask("learn", name=name, **asked)) for name in LEARNERS}

        learn(now), learn(before)  # starts their processes
        sides = [
            Side("now", "this checkout", "Learner.learn", partial(learn, now)),
            Side("before", "the other one", "Learner.learn", partial(learn, before)),
        ]
        lines = [
            Line(f"configs/{name}.yaml", f"now {name}", (f"before {name}",), "0.97, aim 1")
            for name in LEARNERS
        ]
        about = "One batch again and again, one thread, processor time."
        group = Group("Updates", "batches/s", "more", about, sides, lines)
        return measure(group, given.rounds)


GROUPS = {
    "operators": operators,
    "check": check,
    "gradient": gradient,
    "gradients": gradients,
    "learners": learners,
}


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    with arguments(__doc__, seconds=0.3, rounds=5, parts=tuple(GROUPS), compares=True) as given:
        parts = [part for part in given.parts if part != "learners" or given.before]
        found = [GROUPS[part](given) for part in parts]
        if len(given.parts) == len(GROUPS):
            keep("dataflow", found, given.versions, given.left_out)
        else:
            print(tables({"groups": found}))


if __name__ == "__main__":
    main()
