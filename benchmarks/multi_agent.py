"""Several agents beside single ones: steps while learning, and an agent process alone.

The trainings have the settings of one file, configs/multi_cartpole_ppo.yaml, and as many poles in
as many agent processes. The agent process steps simple_spread of MPE2 and sends its experience to
the replay service of a run; no learner samples. Prints tables and JSON, and writes
benchmarks/results/multi_agent.json.

    python benchmarks/multi_agent.py [--rounds 5] [--seconds 10] [--only learning process]
"""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from machine import cpu_of  # noqa: E402
from prepared import CONFIGS  # noqa: E402
from services import Services  # noqa: E402
from setting import Given, arguments  # noqa: E402
from systems import load  # noqa: E402
from whole import After, Record, ours  # noqa: E402
from worker import Worker  # noqa: E402

from session.folder import RunFolder  # noqa: E402
from session.process.heartbeat import read_beats  # noqa: E402
from surreal_like.experiment.read import read_experiment  # noqa: E402
from surreal_like.experiment.resolve import resolve  # noqa: E402

PARTS = ("learning", "process")
CONFIG = CONFIGS / "multi_cartpole_ppo.yaml"
# Nothing ends a run before its time.
_UNTIL_DONE = ("session_config.stop={seconds: 300}", "session_config.evaluator.num=0")
_ONE = ("policies={}", "env_config.policy_mapping={}")
_SINGLE = (*_ONE, "env_config.env_name=gym:CartPole-v1", "env_config.vector=sync")
# One policy plays all 64 poles, so its batches and its queue are twice as large.
_TWICE = ("learner_config.replay.batch_size=64", "learner_config.replay.capacity=8192")
_SHARED = (*_ONE, *_TWICE)
_LARGE = (*_SINGLE, *_TWICE, "env_config.num_envs=64")
_PROCESSOR = "per second of processor time of all processes"
COPIES = 8
_SPREAD = (
    f"env_config.num_envs={COPIES}",
    "learner_config.model.hidden_sizes=[64,64]",
    "learner_config.replay.capacity=100_000",
    # No learner samples, so the limiter must not block inserts.
    "learner_config.replay.samples_per_insert=0",
    "learner_config.algo.epsilon={start: 1.0, end: 1.0}",
    "session_config.at_end=idle",
    "session_config.agent.num=1",
    "session_config.sender={flush_iteration: 25, max_unacked_chunks: 32}",
)


class Marks(After):
    """Rows that were learned from and processor time of a run, until its time is over.

    Args:
        seconds: time from the first update on [s].
        folder: folder of the run.
    """

    def __init__(self, seconds: float, folder: Path) -> None:
        super().__init__(seconds)
        self._alive = RunFolder(folder).alive
        # Of each line: time of the run [s], rows, processor time of all its processes [s].
        self._marks: list[tuple[float, float, float]] = []

    def __call__(self, line: Record) -> bool:
        """Adds a line of progress; returns True if the run may end."""
        if line["iterations"]:
            used = sum(cpu_of(beat.pid) for beat in read_beats(self._alive).values())
            self._marks.append((line["wall_seconds"], line["experience"]["sampled"], used))
        return super().__call__(line)

    def spent(self) -> tuple[float, float, float]:
        """Returns seconds, rows and processor seconds without the first quarter of the time."""
        begin, end = self._marks[0][0], self._marks[-1][0]
        first = next(mark for mark in self._marks if mark[0] >= begin + (end - begin) / 4)
        seconds, rows, used = (b - a for a, b in zip(first, self._marks[-1], strict=True))
        return seconds, rows, used


