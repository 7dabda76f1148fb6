"""What every test shares: one thread per library, a private temp folder, groups that need tools."""

import os
import signal
import tempfile
import uuid

# A worker of pytest-xdist inherits the private folder of its parent, and would nest
# its own in it: too long a path for sockets.
SYSTEM_TEMP = (
    os.environ["PYTEST_DEBUG_TEMPROOT"]
    if "PYTEST_XDIST_WORKER" in os.environ
    else tempfile.gettempdir()
)
PRIVATE_TEMP = tempfile.mkdtemp(prefix="slt-")  # short: paths of ipc sockets end at 107 bytes
os.environ.update(
    {
        "SURREAL_LIKE_TEST": uuid.uuid4().hex,
        # Few cores are shared by many processes: one thread each.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        # No screen, no sound card.
        "SDL_VIDEODRIVER": "dummy",
        "SDL_AUDIODRIVER": "dummy",
        "MPLBACKEND": "agg",
        # What lies in this folder afterwards was left by our tests, whoever else uses the machine.
        # pytest's tmp_path stays outside: a test may leave what it likes there.
        "TMPDIR": PRIVATE_TEMP,
        "PYTEST_DEBUG_TEMPROOT": SYSTEM_TEMP,
        # The tests' tmux server is their own: no run of the user shows in it, and it must be gone.
        "TMUX_TMPDIR": PRIVATE_TEMP,
    }
)
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["SURREAL_LIKE_TEST_WORDS"] = PRIVATE_TEMP
tempfile.tempdir = PRIVATE_TEMP
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and all our children would be deaf to Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)

import gc
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests import examples
from tests.last_words import LastWords
from tests.leftovers import no_child_left as no_child_left
from tests.leftovers import nothing_left as nothing_left


@dataclass(frozen=True)
class Group:
    """A marker, what tells whether its tests can run here, and what to do where they cannot."""

    can_run: Callable[[], bool]
    missing: str


def find_program(*names: str) -> bool:
    """Return whether one of these programs is on the path."""
    return any(shutil.which(name) for name in names)


def find_kubectl() -> bool:
    """Return whether there is a kubectl whose kustomize knows `labels` (1.22; Debian's is 1.20)."""
    if not find_program("kubectl"):
        return False
    command = ["kubectl", "version", "--client", "--output=json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    version = re.search(r'"gitVersion": "v(\d+)\.(\d+)', done.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (1, 22)


def find_node() -> bool:
    """Return whether there is a Node that takes ES modules without a package.json (20.19)."""
    if not find_program("node"):
        return False
    done = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30)
    version = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (20, 19)


def find_cluster() -> bool:
    """Return whether tests are given a cluster, or a control plane was built for them."""
    # Not at the top: the folder is taken out with its add-on.
    from tests.addons.kubernetes.build_control_plane import find_programs

    return bool(os.environ.get("SURREAL_LIKE_TEST_CLUSTER")) or find_programs()


GROUPS = {
    "slow": Group(lambda: True, ""),
    "alone": Group(lambda: True, ""),
    "root": Group(lambda: os.geteuid() == 0, "not root: run as root"),
    "tmux": Group(lambda: find_program("tmux"), "no tmux: install Debian's package tmux"),
    "kubectl": Group(
        find_kubectl,
        "no kubectl 1.22 or newer: install one as kubernetes.io says (Debian's is older)",
    ),
    "cluster": Group(
        find_cluster,
        "no control plane of Kubernetes: run make cluster-test once, which builds it",
    ),
    "slurm": Group(
        lambda: all(map(find_program, ("slurmctld", "slurmd", "sbatch", "nsenter", "ip"))),
        "no Slurm: install Debian's packages slurm-wlm and iproute2",
    ),
    "ray": Group(
        lambda: find_spec("ray") is not None,
        'no Ray: .venv/bin/python -m pip install -c constraints.txt -e ".[ray]"',
    ),
    "chromium": Group(
        lambda: find_program("chromium", "chromium-browser", "google-chrome"),
        "no Chromium: install Debian's package chromium",
    ),
    "node": Group(
        find_node, "no Node 20.19 or newer: install one as nodejs.org says (Debian 12's is older)"
    ),
    "gxx": Group(lambda: find_program("g++"), "no g++: install Debian's package g++"),
    "prometheus": Group(
        lambda: find_program("prometheus") and find_program("promtool"),
        "no Prometheus: install Debian's package prometheus",
    ),
}


