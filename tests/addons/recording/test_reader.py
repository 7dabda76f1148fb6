"""What a recording says of itself, which parts belong together, and what is left out."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import UsageError
from session.nest import Array
from session.wire import Message
from session.wire.codec import encode
from surreal_like.addons.recording.reader import Recording, load_recording
from surreal_like.addons.recording.segments import (
    Kind,
    Record,
    Segment,
    SegmentedWriter,
    SegmentError,
    SegmentWriter,
    list_segments,
)
from surreal_like.experience.chunk import GRADIENT
from tests.addons.recording.recorded import (
    ACTION,
    OBS,
    Recorded,
    as_bytes,
    config_of,
    keys,
    numbered,
    receive,
    write_shard,
)
from tests.surreal_like.replay.chunks import chunk_of

Columns = dict[str, Array]


def of_policy(path: Path, policy: str, *sequences: int, **given: Any) -> None:
    """A shard of a policy."""
    chunks = [numbered(n) for n in sequences]
    for chunk in chunks:
        chunk.policy = policy
    name = "replay-0" if policy == "default" else f"replay-{policy}-0"
    write_shard(path, chunks, name=name, **given)


def flip(path: Path, place: int) -> None:
    """Damages one byte of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_all_shards_are_read_one_after_the_other(tmp_path: Path) -> None:
    for shard in (1, 0, 2):
        chunks = [numbered(n, sender=f"agent-{shard}") for n in (1, 2)]
        write_shard(tmp_path, chunks, name=f"replay-{shard}")
    expected = [(f"agent-{shard}", 1, n) for shard in range(3) for n in (1, 2)]
    assert keys(tmp_path) == expected
    recording = load_recording(tmp_path)
    names = [shard.name for shard, _ in recording.chunks()]
    assert names == [f"replay-{shard}" for shard in range(3) for _ in (1, 2)]
    files = (tmp_path / "recording").glob("*/*")
    assert recording.size_bytes == sum(path.stat().st_size for path in files)


def test_a_run_its_recording_and_one_shard_can_be_named(tmp_path: Path) -> None:
    for shard in range(2):
        chunk = numbered(1, sender=f"agent-{shard}")
        write_shard(tmp_path, [chunk], name=f"replay-{shard}")
    folder = tmp_path / "recording"
    both = [("agent-0", 1, 1), ("agent-1", 1, 1)]
    assert [keys(each) for each in (tmp_path, folder, folder / "replay-1")] == [
        both,
        both,
        both[1:],
    ]
    elsewhere = tmp_path / "copy"
    shutil.copytree(folder, elsewhere)
    assert keys(elsewhere) == both


def test_it_says_which_run_it_is_of_and_what_its_rows_are(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(1)])
    recording = Recording(tmp_path)
    assert recording.run == {
        "id": "a-run",
        "algorithm": "dqn",
        "environment": "toy:none",
        "policy": "default",
    }
    assert recording.specs == {"obs_spec": OBS, "action_spec": ACTION}


def test_specs_of_stacks_are_those_of_single_frames(tmp_path: Path) -> None:
    config = config_of(frame_stack=4, obs_spec={"type": "uint8", "dim": [4, 84, 84]})
    write_shard(tmp_path, [numbered(1)], config=config)
    assert Recording(tmp_path).specs["obs_spec"] == {"type": "uint8", "dim": [84, 84]}


def test_one_of_several_policies_is_named(tmp_path: Path) -> None:
    of_policy(tmp_path, "left", 1, 2)
    # Its rows may be others.
    of_policy(
        tmp_path, "right", 3, config=config_of(action_spec={"type": "discrete", "dim": [9000]})
    )
    with pytest.raises(UsageError, match="is of the policies left, right: name one of them"):
        Recording(tmp_path)
    with pytest.raises(UsageError, match="has no policy up, it has left, right"):
        Recording(tmp_path, "up")
    assert [key[2] for key in keys(tmp_path, "left")] == [1, 2]
    assert [key[2] for key in keys(tmp_path, "right")] == [3]
    assert Recording(tmp_path, "right").policy == "right"


