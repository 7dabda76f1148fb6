"""The learner alone against a bare loop of torch, and the share of waiting in whole runs.

Prints tables and JSON, and writes benchmarks/results/learner.json.

    python benchmarks/learner.py [--rounds 5] [--seconds 1] [--no-peers]
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from bare import LOOPS  # noqa: E402
from bare_values import LOOPS as LOOPS_OF_VALUES  # noqa: E402
from compare import Found, Group, Line, Side, keep, measure, seconds_per_call  # noqa: E402
from learn import config_file  # noqa: E402
from prepared import make_batch, make_learner, resolved  # noqa: E402
from setting import Given, arguments  # noqa: E402
from systems import NO_GOAL, load  # noqa: E402
from whole import After, RunFailed, ours  # noqa: E402

from session.process.entry import keep_freed_memory  # noqa: E402
from surreal_like.data.batch import Batch  # noqa: E402

ALONE = ("cartpole_dqn", "pendulum_sac", "cartpole_ppo", "cartpole_impala", "pong_impala")
# Name -> config, settings, wanted ratio.
OPTIONS: Mapping[str, tuple[str, tuple[str, ...], str]] = MappingProxyType(
    {
        "C51": (
            "cartpole_dqn",
            ("learner_config.algo.distribution={kind: categorical, v_min: 0, v_max: 100}",),
            "1.1 x, aim 1.3 x",
        ),
        "QR-DQN, 51 quantiles": (
            "cartpole_dqn",
            ("learner_config.algo.distribution.kind=quantile",),
            "1.1 x, aim 1.3 x",
        ),
        "Rainbow": (
            "cartpole_rainbow",
            ("learner_config.replay.batch_size=128",),
            "1.1 x, aim 1.3 x",
        ),
        "R2D2, 32 sequences of 20 + 40": (
            "memory_r2d2",
            ("learner_config.replay.sequence={length: 40, burn_in: 20, period: 20}",),
            "1 x, aim 1.3 x",
        ),
    }
)
RND = ("learner_config.parts=[{part: rnd}]",)
RUN_SECONDS = 8.0
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
    """Returns batches per second of processor time."""
    return 1.0 / seconds_per_call(partial(update, batch), seconds)


def alone(
    given: Given,
    name: str,
    what: str = "",
    *,
    changes: tuple[str, ...] = (),
    wanted: str = "",
) -> Found:
    """Measures one learner against its bare loop, in one process and in turn."""
    config = resolved(name, changes)
    loop = (LOOPS_OF_VALUES if changes else LOOPS)[config.algorithm](config)
    algo, batch = config.learner_config.algo, make_batch(config)
    passes = f"{algo.num_sgd_iter} x {algo.minibatches}" if config.algorithm == "ppo" else "one"
    about = (
        f"{batch.rewards.numel()} rows in a batch, {passes} update(s) from it, one thread, the "
        "same batch again."
    )
    bare = "the same networks, losses and clip, torch.optim.Adam, nothing checked or reported"
    sides = [
        _learning("ours", "surreal_like", name, changes, given),
        _side("bare", "bare loop of torch", bare, loop, batch, given),
    ]
    lines = [Line(what or f"{config.algorithm}, {name}", "ours", ("bare",), wanted)]
    return _compared(f"The learner alone, {what or name}", about, sides, lines, given)


def part(given: Given) -> Found:
    """Measures PPO's learner with and without the bonus for what is new."""
    sides = [
        _learning("with", "surreal_like", "cartpole_ppo", RND, given),
        _learning("without", "without the part", "cartpole_ppo", (), given),
    ]
    lines = [Line("ppo with the part rnd", "with", ("without",), "0.6 x, aim 0.8 x")]
    about = "configs/cartpole_ppo.yaml, one thread, the same batch again."
    return _compared("A part of the learner", about, sides, lines, given)


def _learning(key: str, label: str, name: str, changes: tuple[str, ...], given: Given) -> Side:
    config = resolved(name, changes)
    did = f"Learner.learn() of configs/{name}.yaml {' '.join(changes)} with all that it reports"
    learner = make_learner(config)

    def learn(batch: Batch) -> None:
        # Operators of a plan add columns to a batch.
        learner.learn(Batch(batch))

    return _side(key, label, did, learn, make_batch(config), given)


def _side(
    key: str, label: str, did: str, update: Callable[[Batch], object], batch: Batch, given: Given
) -> Side:
    per_second(update, batch, given.seconds / 4)
    return Side(key, label, did, partial(per_second, update, batch, given.seconds))


def _compared(title: str, about: str, sides: list[Side], lines: list[Line], given: Given) -> Found:
    unit = "batches per processor second"
    return measure(Group(title, unit, "more", about, sides, lines), given.rounds)


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
    config = config_file(name)
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
        for what, (name, changes, wanted) in OPTIONS.items():
            groups.append(alone(given, name, what, changes=changes, wanted=wanted))
        groups.append(part(given))
        groups.append(waiting(given))
        keep("learner", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
