"""A death for want of memory is told from any other SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.folder import RunFolder
from session.launchers.backend import OutOfMemory, StderrTail, oom_kills

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
