"""A rerun repeats the updates of a recorded run bit for bit, or says which one differs."""

import gc
import shutil
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq

from main.cli import main
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.wire import Message
from session.wire.codec import encode
from surreal_like import train
from surreal_like.addons.recording.rerun import Repeater, Rerun
from surreal_like.addons.recording.segments import (
    Kind,
    Record,
    Segment,
    SegmentWriter,
    list_segments,
)
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.experience.chunk import Chunk
from surreal_like.learner.optimizer import Adam
from surreal_like.replay.batch_server import ReplayService

pytestmark = pytest.mark.usefixtures("quick")

SMALL = {
    "session_config.record.what": "all",
    "session_config.flight.keep": "all",
    "session_config.flight.hash_every": 50,
    "session_config.stop": {"iterations": 230},
    "session_config.agent.num": 1,
    "session_config.evaluator.num": 0,
    "session_config.sender.flush_iteration": 20,
    "learner_config.replay.min_size": 100,
    "learner_config.replay.batch_size": 16,
}
RAINBOW = {
    "learner_config.replay.type": "PrioritizedReplay",
    "learner_config.replay.replay_shards": 2,
    "learner_config.algo.n_step": 3,
    "session_config.agent.num": 2,
}


def record(folder: Path, algorithm: str, env: str, settings: Mapping[str, Any]) -> RunFolder:
    """Returns the folder of a short serial run."""
    train(
        algorithm=algorithm,
        env=env,
        launcher="serial",
        folder=folder,
        overrides={**SMALL, **settings},
    )
    return RunFolder(folder)


def repeat(run: RunFolder, begin: int | None = None, until: int | None = None) -> Rerun:
    return Repeater(run).run(begin, until)


@pytest.fixture(scope="module")
def rainbow(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("recorded") / "run"
    return record(folder, "dqn", "gym:CartPole-v1", RAINBOW)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("dqn", {"learner_config.algo.n_step": 3}),
        pytest.param(
            "dqn",
            {"learner_config.algo.distribution.kind": "categorical"},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "dqn", {"learner_config.algo.normalize_rewards": True}, marks=pytest.mark.slow
        ),
        pytest.param("sac", {}, marks=pytest.mark.slow),
        pytest.param("td3", {}, marks=pytest.mark.slow),
        pytest.param("ddpg", {}, marks=pytest.mark.slow),
    ],
)
def test_all_updates_are_equal(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    env = "gym:CartPole-v1" if algorithm == "dqn" else "gym:Pendulum-v1"
    found = repeat(record(tmp_path / "run", algorithm, env, settings))
    assert (found.updates, found.differs, found.problems) == (230, None, [])
    assert found.compared == 5  # at 50, ..., 200, and at the end
    assert found.proven == 230


FEW = {
    "session_config.stop": {"iterations": 20},
    "session_config.flight.hash_every": 10,
    "learner_config.replay.min_size": 0,
}
TWO_EACH = {**FEW, "learner_config.replay.batch_size": 2, "env_config.num_envs": 2}
OLD_ONES = {
    "learner_config.replay.replay_proportion": 0.5,
    "learner_config.replay.replay_capacity": 2000,
    "learner_config.replay.batch_size": 4,
}


def count_chunks() -> int:
    """Returns the number of chunks in memory that were made since it was frozen."""
    gc.collect()
    return sum(isinstance(each, Chunk) for each in gc.get_objects())


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("ppo", {}),
        pytest.param(
            "ppo",
            {"session_config.agent.num": 2, "learner_config.replay.batch_size": 6},
            marks=pytest.mark.slow,
        ),
        pytest.param("ppo", {"learner_config.algo.synchronous": True}, marks=pytest.mark.slow),
        pytest.param(
            "ppo",
            {"learner_config.algo.normalize_rewards": True, "env_config.frame_stack": 3},
            marks=pytest.mark.slow,
        ),
        pytest.param("pqn", {}, marks=pytest.mark.slow),
        ("impala", {}),
        ("impala", OLD_ONES),
    ],
)
def test_unrolls_are_repeated(algorithm: str, settings: dict[str, Any], tmp_path: Path) -> None:
    run = record(tmp_path / "run", algorithm, "gym:CartPole-v1", {**TWO_EACH, **settings})
    repeater = Repeater(run)
    gc.collect()
    gc.freeze()  # what earlier tests left may go at any time
    try:
        found = repeater.run()
        assert count_chunks() == 0  # a recording may be larger than memory
    finally:
        gc.unfreeze()
    assert (found.updates, found.compared, found.proven) == (20, 2, 20)
    assert (found.differs, found.problems) == (None, [])


