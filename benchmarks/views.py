"""Views and first priorities of replay inside one process: hindsight, sequences, values of agents.

Each is compared with the plain side on the same rows, in turn. Prints tables and JSON, and writes
benchmarks/results/views.json.

    python benchmarks/views.py [--rounds 15] [--seconds 0.2]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE / "ours"), str(HERE / "peers")]

from compare import Found, Group, Line, Side, keep, measure, seconds_per_call  # noqa: E402
from rows import Columns, make_columns  # noqa: E402
from services import make_replay  # noqa: E402
from setting import Given, arguments  # noqa: E402

from session.nest import Array  # noqa: E402
from surreal_like.addons.hindsight.view import (  # noqa: E402
    GoalReward,
    HindsightView,
    Relabelling,
)
from surreal_like.addons.r2d2.replay import SequenceView  # noqa: E402
from surreal_like.data.timestep import StepType  # noqa: E402
from surreal_like.experience.chunk import Chunk  # noqa: E402
from surreal_like.replay.kinds import PrioritizedReplay  # noqa: E402
from surreal_like.replay.storage import ColumnStorage  # noqa: E402
from surreal_like.replay.view.n_step import NStepView, View  # noqa: E402

CAPACITY = 100_000
BATCH_SIZE = 256
LENGTH, STREAMS = 100, 32
GAMMA = 0.98
# Of FetchReach: the columns of its observations, and the length of its episodes.
PARTS = {"observation": 10, "achieved_goal": 3, "desired_goal": 3}
EPISODE_ROWS = 51
STEPS, BURN_IN = 40, 20
SEQUENCES = 32


def sparse_reward(achieved: Array, desired: Array, info: Any) -> Array:
    """Returns 0 at the goal and -1 elsewhere, of many goals at once: as FetchReach computes it."""
    distance = np.linalg.norm(achieved - desired, axis=-1)
    reward: Array = -(distance > 0.05).astype(np.float32)
    return reward


def goal_columns(step_type: Array, generator: np.random.Generator) -> Columns:
    """Returns observations with goals ``[T, N, ...]``, and rewards that fit them."""
    parts = {
        f"obs/{name}": generator.standard_normal((*step_type.shape, width), np.float32)
        for name, width in PARTS.items()
    }
    reward = sparse_reward(parts["obs/achieved_goal"], parts["obs/desired_goal"], None)
    return {**parts, "reward": np.where(step_type == StepType.FIRST, np.float32(0.0), reward)}


class Stored:
    """Rows of one kind of episodes, and the views that gather from them.

    Args:
        episode_rows: rows of an episode; the streams are out of step.
        goals: True for observations with goals, False for CartPole's.
        views: by name.
    """

    def __init__(self, episode_rows: int, goals: bool, views: dict[str, View]) -> None:
        self._storage = ColumnStorage(CAPACITY)
        self._views = views
        self._generator = np.random.default_rng(0)
        for number in range(CAPACITY // (LENGTH * STREAMS) + 1):
            place = {"begin": number * LENGTH, "episode_rows": episode_rows}
            columns = make_columns("small", LENGTH, STREAMS, number, **place)
            if goals:
                del columns["obs"]
                columns |= goal_columns(columns["step_type"], self._generator)
            chunk = Chunk(columns, number + 1, list(range(STREAMS)), sender="agent-0")
            rows = self._storage.insert(chunk)
            for view in views.values():
                view.ready(self._storage, rows, columns["step_type"])
        self._ready = {
            name: self._storage.oldest + np.flatnonzero(view.ready_rows(self._storage))
            for name, view in views.items()
        }

    def rate(self, name: str, batch_size: int, seconds: float) -> float:
        """Draws and gathers batches of one view; returns steps per second of processor time."""
        view, ready = self._views[name], self._ready[name]

        def gather() -> int:
            numbers = ready[self._generator.integers(len(ready), size=batch_size)]
            return view.gather(self._storage, numbers)["rewards"].size

        return gather() / seconds_per_call(gather, seconds)

    def side(self, name: str, label: str, did: str, batch_size: int, seconds: float) -> Side:
        """Returns one view as a side of a comparison."""
        return Side(name, label, did, partial(self.rate, name, batch_size, seconds))


def hindsight(given: Given) -> Found:
    """Measures transitions with goals in hindsight."""
    how = Relabelling(proportion=0.8)
    views: dict[str, View] = {
        "hindsight": HindsightView(1, GAMMA, goals=GoalReward(sparse_reward), relabelling=how),
        "plain": NStepView(1, GAMMA),
    }
    stored = Stored(EPISODE_ROWS, True, views)
    sides = [
        stored.side(
            "hindsight",
            "surreal_like",
            "HindsightView, proportion 0.8, future",
            BATCH_SIZE,
            given.seconds,
        ),
        stored.side(
            "plain", "stored goals", "NStepView of the same rows", BATCH_SIZE, given.seconds
        ),
    ]
    about = (
        f"1-step, batches of {BATCH_SIZE} out of {CAPACITY:,} rows of FetchReach's shape, episodes "
        f"of {EPISODE_ROWS - 1} steps, rewards of all new goals in one call."
    )
    lines = [
        Line("four of five rows with a new goal", "hindsight", ("plain",), "0.35 x, aim 0.6 x")
    ]
    return measure(
        Group("Goals in hindsight", "rows per processor second", "more", about, sides, lines),
        given.rounds,
    )


def sequences(given: Given) -> Found:
    """Measures sequences of episodes."""
    views: dict[str, View] = {
        "sequences": SequenceView(STEPS, GAMMA, burn_in=BURN_IN, period=20),
        "rows": NStepView(1, GAMMA),
    }
    stored = Stored(300, False, views)
    sides = [
        stored.side(
            "sequences",
            "surreal_like",
            "SequenceView, a start every 20 rows",
            SEQUENCES,
            given.seconds,
        ),
        stored.side(
            "rows", "1-step rows", "NStepView, 1-step, each row twice", BATCH_SIZE, given.seconds
        ),
    ]
    about = (
        f"{SEQUENCES} sequences of {BURN_IN} + {STEPS} steps, against batches of {BATCH_SIZE} "
        f"rows, out of {CAPACITY:,} rows of CartPole's columns, episodes of 300 rows."
    )
    lines = [Line("steps of sequences", "sequences", ("rows",), "1 x, aim 2 x")]
    return measure(
        Group("Sequences", "steps per processor second", "more", about, sides, lines), given.rounds
    )


def first_priorities(given: Given) -> Found:
    """Measures the insertion of rows whose first priorities are errors of the agents' values."""
    columns = make_columns("small", LENGTH, STREAMS)
    generator = np.random.default_rng(0)
    for name in ("q_taken", "q_greedy"):
        columns[f"extras/{name}"] = generator.random((LENGTH, STREAMS), np.float32)
    sides = [
        Side(
            initial,
            label,
            f"priority.initial: {initial}",
            _inserting(initial, columns, given),
        )
        for initial, label in (("acting", "surreal_like"), ("highest", "highest so far"))
    ]
    about = (
        f"PrioritizedReplay.insert of {LENGTH} x {STREAMS} rows of CartPole's columns and of two "
        "values each, 3-step, made before."
    )
    lines = [Line("errors by the agents' values", "acting", ("highest",), "0.6 x, aim 0.85 x")]
    return measure(
        Group("First priorities", "rows per processor second", "more", about, sides, lines),
        given.rounds,
    )


def _inserting(initial: str, columns: Columns, given: Given) -> Callable[[], float]:
    changes = {
        "learner_config.replay.capacity": CAPACITY,
        "learner_config.algo.n_step": 3,
        "learner_config.replay.priority.initial": initial,
    }
    replay = make_replay(PrioritizedReplay, changes)
    sequence, streams = count(1), list(range(STREAMS))

    def insert() -> None:
        replay.insert(Chunk(columns, next(sequence), streams, sender="agent-0"))

    return lambda: LENGTH * STREAMS / seconds_per_call(insert, given.seconds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, seconds=0.2) as given:
        found = [hindsight(given), sequences(given), first_priorities(given)]
        keep("views", found, given.versions, given.left_out)


if __name__ == "__main__":
    main()