class GroupReport:
    """Counts the tests of each group: found, left out by -m or -k, skipped for a missing tool.

    Each worker of pytest-xdist collects all tests and counts the same; the last one's are shown.
    """

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.missing: dict[str, str] = {}

    @pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            self.found.update(groups_of(item))
        self.missing = {
            name: GROUPS[name].missing for name in self.found if not GROUPS[name].can_run()
        }
        for item in items:
            for name in self.missing.keys() & set(groups_of(item)):
                item.add_marker(pytest.mark.skip(reason=f"{name}: {self.missing[name]}"))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["groups"] = [dict(self.found), dict(self.left_out), self.missing]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Reads the counts of a worker of pytest-xdist that has ended."""
        output = getattr(node, "workeroutput", {})
        found, left_out, self.missing = output.get("groups", ({}, {}, {}))
        self.found, self.left_out = Counter(found), Counter(left_out)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            self.left_out.update(groups_of(item))

    def lines(self) -> list[str]:
        """Return one line per group of which not every test ran."""
        lines = []
        for name in GROUPS:
            here = self.found[name] - self.left_out[name]
            if name in self.missing and here:
                lines.append(f"{name:<10} {here:>4} skipped   {self.missing[name]}")
            if self.left_out[name]:
                lines.append(f"{name:<10} {self.left_out[name]:>4} left out  by -m or -k")
        return lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        lines = self.lines()
        if lines:
            terminalreporter.section("groups that did not run in full")
            for line in lines:
                terminalreporter.write_line(line)


def groups_of(item: pytest.Item) -> list[str]:
    """Return the groups a test is marked with."""
    return [name for name in GROUPS if item.get_closest_marker(name)]


def pytest_configure(config: pytest.Config) -> None:
    examples.register(slow="not slow" not in config.getoption("markexpr"))
    config.pluginmanager.register(GroupReport(), "surreal-like-groups")
    config.pluginmanager.register(LastWords(), "surreal-like-last-words")


# Places whose tests start many processes each: at once they would take each other's time.
CROWDED = (
    "tests/addons/kubernetes/",
    "tests/docs/test_sessions.py",
    "tests/addons/join/runs/test_join.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one worker, and those of all crowded places in one."""
    from xdist.scheduler import LoadFileScheduling

    made: Any = LoadFileScheduling(config, log)
    by_file = made._split_scope
    made._split_scope = lambda test: CROWDED[0] if test.startswith(CROWDED) else by_file(test)
    return made


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without searching for garbage: what is imported and found stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # so that no later search walks it either
        gc.enable()


def pytest_unconfigure() -> None:
    shutil.rmtree(PRIVATE_TEMP, ignore_errors=True)


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    """Undo what a part or a script has set here: the next test would inherit it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs of one process start fast: equal code is packed once, no test is packed."""
    code = sys.modules.get("surreal_like.experiment.user_code")
    if code is not None:
        pack = code._pack
        monkeypatch.setattr(code, "_LIBRARY", (*code._LIBRARY, "tests"))
        monkeypatch.setattr(code, "_pack", lambda files: pack_once(pack, tuple(files.items())))


@lru_cache(maxsize=1)
def pack_once(pack: Callable[[dict[str, bytes]], bytes], files: tuple[Any, ...]) -> bytes:
    return pack(dict(files))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return the path for one run; nothing is there yet, as a new run demands."""
    return tmp_path / "run"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve experiments in this process, where torch is imported only once."""
    from session.addons import add_ons
    from surreal_like.experiment.resolve_process import try_all

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("surreal_like.experiment.resolve_process.try_elsewhere", try_all)
    if "tuning" in add_ons():
        monkeypatch.setattr("main.addons.tuning.tune.try_elsewhere", try_all)
    monkeypatch.setattr("surreal_like.run.start.try_forked", lambda servers, users: try_all(users))


@pytest.fixture
def without_box2d(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes Box2D a package that is not installed, also where a test has used it before."""
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "Box2D", None)