def test_sequences_of_stacks_are_repeated(tmp_path: Path) -> None:
    settings = {**SMALL, **FEW, "env_config.frame_stack": 2, "learner_config.replay.batch_size": 4}
    train("memory_r2d2", launcher="serial", folder=tmp_path / "run", overrides=settings)
    found = repeat(RunFolder(tmp_path / "run"))
    assert (found.updates, found.differs, found.problems) == (20, None, [])


@pytest.mark.slow
def test_each_of_several_policies_is_repeated(tmp_path: Path) -> None:
    settings = {**SMALL, **FEW, "session_config.sender.flush_iteration": 8}
    settings["learner_config.replay.batch_size"] = 2
    train("multi_cartpole_ppo", launcher="serial", folder=tmp_path / "run", overrides=settings)
    for policy in ("left", "right"):
        found = Repeater(RunFolder(tmp_path / "run"), policy).run()
        assert found.updates >= 10
        assert (found.differs, found.problems) == (None, [])


def test_a_lost_unroll_is_named(tmp_path: Path) -> None:
    run = record(tmp_path / "run", "ppo", "gym:CartPole-v1", TWO_EACH)
    change(*heads(run, "replay-0", Kind.CHUNK)[3], sealed=False)
    found = repeat(run)
    assert len(found.problems) == 1
    assert "does not have its checksum" in found.problems[0]


