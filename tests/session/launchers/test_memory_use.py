"""Memory: its use and largest users, and a death for want of it among other SIGKILLs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from session.folder import RunFolder
from session.launchers.backend import StderrTail
from session.launchers.memory_use import (
    MemoryGuard,
    OutOfMemory,
    Reading,
    describe,
    oom_kills,
    read_memory,
)
from session.process.heartbeat import Beat, State, write_beat

V2 = "low 0\nhigh 0\nmax 71\noom 4\noom_kill 3\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
SLICE = "/user.slice/session-2.scope"


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({"/proc/self/cgroup": f"0::{SLICE}\n", f"/sys/fs/cgroup{SLICE}/memory.events": V2}, 3),
        # In a container: the path is the machine's, the files are at the mount.
        ({"/proc/self/cgroup": "0::/docker/1f\n", "/sys/fs/cgroup/memory.events": V2}, 3),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.events": V2}, 3),
        (
            {
                "/proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a\n0::/\n",
                "/sys/fs/cgroup/memory/a/memory.oom_control": V1,
            },
            3,
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/a\n0::/\n",
                "/sys/fs/cgroup/memory/memory.oom_control": V1,
            },
            3,
        ),
        ({"/proc/self/cgroup": "0::/\n"}, None),
        ({"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.events": "oom_kill x"}, None),
        ({}, None),
    ],
)
def test_the_kernels_counter_is_found(files: dict[str, str], kills: int | None) -> None:
    assert oom_kills(lambda path: files.get(path, "")) == kills


def test_each_kill_counts_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    files = {"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.events": "oom_kill 7\n"}
    words = StderrTail(folder, "agent-0", OutOfMemory(lambda path: files.get(path, "")))
    assert words.exit(1, -9).error == "killed by SIGKILL"
    files["/sys/fs/cgroup/memory.events"] = "oom_kill 8\n"
    assert words.exit(1, -15).error == "killed by SIGTERM"
    assert words.exit(1, -9).error == "killed by SIGKILL: out of memory, ended by the kernel"
    assert words.exit(1, -9).error == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("pid", "state", "code"),
    [(7, State.done, 0), (7, State.running, 1), (7, None, 1), (6, State.done, 1)],
)
def test_only_a_process_that_says_so_has_ended_well(
    tmp_path: Path, pid: int, state: State | None, code: int
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create()
    if state is not None:
        write_beat(folder.alive, Beat("agent-0", 1, state, pid, time.time()))
    end = StderrTail(folder, "agent-0", OutOfMemory(lambda path: "")).exit(7, 0)
    assert end.exit_code == code
    assert (end.error == "ended with exit code 0 before its work was done") == bool(code)


MACHINE = 32 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 32 GiB, of which 8 are used."""
    memory = SimpleNamespace(total=MACHINE, available=MACHINE - (8 << 30))
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("files", "reading"),
    [
        ({}, Reading(8 << 30, MACHINE)),
        # The limit of the container, without what the kernel may drop.
        (
            {
                "/proc/self/cgroup": "0::/docker/1f\n",
                "/sys/fs/cgroup/memory.max": "4000000000\n",
                "/sys/fs/cgroup/memory.current": "3900000000\n",
                "/sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 100000000\n",
            },
            Reading(3_800_000_000, 4_000_000_000, limited=True),
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/a\n0::/\n",
                "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4000000000\n",
                "/sys/fs/cgroup/memory/a/memory.usage_in_bytes": "3900000000\n",
                "/sys/fs/cgroup/memory/a/memory.stat": "total_inactive_file 100000000\n",
            },
            Reading(3_800_000_000, 4_000_000_000, limited=True),
        ),
        # No limit, in the words of v2 and of v1.
        (
            {
                "/proc/self/cgroup": "0::/\n",
                "/sys/fs/cgroup/memory.max": "max\n",
                "/sys/fs/cgroup/memory.current": "3900000000\n",
            },
            Reading(8 << 30, MACHINE),
        ),
        (
            {
                "/proc/self/cgroup": "4:memory:/\n",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes": "3900000000\n",
            },
            Reading(8 << 30, MACHINE),
        ),
    ],
)
def test_the_memory_is_that_of_machine_or_container(
    files: dict[str, str], reading: Reading
) -> None:
    assert read_memory(lambda path: files.get(path, "")) == reading


