"""Two checks on every test: it leaves no process, no listening port and no file behind.

Child processes are looked at after each test; whatever costs a scan of the machine (orphans,
ports, files) is looked at after each test file.
"""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

MARKER = "SURREAL_LIKE_TEST"  # set by conftest to a value of this session; children inherit it
ROOT = Path(__file__).resolve().parent.parent
GRACE_SECONDS = float(os.environ.get("SURREAL_LIKE_TEST_GRACE_SECONDS", "2"))
# Names that tools and libraries keep on purpose: caches, temp folders that go when Python exits.
LASTING_FILES = (".", "__pycache__", "pymp-", "torchinductor_", "mat-debug-")  # onnxruntime's log
# The folder of tmux's sockets stays; a socket in it is a server that runs, or was not cleared up.
TMUX_FOLDERS = "tmux-*"
PROBE = re.compile("[a-z0-9_]{8}")
LASTING_CHILD = "multiprocessing.resource_tracker"


@dataclass(frozen=True)
class Trace:
    """Something that was not there before; `pid` is the process to end, 0 where there is none."""

    key: str
    text: str = field(compare=False)  # a process may change its title while we look
    pid: int = field(compare=False, default=0)


def process_traces(pids: Iterable[int]) -> set[Trace]:
    """Return those that still run; zombies and the lasting helper of multiprocessing do not."""
    traces = set()
    for pid in pids:
        try:
            process = psutil.Process(pid)
            text = " ".join(process.cmdline()) or process.name()
            if process.status() != psutil.STATUS_ZOMBIE and LASTING_CHILD not in text:
                traces.add(Trace(f"process {pid}", f"process {pid}: {text}", pid))
        except psutil.Error:
            continue
    return traces


def child_pids() -> set[int]:
    """Return the direct children of this process, from the kernel's own list where it has one."""
    lists = list(Path("/proc/self/task").glob("*/children"))
    if not lists:
        return {child.pid for child in psutil.Process().children()}
    try:
        return {int(pid) for path in lists for pid in path.read_text().split()}
    except OSError:  # a thread ended between the two looks
        return child_pids()


def family_pids(folders: Sequence[str]) -> set[int]:
    """Return every process below this one, and every orphan that bears this session's marks.

    The marker in the environment is lost where a process writes its title over it: such a one is
    known by a folder of this session in its title or as its current folder.
    """
    own = psutil.Process()
    family = {child.pid for child in own.children(recursive=True)}
    for process in psutil.process_iter():
        try:
            if process.pid not in family and process != own and is_ours(process, folders):
                family.add(process.pid)
        except psutil.Error:
            continue
    return family


def is_ours(process: psutil.Process, folders: Sequence[str]) -> bool:
    """Return whether an unrelated process was started by a test of this session."""
    if process.environ().get(MARKER) == os.environ[MARKER]:
        return True
    words = (*process.cmdline(), process.cwd())
    return any(names_folder(word, folder) for folder in folders for word in words)


def names_folder(text: str, folder: str | Path) -> bool:
    """Return whether a text names a folder or what lies in it, not one whose name is longer."""
    # Workers of pytest-xdist have folders like `popen-gw1` and `popen-gw10`.
    return re.search(rf"(?<![\w.-]){re.escape(str(folder))}(?![\w.+@~-])", text) is not None


def port_traces(pids: Iterable[int]) -> set[Trace]:
    """Return the TCP ports on which these processes listen."""
    traces = set()
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections("tcp")
        except psutil.Error:
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                text = f"port {connection.laddr.port}, on which process {pid} listens"
                traces.add(Trace(text, text))
    return traces


def file_traces() -> set[Trace]:
    """Return what lies in the session's temp folder, the top of the repository and its runs/."""
    temp = Path(tempfile.gettempdir())
    tmux = list(temp.glob(TMUX_FOLDERS))
    places = [path for path in (temp, ROOT, ROOT / "runs", *tmux) if path.is_dir()]
    return {
        Trace(f"file {path}", f"file {path}")
        for place in places
        for path in place.iterdir()
        if path not in tmux and not path.name.startswith(LASTING_FILES) and not is_probe(path)
    }


def is_probe(path: Path) -> bool:
    """Return whether Python's tempfile has written a file to try a folder.

    It removes it at once; a process that is killed in between leaves it.
    """
    if not PROBE.fullmatch(path.name):
        return False
    try:
        return path.read_bytes() in (b"", b"blat")
    except OSError:
        return False


def wait_until_empty(look: Callable[[], set[Trace]]) -> set[Trace]:
    """Return what `look` still finds after the grace time; ends as soon as it finds nothing."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def refuse(left: set[Trace], what: str) -> None:
    """End the processes that were left, so that later tests have peace, and fail."""
    if not left:
        return
    for trace in left:
        if trace.pid:
            with contextlib.suppress(psutil.Error):
                psutil.Process(trace.pid).kill()
    lines = "\n  ".join(sorted(trace.text for trace in left))
    pytest.fail(f"{what} left behind:\n  {lines}", pytrace=False)


@pytest.fixture(autouse=True)
def no_child_left() -> Iterator[None]:
    """Fail a test that leaves a child process."""
    before = child_pids()
    yield
    refuse(wait_until_empty(lambda: process_traces(child_pids() - before)), "this test")


@pytest.fixture(autouse=True, scope="module")
def nothing_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail at the end of a test file that leaves a process, a listening port or a file."""
    folders = (tempfile.gettempdir(), str(tmp_path_factory.getbasetemp()))

    def look() -> set[Trace]:
        family = family_pids(folders)
        return process_traces(family) | port_traces(family | {os.getpid()}) | file_traces()

    before = look()
    yield
    refuse(wait_until_empty(lambda: look() - before), "the tests of this file")
