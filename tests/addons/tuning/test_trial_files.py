"""Files of a trial on two machines become the same, block by block, and nothing else is written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.addons.copies.run_files import BLOCK_BYTES, StoredFile
from session.errors import CheckpointError, WireError
from session.folder import RunFolder
from session.newest_checkpoint import Checkpoints
from surreal_like.addons.tuning.trial_files import (
    FILES,
    TrialFiles,
    dump_files,
    is_exploit,
    is_news,
    is_result,
    is_run_file,
    load_files,
)
from tests.examples import examples


def fill(run: RunFolder) -> None:
    """Writes a small run."""
    run.create()
    run.config.write_text("algorithm: dqn\n")
    run.progress.write_text('{"iteration": 1}\n')
    (run.logs / "learner.log").write_text("a line\n")
    run.tensorboard.mkdir()
    (run.tensorboard / "events.out.tfevents.1").write_bytes(b"curve")
    (run.code / "own.py").parent.mkdir()
    (run.code / "own.py").write_text("x = 1\n")
    (run.alive / "learner").write_text("{}")
    save(run, 3, random.Random(0).randbytes(BLOCK_BYTES + 7))


def save(run: RunFolder, number: int, params: bytes) -> None:
    """Saves a checkpoint, in place of those before."""

    def write(path: Path) -> None:
        (path / "params").write_bytes(params)

    Checkpoints(run.checkpoints / "learner", keep_history=1).save(number, {}, write)


def content(run: RunFolder) -> dict[str, bytes]:
    paths = (path for path in run.path.rglob("*") if path.is_file())
    return {path.relative_to(run.path).as_posix(): path.read_bytes() for path in paths}


class Machines:
    """The folders of one trial on two machines."""

    def __init__(self, path: Path) -> None:
        self.theirs, self.ours = RunFolder(path / "theirs"), RunFolder(path / "ours")
        self.sender = TrialFiles(self.theirs, path / "their-blocks")
        self.blocks = path / "our-blocks"
        self.receiver = TrialFiles(self.ours, self.blocks)

    def move(self, moves=is_result) -> int:  # type: ignore[no-untyped-def]
        """Sends all that has changed; returns the number of blocks."""
        files = load_files(dump_files(self.sender.find(moves)))
        missing = self.receiver.missing(files, moves)
        for block in missing:
            data = self.sender.read(block)
            assert data is not None
            self.receiver.put(block, data)
        self.receiver.change(files, moves)
        return len(missing)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    fill(made.theirs)
    yield made
    assert not made.blocks.exists()


def test_results_and_checkpoints_move_from_a_worker(machines: Machines) -> None:
    assert machines.move() == 6
    theirs = content(machines.theirs)
    assert content(machines.ours) == {
        name: data
        for name, data in theirs.items()
        if not name.startswith(("code/", "alive/", "config.yaml"))
    }
    assert machines.move() == 0


def test_logs_and_event_files_move_at_the_end_of_a_part_only(machines: Machines) -> None:
    machines.move(is_news)
    assert not machines.ours.logs.exists()
    assert not machines.ours.tensorboard.exists()
    assert (machines.ours.checkpoints / "learner" / "3" / "params").is_file()
    machines.move()
    assert (machines.ours.logs / "learner.log").is_file()
    machines.move(is_news)
    assert (machines.ours.logs / "learner.log").is_file()


def test_only_the_last_block_of_a_file_that_has_grown_moves(machines: Machines) -> None:
    machines.theirs.events.write_bytes(random.Random(1).randbytes(2 * BLOCK_BYTES + 5))
    machines.move()
    with machines.theirs.events.open("ab") as file:
        file.write(b"more")
    assert machines.move() == 1
    assert machines.ours.events.read_bytes() == machines.theirs.events.read_bytes()


def test_files_may_exchange_their_contents(machines: Machines) -> None:
    progress, events = machines.theirs.progress, machines.theirs.events
    events.write_text("event\n")
    machines.move()
    one, two = progress.read_bytes(), events.read_bytes()
    progress.write_bytes(two)
    events.write_bytes(one)
    assert machines.move() == 0
    assert machines.ours.progress.read_bytes() == two
    assert machines.ours.events.read_bytes() == one


def test_a_checkpoint_that_was_replaced_is_removed(machines: Machines) -> None:
    machines.move()
    save(machines.theirs, 4, b"new")
    machines.move(is_news)
    assert [each.name for each in (machines.ours.checkpoints / "learner").iterdir()] == ["4"]


def test_the_checkpoint_of_a_donor_moves_from_the_tuner_only(machines: Machines) -> None:
    donor = machines.theirs.checkpoints / "donor"
    donor.mkdir()
    (donor / "params").write_bytes(b"theirs")
    machines.move()
    assert not (machines.ours.checkpoints / "donor").exists()
    machines.theirs.progress.write_text("more\n")
    machines.move(is_exploit)
    assert (machines.ours.checkpoints / "donor" / "params").read_bytes() == b"theirs"
    assert machines.ours.progress.read_text() != "more\n"
    (donor / "params").unlink()
    machines.move()
    assert (machines.ours.checkpoints / "donor" / "params").is_file()


def test_a_damaged_block_is_refused_and_changes_nothing(machines: Machines) -> None:
    files = machines.sender.find(is_result)
    block = machines.receiver.missing(files, is_result)[0]
    for wrong in (b"", b"other", bytes(BLOCK_BYTES + 1)):
        with pytest.raises(WireError, match="is damaged, or was not asked for"):
            machines.receiver.put(block, wrong)
    with pytest.raises(WireError, match="was not asked for"):
        machines.receiver.put("0" * 32, b"")
    with pytest.raises(WireError, match="is missing"):
        machines.receiver.change(files, is_result)
    assert not machines.blocks.exists()


def test_blocks_of_a_list_that_was_given_up_are_removed(machines: Machines) -> None:
    for number in range(3):
        machines.theirs.progress.write_text(f"line {number}\n")
        files = machines.sender.find(lambda name: name == "progress.jsonl")
        [block] = machines.receiver.missing(files, is_result)
        machines.receiver.put(block, machines.theirs.progress.read_bytes())
        assert machines.receiver.missing(files, is_result) == []
        assert [each.name for each in machines.blocks.iterdir()] == [block]
    assert machines.receiver.missing(files, lambda name: False) == []
    assert list(machines.blocks.iterdir()) == []
    machines.receiver.forget()


@pytest.mark.parametrize("name", ["result.json", "checkpoints/learner/3/state.json"])
def test_a_file_that_is_read_as_a_whole_has_a_bound(name: str) -> None:
    def entry(size: int) -> dict[str, Any]:
        blocks = ["0" * 32] * (size // BLOCK_BYTES)
        return {"bytes": size, "blake2b": "0" * 32, "blocks": blocks}

    load_files({name: entry(1 << 26), "checkpoints/learner/3/params": entry(1 << 27)})
    for wrong in (entry(1 << 27), entry(1 << 27) | {"bytes": 5}):
        with pytest.raises(WireError, match=f"{name} has more than 67108864 bytes"):
            load_files({name: wrong})


def test_a_file_without_its_checksum_is_refused(machines: Machines) -> None:
    files = machines.sender.find(is_result)
    stored = files["progress.jsonl"]
    machines.receiver.missing(files, is_result)
    block = stored.blocks[0]
    machines.receiver.put(block, machines.theirs.progress.read_bytes())
    for wrong in (
        StoredFile(stored.bytes, "0" * 32, stored.blocks),
        StoredFile(stored.bytes + 1, stored.blake2b, stored.blocks),
    ):
        with pytest.raises(CheckpointError, match=r"progress\.jsonl has not its checksum"):
            machines.receiver.change({"progress.jsonl": wrong}, is_result)
    assert not machines.ours.progress.exists()
    machines.receiver.change({"progress.jsonl": stored}, is_result)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/passwd",
        "../config.yaml",
        "checkpoints/../../keys/server.key",
        "checkpoints//learner",
        "checkpoints",
        "checkpoints/.hidden",
        "code/own.py",
        "keys/server.key",
        "addresses.json",
        "alive/learner",
        "other.txt",
        "topology.json",
        "checkpoints/learner/\u00b2/state.json",
        "logs/a\0b",
        "logs/a\nb",
        "logs/" + "x" * 300,
        7,
        None,
    ],
)
def test_no_other_path_is_a_file_of_a_run(name: object) -> None:
    entry = {"bytes": 0, "blake2b": "0" * 32, "blocks": []}
    assert not is_run_file(name)
    assert not FILES.fits({name: entry})
    assert FILES.fits({"logs/learner.log": entry})


@pytest.mark.parametrize(
    "entry",
    [
        {"bytes": -1, "blake2b": "0" * 32, "blocks": []},
        {"bytes": 1 << 37, "blake2b": "0" * 32, "blocks": []},
        {"bytes": 1, "blake2b": "../../x", "blocks": []},
        {"bytes": 1, "blake2b": "0" * 32, "blocks": ["A" * 32]},
        {"bytes": 1, "blake2b": "0" * 32, "blocks": ["0" * 32 + "/x"]},
        {"bytes": 1, "blake2b": "0" * 32},
        {"bytes": 1, "blake2b": "0" * 32, "blocks": [], "mode": 7},
        [],
    ],
)
def test_no_other_entry_is_a_file(entry: object) -> None:
    assert not FILES.fits({"config.yaml": entry})


def test_the_files_of_a_trial_are_bounded() -> None:
    large = {"bytes": 1 << 36, "blake2b": "0" * 32, "blocks": ["0" * 32] * (1 << 16)}
    assert FILES.fits({"config.yaml": large, "result.json": large})
    load_files({"config.yaml": large})
    with pytest.raises(WireError, match="more than 68719476736 bytes"):
        load_files({"config.yaml": large, "result.json": large})


NAMES = ("progress.jsonl", "events.jsonl", "logs/a.log", "tensorboard/e", "result.json")
WRITES = st.tuples(st.sampled_from(NAMES), st.none() | st.binary(max_size=20), st.booleans())


@settings(max_examples=examples(40), deadline=None)
@given(rounds=st.lists(st.lists(WRITES, max_size=4), max_size=6))
def test_any_changes_arrive_as_a_whole_copy_would(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[str, bytes | None, bool]]]
) -> None:
    machines = Machines(tmp_path_factory.mktemp("any"))
    machines.theirs.path.mkdir()
    for changes in rounds:
        for name, data, appends in changes:
            path = machines.theirs.path / name
            path.parent.mkdir(exist_ok=True)
            if data is None:
                path.unlink(missing_ok=True)
            elif appends:
                with path.open("ab") as file:
                    file.write(data)
            else:
                path.write_bytes(data)
        machines.move()
        assert content(machines.ours) == content(machines.theirs)
