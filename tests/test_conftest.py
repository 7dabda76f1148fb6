"""The checks on tests work: each kind of leftover fails a run of pytest of its own."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import mutations
from tests.leftovers import is_probe, names_folder

ROOT = Path(__file__).resolve().parent.parent

LEAVES_A_CHILD = """
import subprocess, sys
def test_child() -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).returncode = 0
"""

# Two forks: the grandchild is nobody's child when the test ends.
ORPHAN = "import os, time\nif os.fork() == 0:\n    {before}\n    time.sleep(60)\n"

LEAVES_AN_ORPHAN = f"""
import subprocess, sys
def test_orphan() -> None:
    subprocess.run([sys.executable, "-c", {ORPHAN.format(before="os.setsid()")!r}], check=True)
"""

LEAVES_AN_ORPHAN_WITH_A_TITLE = f"""
import subprocess, sys
def test_orphan(tmp_path) -> None:
    title = "import setproctitle; setproctitle.setproctitle(" + repr(str(tmp_path) * 40) + ")"
    subprocess.run(
        [sys.executable, "-c", {ORPHAN!r}.format(before=title)], check=True, cwd="/"
    )
"""

LEAVES_A_PORT = """
import socket
KEPT = []
def test_port() -> None:
    KEPT.append(socket.create_server(("127.0.0.1", 0)))
"""

LEAVES_A_FILE = """
import tempfile
def test_file() -> None:
    open(tempfile.mkdtemp(prefix="sl-") + "/socket", "w").close()
"""

LEAVES_TMUX = """
import subprocess
def test_server() -> None:
    subprocess.run(["tmux", "-L", "left", "-f", "/dev/null", "new-session", "-d"], check=True)
"""

LEAVES_NOTHING = """
import socket, subprocess, sys
def test_clean(tmp_path) -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)
    socket.create_server(("127.0.0.1", 0)).close()
    (tmp_path / "kept.txt").write_text("kept")
"""

GROUPS = """
import psutil
import pytest

from tests import mutations
from tests.leftovers import names_folder
@pytest.mark.slow
def test_slow() -> None: ...
@pytest.mark.kubectl
def test_kubectl() -> None: ...
"""


def run_pytest(folder: Path, *arguments: str, path: str = "", **files: str) -> tuple[int, str]:
    """Run pytest with this suite's conftest and settings over files of this text."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    command += ["--rootdir", str(folder), "--basetemp", str(folder / "temp"), str(folder)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}
    environment["SURREAL_LIKE_TEST_GRACE_SECONDS"] = "0.2"
    # It is no worker of this suite.
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_each_leftover_is_an_error(tmp_path: Path) -> None:
    code, output = run_pytest(
        tmp_path,
        child=LEAVES_A_CHILD,
        orphan=LEAVES_AN_ORPHAN,
        titled=LEAVES_AN_ORPHAN_WITH_A_TITLE,
        port=LEAVES_A_PORT,
        file=LEAVES_A_FILE,
    )
    assert code == 1, output
    assert "5 passed, 5 errors" in output, output
    for words in ("time.sleep(60)", "process ", "port ", "/sl-", str(tmp_path / "temp")):
        assert words in output


@pytest.mark.tmux
def test_a_server_of_tmux_that_was_left_is_an_error(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, path=os.environ["PATH"], server=LEAVES_TMUX)
    assert code == 1, output
    assert "1 passed, 1 error" in output, output
    assert "tmux -L left" in output
    assert re.search(r"file .*/tmux-\d+/left", output)


def test_what_is_tidied_up_is_no_error(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, clean=LEAVES_NOTHING)
    assert code == 0, output


@pytest.mark.parametrize(
    ("name", "content", "probe"),
    [
        ("0h1pie0y", b"blat", True),
        ("0h1pie0y", b"", True),
        ("0h1pie0y", b"rows", False),
        ("0h1pie0y1", b"blat", False),
    ],
)
def test_a_file_by_which_python_tries_a_folder_is_not_left_by_a_test(
    tmp_path: Path, name: str, content: bytes, probe: bool
) -> None:
    (tmp_path / name).write_bytes(content)
    assert is_probe(tmp_path / name) == probe


