"""Spare processes of the zygote: forked early, used once, gone with it; with real processes."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.errors import RunError
from session.launchers.local import LocalLauncher
from session.launchers.zygote import Zygote
from tests.session.launchers.parts import MODULE, make_config, make_topology
from tests.session.launchers.test_local import ACTS as PARTS
from tests.session.launchers.test_local import Run
from tests.session.launchers.test_zygote import ACTS, ROOT, lives, until

# What is imported after the spare process was forked, and that nobody else needs.
LATER = "wave"


@pytest.fixture(autouse=True)
def tests_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote.start(["json", f"spare:{ACTS}", LATER])
    yield made
    made.close()


@pytest.fixture
def said(tmp_path: Path) -> str:
    return str(tmp_path / "child.err")


def end_of(zygote: Zygote, name: str) -> dict[str, Any]:
    """The report of its end."""
    return until(lambda: next((r for r in zygote.receive() if r.get("exited") == name), None))


def spare_of(zygote: Zygote) -> int:
    """The process that waits."""
    until(lambda: zygote.receive() or zygote.ready)
    (spare,) = psutil.Process(zygote.pid).children()
    return spare.pid


def test_a_spare_has_nothing_in_memory_that_was_imported_after_it(
    zygote: Zygote, said: str
) -> None:
    zygote.use_spare("ps", ACTS, ["knows", LATER], said)
    assert end_of(zygote, "ps")["status"] == 0
    assert zygote.call(ACTS, ["knows", LATER], said) == 1


def test_a_spare_is_like_any_other_child(zygote: Zygote, said: str, tmp_path: Path) -> None:
    waiting, file = spare_of(zygote), tmp_path / "it.json"
    zygote.use_spare("ps", ACTS, ["describe", str(file)], said)
    assert end_of(zygote, "ps") == {"exited": "ps", "pid": waiting, "status": 0}
    it = json.loads(file.read_text())
    assert it["pid"] == waiting
    assert it["title"] == f"python -P -m {ACTS} describe {file}"
    assert it["argv"] == [ACTS, "describe", str(file)]
    assert it["leads"]
    assert it["sigterm"]
    assert (it["sockets"], it["processes"], it["threads"]) == ([], [], 1)


def test_a_child_that_is_forked_later_does_not_keep_a_spare_alive(
    zygote: Zygote, said: str
) -> None:
    waiting = spare_of(zygote)
    zygote.spawn("agent-0", ACTS, ["hang"], said)
    until(lambda: any("spawned" in report for report in zygote.receive()))
    child = next(c for c in psutil.Process(zygote.pid).children() if c.pid != waiting)
    os.kill(zygote.pid, signal.SIGKILL)
    until(lambda: not lives(waiting))
    assert lives(child.pid)
    os.killpg(child.pid, signal.SIGKILL)


def test_a_spare_is_used_once(zygote: Zygote, said: str) -> None:
    assert zygote.spares == {ACTS}
    zygote.use_spare("ps", ACTS, ["return", "3"], said)
    assert zygote.spares == set()
    with pytest.raises(KeyError):
        zygote.use_spare("ps", ACTS, ["return", "3"], said)
    assert end_of(zygote, "ps")["status"] == 3


def test_what_was_never_used_ends_with_the_zygote() -> None:
    zygote = Zygote.start([f"spare:{ACTS}", "spare:json"])
    until(lambda: zygote.receive() or zygote.ready)
    waiting = [child.pid for child in psutil.Process(zygote.pid).children()]
    assert len(waiting) == 2
    zygote.close()
    until(lambda: not any(map(lives, waiting)))


def test_a_spare_that_has_died_is_reported_when_it_is_wanted(zygote: Zygote, said: str) -> None:
    os.kill(spare_of(zygote), signal.SIGKILL)
    zygote.use_spare("ps", ACTS, ["return", "0"], said)
    assert end_of(zygote, "ps")["status"] == -9


def test_a_spare_of_a_module_that_cannot_be_imported_says_so_when_it_is_used(said: str) -> None:
    zygote = Zygote.start(["spare:no_such_module"])
    zygote.use_spare("ps", "no_such_module", [], said)
    assert end_of(zygote, "ps")["status"] == 1
    assert "No module named 'no_such_module'" in Path(said).read_text()
    zygote.close()


def test_a_zygote_that_is_started_again_has_none(zygote: Zygote, said: str) -> None:
    os.kill(zygote.pid, signal.SIGKILL)
    until(lambda: zygote.receive() or zygote.dead)
    zygote.restart()
    assert zygote.spares == set()
    assert zygote.call(ACTS, ["return", "4"], said) == 4
    assert not psutil.Process(zygote.pid).children()


def test_a_run_uses_them_at_its_start_and_command_lines_afterwards(run_folder: Path) -> None:
    config = make_config(PARTS)
    zygote = Zygote.start([f"spare:{MODULE}", MODULE])
    run = Run(run_folder)
    run.launcher = LocalLauncher(config, make_topology(config), run.folder, zygote=zygote)
    light = next(c.name for c in run.launcher._topology if not c.needs_torch)
    with run:
        run.started()
        first = run.pid(light)
        assert psutil.Process(first).ppid() == zygote.pid
        os.kill(first, signal.SIGKILL)
        run.until(lambda: "restart" in run.kinds(light))
        run.started(light)
        assert psutil.Process(run.pid(light)).ppid() == os.getpid()
        run.launcher.stop()
        assert run.outcome().status == "stopped"
    assert run.result()["components"][light]["restarts"] == 1


def test_light_components_start_although_the_zygote_has_died_before(run_folder: Path) -> None:
    config = make_config(PARTS)
    zygote = Zygote.start([f"spare:{MODULE}", MODULE])
    until(lambda: zygote.receive() or zygote.ready)
    os.kill(zygote.pid, signal.SIGSTOP)
    run = Run(run_folder)
    run.launcher = LocalLauncher(config, make_topology(config), run.folder, zygote=zygote)
    with run:
        # What was asked of it at launch it has never heard.
        os.kill(zygote.pid, signal.SIGKILL)
        run.started()
        assert run.happenings == []
        light = next(c.name for c in run.launcher._topology if not c.needs_torch)
        assert psutil.Process(run.pid(light)).ppid() == os.getpid()
        run.launcher.stop()
        assert run.outcome().status == "stopped"


def test_an_import_that_fails_later_leaves_no_spare_behind(said: str) -> None:
    zygote = Zygote.start([f"spare:{ACTS}", "no_such_module"])
    (waiting,) = until(lambda: psutil.Process(zygote.pid).children())
    with pytest.raises(RunError, match="cannot import no_such_module"):
        zygote.call(ACTS, ["return", "0"], said)
    zygote.close()
    until(lambda: not lives(waiting.pid))
