"""The learner alone against a bare loop of torch, and the share of waiting in whole runs.

Prints tables and JSON, and writes benchmarks/results/learner.json.

    python benchmarks/learner.py [--rounds 5] [--seconds 1] [--no-peers]
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from bare import LOOPS  # noqa: E402
from compare import Found, Group, Line, Side, keep, measure  # noqa: E402
from prepared import CONFIGS, make_batch, make_learner, resolved  # noqa: E402
from setting import Given, arguments  # noqa: E402
from systems import NO_GOAL, load  # noqa: E402
from whole import After, RunFailed, ours  # noqa: E402

from session.process.malloc import keep_freed_memory  # noqa: E402
from surreal_like.data.batch import Batch  # noqa: E402

ALONE = ("cartpole_dqn", "pendulum_sac", "cartpole_ppo", "cartpole_impala", "pong_impala")
RUN_SECONDS = 12.0
# Agents that outpace the learner: limited only by the sockets, or with a queue that is never empty.
AHEAD = {
    "PPO, unrolls through FIFOReplay": (
        "cartpole_ppo",
        (
            "session_config.agent.num=1",
            "session_config.sender.max_unacked_chunks=4",
            "session_config.learner.prefetch_requests=2",
            "learner_config.replay.capacity=4096",
        ),
    ),
    "DQN, uniform": ("cartpole_dqn", ("learner_config.replay.samples_per_insert=0",)),
    "SAC, uniform": ("pendulum_sac", ("learner_config.replay.samples_per_insert=0",)),
}


def per_second(update: Callable[[Batch], object], batch: Batch, seconds: float) -> float:
    """Returns batches per second of processor time, which excludes other load of the machine."""
    count = 0
    begin = time.process_time()
    while time.process_time() < begin + seconds or not count:
        update(batch)
        count += 1
    return count / (time.process_time() - begin)


def alone(given: Given, name: str) -> Found:
    """Measures one learner against its bare loop, in one process and in turn."""
    config = resolved(name)
    batch, learner = make_batch(config), make_learner(config)
    loop = LOOPS[config.algorithm](config)
    for update in (learner.learn, loop):
        per_second(update, batch, given.seconds / 4)
    rows = batch.rewards.numel()
    algo = config.learner_config.algo
    passes = f"{algo.num_sgd_iter} x {algo.minibatches}" if config.algorithm == "ppo" else "one"
    sides = [
        Side(
            "ours",
            "surreal_like",
            f"Learner.learn() of configs/{name}.yaml with all that it reports",
            partial(per_second, learner.learn, batch, given.seconds),
        ),
        Side(
            "bare",
            "bare loop of torch",
            "the same networks, losses and clip, torch.optim.Adam, nothing checked or reported",
            partial(per_second, loop, batch, given.seconds),
        ),
    ]
    about = f"{rows} rows in a batch, {passes} update(s) from it, one thread, the same batch again."
    lines = [Line(f"{config.algorithm}, {name}", "ours", ("bare",))]
    title = f"The learner alone, {name}"
    return measure(
        Group(title, "batches per processor second", "more", about, sides, lines), given.rounds
    )


def waiting(given: Given) -> Found:
    """Measures the share of time in which a learner had no batch."""
    folders = (given.folder / f"run-{number}" for number in itertools.count())
    sides = [
        Side(
            what,
            "surreal_like",
            f"configs/{name}.yaml {' '.join(changes)}",
            partial(_share, folders, name, changes),
        )
        for what, (name, changes) in AHEAD.items()
    ]
    lines = [Line(what, what, (), "5, aim 2") for what in AHEAD]
    about = (
        "Agents produce as much as they can, and replay hands out what there is; from the moment "
        f"that no batch lies there until one does; three rounds. {load()}"
    )
    title = "The learner waits"
    return measure(Group(title, "% of its time", "less", about, sides, lines), min(3, given.rounds))


def _share(folders: Iterator[Path], name: str, changes: tuple[str, ...]) -> float:
    """Returns the waiting share of one run in percent, without its first quarter."""
    config = CONFIGS / f"{name}.yaml"
    lines = ours(config, next(folders), 1, (*NO_GOAL, *changes), After(RUN_SECONDS))
    shares = [line["waiting_share"] for line in lines if line.get("waiting_share") is not None]
    late = shares[len(shares) // 4 + 1 : -1]
    if not late:
        raise RunFailed(f"the run of {name} ended before its speed could be seen")
    return 100.0 * float(sum(late) / len(late))


def main() -> None:
    """Measures, prints the tables and writes the results."""
    torch.set_num_threads(1)
    keep_freed_memory()
    with arguments(__doc__, seconds=1.0, rounds=5) as given:
        groups = [alone(given, name) for name in ALONE]
        groups.append(waiting(given))
        keep("learner", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
