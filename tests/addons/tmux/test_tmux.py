"""Runs in windows of tmux: what a person does with them by hand, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import libtmux
import psutil
import pytest

from session.addons.tmux.backend import ShellCommand
from session.addons.tmux.run import TmuxCluster, TmuxRun
from session.addons.tmux.session import (
    SOCKET_NAME,
    Pane,
    TmuxSession,
    default_socket,
    remove_dead_socket,
    require_tmux,
    session_name,
)
from session.errors import DeadlineError, RunError, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers.control_client import ask
from session.launchers.handle import open_run
from session.launchers.launcher import Outcome
from session.launchers.status import ComponentStatus
from tests.polling import DEADLINE_SECONDS, until
from tests.session.launchers.parts import make_config, make_topology
from tests.session.launchers.parts_supervisor import SUPERVISOR

ROOT = Path(__file__).resolve().parents[3]
ACTS = {"learner": "learn", "agent-0": "say"}

T = TypeVar("T")

pytestmark = pytest.mark.tmux


class Run:
    """A run in tmux that a test looks at."""

    def __init__(self, path: Path, acts: dict[str, str], **settings: Any) -> None:
        self.config = make_config(acts, **settings)
        self.folder = RunFolder(path)
        self.folder.create()
        self.names = set(acts)
        topology = make_topology(self.config)
        self.cluster = TmuxCluster(self.config, topology, self.folder, supervisor_module=SUPERVISOR)
        self.session = TmuxSession(session_name(self.folder))
        self.server = libtmux.Server(socket_name=SOCKET_NAME)

    def until(self, look: Callable[[], T | None]) -> T:
        return until(look, what=self.cluster.status)

    def rows(self) -> dict[str, ComponentStatus]:
        return {row.name: row for row in self.cluster.status()}

    def running(self) -> dict[str, ComponentStatus]:
        def look() -> dict[str, ComponentStatus] | None:
            rows = {name: row for name, row in self.rows().items() if row.state != "gone"}
            ready = rows.keys() == self.names and {r.state for r in rows.values()} == {"running"}
            return rows if ready else None

        return self.until(look)

    def processes(self, name: str) -> set[int]:
        """The processes of a component, wherever they were started."""
        words = f"--name {name} --folder {self.cluster.folder}"
        found = set()
        for process in psutil.process_iter():
            try:
                line = " ".join(process.cmdline()).strip()
                if line.startswith("python") and line.endswith(words):
                    found.add(process.pid)
            except psutil.Error:
                continue
        return found

    def environment(self, name: str) -> dict[str, str]:
        """What the process of a component has seen that acts so."""
        path, pid = self.folder.path / f"{name}.environment", str(self.running()[name].pid)
        seen: dict[str, str] = json.loads(path.read_text())
        assert seen["pid"] == pid
        return seen

    def pane(self, name: str) -> Pane:
        return self.session.panes()[name]

    def kill_supervisor(self) -> None:
        os.kill(self.pane("supervisor").pid, signal.SIGKILL)
        self.until(lambda: not self.folder.in_use)

    def result(self) -> dict[str, Any]:
        return dict(self.folder.read_result() or {})


@contextmanager
def run_of(path: Path, acts: dict[str, str] = ACTS, **settings: Any) -> Iterator[Run]:
    run = Run(path, acts, **settings)
    try:
        run.cluster.launch()
        yield run
        if run.cluster.running:
            run.cluster.stop(interrupted=True)
            run.cluster.wait(DEADLINE_SECONDS)
        run.until(lambda: not run.cluster.running)
    finally:
        for pane in run.session.panes().values():
            if not pane.dead:
                os.kill(pane.pid, signal.SIGKILL)
        run.session.end()


# -- a run and its windows ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_window_for_each_component_with_the_line_that_starts_it(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        rows = run.running()
        done = run.server.cmd("list-windows", "-t", run.session.name, "-F", "#{window_name}")
        assert done.stdout == ["supervisor", *ACTS]
        for line in run.cluster.dry_run().splitlines()[2:]:
            name = line.split()[line.split().index("--name") + 1]
            shown = run.server.cmd("capture-pane", "-pJ", "-t", run.pane(name).pane_id).stdout
            assert shown[0].rstrip() == line
        # What it says stands in its window and in its file.
        shown = run.server.cmd("capture-pane", "-pJ", "-t", run.pane("agent-0").pane_id).stdout
        assert "said by agent-0" in shown
        assert "said by agent-0" in run.cluster.logs("agent-0")
        # Its records stand in its window only; the supervisor has a line of its own.
        assert any(" info    start: incarnation " in line for line in shown)
        assert "incarnation" not in "".join(run.cluster.logs("agent-0"))
        shown = run.server.cmd("capture-pane", "-pJ", "-t", run.pane("supervisor").pane_id).stdout
        assert shown[1].endswith(" supervising 2 components: learner, agent-0")
        # The pane's process is the component itself.
        assert {n: p.pid for n, p in run.session.panes().items() if n in ACTS} == {
            name: row.pid for name, row in rows.items()
        }
        assert os.stat(default_socket().parent).st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_run_that_ends_by_itself_leaves_no_session_and_no_socket(run_folder: Path) -> None:
    with run_of(run_folder, {**ACTS, "learner": "solve"}) as run:
        assert run.cluster.wait(DEADLINE_SECONDS) == Outcome("stopped", "solved")
        run.until(lambda: not run.session.exists)
        run.until(lambda: not default_socket().exists())
        assert {each["exit_code"] for each in run.result()["components"].values()} == {0}
        with pytest.raises(UsageError, match="no windows to attach to"):
            run.cluster.attach_command()


@pytest.mark.slow
def test_two_runs_with_one_name_live_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sees the environment of the shell that launched it, not that of the first one."""
    monkeypatch.setenv("WHOSE", "the first's")
    monkeypatch.setenv("ONLY_FIRST", "1")
    acts = {"learner": "learn", "agent-0": "environment"}
    with run_of(tmp_path / "a" / "run", acts) as first:
        monkeypatch.setenv("WHOSE", 'the $second\'s; "own"')
        monkeypatch.delenv("ONLY_FIRST")
        monkeypatch.setenv("ONLY_SECOND", "1")
        with run_of(tmp_path / "b" / "run", acts) as second:
            assert first.session.name != second.session.name
            for run, whose in ((first, "the first's"), (second, 'the $second\'s; "own"')):
                old = run.running()["agent-0"].pid
                assert run.environment("agent-0")["WHOSE"] == whose
                run.cluster.restart("agent-0")
                run.until(lambda r=run, o=old: r.rows()["agent-0"].pid not in (0, o))  # type: ignore[misc]
                seen = run.environment("agent-0")
                assert seen["WHOSE"] == whose
                assert ("ONLY_FIRST" in seen) == (run is first)
                assert ("ONLY_SECOND" in seen) == (run is second)
        assert default_socket().exists()
        assert first.running()


