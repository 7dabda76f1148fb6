"""A mirror holds complete generations of a run, one after another, whatever happens meanwhile."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from session.addons.copies.run_files import BLOCK_BYTES
from session.addons.mirror.copier import Owner
from session.addons.mirror.fetch import fetch_run
from session.addons.mirror.storage import Storage
from session.errors import UsageError, WireError
from tests.addons.mirror.mirrored import (
    OWNER,
    contents,
    make_copier,
    make_run,
    save,
    save_best,
    shared,
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket/run"


class Flaky(Storage):
    """Fails at one of its requests, as if the process were killed there.

    Args:
        url: as of a storage.
        calls: requests that succeed before.
    """

    def __init__(self, url: str, calls: int) -> None:
        super().__init__(url)
        self.calls = calls

    def publish(self, *args: Any) -> None:
        self._count()
        super().publish(*args)

    def put(self, *args: Any) -> None:
        self._count()
        super().put(*args)

    def remove(self, *args: Any) -> None:
        self._count()
        super().remove(*args)

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise WireError("gone")


def test_a_generation_has_all_but_keys_logs_heartbeats_and_what_was_set_aside(
    tmp_path: Path, url: str
) -> None:
    run = make_run(tmp_path / "run")
    make_copier(run, url).copy(1.0)
    there = contents(fetch_run(url, tmp_path / "back"))
    assert there == shared(run)
    assert {"checkpoints/best/params", "checkpoints/learner/200/state.json", "code/mine.py"} < set(
        there
    )
    stored = b"".join(contents(tmp_path / "bucket").values())
    assert b"secret" not in stored


def test_only_what_has_changed_is_sent(tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    with run.events.open("ab") as file:
        file.write(bytes(range(256)) * (BLOCK_BYTES // 128))
    copier = make_copier(run, url)
    copier.copy(1.0)
    sent = copier.sent_bytes
    copier.copy(2.0)
    assert copier.sent_bytes == sent
    manifest = Storage(url).read_manifest()
    assert manifest is not None
    assert manifest.time == 1.0
    with run.events.open("ab") as file:
        file.write(b"more\n")
    copier.copy(3.0)
    assert 0 < copier.sent_bytes - sent < 100
    assert contents(fetch_run(url, tmp_path / "back")) == shared(run)


def test_blocks_of_earlier_generations_are_removed(tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    copier = make_copier(run, url)
    for number in (300, 400):
        copier.copy(1.0)
        save(run, number)
        save_best(run, f"{number}".encode())
    # One of a process that was killed before its manifest.
    Storage(url).put("0" * 32, b"stray")
    make_copier(run, url).copy(2.0)
    manifest = Storage(url).read_manifest()
    assert manifest is not None
    assert Storage(url).list_blocks() == manifest.blocks


@pytest.mark.parametrize("replaces", [True, False])
def test_a_checkpoint_that_goes_while_it_is_copied_is_there_whole(
    replaces: bool, tmp_path: Path, url: str
) -> None:
    run = make_run(tmp_path / "run")
    before = shared(run)

    def go(size: int) -> None:
        if replaces:
            save_best(run, b"another")
        else:
            shutil.rmtree(run.checkpoints / "best", ignore_errors=True)

    save_best(run, b"newest")
    newest = {name: data for name, data in shared(run).items() if "best/" in name}
    make_copier(run, url, pace=go).copy(1.0)
    there = contents(fetch_run(url, tmp_path / "back"))
    assert {name: data for name, data in there.items() if "best/" in name} == newest
    assert there.keys() == before.keys()


@pytest.mark.parametrize("gone", ["params", "state.json"])
def test_a_checkpoint_that_is_half_gone_is_left_out(gone: str, tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    (run.checkpoints / "learner" / "100" / gone).unlink()
    make_copier(run, url).copy(1.0)
    names = contents(fetch_run(url, tmp_path / "back"))
    assert "checkpoints/learner/200/params" in names
    assert not [name for name in names if name.endswith("100/state.json")]


def test_a_reader_sees_one_generation_or_the_next_wherever_the_copy_ends(
    tmp_path: Path, url: str
) -> None:
    ended = 0
    for calls in range(60):
        run = make_run(tmp_path / f"{calls}" / "run")
        place = f"{url}-{calls}"
        make_copier(run, place).copy(1.0)
        before = shared(run)
        save(run, 300)
        save_best(run, b"better")
        copier = make_copier(run, place)
        copier._storage = Flaky(place, calls)
        try:
            copier.copy(2.0)
        except WireError:
            ended += 1
        seen = contents(fetch_run(place, tmp_path / f"{calls}" / "back"))
        assert seen in (before, shared(run))
        # The same process goes on, or the next one of its name.
        again = copier if calls % 2 else make_copier(run, place)
        again._storage = Storage(place)
        again.copy(3.0)
        assert contents(fetch_run(place, tmp_path / f"{calls}" / "end")) == shared(run)
        manifest = Storage(place).read_manifest()
        assert manifest is not None
        assert Storage(place).list_blocks() == manifest.blocks
        if ended <= calls:
            break
    # Each request of a copy has failed once, and then none.
    assert 5 < ended < 50


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Owner("another", 1, 5), "that of another run"),
        (Owner("a-run", 2, 1), "goes on elsewhere"),
        (Owner("a-run", 1, 6), "goes on elsewhere"),
    ],
)
def test_a_place_that_belongs_to_another_is_left_alone(
    other: Owner, words: str, tmp_path: Path, url: str
) -> None:
    make_copier(make_run(tmp_path / "other"), url, owner=other).copy(1.0)
    run = make_run(tmp_path / "run")
    save(run, 300)
    with pytest.raises(UsageError, match=words):
        make_copier(run, url).copy(2.0)
    assert contents(fetch_run(url, tmp_path / "back")) == shared_other(tmp_path)
    if other.run == OWNER.run:
        make_copier(run, url, owner=Owner("a-run", 3, 1)).copy(3.0)


def shared_other(tmp_path: Path) -> dict[str, bytes]:
    return shared(make_run(tmp_path / "same"))


def test_a_mirror_that_was_emptied_is_filled_again(tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    copier = make_copier(run, url)
    copier.copy(1.0)
    shutil.rmtree(tmp_path / "bucket")
    copier.copy(2.0)
    assert contents(fetch_run(url, tmp_path / "back")) == shared(run)


def test_what_an_earlier_process_has_removed_is_there_again(tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    copier = make_copier(run, url, owner=Owner("a-run", 2, 1))
    copier.copy(1.0)
    storage = Storage(url)
    manifest = storage.read_manifest()
    assert manifest is not None
    # It has looked before the other one's first copy, and gone on after it.
    (block,) = manifest.files["checkpoints/best/params"].blocks
    files = {name: file for name, file in manifest.files.items() if block not in file.blocks}
    storage.publish(replace(manifest, part=1, files=files))
    storage.remove([block])
    copier.copy(2.0)
    assert contents(fetch_run(url, tmp_path / "back")) == shared(run)


def test_a_damaged_manifest_is_replaced(tmp_path: Path, url: str) -> None:
    run = make_run(tmp_path / "run")
    copier = make_copier(run, url)
    copier.copy(1.0)
    (tmp_path / "bucket" / "run" / "manifest.json").write_text("{}")
    copier.copy(2.0)
    assert contents(fetch_run(url, tmp_path / "back")) == shared(run)