def test_above_nine_tenths_there_is_one_warning_and_above_the_limit_a_finding_at_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    shares = iter([50, 91, 93, 96, 97, 60, 92])
    guard = MemoryGuard(tmp_path, 0.95, lambda: Reading(next(shares) * 10**8, 10**10))
    found = []
    for _ in range(14):  # every second look is not due
        now[0] += 1.0
        found.append(guard.look())
    assert [each and each.over for each in found[1::2]] == [
        *(None, False, None, True, True, None, None),
    ]
    assert found[::2] == [None] * 7
    assert found[3] is not None
    assert found[3].text.startswith("91 % of 10.0 GB used; the most: ")


class Listed:
    """A process as psutil lists it."""

    def __init__(self, pid: int, parent: int, size: float, *command: str) -> None:
        self.pid, self._size = pid, int(size * 1e9)
        # Resident memory counts shared pages in each process.
        memory = SimpleNamespace(rss=2 * self._size)
        self.info = {"memory_info": memory, "cmdline": list(command), "ppid": parent}

    def memory_full_info(self) -> SimpleNamespace:
        return SimpleNamespace(pss=self._size, uss=0)


def test_the_largest_users_are_named_of_this_run_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def title(name: str, folder: Path) -> str:
        return f"python -P -m main.{name} --name {name} --folder {folder}"

    listed = [
        Listed(os.getpid(), 1, 0.5, "surreal-like", "train"),
        Listed(77, 1, 1.9, "/usr/bin/python3", "train.py", "--lr"),
        # As psutil reads a title that replaces a longer command line.
        Listed(812, 1, 4.1, title("learner", tmp_path), "", ""),
        Listed(813, 812, 2.2, "ffmpeg"),
        Listed(900, 1, 3.0, title("replay-0", tmp_path / "trial-003")),
        Listed(901, 1, 0.1, title("replay-0", tmp_path.parent / "other")),
        Listed(5, 2, 0.0),
    ]
    monkeypatch.setattr("psutil.process_iter", lambda names: listed)
    text = describe(Reading(97, 100), tmp_path)
    assert text == (
        "97 % of 0.0 GB used; the most: learner 4.1 GB (pid 812), replay-0 of trial-003 3.0 GB "
        "(pid 900), learner 2.2 GB (pid 813), python3 train.py 1.9 GB (pid 77, not of this run), "
        f"supervisor 0.5 GB (pid {os.getpid()})"
    )


@pytest.mark.skipif(not os.path.isdir("/sys/fs/cgroup/memory"), reason="needs cgroups v1")
@pytest.mark.root
def test_in_a_cgroup_its_limit_and_its_processes_count() -> None:
    group = Path("/sys/fs/cgroup/memory", f"surreal-like-test-{os.getpid()}")
    group.mkdir()
    code = (
        "import json; from pathlib import Path; from session.launchers import memory_use as m; "
        "data = bytes(100 << 20); r = m.read_memory(); print(m.describe(r, Path('/dev/null/none')))"
    )
    enter = f'echo $$ > {group}/cgroup.procs && exec {sys.executable} -c "{code}"'
    try:
        (group / "memory.limit_in_bytes").write_text("1000000000")
        done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=True)
    finally:
        group.rmdir()
    share, _, rest = done.stdout.partition(" % of 1.0 GB used; the most: ")
    assert 0 < int(share) < 60
    assert rest.count("pid") == 1  # it is alone there