@pytest.mark.parametrize(
    ("algorithm", "env", "size"), [("bc", "gym:CartPole-v1", 4), ("iql", "gym:Pendulum-v1", 3)]
)
def test_learning_from_a_data_set_is_repeated(
    algorithm: str, env: str, size: int, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    with RecordingWriter.of_env(tmp_path / "logs", env) as logs:
        for _ in range(4):
            actions: Any = random.integers(2, size=(40, 1))
            obs = random.normal(size=(41, size))
            logs.add(obs, actions[:, 0] if algorithm == "bc" else actions, np.ones(40))
    settings = {
        **FEW,
        "session_config.dataset.path": str(tmp_path / "logs"),
        "session_config.agent.num": 0,
    }
    found = repeat(record(tmp_path / "run", algorithm, env, settings))
    assert (found.updates, found.compared, found.proven) == (20, 2, 20)
    assert (found.differs, found.problems) == (None, [])


def test_rows_that_were_rolled_back_are_not_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tick, ends = ReplayService.tick, list[int]()

    def tick_and_roll_back(service: ReplayService) -> bool:
        inserted = int(service._replay.statistics()["inserted"])
        if inserted > 150 and not ends:
            ends.append(inserted - 30)
            service._intake.roll_back(ends[0])
        return tick(service)

    monkeypatch.setattr(ReplayService, "tick", tick_and_roll_back)
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", {})
    (cut,) = heads(run, "replay-0", Kind.CUT)
    assert heads(run, "replay-0", Kind.CHUNK)[-1] > cut
    found = repeat(run)
    assert (found.updates, found.differs, found.problems) == (230, None, [])


def test_as_many_threads_as_in_the_run(tmp_path: Path) -> None:
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", FEW)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    lines: list[str] = []
    try:
        assert Repeater(run).run(report=lines.append).differs is None
        assert (torch.get_num_threads(), lines) == (before, [])
    finally:
        torch.set_num_threads(before)


def test_a_batch_that_is_set_aside_is_said(
    rainbow: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeater, lines = Repeater(rainbow), list[str]()

    def fail(adam: Adam, gradient: torch.Tensor) -> None:
        raise ValueError("no step")

    monkeypatch.setattr(Adam, "step", fail)
    assert repeater.run(report=lines.append).differs is not None
    assert lines[0].startswith("the batch after update 0 is set aside: ValueError('no step')")


def test_several_shards_and_priorities_are_repeated(rainbow: RunFolder) -> None:
    found = repeat(rainbow)
    assert (found.updates, found.differs, found.problems) == (230, None, [])


def test_a_rerun_reads_files_only(rainbow: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    repeater = Repeater(rainbow)

    def refuse(*args: object, **keywords: object) -> None:
        raise AssertionError("a rerun reads no clock, opens no socket and starts nothing")

    for owner, name in (
        (time, "time"),
        (time, "monotonic"),
        (time, "perf_counter"),
        (socket, "socket"),
        (zmq, "Context"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(owner, name, refuse)
    assert repeater.run().updates == 230


def test_a_part_is_repeated(rainbow: RunFolder) -> None:
    until = repeat(rainbow, until=120)
    assert (until.updates, until.first, until.last, until.compared) == (120, 0, 120, 2)
    assert until.proven == 120


def test_a_long_rerun_says_how_far_it_is(tmp_path: Path) -> None:
    settings = {"session_config.flight.hash_every": 10}
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", settings)
    lines: list[str] = []
    found = Repeater(run).run(report=lines.append)
    assert (found.updates, found.compared, found.differs) == (230, 23, None)
    assert lines == ["equal up to update 100", "equal up to update 200"]


def test_it_begins_at_a_checkpoint(tmp_path: Path) -> None:
    settings = {"session_config.checkpoint.period": 60, "session_config.checkpoint.keep_history": 9}
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", settings)
    lines: list[str] = []
    found = Repeater(run).run(150, report=lines.append)
    assert (found.first, found.updates, found.differs) == (120, 110, None)
    assert lines == ["begins with the state after update 120"]


def heads(run: RunFolder, shard: str, kind: Kind) -> list[tuple[Path, int, int]]:
    """Returns file, begin and end of the records of a kind."""
    return [
        (path, head.at, head.end)
        for path in sorted((run.recording / shard).glob("*.seg"))
        for head in Segment(path).heads
        if head.kind is kind
    ]


def change(path: Path, at: int, end: int, *, sealed: bool) -> None:
    """Changes a byte near the end of a record; sealed: with the checksum of the changed record."""
    data = bytearray(path.read_bytes())
    data[end - 9] ^= 1
    if sealed:
        data[at : at + 4] = struct.pack("<I", zlib.crc32(data[at + 4 : end]))
    path.write_bytes(data)


def append(records: Sequence[Record], path: Path, at: int) -> None:
    """Puts records in the place of all from a byte of a segment on."""
    whole = path.with_name("whole")
    writer = SegmentWriter(whole)
    begin = writer.size_bytes
    writer.append(records)
    writer.close()
    path.write_bytes(path.read_bytes()[:at] + whole.read_bytes()[begin:])
    whole.unlink()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_changed_row_is_named(sealed: bool, tmp_path: Path) -> None:
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", {})
    change(*heads(run, "replay-0", Kind.CHUNK)[1], sealed=sealed)
    found = repeat(run)
    assert found.differs is None
    assert len(found.problems) == 1
    words = "a segment was changed" if sealed else "does not have its checksum"
    assert words in found.problems[0]


@pytest.mark.slow
def test_a_damaged_batch_is_named(tmp_path: Path) -> None:
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", {})
    change(*heads(run, "learner", Kind.BATCHES)[5], sealed=False)
    with pytest.raises(UsageError, match="does not have its checksum"):
        repeat(run)


def test_a_batch_of_a_shard_that_the_run_lacks_is_damage(
    rainbow: RunFolder, tmp_path: Path
) -> None:
    copy = RunFolder(shutil.copytree(rainbow.path, tmp_path / "run"))
    path = list_segments(copy.recording / "learner")[0]
    segment = Segment(path)
    head = next(each for each in segment.heads if each.kind is Kind.BATCHES)
    message = segment.read(head)
    assert isinstance(message, Message)
    message.fields["shards"][3] = 7
    record = Record(Kind.BATCHES, head.number, head.time, encode(message))
    append([record], path, head.at)
    with pytest.raises(UsageError, match=r"record of update 0: shard 7 of a run with 2 shards$"):
        repeat(copy)


def test_other_learning_is_found(rainbow: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    repeater = Repeater(rainbow)
    step = Adam.step

    def larger(adam: Adam, gradient: torch.Tensor) -> None:
        step(adam, gradient * 1.001)

    monkeypatch.setattr(Adam, "step", larger)
    assert repeater.run().differs == (0, 1)


@pytest.mark.slow
def test_it_goes_on_behind_rows_that_made_room(tmp_path: Path) -> None:
    settings = {
        "session_config.record.gigabytes": 120e-6,
        "session_config.stop": {"iterations": 1500},
        "session_config.checkpoint.period": 100,
        "session_config.checkpoint.keep_history": 99,
        "learner_config.replay.capacity": 200,
        "session_config.flight.hash_every": 100,
    }
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", settings)
    assert not (run.recording / "replay-0/000000.seg").exists()
    found = repeat(run)
    assert found.differs is None
    assert found.last == 1500


@pytest.mark.parametrize(
    ("config", "settings", "words"),
    [
        ("cartpole_a3c", {}, "GradientReplay gives gradients"),
        ("cartpole_dqn", {"session_config.learner.num": 2}, "several learners make each update"),
        ("bitflip_dqn", {}, "goals of hindsight are drawn anew"),
        (
            "cartpole_dqn",
            {"learner_config.replay.demos.path": "demos"},
            "demonstrations are a second table",
        ),
        (
            "cartpole_dqn",
            {"learner_config.replay.type": "tests.api.parts:MyReplay"},
            "MyReplay is a replay of its own",
        ),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    config: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        train(
            config,
            launcher="serial",
            folder=tmp_path / "run",
            overrides={
                "session_config.record.what": "all",
                "session_config.flight.keep": "all",
                **settings,
            },
        )


@pytest.mark.slow
def test_a_run_without_a_journal_is_refused(tmp_path: Path) -> None:
    run = record(tmp_path / "run", "dqn", "gym:CartPole-v1", {"session_config.flight.keep": "none"})
    with pytest.raises(UsageError, match=r"session_config\.flight\.keep=all"):
        Repeater(run)


@pytest.mark.parametrize(
    ("begin", "until", "said"),
    [
        (231, None, "--from 231: the journal ends at update 230"),
        (None, 999, "--until 999: the journal ends at update 230"),
        (None, 0, "--until 0: it must be larger than --from 0"),
        (100, 50, "--until 50: it must be larger than --from 100"),
    ],
)
def test_updates_that_are_not_there_are_refused(
    rainbow: RunFolder, begin: int | None, until: int | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        repeat(rainbow, begin, until)


@pytest.mark.slow
def test_what_nothing_proves_is_said(
    rainbow: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed learner leaves no hash of the end."""
    copy = RunFolder(shutil.copytree(rainbow.path, tmp_path / "run"))
    path, at, _ = heads(copy, "learner", Kind.HASH)[-1]
    path.write_bytes(path.read_bytes()[:at])
    found = repeat(copy)
    assert (found.last, found.proven) == (230, 229)
    assert main(["rerun", str(copy.path)]) == 0
    assert "the journal has nothing to compare after update 229" in capsys.readouterr().out