@pytest.mark.slow
def test_a_component_that_dies_too_often_fails_the_run_with_its_own_words(run_folder: Path) -> None:
    with run_of(run_folder, {**ACTS, "agent-0": "crash"}) as run:
        outcome = run.cluster.wait(DEADLINE_SECONDS)
        assert outcome.status == "failed"
        assert "agent-0: ValueError('the environment is broken')" in outcome.reason
        assert "Traceback" in (run.folder.logs / "agent-0.err").read_text()


# -- by hand --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_window_that_is_respawned_by_hand_is_adopted(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        old = run.running()["agent-0"].pid
        run.server.cmd("respawn-pane", "-k", "-t", run.pane("agent-0").pane_id)
        run.until(lambda: run.rows()["agent-0"].restarts == 1)
        new = run.running()["agent-0"].pid
        assert new != old
        run.until(lambda: run.processes("agent-0") == {new})
        # It is supervised like any other.
        os.kill(new, signal.SIGKILL)
        run.until(lambda: run.rows()["agent-0"].restarts == 2)
        assert run.running()["agent-0"].died == "killed by SIGKILL"


@pytest.mark.slow
def test_a_window_whose_process_was_ended_with_ctrl_c_comes_back(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        old = run.running()["agent-0"].pid
        run.server.cmd("send-keys", "-t", run.pane("agent-0").pane_id, "C-c")
        run.until(lambda: run.rows()["agent-0"].restarts == 1)
        row = run.running()["agent-0"]
        assert row.pid != old
        assert row.died == "got SIGTERM or SIGINT while the run goes on"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "asked"), [("agent-0", True), ("agent-0", False), ("learner", True)]
)
def test_a_line_that_is_pasted_into_a_shell_is_adopted_and_nothing_runs_twice(
    run_folder: Path, name: str, asked: bool
) -> None:
    with run_of(run_folder) as run:
        old = run.running()[name].pid
        (line,) = (text for text in run.cluster.dry_run().splitlines() if f"--name {name}" in text)
        with subprocess.Popen(["bash", "-c", f"exec {line}"], stderr=subprocess.DEVNULL) as pasted:
            run.until(lambda: run.rows()[name].pid == pasted.pid)
            run.until(lambda: run.processes(name) == {pasted.pid})
            assert run.running()[name].restarts == 1
            run.until(lambda: not psutil.pid_exists(old))
            # It is commanded like any other, and then lives in its window again.
            if asked:
                run.cluster.restart(name)
            else:
                pasted.terminate()
            pasted.wait(DEADLINE_SECONDS)
        run.until(lambda: run.rows()[name].restarts == 2)
        assert run.running()[name].pid == run.pane(name).pid
        assert run.processes(name) == {run.pane(name).pid}


