"""Several agents, a queue of unrolls, a slow learner: who waits, what is lost, how old rows get."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from session.folder import RunFolder
from session.launchers.serial import SerialLauncher
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.topology import make_topology
from surreal_like.replay.kinds import FIFOReplay
from tests.runs.command import ROOT, Train, clean
from tests.runs.on_policy import MODULE
from tests.session.tensorplex.reading import scalars

MAX_LAG = 4
STEPS, STREAMS = 2, 4
QUEUE = 12  # unrolls
# obs float32 [8], action int64; step_type, reward, discount, version; links to both neighbours; and
# the row that comes again.
UNROLL_BYTES = (STEPS + 1) * STREAMS * (4 * 8 + 8 + 1 + 4 + 4 + 8 + 2 * 4)
UPDATES = 300
ROUNDS = 20_000

# Each round, six agents make three unrolls, and the learner learns from one.
SERIAL = {
    "session_config.sender.flush_iteration": STEPS,
    "session_config.sender.max_unacked_chunks": 2,
    "session_config.agent.num": 6,
    "session_config.agent.fetch_parameter_mode": "step",
    "session_config.agent.fetch_interval_seconds": 0.0,
    "session_config.evaluator.num": 0,
    "session_config.learner.prefetch_requests": 1,
    "session_config.stop.iterations": UPDATES,
    "env_config.num_envs": STREAMS,
    "learner_config.parameter_publish.min_publish_interval": 0.0,
    "learner_config.replay.batch_size": STREAMS,
    "learner_config.replay.capacity": QUEUE * STEPS * STREAMS,
    "learner_config.replay.evict_rule.max_version_lag": MAX_LAG,
}


@dataclass
class Seen:
    """What a serial run has shown, round by round, and what it has left."""

    sizes: list[float] = field(default_factory=list)
    status: dict[str, float] = field(default_factory=dict)
    statistics: dict[str, float] = field(default_factory=dict)
    counted: tuple[int, int] = (0, 0)  # iteration and env_steps, as replay has heard
    lines: list[dict[str, Any]] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def learned(self) -> dict[str, int]:
        """What the learner has counted: ``rows``, ``replayed``, ``most_lag``."""
        return dict(self.lines[-1]["learn"])


def play(path: Path, changes: Mapping[str, Any] = MappingProxyType({}), **replay: Any) -> Seen:
    """Plays a serial run; ``replay`` is what differs in ``learner_config.replay``."""
    settings = {**SERIAL, **changes}
    settings |= {f"learner_config.replay.{key}": value for key, value in replay.items()}
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    asked = read_experiment(None, words, algorithm=f"{MODULE}:Traffic", env_name="toy:chain")
    config = resolve(asked)
    config["run"] = {"started": 0.0, "first_started": 0.0, "seconds_before": 0.0}
    folder = RunFolder(path)
    folder.create()
    config.dump_file(folder.config)
    seen = Seen()
    with SerialLauncher(config, make_topology(config), folder) as launcher:
        launcher.launch()
        for _ in range(ROUNDS):
            look(launcher, seen)
            launcher.poll()
            if not launcher.running:
                break
    seen.lines = [json.loads(line) for line in folder.progress.read_text().splitlines()]
    seen.result = dict(folder.read_result() or {})
    return seen


def look(launcher: SerialLauncher, seen: Seen) -> None:
    for frame in launcher.frames.living():
        service: Any = frame._service
        if frame.context.name != "replay-0" or frame.state != "running" or service is None:
            continue
        seen.statistics = service._replay.statistics()
        assert isinstance(service._replay, FIFOReplay)
        if not service._intake.draining:
            seen.sizes.append(seen.statistics["size_bytes"])
            seen.status = service.status()
            seen.counted = (service._replay.iteration, service._replay.env_steps)


@pytest.mark.slow
@pytest.mark.parametrize("when_full", ["block", "drop_oldest"])
def test_a_slow_learner_lets_agents_wait_or_rows_go_and_every_row_is_counted(
    tmp_path: Path, when_full: str
) -> None:
    seen = play(tmp_path / "run", when_full=when_full)
    numbers, rows = seen.statistics, seen.result["experience"]
    assert seen.result["status"] == "stopped"
    assert clean(seen.result)
    # Nothing leaves but to the learner, or counted.
    assert numbers["inserted"] == numbers["sampled"] + numbers["evicted"] + numbers["size"]
    assert rows["inserted"] == numbers["inserted"]
    assert rows["dropped"] <= 6 * STEPS * STREAMS  # what the agents left with is no whole unroll
    assert rows["sampled"] == numbers["sampled"]
    assert seen.learned["rows"] == UPDATES * STEPS * STREAMS <= rows["sampled"]
    assert seen.learned["most_lag"] <= MAX_LAG
    assert seen.counted[0] == UPDATES - 1
    assert 0 < seen.counted[1] <= seen.result["env_steps"]
    waited = seen.status["waiting_insert_seconds"]
    assert waited > 0.1 if when_full == "block" else waited == 0
    assert (numbers["evicted"] > 0) or when_full == "block"


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    seen = play(tmp_path / "run", replay_proportion=0.5, batch_size=2 * STREAMS, replay_capacity=96)
    assert (
        max(seen.sizes[UPDATES // 2 :])
        <= max(seen.sizes[: UPDATES // 2])
        == (QUEUE + 12) * UNROLL_BYTES
    )
    assert seen.learned["replayed"] == (UPDATES - 1) * STEPS * STREAMS
    assert seen.statistics["replayed"] == seen.result["experience"]["replayed"]
    assert seen.learned["most_lag"] <= MAX_LAG  # of what is new
    assert seen.result["lag"]["max_versions"] <= MAX_LAG


@pytest.mark.slow
def test_batches_that_are_asked_for_ahead_are_older_by_as_many(tmp_path: Path) -> None:
    """Each batch under way or ready can be one more publication old when its turn comes."""
    seen = play(tmp_path / "run", {"session_config.learner.prefetch_requests": 2})
    assert MAX_LAG < seen.learned["most_lag"] <= MAX_LAG + 3


def test_one_agent_with_one_chunk_under_way_fills_a_batch_of_many(tmp_path: Path) -> None:
    """A chunk is confirmed when it is in the queue, not when it is learned from."""
    settings = {"agent.num": 1, "sender.max_unacked_chunks": 1, "stop.iterations": 10}
    settings = {f"session_config.{key}": value for key, value in settings.items()}
    seen = play(
        tmp_path / "run", settings, batch_size=QUEUE * STREAMS, **{"evict_rule.max_version_lag": 0}
    )
    assert seen.learned["rows"] == 10 * QUEUE * STEPS * STREAMS
    assert clean(seen.result)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_processes_wait_and_do_not_grow(run_folder: Path) -> None:
    steps, streams, queue = 50, 8, 20
    settings = {
        "session_config.import_path": [str(ROOT)],
        "session_config.sender.flush_iteration": steps,
        "session_config.sender.max_unacked_chunks": 2,
        "session_config.agent.num": 3,
        "session_config.evaluator.num": 0,
        "session_config.stop.iterations": 300,
        "env_config.num_envs": streams,
        # Slower than the agents, also where other work runs beside them.
        "learner_config.algo.seconds": 0.1,
        "learner_config.parameter_publish.min_publish_interval": 0.0,
        "learner_config.replay.batch_size": 2 * streams,
        "learner_config.replay.capacity": queue * steps * streams,
        "learner_config.replay.evict_rule.max_version_lag": 8,
    }
    words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    names = ("--algorithm", f"{MODULE}:Traffic", "--env", "toy:chain")
    with Train(run_folder, *names, *words) as train:
        memory: list[int] = []
        process = psutil.Process(train.running_beat("replay-0").pid)
        train.until(lambda: train.line.get("iterations", 0) >= 50)

        def watched() -> bool:
            memory.append(process.memory_info().rss)
            return bool(train.line["iterations"] >= 250)

        train.until(watched)
        assert train.wait() == 0, train.words
    result = train.result
    waited = scalars(run_folder / "tensorboard", "replay.core/waiting_insert_seconds:replay-0")
    assert clean(result)
    assert result["experience"]["dropped"] <= 3 * steps * streams
    # Two batches under way and one that is ready may each be one publication older by their turn.
    assert train.line["learn"]["most_lag"] <= 8 + 3
    assert max(value for _, _, value in waited) > 1.0
    quarter = max(1, len(memory) // 4)
    grown = statistics.median(memory[-quarter:]) - statistics.median(memory[:quarter])
    assert grown < 8 * 2**20, memory
    # At the end everything that still comes is taken.
    sizes = [line["replay"]["size"] for line in train.progress if line["iterations"] < 300]
    assert max(sizes) <= queue * steps * streams
