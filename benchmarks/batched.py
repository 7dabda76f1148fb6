"""Batched environments: PPO on 1,024 poles beside a bare loop and beside 8 poles; agents alone.

The trainings have the settings of one file, configs/cartpole_ppo.yaml, and Gymnasium's numpy code
of CartPole. The bare loop does what they do in one process: step, forward pass, update. Prints
tables and JSON, and writes benchmarks/results/batched.json.

    python benchmarks/batched.py [--rounds 5] [--seconds 10] [--only learning agent]
"""

from __future__ import annotations

import itertools
import shutil
import sys
from functools import partial
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from actor import CARTPOLE, alone  # noqa: E402
from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from contenders import rate as rows_per_second  # noqa: E402
from prepared import CONFIGS  # noqa: E402
from setting import Given, arguments  # noqa: E402
from systems import load  # noqa: E402
from whole import After, ours, rate  # noqa: E402
from worker import Worker  # noqa: E402

PARTS = ("learning", "agent")
CONFIG = CONFIGS / "cartpole_ppo.yaml"
COPIES, FEW = 1024, 8
_UNTIL_DONE = ("session_config.stop={seconds: 300}", "session_config.evaluator.num=0")
_SAME = (
    "learner_config.model.hidden_sizes=[64,64]",
    "learner_config.algo={num_sgd_iter: 2, minibatches: 4}",
)


def _copies(number: int, env_name: str) -> tuple[str, ...]:
    return (
        f"env_config.env_name={env_name}",
        f"env_config.num_envs={number}",
        f"learner_config.replay.batch_size={number}",
        f"learner_config.replay.capacity={number * 32}",
        *_SAME,
    )


_MANY = _copies(COPIES, "gymvec:CartPole-v1")
_BEFORE = _copies(FEW, "gym:CartPole-v1")


def learning(given: Given) -> Found:
    """Measures runs of many and of few poles, and the bare loop with one thread and with two."""
    folders = (given.folder / f"run-{number}" for number in itertools.count())

    def run(*overrides: str) -> float:
        folder = next(folders)
        found = rate(ours(CONFIG, folder, 1, (*_UNTIL_DONE, *overrides), After(given.seconds)))
        shutil.rmtree(folder)
        return found

    def bare(threads: int) -> float:
        script = str(HERE / "ours" / "looping.py")
        with Worker(sys.executable, script, str(threads), *_MANY) as worker:
            worker.ask("bare", seconds=given.seconds / 4)
            return rows_per_second(worker.ask("bare", seconds=given.seconds))

    did = f"configs/{CONFIG.name} "
    loop = "one process: Gymnasium's vector code, the same layers in nn.Sequential, torch's Adam"
    sides = [
        Side("many", "surreal_like", did + " ".join(_MANY), partial(run, *_MANY)),
        Side("one", "bare loop, one thread", loop, partial(bare, 1)),
        Side("two", "bare loop, two threads", loop, partial(bare, 2)),
        Side("few", f"{FEW} copies", did + " ".join(_BEFORE), partial(run, *_BEFORE)),
    ]
    lines = [
        Line(f"{COPIES:,} copies, while learning", "many", ("one", "two"), "0.7 x, aim 0.85 x"),
        Line(f"{COPIES:,} copies, while learning", "many", ("few",), "2 x, aim 5 x"),
    ]
    about = (
        f"{COPIES:,} poles in one agent process, two layers of 64, unrolls of 32 steps, two passes "
        f"in four parts; rows that were learned from, without evaluation. {load()}"
    )
    group = Group("CartPole in batches, by PPO", "rows/s", "more", about, sides, lines)
    return measure(group, given.rounds)


def agent(given: Given, copies: int) -> Found:
    """Measures an agent alone on so many poles."""
    settings = f"env_config.num_envs={copies}", "learner_config.replay.capacity=1_000_000"
    about = f"DQN's agent, {copies:,} copies, two layers of 64; replay stores, nothing is learned."
    quick = Given(3 * given.rounds, given.seconds / 16, given.folder / str(copies))
    return alone(
        quick,
        "gym:CartPole-v1",
        (*CARTPOLE, *settings),
        name=f"Agent alone, {copies:,} copies of CartPole",
        about=about,
        wanted="0.85 x, aim 0.92 x",
    )


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, seconds=10.0, rounds=5, parts=PARTS) as given:
        groups = [learning(given)] if "learning" in given.parts else []
        if "agent" in given.parts:
            groups += [agent(given, copies) for copies in (32, COPIES)]
        for part in set(PARTS) - set(given.parts):
            given.left_out[part] = "not measured this time"
        keep("batched", groups, {"gymnasium": metadata.version("gymnasium")}, given.left_out)


if __name__ == "__main__":
    main()
