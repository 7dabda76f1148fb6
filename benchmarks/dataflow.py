"""The plan layer alone, the check of a plan before a run, and gradients from agent to learner.

Prints tables and JSON, and writes benchmarks/results/dataflow.json.

    python benchmarks/dataflow.py [--rounds 5] [--seconds 0.3]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import zmq

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from prepared import make_learner, resolved  # noqa: E402
from services import Services, play  # noqa: E402
from setting import Given, arguments  # noqa: E402

from session.config import Config  # noqa: E402
from session.wire.sockets import poll  # noqa: E402
from surreal_like.agent.actor_state import acting_of  # noqa: E402
from surreal_like.data.batch import Batch  # noqa: E402
from surreal_like.dataflow import Flow, Operator, Trained, from_items  # noqa: E402
from surreal_like.experience.chunk import GRADIENT  # noqa: E402
from surreal_like.experience.sender import ExpSender  # noqa: E402
from surreal_like.experiment.plan_check import check_plan  # noqa: E402
from surreal_like.experiment.preflight import rehearse  # noqa: E402
from surreal_like.experiment.resolve import algorithm_of  # noqa: E402
from surreal_like.replay.base import load_replay_class  # noqa: E402
from surreal_like.replay.client import ReplayClient  # noqa: E402

OPERATORS = 6
CALLS = 1000
POLL_SECONDS = 0.01


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


class Gradients:
    """Sends gradients of an agent through a replay server, and applies them.

    Args:
        folder: of the files of the run.
    """

    def __init__(self, folder: Path) -> None:
        config = resolved("cartpole_a3c")
        # About 100,000 parameters.
        config.learner_config.model.hidden_sizes = [312, 312]
        self._learner = make_learner(config)
        self._stack = ExitStack()
        self._stack.enter_context(Services(folder / "run", config, ("replay",)))
        agent, learner = self._stack.enter_context(play(str(folder / "run"), "agent-0", "learner"))
        self._sender = ExpSender(agent, config.session_config.sender)
        kind = load_replay_class(config.learner_config)
        self._learner.replay = ReplayClient(
            learner.wire,
            learner.clock,
            shards=1,
            batch_size=1,
            batches_per_request=1,
            collate=kind.collate(config.learner_config),
            consumes=True,
        )
        self.size = sum(optimizer.size for optimizer in self._learner.optimizers.values())
        self._columns = {
            "step_type": np.ones((1, 1), np.uint8),
            "reward": np.zeros((1, 1), np.float32),
            "discount": np.ones((1, 1), np.float32),
            "version": np.ones((1, 1), np.int64),
            GRADIENT: np.full((1, 1, self.size), 1e-6, np.float32),
            "extras/rows": np.full((1, 1), 160, np.int64),
        }
        acting_of(agent).pack = lambda chunk: replace(chunk, columns=self._columns)

    def one(self) -> None:
        """Sends a gradient, and waits until it is applied."""
        about: dict[str, Any] = {"streams": [0], "finished": [], "tail": False}
        self._sender.send(self._columns, **about, first_seconds=0.0)
        replay, applied = self._learner.replay, False
        while not applied:
            self._sender.pump()
            replay.tick()
            applied = isinstance(self._learner.flow.pull(), Trained)
            if not applied:
                poll([*replay.sockets(), self._sender.socket], POLL_SECONDS)
        self._learner.pop_updates()

    def close(self) -> None:
        """Ends the server."""
        self._stack.close()


class Plain:
    """Sends the same bytes over one pair of sockets.

    Args:
        folder: of the socket.
        size: numbers.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._context: zmq.Context[Any] = zmq.Context()
        self._push, self._pull = self._context.socket(zmq.PUSH), self._context.socket(zmq.PULL)
        self._pull.bind(f"ipc://{folder}/plain")
        self._push.connect(f"ipc://{folder}/plain")
        self._numbers = np.full(size, 1e-6, np.float32)

    def one(self) -> None:
        """Sends them, and reads them."""
        self._push.send(memoryview(self._numbers), copy=False)
        np.frombuffer(self._pull.recv(copy=False).buffer, np.float32)

    def close(self) -> None:
        """Closes both sockets."""
        self._context.destroy(0)


def milliseconds(call: Callable[[], object], seconds: float) -> float:
    """Returns the duration of one call."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        call()
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def gradients(given: Given) -> Found:
    """Measures a gradient from its agent to the parameters, beside its bytes over plain ipc."""
    ours = Gradients(given.folder)
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
            "PUSH to PULL in one process, not applied",
            partial(milliseconds, plain.one, given.seconds),
        ),
    ]
    lines = [Line("100,000 parameters", "row", ("plain",), "4, aim 2.5")]
    about = "Float32. Ours makes two hops: to the replay server, and from there to the learner."
    group = Group("A gradient", "milliseconds", "less", about, sides, lines)
    try:
        return measure(group, given.rounds)
    finally:
        ours.close()
        plain.close()


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    with arguments(__doc__, seconds=0.3, rounds=5) as given:
        keep(
            "dataflow",
            [operators(given), check(given), gradients(given)],
            given.versions,
            given.left_out,
        )


if __name__ == "__main__":
    main()
