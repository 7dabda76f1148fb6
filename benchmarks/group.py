"""Two learners that make one update together: an exchange of numbers, and whole updates.

Prints tables and JSON, and writes benchmarks/results/group.json.

    python benchmarks/group.py [--rounds 5] [--seconds 1]
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from prepared import make_batch, make_learner, resolved  # noqa: E402
from rank import SIZES, TIMES, Chosen, add_gloo, join_gloo, make_context  # noqa: E402
from setting import Given, arguments  # noqa: E402

from surreal_like.data.batch import Sampled  # noqa: E402
from surreal_like.data.group import within  # noqa: E402
from surreal_like.dataflow.items import columns_of  # noqa: E402
from surreal_like.learner.group_leader import Leader, digest_of  # noqa: E402
from surreal_like.learner.learner import Learner  # noqa: E402

LEARNERS = ("cartpole_dqn", "cartpole_ppo", "cartpole_impala", "pong_impala")


@contextmanager
def started(*words: str) -> Iterator[None]:
    """Starts the other rank, and kills it at the end."""
    process = subprocess.Popen([sys.executable, str(HERE / "ours" / "rank.py"), *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def learner_of(name: str) -> Learner:
    """Returns the learner of a config, that gets the same batch again and again."""
    config = resolved(name)
    learner, batch = make_learner(config), make_batch(config)
    batch.origin = Sampled({n: x.numpy() for n, x in columns_of(batch).items()}, 0, 0, {})
    context = SimpleNamespace(pulse=lambda: None)
    link = {"next_batch": lambda: batch, "count_steps": lambda: 0, "context": context}
    link |= {"send_priorities": lambda origin, priorities: None, "sampled": None}
    learner._link = cast(Any, SimpleNamespace(**link, publisher=SimpleNamespace(version=0)))
    return learner


class Two:
    """This process and another one as a group."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        folder.mkdir()
        learner = learner_of(name)
        self._plan = Chosen(learner)
        self._context = make_context(folder, "learner")
        self._group = Leader(self._context, 2, lambda: digest_of({"default": learner}))
        # Also keeps it: libzmq would wait for the sockets of a context that is collected.
        stack.callback(self._close)
        stack.enter_context(started(str(folder), name))
        while not self._group.tick():
            time.sleep(0.01)
        self._group.begin({})

    def _close(self) -> None:
        wire = self._context.wire
        wire.close(0)
        wire.context.destroy(0)

    def turn(self, size: int = 0) -> None:
        """Makes one turn: an update, or the exchanges of a size."""
        self._plan.learner.iteration = size
        with within(self._group), self._group.turn({"default": (size, 0)}):
            self._plan.pull()
        self._plan.learner.pop_updates()


def milliseconds(call: Callable[[], object], seconds: float, times: int = 1) -> float:
    """Returns the wall time of a call that does something so many times, of one of them."""
    calls, began = 0, time.perf_counter()
    while (used := time.perf_counter() - began) < seconds or not calls:
        call()
        calls += 1
    return 1e3 * used / calls / times


def exchanges(given: Given, two: Two, gloo: Any) -> Iterator[Found]:
    """Measures a sum of numbers over two ranks."""
    for size in SIZES:

        def by_gloo(size: int = size) -> None:
            gloo.broadcast(torch.tensor([size]), 0)
            add_gloo(gloo, size)

        def ours(size: int = size) -> None:
            two.turn(size)

        sides = [
            Side("ours", "surreal_like", "Group.sum of float32", timed(ours, given.seconds)),
            Side("gloo", "gloo", "torch.distributed.all_reduce", timed(by_gloo, given.seconds)),
        ]
        line = Line(f"{size:,} numbers", "ours", ("gloo",))
        about = "Two processes of one machine, one thread each; the numbers of one update."
        yield measure(
            Group(f"One exchange, {size:,}", "ms", "less", about, sides, [line]), given.rounds
        )


def timed(call: Callable[[], object], seconds: float) -> Callable[[], float]:
    """Returns the measurement of a call that exchanges several times."""
    return lambda: milliseconds(call, seconds, TIMES)


def updates(given: Given, stack: ExitStack) -> Iterator[Found]:
    """Measures updates of one learner, and of two that share each batch."""
    for name in LEARNERS:
        alone, two = learner_of(name), Two(given.folder / name, name, stack)

        def learn(learner: Learner = alone) -> None:
            learner.flow.pull()
            learner.pop_updates()

        sides = [
            Side(
                "two",
                "two learners",
                f"configs/{name}.yaml, half a batch each",
                partial(milliseconds, two.turn, given.seconds),
            ),
            Side(
                "one",
                "one learner",
                "the same, whole batches",
                partial(milliseconds, learn, given.seconds),
            ),
        ]
        line = Line(name, "two", ("one",))
        about = "Time from batch to batch, the same batch again; one thread for each learner."
        yield measure(
            Group(f"One update, {name}", "ms", "less", about, sides, [line]), given.rounds
        )


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    with arguments(__doc__, seconds=0.5) as given, ExitStack() as stack:
        two = Two(given.folder / "sums", "cartpole_dqn", stack)
        folder = given.folder / "gloo"
        folder.mkdir()
        stack.enter_context(started(str(folder), "gloo"))
        gloo = join_gloo(folder, 0)
        found = [*exchanges(given, two, gloo), *updates(given, stack)]
        keep("group", found, given.versions, given.left_out)


if __name__ == "__main__":
    main()
