"""The zygote: what it forks begins clean, ends with it, and is reported; with real processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from session.errors import DeadlineError, RunError
from session.launchers.forker import kill_group
from session.launchers.zygote import Zygote
from session.process import LIFELINE

ROOT = Path(__file__).resolve().parents[3]
ACTS = "tests.session.launchers.child_acts"
DEADLINE_SECONDS = 10.0

T = TypeVar("T")


@pytest.fixture(autouse=True, scope="module")
def _path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield


@pytest.fixture(scope="module")
def lasting() -> Iterator[Zygote]:
    """One for all tests that do it no harm."""
    made = Zygote.start([ACTS])
    yield made
    made.close()


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    made = Zygote.start([ACTS])
    yield made
    made.close()


@pytest.fixture
def said(tmp_path: Path) -> str:
    return str(tmp_path / "child.err")


def until(look: Callable[[], T | None]) -> T:
    """What `look` gives once it gives something."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "nothing came in time"
        time.sleep(0.005)
    return found


def report(zygote: Zygote, kind: str) -> dict[str, Any]:
    """The next report of one kind; those before it are thrown away."""
    return until(lambda: next((each for each in zygote.receive() if kind in each), None))


def lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["return", "0"], 0, ""),
        (["return", "3"], 3, ""),
        (["exit", "no such thing"], 1, "no such thing"),
        (["raise", "broken"], 1, "ValueError: broken"),
        (["print"], 0, "said on stdout"),
        (["print"], 0, "said on stderr"),
        (["unknown"], 0, ""),
    ],
)
def test_a_call_gives_the_exit_code_and_keeps_what_was_said(
    lasting: Zygote, said: str, argv: list[str], status: int, words: str
) -> None:
    Path(said).write_text("said before\n")
    assert lasting.call(ACTS, argv, said) == status
    assert Path(said).read_text().startswith("said before\n")
    assert words in Path(said).read_text()


def test_a_child_begins_clean(zygote: Zygote, said: str, tmp_path: Path) -> None:
    zygote.spawn("another", ACTS, ["hang"], said)
    another = report(zygote, "spawned")["pid"]
    zygote.guard(another)
    assert zygote.call(ACTS, ["describe", str(tmp_path / "it.json")], said) == 0
    it = json.loads((tmp_path / "it.json").read_text())
    assert it.pop("pid") not in (zygote.pid, os.getpid())
    assert it.pop("title") == f"python -P -m {ACTS} describe {tmp_path / 'it.json'}"
    assert it == {
        "leads": True,
        "argv": [ACTS, "describe", str(tmp_path / "it.json")],
        "threads": 1,
        "omp": "1",
        "sockets": [],
        "processes": [],
        "sigterm": True,
        "sigint": True,
        "warm": True,
    }
    kill_group(another)


def test_children_hold_the_lifeline_of_the_supervisor(zygote: Zygote, said: str) -> None:
    zygote.spawn("one", ACTS, ["hang"], said)
    pid = report(zygote, "spawned")["pid"]
    descriptor = zygote.lifeline.environment()[LIFELINE]
    held = os.readlink(f"/proc/{pid}/fd/{descriptor}")
    assert held == os.readlink(f"/proc/self/fd/{zygote.lifeline.reader}")
    kill_group(pid)


def test_the_zygote_itself_has_one_thread_and_a_title(zygote: Zygote) -> None:
    until(lambda: zygote.receive() or zygote.ready)
    assert len(os.listdir(f"/proc/{zygote.pid}/task")) == 1
    title = " ".join(psutil.Process(zygote.pid).cmdline()).strip()
    assert title.startswith("python -P -m session.launchers.zygote ")
    assert title.endswith(ACTS)