def test_groups_that_did_not_run_say_why(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "-m", "not slow", groups=GROUPS)
    assert code == 0, output
    assert "slow          1 left out" in output
    assert "kubectl       1 skipped   no kubectl" in output


def test_groups_are_counted_once_however_many_workers_there_are(tmp_path: Path) -> None:
    files = {"groups": GROUPS, "clean": LEAVES_NOTHING}
    code, output = run_pytest(tmp_path, "-n", "2", "-m", "not slow", **files)
    assert code == 0, output
    assert "slow          1 left out" in output
    assert "kubectl       1 skipped   no kubectl" in output


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("/tmp/slt-1", True),
        ("/tmp/slt-1/popen-gw1/test_a0", True),
        ("python -m main.agent --folder /tmp/slt-1 --name agent-0", True),
        ("--folder=/tmp/slt-1/run", True),
        ("import x; open('/tmp/slt-1')", True),
        ("ipc:///tmp/slt-1/ps.requests", True),
        ("/tmp/slt-10", False),
        ("--folder=/tmp/slt-1x/run", False),
        ("/tmp/slt-1.old", False),
        ("/tmp/slt-1-2/run", False),
        ("/srv/tmp/slt-1", False),
        ("/tmp/slt-1_run", False),
        ("/tmp", False),
    ],
)
def test_a_folder_is_named_by_its_whole_name(text: str, named: bool) -> None:
    assert names_folder(text, "/tmp/slt-1") is named
    assert names_folder(f"a {text}", "/tmp/slt-1") is named


ABORTS = """
import ctypes, os
def test_abort() -> None:
    os.write(2, b"Assertion failed: !_more (src/fq.cpp:80)\\n")
    ctypes.CDLL(None).abort()
"""


@pytest.mark.parametrize("outcome", ["vanishes", "ends"])
def test_a_worker_that_vanishes_leaves_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    files = {
        "abort": ABORTS
        if outcome == "vanishes"
        else ABORTS.replace("ctypes.CDLL(None).abort()", "")
    }
    words = ("-n", "1", "--max-worker-restart=0", "--capture=sys")
    code, output = run_pytest(tmp_path, *words, **files)
    vanishes = outcome == "vanishes"
    assert code == vanishes, output
    for said in ("last words of worker gw0", "Assertion failed: !_more", "test_abort.py"):
        assert (said in output) is vanishes, output
    assert ("Fatal Python error: Aborted" in output) is vanishes


LONGER = """
import os, pathlib, subprocess, sys
def test_other(tmp_path_factory) -> None:
    ours = tmp_path_factory.getbasetemp()
    other = ours.with_name(ours.name + "0")
    other.mkdir()
    # Another worker's process, as far as its environment and its parent tell.
    code = "import os, time\\nif os.fork() == 0:\\n    time.sleep(20)\\nelse: os._exit(0)"
    environment = {**os.environ, "SURREAL_LIKE_TEST": "other"}
    subprocess.run(
        [sys.executable, "-c", code, str(other)], env=environment, cwd=other, check=True,
        start_new_session=True,
    )
"""


def test_processes_of_another_worker_are_left_alone(tmp_path: Path) -> None:
    try:
        code, output = run_pytest(tmp_path, other=LONGER)
        assert code == 0, output
        assert processes_in(tmp_path / "temp0")
    finally:
        for process in processes_in(tmp_path / "temp0"):
            process.kill()


def processes_in(folder: Path) -> list[psutil.Process]:
    """Return the processes whose current folder is this one."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd() == str(folder):
                found.append(process)
    return found


def test_every_fault_fits_the_tree() -> None:
    faults = mutations.parse(mutations.FAULTS)
    for fault in faults:
        path, text = mutations.break_one(fault, ROOT)
        assert text != path.read_text(encoding="utf-8"), fault.name
        files = [each.partition("::")[0] for each in fault.tests if not each.startswith("-")]
        assert all((ROOT / each).exists() for each in files), fault.name
    assert len(faults) > 60


@pytest.mark.slow
def test_faults_in_the_product_are_found() -> None:
    only = ("GAE ignores lambda", "a FIFO drops unrolls", "a guest may send as another")
    done = subprocess.run(
        [sys.executable, "tests/mutations.py", "--only", *only],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 faults found" in done.stdout