def rates(
    given: Given, folders: Iterator[Path], *overrides: str, runs: int = 1
) -> dict[str, float]:
    """Returns the rows that runs at the same time learn from, by the clock and by processor time.

    Args:
        given: the command line.
        folders: a new folder for each run.
        overrides: settings that differ from the file's.
        runs: number of runs at the same time.
    """
    words, places = (*_UNTIL_DONE, *overrides), list(itertools.islice(folders, runs))

    def train(number: int) -> tuple[float, float, float]:
        marks = Marks(given.seconds, places[number])
        ours(CONFIG, places[number], 1 + number, words, marks)
        return marks.spent()

    with ThreadPoolExecutor(runs) as pool:
        spent = list(pool.map(train, range(runs)))
    for place in places:
        shutil.rmtree(place)
    by_clock = sum(rows / seconds for seconds, rows, _ in spent)
    processor = sum(rows for _, rows, _ in spent) / sum(used for *_, used in spent)
    return {"clock": by_clock, "processor": processor}


def learning(given: Given) -> Found:
    """Measures two agents in one environment beside as many poles in single ones."""
    folders = (given.folder / f"run-{number}" for number in itertools.count())
    run = partial(rates, given, folders)
    sides = [
        _side("two", "surreal_like", run),
        _side("singles", "2 runs of a single agent at once", run, *_SINGLE, runs=2),
        _side("shared", "surreal_like", run, *_SHARED),
        _side("single", "a run of a single agent", run, *_LARGE),
    ]
    lines = []
    for what, ours_key, peer_key, wanted in (
        ("two policies, an agent each", "two", "singles", "0.8 x, aim 0.9 x"),
        ("one policy for two agents", "shared", "single", "0.85 x, aim 0.95 x"),
    ):
        lines += [
            Line(what, f"{ours_key} clock", (f"{peer_key} clock",), wanted),
            Line(f"{what}, {_PROCESSOR}", f"{ours_key} processor", (f"{peer_key} processor",)),
        ]
    about = (
        "64 poles: 32 copies of `toy:multi_cartpole`, or CartPole-v1 by `vector: sync`; rows that "
        f"were learned from, without evaluation. {load()}"
    )
    group = Group("CartPole by PPO, while learning", "rows/s", "more", about, sides, lines)
    return measure(group, given.rounds)


def _side(
    key: str, label: str, run: Callable[..., dict[str, float]], *overrides: str, runs: int = 1
) -> Side:
    did = " ".join([f"configs/{CONFIG.name}", *overrides])
    return Side(key, label, did, partial(run, *overrides, runs=runs))


def process(given: Given) -> Found:
    """Measures an agent process on simple_spread beside the bare environment."""
    user = read_experiment(None, _SPREAD, algorithm="dqn", env_name="mpe2:simple_spread_v3")
    folder = given.folder / "spread"
    with (
        Services(folder, resolve(user)),
        Worker(sys.executable, str(HERE / "ours" / "acting.py"), str(folder)) as worker,
    ):

        def run(do: str) -> float:
            answer = worker.ask(do, seconds=given.seconds / 5)
            return float(answer["rows"] / answer["cpu_seconds"])

        sides = [
            Side(
                "agent",
                "surreal_like",
                "AgentService of main.agent: DQN's agent, ExpSender to ReplayService",
                partial(run, "agent"),
            ),
            Side(
                "bare",
                "bare environment",
                "parallel_env().step with actions that were drawn before; reset at the end",
                partial(run, "bare"),
            ),
        ]
        lines = [Line("agent process", "agent", ("bare",), "0.7 x, aim 0.85 x")]
        about = (
            f"simple_spread_v3 of MPE2, 3 agents, {COPIES} copies, one shared policy with two "
            f"layers of 64; joint steps. {load()}"
        )
        name, unit = "simple_spread, agent alone", "joint steps per processor second"
        return measure(Group(name, unit, "more", about, sides, lines), 3 * given.rounds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, seconds=10.0, rounds=5, parts=PARTS) as given:
        measures = {"learning": learning, "process": process}
        groups = [measures[part](given) for part in PARTS if part in given.parts]
        for part in set(PARTS) - set(given.parts):
            given.left_out[part] = "not measured this time"
        versions = {name: metadata.version(name) for name in ("pettingzoo", "mpe2")}
        keep("multi_agent", groups, versions, given.left_out)


if __name__ == "__main__":
    main()
