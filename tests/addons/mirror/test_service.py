"""The mirror as a component: it copies again and again, and waits for a storage that is away."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from session.addons.copies.run_files import BLOCK_BYTES
from session.addons.mirror.fetch import fetch_run
from session.addons.mirror.service import MirrorService, place_of
from session.addons.mirror.storage import Storage
from session.errors import UsageError, WireError
from session.process.heartbeat import State
from tests.addons.mirror.mirrored import OWNER, contents, make_copier, make_run, save_best, shared
from tests.session.made_run import made_beat
from tests.session.tensorplex.rig import MakeRig, Rig
from tests.session.tensorplex.rig import make_rig as make_rig


class Mirrored:
    """A mirror service on a clock that is turned by hand.

    Args:
        rig: of a run with a mirror.
    """

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.context = rig.context("mirror")
        self.events: list[str] = []
        self.context.event = lambda kind, detail="", **more: self.events.append(kind)  # type: ignore[method-assign]
        self.service = MirrorService(self.context)
        self.url = place_of(rig.config, rig.folder)

    def until(self, condition: Callable[[], bool]) -> None:
        self.rig.pump(self.service, condition)

    def pass_on(self) -> None:
        """Lets it make a copy."""
        before = self.copied
        self.until(lambda: self.copied != before)

    @property
    def copied(self) -> float | None:
        return self.service._copied_at


@pytest.fixture
def mirrored(make_rig: MakeRig, tmp_path: Path) -> Iterator[Mirrored]:
    rig = make_rig(mirror=f"file://{tmp_path}/bucket", mirror_seconds=1.0)
    found = Mirrored(rig)
    found.rig.write_files()
    yield found
    found.service.close()


def test_it_copies_again_after_some_seconds(mirrored: Mirrored, tmp_path: Path) -> None:
    run = mirrored.rig.folder
    mirrored.pass_on()
    first = mirrored.copied
    run.events.write_text("{}\n")
    mirrored.pass_on()
    assert first is not None
    assert mirrored.copied is not None
    assert mirrored.copied - first >= 1.0
    assert contents(fetch_run(mirrored.url, tmp_path / "back"))["events.jsonl"] == b"{}\n"
    status = mirrored.service.status()
    assert status["away"] == 0.0
    assert status["sent_bytes"] > 0


@pytest.mark.slow
def test_a_storage_that_is_away_is_reported_once_and_asked_again(
    mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrored.pass_on()
    asked: list[float] = []
    read = Storage.read_manifest
    back = threading.Event()

    def away(self: Storage) -> Any:
        asked.append(mirrored.rig.clock.seconds)
        if not back.is_set():
            raise WireError("away")
        return read(self)

    monkeypatch.setattr(Storage, "read_manifest", away)
    for _ in range(9):
        before = len(asked)
        mirrored.until(lambda before=before: len(asked) > before and idle(mirrored))  # type: ignore[misc]
        # A jump ends a pause early enough: its end is looked for every half a second.
        due = mirrored.service._due_at
        mirrored.rig.clock.seconds = max(mirrored.rig.clock.seconds, due - 0.1)
    assert mirrored.service.status()["away"] == 1.0
    pauses = [after - before for before, after in pairwise(asked)]
    # Each pause is drawn between half of a limit and that limit; a look takes up to 0.5 s more.
    for failures, pause in enumerate(pauses):
        limit = min(60.0, 0.5 * 2.0**failures)
        assert limit / 2 <= pause <= limit + 1.0, pauses
    back.set()
    mirrored.pass_on()
    assert mirrored.events == ["mirror", "mirror_away", "mirror_back"]
    assert mirrored.service.status()["away"] == 0.0


def test_the_last_copy_begins_when_all_others_have_ended(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    mirrored.pass_on()
    run = mirrored.rig.folder
    made_beat(run, "loggerplex", "running")
    _touch(run.path / "alive" / "loggerplex", mirrored)
    mirrored.service.drain()
    for _ in range(30):
        mirrored.service.tick()
        # A copy that has begun may take any time.
        assert idle(mirrored)
        mirrored.rig.clock.seconds += 0.05
    run.events.write_text("the last line\n")
    made_beat(run, "loggerplex", "done")
    mirrored.until(lambda: mirrored.service.done)
    there = contents(fetch_run(mirrored.url, tmp_path / "back"))
    assert there["events.jsonl"] == b"the last line\n"


def idle(mirrored: Mirrored) -> bool:
    """Whether no copy is being made."""
    return mirrored.service._thread is None


def _touch(path: Path, mirrored: Mirrored) -> None:
    """Makes a heartbeat a new one."""
    beat = json.loads(path.read_text())
    path.write_text(json.dumps({**beat, "time": time.time() + 60, "now": time.monotonic()}))


def test_it_ends_by_itself_with_a_run_that_is_over(mirrored: Mirrored) -> None:
    mirrored.pass_on()
    mirrored.rig.folder.result.write_text(json.dumps({"status": "stopped"}))
    made_beat(mirrored.rig.folder, "learner", str(State.done))
    mirrored.until(lambda: mirrored.service.done)


def test_the_end_waits_for_the_last_copy_at_most_the_grace_period(
    make_rig: MakeRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig(mirror=f"file://{tmp_path}/bucket", launcher={"grace_seconds": 0.2})
    mirrored = Mirrored(rig)
    never = threading.Event()
    monkeypatch.setattr(Storage, "read_manifest", lambda self: never.wait(60))
    mirrored.service.tick()
    mirrored.service.drain()
    mirrored.service.close()
    assert not mirrored.service.done
    assert not idle(mirrored)
    assert mirrored.service.exit_code == 1
    never.set()


def test_a_last_copy_is_made_where_no_time_was_left_for_it(
    mirrored: Mirrored, tmp_path: Path
) -> None:
    # As in a serial run, whose clock counts rounds.
    save_best(mirrored.rig.folder, b"best")
    mirrored.service.drain()
    mirrored.service.close()
    assert mirrored.service.done
    assert mirrored.service.exit_code == 0
    assert "checkpoints/best/params" in contents(fetch_run(mirrored.url, tmp_path / "back"))


def test_copies_keep_to_their_rate(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = make_rig(mirror=f"file://{tmp_path}/bucket", mirror_bytes_per_second=2_000_000)
    service = Mirrored(rig).service
    service.close()
    service._pace(BLOCK_BYTES)
    # 2 MB may go at once, but no second block of 1 MiB: it waits, until nobody wants it any more.
    with pytest.raises(WireError, match="given up"):
        service._pace(BLOCK_BYTES)


def test_a_place_of_another_run_fails_the_component(mirrored: Mirrored, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other")
    make_copier(other, mirrored.url, owner=OWNER).copy(1.0)
    with pytest.raises(UsageError, match="that of another run"):
        mirrored.until(lambda: mirrored.copied is not None)
    assert contents(fetch_run(mirrored.url, tmp_path / "back")) == shared(other)


def test_the_place_is_named_by_the_run_and_that_of_a_trial_by_its_tuning(
    make_rig: MakeRig,
) -> None:
    rig = make_rig(mirror="s3://bucket/prefix/")
    name = rig.folder.path.name
    assert place_of(rig.config, rig.folder) == f"s3://bucket/prefix/{name}"
    rig.config["run"] = {"trial": "trial-000"}
    tuning = rig.folder.path.parent.name
    assert place_of(rig.config, rig.folder) == f"s3://bucket/prefix/{tuning}/{name}"
