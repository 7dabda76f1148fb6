"""The detached supervisor: what it refuses, what it imports for others, a whole run."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from main import supervisor
from session.folder import RunFolder
from session.launchers.fork_client import ForkServers
from session.launchers.launcher import write_topology
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve_process import resolve_elsewhere
from surreal_like.experiment.topology import PRELOAD, make_topology


def test_a_folder_without_a_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("session.launchers.detached.setproctitle", lambda title: None)
    assert supervisor.main(["--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("supervisor: ")
    assert str(RunFolder(tmp_path).config) in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_what_is_preloaded_starts_no_thread() -> None:
    """A process that forks must have one thread only, or its children hang."""
    servers = ForkServers(PRELOAD)
    deadline = time.monotonic() + 60
    for server in servers.living().values():
        while not server.ready:
            server.receive(0.1)
            assert not server.error
            assert time.monotonic() < deadline
        assert len(os.listdir(f"/proc/{server.pid}/task")) == 1
    maps = Path(f"/proc/{servers.server(False).pid}/maps").read_text()
    assert "libtorch" not in maps
    servers.close()


@pytest.mark.slow
def test_a_run_is_supervised_to_its_end(run_folder: Path) -> None:
    words = ["session_config.stop={iterations: 20}", "learner_config.replay.min_size=100"]
    user = read_experiment(None, words, algorithm="dqn", env_name="gym:CartPole-v1")
    folder = RunFolder(run_folder)
    folder.create()
    config = resolve_elsewhere(user)
    config.dump_file(folder.config)
    write_topology(folder, make_topology(config))
    command = [sys.executable, "-P", "-m", "main.supervisor", "--folder", str(run_folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result = dict(folder.read_result() or {})
    assert result["status"] == "stopped"
    assert {each["exit_code"] for each in result["components"].values()} == {0}
    assert not folder.in_use
    assert not folder.sockets.exists()
