"""The plan layer alone: an item through six operators, and the check of a plan before a run.

Prints tables and JSON, and writes benchmarks/results/dataflow.json.

    python benchmarks/dataflow.py [--rounds 5] [--seconds 0.3]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from prepared import resolved  # noqa: E402
from setting import Given, arguments  # noqa: E402

from session.config import Config  # noqa: E402
from surreal_like.data.batch import Batch  # noqa: E402
from surreal_like.dataflow import Flow, Operator, from_items  # noqa: E402
from surreal_like.experiment.plan_check import check_plan  # noqa: E402
from surreal_like.experiment.preflight import rehearse  # noqa: E402
from surreal_like.experiment.resolve import algorithm_of  # noqa: E402

OPERATORS = 6
CALLS = 1000


def microseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the processor time of one call."""
    count, begin = 0, time.process_time()
    while time.process_time() < begin + seconds:
        for _ in range(CALLS):
            call()
        count += CALLS
    return 1e6 * (time.process_time() - begin) / count


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
            partial(_rehearse, config, lambda *given: None),
        ),
    ]
    lines = [Line("configs/cartpole_ppo.yaml", "with", ("without",))]
    title = "Checks before a run"
    group = Group(title, "milliseconds", "less", "In one process, imports done.", sides, lines)
    return measure(group, given.rounds)


def _rehearse(config: Config, check: Callable[..., None]) -> float:
    with patch("surreal_like.experiment.preflight.check_plan", check):
        begin = time.process_time()
        rehearse(config, algorithm_of(config, None), starts_here=True)
        return 1e3 * (time.process_time() - begin)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    with arguments(__doc__, seconds=0.3, rounds=5) as given:
        keep("dataflow", [operators(given), check(given)], given.versions, given.left_out)


if __name__ == "__main__":
    main()