@pytest.mark.slow
def test_a_window_that_is_closed_by_hand_comes_back(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        run.running()
        run.server.cmd("kill-window", "-t", run.pane("agent-0").pane_id)
        run.until(lambda: run.rows()["agent-0"].restarts == 1)
        assert run.running()["agent-0"].died == "its window was closed"
        assert "agent-0" in run.session.panes()


@pytest.mark.slow
def test_a_session_that_is_closed_by_hand_is_an_interrupted_run(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        run.running()
        run.server.cmd("kill-session", "-t", run.session.name)
        assert run.cluster.wait(DEADLINE_SECONDS).status == "interrupted"
        run.until(lambda: not any(map(run.processes, ACTS)))
        run.until(lambda: not default_socket().exists())


# -- without a supervisor -------------------------------------------------------------------------


@pytest.mark.slow
def test_without_its_supervisor_a_run_goes_on_and_gets_it_back(run_folder: Path) -> None:
    acts = {**ACTS, "agent-1": "work", "agent-2": "work"}
    with run_of(run_folder, acts) as run:
        run.running()
        run.cluster.scale("agent", 2)
        run.names.remove("agent-2")
        run.until(lambda: run.rows()["agent-2"].state == "gone")
        before = {name: row for name, row in run.rows().items() if name != "agent-2"}
        run.kill_supervisor()
        rows = run.rows()
        assert rows.pop("supervisor").state == "dead"
        assert {n: (r.state, r.pid) for n, r in rows.items()} == {
            name: ("running", row.pid) for name, row in before.items()
        }
        commands: tuple[Callable[[], None], ...] = (
            lambda: run.cluster.scale("agent", 3),
            lambda: run.cluster.restart("agent-0"),
        )
        for command in commands:
            with pytest.raises(UsageError, match=r"supervisor of run .* is dead: .* restart .*"):
                command()
        os.kill(before["agent-1"].pid, signal.SIGKILL)
        # That it is dead may be seen a moment before tmux says how it died.
        run.until(lambda: run.rows()["agent-1"].exit_code == -9)
        assert run.rows()["agent-1"].state == "dead"

        with open_run(run.folder) as adopted:
            adopted.restart("supervisor")
        # Whoever lived lives on, the dead one is started again, and who was dismissed stays away.
        after = run.running()
        assert {n: r.pid for n, r in after.items() if n != "agent-1"} == {
            name: row.pid for name, row in before.items() if name != "agent-1"
        }
        assert [after[name].restarts for name in ("learner", "agent-0", "agent-1")] == [0, 0, 1]
        run.cluster.scale("agent", 3)
        run.names.add("agent-2")
        run.running()


@pytest.mark.slow
def test_a_supervisor_that_lives_is_replaced_without_a_trace(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        before = run.running()
        old = run.pane("supervisor").pid
        run.cluster.restart("supervisor")
        assert run.pane("supervisor").pid != old
        after = run.running()
        assert {n: r.pid for n, r in after.items()} == {n: r.pid for n, r in before.items()}


@pytest.mark.slow
def test_a_stop_works_without_a_supervisor(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        run.running()
        run.kill_supervisor()
        run.cluster.stop(interrupted=True)
        assert run.cluster.wait(DEADLINE_SECONDS).status == "interrupted"
        assert run.result()["iterations"] == 7


@pytest.mark.slow
def test_a_run_that_ended_without_its_supervisor_is_cleared_up(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        run.running()
        run.kill_supervisor()
        fields = {"reason": "by hand", "interrupted": False}
        # The learner ends at once, and may take its reply along.
        with suppress(DeadlineError):
            ask(run.cluster.folder, "learner.control", "stop", fields, timeout_seconds=5.0)
        run.until(lambda: not run.processes("learner") and not run.processes("agent-0"))
        assert run.cluster.wait(1.0) == Outcome("stopped", "by hand")
        assert run.session.exists
        run.cluster.stop()
        run.until(lambda: not run.session.exists)
        assert run.result()["components"]["learner"]["exit_code"] == 0


# -- what goes wrong at the launch ----------------------------------------------------------------


def test_without_tmux_nothing_is_begun(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/dev/null/bin")
    run = Run(run_folder, ACTS)
    with pytest.raises(UsageError, match="no tmux on the PATH: install it"):
        run.cluster.launch()
    with pytest.raises(UsageError, match="no tmux"):
        require_tmux()
    assert not run.cluster.running
    assert not run.folder.config.exists()


@pytest.mark.slow
def test_a_run_is_launched_once(run_folder: Path) -> None:
    with run_of(run_folder) as run:
        run.running()
        with pytest.raises(UsageError, match="is in use by another launcher; stop it with"):
            run.cluster.launch()
        run.kill_supervisor()
        with pytest.raises(UsageError, match=f"has a session {run.session.name} already"):
            run.cluster.launch()
        assert {name for name in ACTS if run.processes(name)} == set(ACTS)


def test_a_supervisor_that_dies_at_once_says_why(run_folder: Path) -> None:
    run = Run(run_folder, ACTS, host="203.0.113.9")
    with pytest.raises(RunError, match=r"died at once: .*203\.0\.113\.9"):
        run.cluster.launch()
    assert not run.session.exists
    assert not default_socket().exists()


@pytest.mark.parametrize(
    ("preamble_cmd", "error"), [('cd "$(mktemp -u)"', "No such file"), ("exit 3", "left no word")]
)
def test_a_preamble_that_fails_is_the_reason(
    run_folder: Path, preamble_cmd: str, error: str
) -> None:
    run = Run(run_folder, ACTS, preamble_cmd=preamble_cmd)
    with pytest.raises(RunError, match=error):
        run.cluster.launch()
    assert not run.session.exists


@pytest.mark.slow
def test_the_preamble_comes_before_each_component(run_folder: Path) -> None:
    acts = {"learner": "learn", "agent-0": "environment"}
    preamble_cmd = "PREPARED='a b'; export PREPARED;"
    with run_of(run_folder, acts, preamble_cmd=preamble_cmd) as run:
        run.running()
        assert run.environment("agent-0")["PREPARED"] == "a b"
        assert run.environment("agent-0")["OMP_NUM_THREADS"] == "1"
        assert run.cluster.dry_run().count("{ PREPARED='a b'; export PREPARED; } && ") == 3
    folder = RunFolder(run_folder.with_name("other"))
    cluster = TmuxCluster(make_config(acts), make_topology(run.config), folder, "cd /")
    assert cluster.dry_run().count("{ cd /; } && ") == 3


# -- small parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "pane"),
    [
        (
            "%3 77 0 status= signal= starts=2 component=agent-0",
            Pane("%3", "agent-0", 77, False, None, 2),
        ),
        ("%3 77 1 status=4 signal= starts=1 component=ps", Pane("%3", "ps", 77, True, 4, 1)),
        ("%3 77 1 status=0 signal= starts=1 component=ps", Pane("%3", "ps", 77, True, 0, 1)),
        ("%3 77 1 status= signal=15 starts=1 component=ps", Pane("%3", "ps", 77, True, -15, 1)),
        # What it has started holds its terminal.
        ("%3 77 0 status=4 signal= starts=1 component=ps", Pane("%3", "ps", 77, True, 4, 1)),
        # It has ended, and nobody has waited for it yet.
        ("%3 77 1 status= signal= starts=1 component=ps", Pane("%3", "ps", 77, True, None, 1)),
        ("%9 78 0 status= signal= starts= component=", Pane("%9", "", 78, False, None, 1)),
    ],
)
def test_what_tmux_says_of_a_pane(line: str, pane: Pane) -> None:
    assert Pane.parse(line) == pane


def test_names_of_sessions(tmp_path: Path) -> None:
    one, other = (session_name(RunFolder(tmp_path / x / "my run:1.5")) for x in "ab")
    assert one != other
    assert one.startswith("my-run-1-5-")


def test_a_socket_is_removed_only_when_no_process_listens(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        remove_dead_socket(path)
        assert path.exists()
    remove_dead_socket(path)
    assert list(tmp_path.iterdir()) == []
    remove_dead_socket(path)


def test_the_script_of_a_window_becomes_the_process_and_keeps_its_words(tmp_path: Path) -> None:
    said = tmp_path / "it's said.err"
    python = f"{sys.executable} -c 'import os, sys; print(os.getpid()); sys.exit(5)'"
    script = ShellCommand(python, "cd /;").script(said)
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        out, _ = shell.communicate(timeout=10)
    assert out.splitlines() == [f"{{ cd /; }} && {python}", str(shell.pid)]
    assert shell.returncode == 5
    assert said.read_text() == f"{shell.pid}\n"


def test_attaching_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = TmuxSession("it", tmp_path / "socket")
    tmux = ["tmux", "-S", str(tmp_path / "socket")]
    monkeypatch.delenv("TMUX", raising=False)
    assert session.attach_command() == [*tmux, "attach-session", "-t", "=it"]
    monkeypatch.setenv("TMUX", "/tmp/tmux-0/default,123,0")
    assert session.attach_command() == ["env", "-u", "TMUX", *tmux, "attach-session", "-t", "=it"]
    monkeypatch.setenv("TMUX", f"{tmp_path}/socket,123,0")
    assert session.attach_command() == [*tmux, "switch-client", "-t", "=it"]


def test_a_run_that_was_never_launched(tmp_path: Path) -> None:
    run = TmuxRun(RunFolder(tmp_path / "none"))
    assert not run.running
    commands: tuple[Callable[[], None], ...] = (
        lambda: run.restart("supervisor"),
        lambda: run.scale("agent", 1),
        run.stop,
    )
    for command in commands:
        with pytest.raises(SurrealError, match="is not running"):
            command()
