"""Fork servers: what they fork begins clean and has this process as parent; real processes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session.errors import DeadlineError, RunError
from session.folder import RunFolder
from session.launchers.fork_client import (
    ForkServer,
    ForkServers,
    Preload,
    group_lives,
    kill_group,
    reap,
)
from tests.contracts.launcher import lives
from tests.polling import until

ROOT = Path(__file__).resolve().parents[3]
ACTS = "tests.session.launchers.child_acts"
# Imported by the heavy server only, and by nothing else.
LATER = "wave"


@pytest.fixture(scope="module")
def lasting() -> Iterator[ForkServers]:
    """A pair for all tests that do it no harm."""
    made = ForkServers(Preload(shared=[ACTS], heavy=[LATER]))
    ready(made, heavy=False)
    yield made
    made.close()


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    made = ForkServers(Preload(shared=[ACTS], heavy=[LATER]))
    yield made
    made.close()


@pytest.fixture
def said(tmp_path: Path) -> str:
    return str(tmp_path / "child.err")


def ready(servers: ForkServers, *, heavy: bool) -> ForkServer:
    server = servers.server(heavy)
    until(lambda: server.receive() or server.ready)
    return server


def spawn(servers: ForkServers, said: str, *argv: str, heavy: bool = True) -> int:
    """The process id of a process that was forked."""
    servers.spawn("agent-0", ACTS, argv, said, heavy=heavy)
    return until(lambda: servers.server(heavy).receive())["agent-0"]


def ended(pid: int) -> int:
    """The exit code of a child, once it has one."""
    codes: list[int | None] = [None]

    def look() -> bool:
        codes.append(reap(pid))
        return codes[-1] is not None

    until(look)
    assert codes[-1] is not None
    return codes[-1]


def die(servers: ForkServers, *, heavy: bool) -> str:
    """Kills a server, and buries it."""
    server = ready(servers, heavy=heavy)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: server.receive() or server.lines.closed)
    return servers.remove_dead(heavy)


def descriptors() -> list[str]:
    paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in paths if os.path.exists(path)]


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
    lasting: ForkServers, said: str, argv: list[str], status: int, words: str
) -> None:
    Path(said).write_text("said before\n")
    assert lasting.call(ACTS, argv, said) == status
    assert Path(said).read_text().startswith("said before\n")
    assert words in Path(said).read_text()


def test_a_call_leaves_reports_of_other_processes_to_their_owner(
    servers: ForkServers, said: str
) -> None:
    for name in ("one", "two"):
        servers.spawn(name, ACTS, ["return", "5"], said, heavy=True)
    assert servers.call(ACTS, ["return", "3"], said) == 3
    found = servers.server(True).receive()
    assert [*found] == ["one", "two"]
    assert [ended(pid) for pid in found.values()] == [5, 5]
    assert servers.server(True).receive() == {}


@pytest.mark.parametrize("heavy", [False, True])
def test_a_child_begins_clean(servers: ForkServers, said: str, tmp_path: Path, heavy: bool) -> None:
    another = spawn(servers, said, "hang", heavy=heavy)
    assert psutil.Process(another).ppid() == os.getpid()
    servers.guard([another])
    pid = spawn(servers, said, "describe", str(tmp_path / "it.json"), heavy=heavy)
    assert ended(pid) == 0
    it = json.loads((tmp_path / "it.json").read_text())
    assert it.pop("title") == f"python -P -m {ACTS} describe {tmp_path / 'it.json'}"
    # Both hold the read end of the lifeline.
    assert it.pop("lifeline") in descriptors()
    assert it == {
        "pid": pid,
        "leads": True,
        "argv": [ACTS, "describe", str(tmp_path / "it.json")],
        "threads": 1,
        "omp": "1",
        "sockets": [],
        "pipes": 1,
        "processes": [],
        "sigterm": True,
        "sigint": True,
        "warm": True,
    }
    kill_group(another)
    assert ended(another) == -9


@pytest.mark.parametrize("heavy", [False, True])
def test_a_server_has_one_thread_a_title_and_this_process_as_parent(
    servers: ForkServers, heavy: bool
) -> None:
    server = psutil.Process(ready(servers, heavy=heavy).pid)
    assert server.ppid() == os.getpid()
    assert server.num_threads() == 1
    title = " ".join(server.cmdline()).strip()
    assert title.startswith(f"python -P -m session.launchers.fork_server {ACTS} ")


def test_light_processes_do_not_have_what_the_heavy_server_imports(
    servers: ForkServers, said: str
) -> None:
    assert ended(spawn(servers, said, "knows", LATER, heavy=False)) == 0
    assert ended(spawn(servers, said, "knows", LATER, heavy=True)) == 1
    die(servers, heavy=False)
    assert ended(spawn(servers, said, "knows", LATER, heavy=False)) == 0


def test_many_at_once_are_reported_each_with_its_own_process(
    servers: ForkServers, said: str
) -> None:
    for code in range(8):
        servers.spawn(str(code), ACTS, ["return", str(code)], said, heavy=True)
    pids: dict[str, int] = {}

    def all_spawned() -> bool:
        pids.update(servers.server(True).receive())
        return len(pids) == 8

    until(all_spawned)
    assert {name: ended(pid) for name, pid in pids.items()} == {str(n): n for n in range(8)}


def test_what_a_child_has_started_dies_with_it(
    servers: ForkServers, said: str, tmp_path: Path
) -> None:
    pid = spawn(servers, said, "hang", str(tmp_path))
    (grandchild,) = until(lambda: psutil.Process(pid).children())
    os.kill(pid, signal.SIGKILL)
    assert ended(pid) == -9
    until(lambda: not group_lives(pid))
    assert not lives(grandchild.pid)


def test_a_call_that_takes_too_long_is_killed(servers: ForkServers, said: str) -> None:
    ready(servers, heavy=True)
    ready(servers, heavy=False)
    before = psutil.Process().children()
    with pytest.raises(DeadlineError, match=f"{ACTS} did not end within 0.2 s"):
        servers.call(ACTS, ["hang"], said, timeout_seconds=0.2)
    assert psutil.Process().children() == before


@pytest.mark.parametrize("kind", ["shared", "heavy"])
def test_a_module_that_cannot_be_imported_is_named(said: str, kind: str) -> None:
    servers = ForkServers(Preload(**{kind: ["json", "no_such_module"]}))
    with pytest.raises(RunError, match="cannot import no_such_module: No module named"):
        servers.call(ACTS, ["return", "0"], said)
    servers.close()


@pytest.mark.parametrize("heavy", [False, True])
def test_a_killed_server_leaves_its_children_and_is_started_again_when_needed(
    servers: ForkServers, said: str, heavy: bool
) -> None:
    pid = spawn(servers, said, "hang", heavy=heavy)
    assert die(servers, heavy=heavy) == "the fork server died: killed"
    assert list(servers.living()) == [not heavy]
    assert ended(spawn(servers, said, "return", "4", heavy=heavy)) == 4
    assert lives(pid)
    kill_group(pid)
    assert ended(pid) == -9


def test_closing_leaves_no_child(said: str) -> None:
    before = psutil.Process().children()
    servers = ForkServers(Preload(shared=[ACTS]))
    ended(spawn(servers, said, "return", "0"))
    die(servers, heavy=False)
    servers.server(False)
    servers.close()
    assert psutil.Process().children() == before


SUPERVISOR = f"""
import os, signal, sys, time
from session.folder import RunFolder
from session.launchers.fork_client import ForkServers, Preload
servers = ForkServers(Preload(shared=[{ACTS!r}]))
servers.remove_sockets_at_end(RunFolder(sys.argv[1]))
pids = []
def spawn(heavy):
    servers.spawn("agent-0", {ACTS!r}, ["hang", sys.argv[1]], sys.argv[1] + ".err", heavy=heavy)
    while not (found := servers.server(heavy).receive()):
        time.sleep(0.01)
    pids.extend([servers.server(heavy).pid, found["agent-0"]])
spawn(True)
spawn(False)
servers.guard([pids[1], pids[3]])
# The other server guards what this one has forked.
os.kill(pids[0], signal.SIGKILL)
print(*pids, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_killed_supervisor_leaves_nothing_but_what_the_next_one_uses(
    tmp_path: Path, goes_on: bool
) -> None:
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.sockets.mkdir()
    (run.sockets / "ps.requests").touch()
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(run.path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        for hanging in (pids[1], pids[3]):
            pids += [child.pid for child in until(psutil.Process(hanging).children)]
        if goes_on:
            run.lock()
        supervisor.kill()
    until(lambda: not any(map(lives, pids)))
    if not goes_on:
        until(lambda: not run.sockets.exists())
        return
    assert (run.sockets / "ps.requests").exists()
    shutil.rmtree(run.sockets)
    run.unlock()
