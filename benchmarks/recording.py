"""Cost of a recording at replay and at the learner, and the rate of reading from one.

The same replay service twice, with session_config.record.what all and none: experience in, between
processes over ipc sockets. Updates of one learner with and without the journal of its batches. Rows
of a recording in the page cache, into a replay of this process. Prints tables and JSON, and writes
benchmarks/results/recording.json.

    python benchmarks/recording.py [--rounds 15] [--seconds 0.3]
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from compare import Found, Group, Line, Side, keep, measure
from contenders import Ours
from prepared import make_batch, make_learner, resolved
from rank import make_context
from rows import OBS_SPEC
from services import make_config
from setting import Given, arguments

from session.config.sections import sections_of
from surreal_like.addons.recording.dataset import adapt
from surreal_like.addons.recording.flight import Flight
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.data.batch import Place, Sampled
from surreal_like.data.columns import Manifest
from surreal_like.dataflow.items import columns_of
from surreal_like.learner.learner import Learner
from surreal_like.replay.kinds import UniformReplay

WHATS = ("all", "none")
SMALL: dict[str, Any] = {"kind": "small", "length": 100, "num_envs": 32}
ATARI: dict[str, Any] = {"kind": "atari", "length": 32, "num_envs": 8}
EPISODES, STEPS, FRAMES = 400, 500, 4000


def inserts(given: Given, name: str, shape: dict[str, Any], wanted: str) -> Found:
    """Measures rows into a replay service, with and without a recording."""
    with ExitStack() as stack:
        ours = {}
        for what in WHATS:
            settings = {
                "session_config.record.what": what,
                # The files must fit into the page cache.
                "session_config.record.gigabytes": 0.5,
                "learner_config.replay.capacity": 200_000 if shape is SMALL else 20_000,
                "env_config.obs_spec": OBS_SPEC[shape["kind"]],
            }
            ours[what] = Ours(given, stack, f"{name}-{what}".replace(" ", "-"), settings)
            ours[what].fill(**shape)
        sides = [
            Side(what, f"record.what {what}", name, partial(ours[what].into, "chunks", **shape))
            for what in WHATS
        ]
        line = Line("in", "all", ("none",), wanted)
        text = f"{name}; as fast as a sender can."
        return measure(Group(name, "rows/s", "more", text, sides, [line]), given.rounds)


def learner_of(name: str, folder: Path | None) -> Learner:
    """Returns a learner that gets one batch again and again; with a folder it has a journal."""
    config = resolved(name)
    learner, batch = make_learner(config), make_batch(config)
    columns = {n: x.numpy() for n, x in columns_of(batch).items()}
    rows = len(batch["rewards"])
    columns |= {"weights": np.ones(rows, np.float32), "indices": np.arange(rows)}
    batch.origin = Sampled(columns, 0, 1, {}, None, None, None, Place(100_000, 0))
    link: dict[str, Any] = {"next_batch": lambda: batch, "count_steps": lambda: 0}
    link |= {"send_priorities": lambda origin, priorities: None, "sampled": None}
    learner.link = cast(Any, SimpleNamespace(**link))
    if folder is not None:
        folder.mkdir()
        context = make_context(folder, "learner")
        context.config, context.incarnation = config, 1
        context.folder = SimpleNamespace(recording=folder)
        learner.on_batch = Flight(context, learner, hash_every=1000, limit_bytes=1e9).on_batch
    return learner


def updates(given: Given, name: str, wanted: str) -> Found:
    """Measures updates of a learner, with and without a journal."""
    ways = {"all": given.folder / name, "none": None}

    def side(keep: str) -> Side:
        learner = learner_of(name, ways[keep])

        def learn() -> float:
            count, began = 0, time.perf_counter()
            while (used := time.perf_counter() - began) < given.seconds:
                learner.flow.pull()
                learner.iteration += len(learner.pop_updates())
                count += 1
            return count / used

        return Side(keep, f"flight.keep {keep}", f"configs/{name}.yaml", learn)

    line = Line(name, "all", ("none",), wanted)
    text = f"Updates of configs/{name}.yaml from one batch, without replay."
    return measure(
        Group(f"Updates of {name}", "updates/s", "more", text, list(map(side, ways)), [line]),
        given.rounds,
    )


def reading(given: Given, name: str, obs: dict[str, Any], steps: int, episodes: int) -> Found:
    """Measures rows from a recording into a replay of this process, as `data-0` makes them."""
    folder = given.folder / name.replace(" ", "-")
    discrete = {"type": "discrete", "dim": [2]}
    rng = np.random.default_rng(1)
    with RecordingWriter(folder, obs_spec=obs, action_spec=discrete) as writer:
        for _ in range(episodes):
            seen = rng.integers(0, 2, (steps + 1, *obs["dim"])).astype(obs["type"])
            writer.add(seen, rng.integers(2, size=steps), np.ones(steps), truncated=True)
    changes = {
        "env_config.obs_spec": obs,
        "env_config.action_spec": discrete,
        "learner_config.replay.capacity": (steps + 1) * episodes,
    }
    config = make_config(changes)
    columns: Manifest = {
        "obs": (np.dtype(obs["type"]), tuple(obs["dim"])),
        "action": (np.dtype(np.int64), ()),
        "reward": (np.dtype(np.float32), ()),
        "discount": (np.dtype(np.float32), ()),
        "step_type": (np.dtype(np.uint8), ()),
        "version": (np.dtype(np.int64), ()),
    }

    def read() -> dict[str, float]:
        recording, replay = Recording(folder), UniformReplay(**sections_of(config))
        rows, began = 0, time.perf_counter()
        for chunk in adapt(iter(itertools.chain(recording.part(0, 1))), columns):
            replay.insert_chunk(chunk)
            rows += chunk.size
        used = time.perf_counter() - began
        return {"million rows": rows / used / 1e6, "gigabytes": recording.size_bytes / used / 1e9}

    lines = [
        Line("rows, 10^6/s", "read million rows", (), "1"),
        Line("bytes, 10^9/s", "read gigabytes", (), "1"),
    ]
    sides: list[Side] = [Side("read", "reading", name, cast("Callable[[], Any]", read))]
    text = f"{name}, {episodes} episodes of {steps} steps, in the page cache."
    return measure(Group(f"Reading {name}", "10^6/s", "more", text, sides, lines), given.rounds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    vector = {"type": "float32", "dim": [4]}
    frame = {"type": "uint8", "dim": [84, 84]}
    with arguments(__doc__) as given:
        groups = [
            inserts(given, "Small rows", SMALL, "0.95 x"),
            inserts(given, "Frames", ATARI, "0.9 x"),
            updates(given, "cartpole_dqn", "0.97 x"),
            updates(given, "pendulum_sac", "0.98 x"),
            reading(given, "small rows", vector, STEPS, EPISODES),
            reading(given, "frames", frame, FRAMES // 20, 20),
        ]
        keep("recording", groups, given.versions, given.left_out)


if __name__ == "__main__":
    main()