@pytest.mark.parametrize("same_shard", [True, False])
def test_two_runs_in_one_folder_are_refused_by_their_names(
    tmp_path: Path, same_shard: bool
) -> None:
    write_shard(tmp_path, [numbered(1)], config=config_of("first-run"))
    name = "replay-0" if same_shard else "replay-1"
    write_shard(tmp_path, [numbered(1)], config=config_of("second-run"), name=name)
    with pytest.raises(UsageError) as caught:
        Recording(tmp_path)
    said = str(caught.value)
    assert "is of run first-run" in said
    assert "of run second-run" in said
    assert f"{name}/00000{int(same_shard)}.seg" in said


@pytest.mark.parametrize("same_shard", [True, False])
def test_other_rows_of_one_policy_are_refused_with_both_specs(
    tmp_path: Path, same_shard: bool
) -> None:
    write_shard(tmp_path, [numbered(1)])
    other = config_of(action_spec={"type": "discrete", "dim": [7]})
    write_shard(tmp_path, [numbered(2)], config=other, name=f"replay-{int(not same_shard)}")
    with pytest.raises(UsageError, match=r"have the specs .*1048576.*, those of .*\[7\]"):
        Recording(tmp_path)


@pytest.mark.parametrize("made", ["nothing", "empty", "run", "empty file"])
def test_a_folder_without_a_recording_says_how_one_is_made(tmp_path: Path, made: str) -> None:
    folder = tmp_path / "run"
    if made != "nothing":
        (folder / "recording" / "replay-0" if made != "empty" else folder).mkdir(parents=True)
    if made == "empty file":
        # Of a disk that was full.
        (folder / "recording" / "replay-0" / "000000.seg").touch()
    said = r"has no recording: train with session_config\.record"
    with pytest.raises(UsageError, match="no such folder" if made == "nothing" else said):
        Recording(folder)


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(1)])
    (path,) = list_segments(tmp_path / "recording" / "replay-0")
    path.write_bytes(path.read_bytes().replace(b"SLREC\1", b"SLREC\2", 1))
    with pytest.raises(SegmentError, match=r"has format 2 of recordings, this version reads 1"):
        Recording(tmp_path)


def test_more_segments_than_the_soft_limit_of_open_files_are_read(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = len(os.listdir("/proc/self/fd")) + 20
    for n in range(40):
        write_shard(tmp_path, [numbered(n + 1)], goes_on=True, inserted=3 * n)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        assert len(keys(tmp_path)) == 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_chunk_that_two_shards_have_got_is_read_once(tmp_path: Path) -> None:
    """Its ack was lost, and the sender has gone on at another shard."""
    write_shard(tmp_path, [numbered(n) for n in (1, 2, 3)])
    write_shard(tmp_path, [numbered(n) for n in (3, 4)], name="replay-1")
    recording = Recording(tmp_path)
    assert [chunk.sequence for _, chunk in recording.chunks()] == [1, 2, 3, 4]
    assert sum(len(episode) + 1 for episode in recording) == 12
    parts = [[chunk.sequence for chunk in recording.part(each, 3)] for each in range(3)]
    assert [*chain(*parts)] == [1, 2, 3, 4]
    # Each time anew.
    assert len(list(recording.chunks())) == 4


def test_a_chunk_that_a_shard_has_got_again_after_it_lost_it_is_read_once(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(n) for n in (1, 2)])
    write_shard(tmp_path, [numbered(n) for n in (2, 3)])
    assert [key[2] for key in keys(tmp_path)] == [1, 2, 3]
    # Of another incarnation it is another one.
    write_shard(tmp_path, [numbered(2, incarnation=9)])
    assert keys(tmp_path)[-1] == ("agent-0", 9, 2)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 20])
