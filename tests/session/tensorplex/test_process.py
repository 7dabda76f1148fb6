"""Both servers as processes of their own: SIGTERM, the end of a run, what they load."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from session.errors import START_AGAIN
from session.wire.requests import RouterSocket
from session.wire.socket_state import poll
from tests.polling import until
from tests.session.tensorplex.reading import read, scalars
from tests.session.tensorplex.rig import Rig


class Processes:
    """Starts components of a rig, and answers their hellos as a parameter server would."""

    def __init__(self, path: Path) -> None:
        self.rig = Rig(path)
        self.rig.write_files()
        self.complaints = path / "stderr"
        self.agent = self.rig.context("agent-0")
        self.running: list[subprocess.Popen[bytes]] = []
        self._ps: RouterSocket = self.rig.context("ps").wire.router("ps.requests")

    def start(self, name: str) -> subprocess.Popen[bytes]:
        command = self.rig.topology[name].command(str(self.rig.folder))
        with self.complaints.open("ab") as complaints:
            self.running.append(subprocess.Popen(command, stderr=complaints))
        return self.running[-1]

    def wait(self, condition: Callable[[], bool]) -> None:
        def step() -> None:
            while (request := self._ps.receive()) is not None:
                welcome = {"starts": 1, "incarnation": request.message.fields["incarnation"]}
                self._ps.reply(request, "welcome", welcome | {"version": [0, 0], "iteration": 0})
            self.agent.flush()
            poll([self._ps], 0.01)

        until(condition, step=step)

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.rig.close()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    processes.close()


def maps(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/maps").read_text()


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def sent(processes: Processes) -> bool:
    return all(not len(channel) for channel in processes.agent._channels.values())


@pytest.mark.slow
def test_sigterm_saves_what_was_sent_just_before(processes: Processes) -> None:
    servers = [processes.start("tensorplex"), processes.start("loggerplex")]
    for step in range(2000):
        processes.agent.tensorplex.add_scalar("a", step, step)
        processes.agent.log.info("line %d", step)
    processes.wait(lambda: sent(processes))
    assert not any("libtorch" in maps(server) for server in servers if sys.platform == "linux")
    for server in servers:
        server.send_signal(signal.SIGTERM)
    processes.wait(lambda: all(map(ended, servers)))
    assert [server.returncode for server in servers] == [START_AGAIN, START_AGAIN]
    assert processes.complaints.read_text() == ""
    folder = processes.rig.folder
    assert len(scalars(folder.tensorboard, "agent/a:agent-0")) == 2000
    assert len((folder.logs / "agent-0.log").read_text().splitlines()) == 2000
    starts = [json.loads(line)["component"] for line in folder.events.read_text().splitlines()]
    assert "loggerplex" in starts


@pytest.mark.slow
def test_killed_server_is_followed_by_one_that_goes_on(processes: Processes) -> None:
    curve = processes.rig.folder.tensorboard
    for step in range(2):
        server = processes.start("tensorplex")
        processes.wait(partial(arrives, processes, curve, step))
        server.kill()
        processes.wait(partial(ended, server))
    assert sorted(set(steps(curve))) == [0, 1]


def arrives(processes: Processes, curve: Path, step: int) -> bool:
    """Sends a point and returns True if it is in the files.

    What was on its way to a server that was killed is lost, so it is sent until it is there.
    """
    processes.agent.tensorplex.add_scalar("a", step, step)
    return steps(curve)[-1:] == [step]


def steps(folder: Path) -> list[int]:
    """Steps that are in the files; a file is there before its first point is."""
    if not any(folder.glob("events*")):
        return []
    reader = read(folder)
    there = "agent/a:agent-0" in reader.Tags()["scalars"]
    return [event.step for event in reader.Scalars("agent/a:agent-0")] if there else []


@pytest.mark.slow
def test_servers_end_by_themselves_one_after_the_other(processes: Processes) -> None:
    servers = [processes.start("tensorplex"), processes.start("loggerplex")]
    processes.agent.log.info("a")
    processes.wait(lambda: (processes.rig.folder.logs / "agent-0.log").exists())
    processes.rig.folder.result.write_text(json.dumps({"status": "stopped"}))
    processes.wait(lambda: all(map(ended, servers)))
    assert [server.returncode for server in servers] == [0, 0]
