"""Detached runs of this machine: where they live, what they leave, and who says that they died."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.addons import Launcher
from session.atomic_file import write_atomically
from session.config import Config
from session.errors import DeadlineError, RunError, UsageError
from session.folder import RunFolder
from session.launchers import handle, registry
from session.launchers.control_client import COMMANDS
from session.launchers.handle import open_run
from session.launchers.launcher import make_addresses, write_launch, write_run_files
from session.launchers.local import LocalCluster
from session.launchers.status import process_lives, rows_of_files
from session.process.heartbeat import Beat, State, write_beat
from session.run_connection import Client
from session.wire.socket_state import poll
from tests.polling import DEADLINE_SECONDS, until
from tests.session.launchers.parts import make_config, make_run, make_topology
from tests.session.launchers.parts_supervisor import SUPERVISOR
from tests.session.made_run import made_line

ROOT = Path(__file__).resolve().parents[3]
ACTS = {"learner": "learn", "agent-0": "work"}


def make_cluster(path: Path, module: str = SUPERVISOR) -> LocalCluster:
    folder, config = RunFolder(path), make_config(ACTS)
    folder.create()
    return LocalCluster(config, make_topology(config), folder, supervisor_module=module)


def supervisor_of(path: Path) -> psutil.Process:
    """The process that supervises a run."""
    words = f"-m {SUPERVISOR} --folder {path}"
    found = []
    for process in psutil.process_iter():
        try:
            if " ".join(process.cmdline()).strip().endswith(words):
                found.append(process)
        except psutil.Error:
            continue
    (supervisor,) = found
    return supervisor


@pytest.mark.slow
def test_a_detached_run_has_no_parent_and_a_session_of_its_own(run_folder: Path) -> None:
    with make_cluster(run_folder) as cluster:
        cluster.launch()
        supervisor = supervisor_of(run_folder)
        assert supervisor.ppid() != os.getpid()
        assert os.getsid(supervisor.pid) != os.getsid(0)
        assert supervisor.terminal() is None
        with pytest.raises(UsageError, match="is in use by another launcher; stop it with"):
            cluster.launch()
        cluster.stop(interrupted=True)
        assert cluster.wait(DEADLINE_SECONDS).status == "interrupted"
        until(lambda: not supervisor.is_running() or supervisor.status() == psutil.STATUS_ZOMBIE)
        assert (cluster.folder.logs / "supervisor.err").read_text() == ""


@pytest.mark.slow
def test_a_supervisor_that_is_killed_takes_its_components_along(run_folder: Path) -> None:
    with make_cluster(run_folder) as cluster:
        cluster.launch()
        until(lambda: {row.state for row in cluster.status()} == {"running"})
        pids = [row.pid for row in cluster.status()]
        supervisor_of(run_folder).send_signal(signal.SIGKILL)
        until(lambda: not cluster.running and not any(map(psutil.pid_exists, pids)))
        until(lambda: not cluster.folder.sockets.exists())
        assert {row.state for row in cluster.status()} <= {"dead", "gone"}
        with pytest.raises(UsageError, match="is not running: it has no supervisor"):
            cluster.scale("agent", 2)


@pytest.mark.slow
def test_handles_hold_no_thread_and_no_socket(run_folder: Path) -> None:
    with make_cluster(run_folder) as cluster:
        cluster.launch()
        this = psutil.Process()
        # Files of earlier tests would be closed in between.
        gc.collect()
        before = this.num_threads(), this.num_fds()
        handles = [open_run(run_folder) for _ in range(8)]
        assert all({row.name for row in run.status()} == set(ACTS) for run in handles)
        handles[-1].stop(interrupted=True)
        assert (this.num_threads(), this.num_fds()) == before
        assert {run.wait(DEADLINE_SECONDS).status for run in handles} == {"interrupted"}


def test_a_run_without_a_supervisor_is_stopped_by_its_learner(run_folder: Path) -> None:
    folder, config = make_run(run_folder, make_config(ACTS)), make_config(ACTS)
    topology = make_topology(config)
    addresses = make_addresses(topology, config, folder)
    write_run_files(folder, topology, addresses)
    asked: list[Mapping[str, Any]] = []

    def learner() -> None:
        with Client(addresses, config=config) as server:
            requests = server.router("learner.control", COMMANDS)
            while (request := requests.receive()) is None:
                poll([requests], 0.05)
            asked.append(request.message.fields)
            requests.reply(request, "stopping")
            stopped.wait(DEADLINE_SECONDS)

    handle, stopped = open_run(folder), threading.Event()
    folder.sockets.mkdir()
    thread = threading.Thread(target=learner)
    thread.start()
    handle.stop(interrupted=True, reason="by hand")
    stopped.set()
    thread.join()
    folder.sockets.rmdir()
    assert (asked[0]["reason"], asked[0]["interrupted"]) == ("by hand", True)
    with pytest.raises(DeadlineError):
        handle.wait(0.0)
    write_atomically(folder.result, json.dumps({"status": "interrupted", "reason": "by hand"}))
    assert handle.wait(DEADLINE_SECONDS).reason == handle.result()["reason"] == "by hand"
    with pytest.raises(UsageError, match="is not running: it has no supervisor"):
        handle.stop()


@pytest.mark.parametrize(
    ("module", "error"),
    [("no.such.module", "No module named"), ("this", "Namespaces are one honking great idea")],
)
def test_a_supervisor_that_dies_at_once_says_why(run_folder: Path, module: str, error: str) -> None:
    with (
        make_cluster(run_folder, module) as cluster,
        pytest.raises(RunError, match=f"died at once: .*{error}"),
    ):
        cluster.launch()


def test_the_config_names_the_launcher_of_a_run(run_folder: Path) -> None:
    folder, config = RunFolder(run_folder), make_config(ACTS)
    folder.create()
    assert folder.launcher == ""
    topology = make_topology(config)
    write_launch(folder, config, topology, "local")
    assert folder.launcher == "local"
    before = config["run"]["started"]
    config["run"]["part"] = 2
    write_launch(folder, config, topology, "tmux", tmux={"session": "it"})
    run = Config.load_file(folder.config)["run"].to_dict()
    # What a resumed run knows of its earlier parts stays.
    assert (run["started"], run["part"]) == (before, 2)
    assert (run["launcher"], run["tmux"]) == ("tmux", {"session": "it"})


# -- without anybody to ask -----------------------------------------------------------------------


def test_files_and_processes_show_a_run_without_a_supervisor(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    own, now = os.getpid(), time.time()
    for beat in (
        Beat("agent-0", 1, State.running, own, now, doing="thinking"),
        # The number belongs to a process that was started after this beat.
        Beat("agent-1", 1, State.running, own, psutil.Process(own).create_time() - 60.0),
        Beat("agent-2", 1, State.running, 1 << 22, now),
        Beat("agent-3", 1, State.failed, own, now, doing="no licence"),
        Beat("learner", 1, State.done, own, now),
    ):
        write_beat(folder.alive, beat)
    rows = {row.name: row for row in rows_of_files(folder)}
    assert {name: (row.state, row.pid, row.doing) for name, row in rows.items()} == {
        "agent-0": ("running", own, "thinking"),
        "agent-1": ("dead", 0, ""),
        "agent-2": ("dead", 0, ""),
        "agent-3": ("dead", 0, "no licence"),
        "learner": ("gone", 0, ""),
    }
    folder.result.write_text('{"status": "stopped", "components": {"ps": {"exit_code": 3}}}')
    rows = {row.name: row for row in rows_of_files(folder)}
    assert {row.state for row in rows.values()} == {"gone"}
    assert rows["ps"].exit_code == 3


def test_a_process_that_is_gone_does_not_live() -> None:
    assert not process_lives(Beat("agent-0", 1, State.running, 1 << 22, time.time()))
    assert process_lives(Beat("agent-0", 1, State.running, os.getpid(), time.time()))


def test_all_lines_of_a_log(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    folder.addresses.write_text("{}")
    (folder.logs / "all.log").write_text("one\ntwo\n")
    (folder.logs / "learner.log").write_text("two\n")
    with open_run(run_folder) as run:
        assert list(run.log_lines()) == ["one", "two"]
        assert list(run.log_lines("learner")) == ["two"]
        # Nobody is at work, so there is nothing to wait for.
        assert list(run.log_lines("learner", follow=True)) == ["two"]
        with pytest.raises(UsageError, match=r"no log of 'nobody' in .*; there are learner$"):
            run.log_lines("nobody")
        assert run.progress() == {}
        lines = [made_line(steps) for steps in (100, 200)]
        folder.progress.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        assert run.progress() == lines[1]


def test_a_log_is_followed_to_the_end_of_the_run(run_folder: Path) -> None:
    folder = RunFolder(run_folder)
    folder.create()
    folder.addresses.write_text("{}")
    log = folder.logs / "all.log"
    log.write_text("one\n")
    folder.lock()
    with open_run(run_folder) as run:
        lines = run.log_lines(follow=True)
        assert next(lines) == "one"
        with log.open("a") as file:
            file.write("two\n")
        assert next(lines) == "two"
        folder.unlock()
        with log.open("a") as file:
            file.write("three\n")
        assert list(lines) == ["three"]


def test_a_run_keeps_the_name_of_its_launchers_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Launcher("other", cluster="session.launchers.local:LocalCluster")
    monkeypatch.setitem(registry.list_launchers(), "other", other)
    folder, config = RunFolder(tmp_path / "run"), make_config(ACTS)
    for name in ("other", "local"):
        cluster = handle.make_cluster(name, config, make_topology(config), folder)
        assert cluster.name == name