def test_all_parts_together_are_all_chunks_in_their_order(tmp_path: Path, parts: int) -> None:
    for shard, count in ((0, 5), (1, 1), (2, 6)):
        chunks = [numbered(n, sender=f"agent-{shard}") for n in range(1, count + 1)]
        write_shard(tmp_path, chunks, name=f"replay-{shard}")
    recording = Recording(tmp_path)
    found = [
        [(chunk.sender, chunk.incarnation, chunk.sequence) for chunk in recording.part(each, parts)]
        for each in range(parts)
    ]
    assert [*chain(*found)] == keys(tmp_path)
    sizes = list(map(len, found))
    assert max(sizes) - min(sizes) <= 1


def test_what_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(n) for n in (1, 2, 3)])
    (path,) = list_segments(tmp_path / "recording" / "replay-0")
    data, needle = path.read_bytes(), as_bytes(receive(numbered(2)).frames)[1]
    assert data.count(needle) == 1
    path.write_bytes(data.replace(needle, bytes(len(needle))))
    recording = Recording(tmp_path)
    assert [chunk.sequence for _, chunk in recording.chunks()] == [1, 3]
    (damage,) = recording.damages
    assert str(damage).startswith(f"{path}: record 4 at byte ")
    assert str(damage).endswith(", row 3, does not have its checksum: it is left out")
    # Read again, it is named once.
    assert len(list(recording)) == 2
    assert len(recording.damages) == 1


def test_what_follows_wrong_numbers_is_left_out_with_one_line(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(n) for n in (1, 2, 3)])
    (path,) = list_segments(tmp_path / "recording" / "replay-0")
    at = Segment(path).heads[3].at
    flip(path, at + 10)
    recording = Recording(tmp_path)
    assert [chunk.sequence for _, chunk in recording.chunks()] == [1]
    (damage,) = recording.damages
    said = f"record 4 at byte {at:,} has wrong numbers: it and what follows is left out"
    assert str(damage) == f"{path}: {said}"