def test_each_end_is_reported(zygote: Zygote, said: str) -> None:
    zygote.spawn("agent-0", ACTS, ["return", "5"], said)
    zygote.spawn("agent-1", ACTS, ["hang"], said)
    found: list[dict[str, Any]] = []

    def both_spawned() -> bool:
        found.extend(zygote.receive())
        return sum("spawned" in each for each in found) == 2

    until(both_spawned)
    pids = {each["spawned"]: each["pid"] for each in found if "spawned" in each}
    os.kill(pids["agent-1"], signal.SIGKILL)

    def both_exited() -> bool:
        found.extend(zygote.receive())
        return sum("exited" in each for each in found) == 2

    until(both_exited)
    ends = {each["exited"]: (each["pid"], each["status"]) for each in found if "exited" in each}
    assert ends == {"agent-0": (pids["agent-0"], 5), "agent-1": (pids["agent-1"], -9)}


def test_what_a_child_has_started_dies_with_it(zygote: Zygote, said: str, tmp_path: Path) -> None:
    zygote.spawn("agent-0", ACTS, ["hang", str(tmp_path)], said)
    pid = report(zygote, "spawned")["pid"]
    (grandchild,) = until(lambda: psutil.Process(pid).children())
    os.kill(pid, signal.SIGKILL)
    assert report(zygote, "exited")["status"] == -9
    until(lambda: not lives(grandchild.pid))


def test_a_call_that_takes_too_long_is_killed(zygote: Zygote, said: str) -> None:
    until(lambda: zygote.receive() or zygote.ready)
    with pytest.raises(DeadlineError, match=f"{ACTS} did not end within 0.6 s"):
        zygote.call(ACTS, ["hang"], said, timeout_seconds=0.6)
    until(lambda: not psutil.Process(zygote.pid).children())


def test_reports_that_come_during_a_call_are_kept(zygote: Zygote, said: str) -> None:
    zygote.spawn("agent-0", ACTS, ["return", "5"], said)
    assert zygote.call(ACTS, ["return", "0"], said) == 0
    assert report(zygote, "exited")["exited"] == "agent-0"


def test_a_module_that_cannot_be_imported_is_named(said: str) -> None:
    zygote = Zygote.start(["json", "no_such_module"])
    with pytest.raises(RunError, match="cannot import no_such_module: No module named"):
        zygote.call(ACTS, ["return", "0"], said)
    assert zygote.dead
    zygote.close()


def test_a_killed_zygote_leaves_its_children_and_can_be_started_again(
    zygote: Zygote, said: str
) -> None:
    zygote.spawn("agent-0", ACTS, ["hang"], said)
    pid = report(zygote, "spawned")["pid"]
    os.kill(zygote.pid, signal.SIGKILL)
    until(lambda: zygote.receive() or zygote.dead)
    assert zygote.error == ""
    zygote.restart()
    assert not zygote.dead
    assert zygote.call(ACTS, ["return", "4"], said) == 4
    assert lives(pid)
    kill_group(pid)


SUPERVISOR = f"""
import sys, time
from session.launchers.forker import kill_group
from session.launchers.zygote import Zygote
zygote = Zygote.start([{ACTS!r}])
zygote.remove_at_end(sys.argv[1])
zygote.guard(int(sys.argv[2]))
zygote.spawn("agent-0", {ACTS!r}, ["hang", sys.argv[1]], sys.argv[1] + ".err")
while not (found := [each for each in zygote.receive() if "spawned" in each]):
    time.sleep(0.01)
print(zygote.pid, found[0]["pid"], flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_killed_supervisor_leaves_nothing(tmp_path: Path) -> None:
    sockets = tmp_path / "sockets"
    sockets.mkdir()
    (sockets / "ps.requests").touch()
    guarded = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(sockets), str(guarded.pid)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        pids += [child.pid for child in until(psutil.Process(pids[1]).children)]
        supervisor.kill()
    killed = time.monotonic()
    assert guarded.wait(DEADLINE_SECONDS) == -9
    until(lambda: not any(map(lives, pids)))
    until(lambda: not sockets.exists())
    assert time.monotonic() - killed < 5.0