def test_a_record_that_is_no_chunk_is_left_out_and_named(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    shard.accept(numbered(1))
    wrong = receive(numbered(2))
    columns = {**numbered(2).columns}
    del columns["reward"]
    missing = receive(numbered(2))
    missing.arrays = columns
    wrong.fields["policy"] = 7
    for message in (wrong, missing):
        shard.recorder.accept(numbered(2), encode(message))
    shard.accept(numbered(3))
    shard.recorder.close()
    recording = Recording(tmp_path)
    assert [chunk.sequence for _, chunk in recording.chunks()] == [1, 3]
    first, second = map(str, recording.damages)
    assert "the chunk of row 3 is wrong: " in first
    assert "chunk without a column 'reward' of float32" in second


def without(*names: str) -> Callable[[Columns], Columns]:
    return lambda columns: {name: each for name, each in columns.items() if name not in names}


def changed(name: str, column: Any) -> Callable[[Columns], Columns]:
    return lambda columns: {**columns, name: np.asarray(column)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("action"), "column 'action' is missing"),
        (without("obs/position"), "column 'obs/position' is missing"),
        (changed("obs", np.zeros((3, 1), np.float32)), "column 'obs' is unknown here"),
        (
            changed("obs/position", np.zeros((3, 1, 9), np.float32)),
            "column 'obs/position' has rows of float32 [9], not float32 [2]",
        ),
        (
            changed("action", np.zeros((3, 1), np.float32)),
            "column 'action' has rows of float32 [], not int64 []",
        ),
        (
            changed("reward", np.zeros((3, 1, 2), np.float32)),
            "column 'reward' has rows of float32 [2], not float32 []",
        ),
        (
            changed("reward", np.full((3, 1), np.nan, np.float32)),
            "reward: a value that is not finite",
        ),
        (
            changed("step_type", np.full((3, 1), 200, np.uint8)),
            "step_type: 200, expected at most 2",
        ),
        (
            changed("action", np.full((3, 1), -9, np.int64)),
            "action: -9 at [0, 0] of [3, 1], expected 0 to below 1048576",
        ),
        (
            lambda columns: {**columns, "extras": columns["reward"], "extras/a": columns["reward"]},
            "'extras' is both a leaf and a branch",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "chunk",
)
@pytest.mark.parametrize("sequence", [1, 2])
def test_a_chunk_that_does_not_fit_the_specs_is_left_out_and_named(
    tmp_path: Path, change: Callable[[Columns], Columns], said: str, sequence: int
) -> None:
    shard = Recorded(tmp_path)
    for number in (1, 2, 3):
        chunk = numbered(number)
        if number == sequence:
            chunk.columns = change(dict(chunk.columns))
        shard.replay.inserted += 3
        shard.recorder.accept(chunk, receive(chunk).frames)
    shard.recorder.close()
    (path,) = list_segments(shard.path / "replay-0")
    recording = Recording(tmp_path)
    assert [len(episode) for episode in recording] == ([5] if sequence == 1 else [2, 2])
    if sequence > 1 and said.startswith("'extras'"):
        said = "column 'extras' is unknown here"
    reason = f"{path}: the chunk of row {3 * (sequence - 1)} is wrong: {said}"
    assert list(map(str, recording.damages)) == [reason]


def test_further_columns_are_the_same_in_all_chunks_of_a_shard(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    for number, width in enumerate((2, 2, 3, 0), start=1):
        chunk = numbered(number)
        if width:
            chunk.columns = {**chunk.columns, "extras/a": np.zeros((3, 1, width), np.float32)}
        shard.accept(chunk)
    shard.recorder.close()
    recording = Recording(tmp_path)
    assert [episode.extras["a"].shape for episode in recording] == [(5, 2)]
    other, none = map(str, recording.damages)
    assert other.endswith("column 'extras/a' has rows of float32 [3], not float32 [2]")
    assert none.endswith("column 'extras/a' is missing")


def test_large_values_are_kept(tmp_path: Path) -> None:
    chunk = numbered(1)
    chunk.columns = {**chunk.columns, "reward": np.full((3, 1), 1e13, np.float32)}
    write_shard(tmp_path, [chunk])
    assert keys(tmp_path) == [("agent-0", 1, 1)]


def test_gradients_are_left_out_with_one_line(tmp_path: Path) -> None:
    shard = Recorded(tmp_path)
    for number in (1, 2, 3):
        chunk = numbered(number, steps=1)
        columns = without("action", "obs/image", "obs/position")(dict(chunk.columns))
        chunk.columns = {**columns, GRADIENT: np.zeros((1, 1, 4), np.float32)}
        shard.accept(chunk)
    shard.recorder.close()
    recording = Recording(tmp_path)
    assert not list(recording)
    (damage,) = recording.damages
    assert str(damage).endswith("it holds gradients of agents in place of rows: they are left out")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"obs_spec": {}}, "its specs are "),
        ({"action_spec": {"type": "discrete", "dim": ["x"]}}, "env_config.action_spec.dim is"),
        (
            {"action_spec": {"type": "continuous", "dim": [1 << 40], "low": 0.0, "high": 1.0}},
            "env_config.action_spec.low has the shape [1099511627776]: most are 67,108,864",
        ),
        ({"obs_spec": {"type": "int64", "dim": [0], "num": 5}}, "zero-size array"),
    ],
    ids=str,
)
def test_a_segment_whose_specs_are_wrong_is_left_out(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    shard = write_shard(tmp_path, [numbered(1)])
    path = shard.path / "replay-0" / "000001.seg"
    fields = {"run": Recording(tmp_path).run, "specs": Recording(tmp_path).specs | changes}
    writer = SegmentWriter(path)
    writer.append([Record(Kind.ABOUT, 0, 0.0, encode(Message("about", fields)))])
    writer.close()
    recording = Recording(tmp_path)
    assert len(list(recording.chunks())) == 1
    (damage,) = recording.damages
    assert str(damage).startswith(f"{path}: its first record is wrong: {said}")


def test_a_segment_whose_first_record_is_damaged_is_left_out(tmp_path: Path) -> None:
    write_shard(tmp_path, [numbered(1)])
    write_shard(tmp_path, [numbered(2)], goes_on=True, inserted=3)
    first, second = list_segments(tmp_path / "recording" / "replay-0")
    flip(first, 60)
    second.write_bytes(second.read_bytes()[:-1])
    recording = Recording(tmp_path)
    assert not list(recording.chunks())
    of_first, of_second = map(str, recording.damages)
    assert of_first.startswith(f"{first}: record 1 at byte 8")
    assert of_second.startswith(f"{second}: record 3 at byte")


def test_a_shard_of_which_nothing_can_be_read_is_named(tmp_path: Path) -> None:
    for shard in range(3):
        chunk = numbered(1, sender=f"agent-{shard}")
        write_shard(tmp_path, [chunk], name=f"replay-{shard}")
    (path,) = list_segments(tmp_path / "recording" / "replay-0")
    flip(path, 60)
    for policy in (None, "default"):
        recording = Recording(tmp_path, policy)
        assert [shard.name for shard, _ in recording.chunks()] == ["replay-1", "replay-2"]
        assert recording.run["id"] == "a-run"
        (damage,) = recording.damages
        assert str(damage).startswith(f"{path}: record 1 at byte 8")


@pytest.mark.parametrize("place", [12, 60, 200], ids=["head", "first record", "later record"])
def test_a_check_also_reads_what_learners_have_written(tmp_path: Path, place: int) -> None:
    write_shard(tmp_path, [numbered(1)])
    folder = tmp_path / "recording" / "learner"
    own = Message("about", {"run": Recording(tmp_path).run, "specs": Recording(tmp_path).specs})
    writer = SegmentedWriter(folder, encode(own))
    writer.append([Record(Kind.START, 0, 0.0, encode(Message("start", {"content": "x" * 300})))])
    writer.close()
    recording = Recording(tmp_path)
    recording.check()
    assert not recording.damages
    (path,) = list_segments(folder)
    flip(path, place if place < 200 else path.stat().st_size - 200)
    recording.check()
    (damage,) = recording.damages
    assert str(damage).startswith(f"{path}: record ")
    # One shard alone has no learner.
    alone = Recording(tmp_path / "recording" / "replay-0")
    alone.check()
    assert not alone.damages


@pytest.mark.parametrize(
    "content",
    [b"SLR", bytes(4096), b"SLREC\1\0\0", b"SLREC\1\0\0" + bytes(4096)],
    ids=["short", "zeros", "begun", "begun, then zeros"],
)
def test_a_file_that_a_loss_of_power_has_left_is_named_once(tmp_path: Path, content: bytes) -> None:
    path = write_shard(tmp_path, [numbered(1)]).path / "replay-0" / "000001.seg"
    path.write_bytes(content)
    recording = Recording(tmp_path)
    assert len(list(recording.chunks())) == 1
    (damage,) = recording.damages
    assert str(damage).startswith(f"{path}: ")
    assert str(damage).endswith("left out")


def test_a_segment_that_does_not_say_what_it_is_of_is_left_out(tmp_path: Path) -> None:
    shard = write_shard(tmp_path, [numbered(1)])
    path = shard.path / "replay-0" / "000001.seg"
    writer = SegmentWriter(path)
    writer.append([Record(Kind.ABOUT, 0, 0.0, encode(Message("about", {"run": {"id": "a-run"}})))])
    writer.close()
    recording = Recording(tmp_path)
    assert len(list(recording.chunks())) == 1
    (damage,) = recording.damages
    assert str(damage).startswith(f"{path}: its first record is wrong: ")


def test_iterating_gives_the_episodes_of_all_shards(tmp_path: Path) -> None:
    for shard in range(2):
        chunk = chunk_of("FMTFMU", "FMMMTF", sender=f"agent-{shard}")
        write_shard(tmp_path, [chunk], name=f"replay-{shard}")
    found = [(episode.sender, len(episode), episode.end) for episode in Recording(tmp_path)]
    of_each = [(2, "terminated"), (2, "truncated"), (4, "terminated")]
    assert found == [(f"agent-{shard}", *each) for shard in range(2) for each in of_each]
