"""A second machine joins a run, works, and leaves; strangers are refused in one line each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from session.folder import RunFolder
from session.launchers.handle import open_run
from session.wire import AddressBook
from session.wire.codec import PROTOCOL_VERSION
from session.wire.security import write_keys
from surreal_like.addons.join.tokens import Token
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, Process, Record, clean, read_lines, wait_for
from tests.runs.network import GUEST_ADDRESS, HOST_ADDRESS, TwoMachines, find_obstacle
from tests.session.tensorplex.reading import curves

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(400)]

SOLVED = 475.0
REFUSED_SECONDS = 5.0
# Starting Python on a machine that others use, too.
START_SECONDS = 5.0
LONG = "session_config.stop={seconds: 120, eval_return: null}"
SOON_LOST = "session_config.heartbeat.timeout=5"
FLOOD = """
import os, socket, sys
host, peers = sys.argv[1], []
for number in range(300):
    for port in map(int, sys.argv[2:]):
        peers.append(socket.create_connection((host, port)))
        if number % 2:
            peers[-1].sendall(os.urandom(2000))
print("ready", flush=True)
sys.stdin.read()
"""
THEIRS = PROTOCOL_VERSION + 1
OTHER_PROTOCOL = f"""
import sys
import session.wire.codec
session.wire.codec.PROTOCOL_VERSION = {THEIRS}
from main.cli import main
raise SystemExit(main(sys.argv[1:]))
"""


class HostedRun:
    """A run that was launched on the first machine, and the second one, from which others come.

    Args:
        machines: both.
        folder: of the run; its parent must exist.
        words: what else stands on the command line.
        experiment: what it learns.
    """

    def __init__(
        self, machines: TwoMachines, folder: Path, *words: str, experiment: str = CARTPOLE
    ) -> None:
        self.machines = machines
        self.folder = RunFolder(folder)
        self._scratch = folder.parent
        self._number = 0
        given = ["launch", experiment, "--on", "local", "--host", HOST_ADDRESS, *words]
        launch = self.there([*COMMAND, *given, "--folder", str(folder)], "launch", host=True)
        assert launch.wait() == 0, launch.words
        (line,) = [each for each in launch.words.splitlines() if each.startswith("surreal-like j")]
        self.address, self.token = line.split()[2], line.split()[4]
        assert line == f"surreal-like join {self.address} --token {self.token}"

    def there(self, argv: Sequence[str], name: str, *, host: bool = False) -> Process:
        """A process on the second machine, or on the first."""
        self._number += 1
        prefix = self.machines.host if host else self.machines.guest
        return Process([*prefix, *argv], self._scratch / f"{name}-{self._number}.txt")

    def join(self, *words: str, token: str = "", agents: int = 2) -> Process:
        """The command that was printed, on the second machine."""
        given = ["join", self.address, "--token", token or self.token, "--agents", str(agents)]
        if "--folder" not in words:
            words = (*words, "--folder", str(self._scratch / f"guest-{self._number}"))
        return self.there([*COMMAND, *given, *words], "join")

    def further_token(self) -> str:
        """Another one, for another machine."""
        command = [*COMMAND, "join", "--print", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()[-1]

    def status(self) -> dict[str, dict[str, Any]]:
        """The table of components, from another shell of the first machine."""
        command = [*self.machines.host, *COMMAND, "status", str(self.folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if "supervisor.control did not answer" in done.stderr:
            return {}  # The machine is busy: the caller looks again.
        assert done.returncode == 0, done.stderr
        components: dict[str, dict[str, Any]] = json.loads(done.stdout)["components"]
        return components

    def running(self, *names: str) -> bool:
        """Whether the table shows these at work."""
        rows = self.status()
        return all(name in rows and rows[name]["state"] == "running" for name in names)

    def steps(self) -> int:
        """Environment steps so far."""
        lines = read_lines(self.folder.progress)
        return int(lines[-1]["env_steps"]) if lines else 0

    def goes_on(self) -> None:
        """Waits for further steps."""
        before = self.steps()
        until(lambda: self.steps() > before)

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.folder.read_result() or {})

    def stop(self) -> dict[str, Any]:
        """Ends it from the first machine."""
        stop = self.there([*COMMAND, "stop", str(self.folder)], "stop", host=True)
        assert stop.wait() == 0, stop.words
        return self.result

    def end(self) -> None:
        """Leaves nothing behind, however the test ended."""
        if self.folder.in_use:
            self.there([*COMMAND, "stop", str(self.folder)], "end", host=True).wait()


@pytest.fixture
def machines() -> Iterator[TwoMachines]:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    with TwoMachines() as made:
        yield made


def check_refused(process: Process, *words: str, seconds: float = REFUSED_SECONDS) -> None:
    """It ends with exit code 2 and one line that has these words."""
    with process:
        assert process.wait(seconds + START_SECONDS) == 2, process.words
    (line,) = process.words.splitlines()
    for word in words:
        assert word in line


def test_two_agents_of_another_machine_help_to_solve_cartpole(
    machines: TwoMachines, run_folder: Path
) -> None:
    run = HostedRun(machines, run_folder, "session_config.stop={eval_return: 475, seconds: 240}")
    try:
        join = run.join()
        until(lambda: run.running("agent-1000", "agent-1001", "agent-0", "learner"))
        # A look that Tensorplex does not answer in time shows no agents of other machines.
        until(lambda: run.status().get("agent-1000", {}).get("doing") == "on another machine")
        assert join.wait(240) == 0, join.words
        until(lambda: run.result.get("status") == "stopped" and not run.folder.in_use)
    finally:
        run.end()
    assert join.words.splitlines() == [
        f"joined {run.address} with agent-1000, agent-1001; Ctrl-C to leave",
        "the run is over; its agents here have left",
    ]
    result = run.result
    assert result["goal_met"] is True
    assert result["best_eval"]["mean_return"] >= SOLVED
    assert clean(result)
    # Their words, their numbers, their rows.
    assert (run.folder.logs / "agent-1001.log").is_file()
    assert "agent-1001" in curves(run.folder.tensorboard)
    events = read_lines(run.folder.events)
    joined = [each for each in events if each["event"] == "joined"]
    assert [each["detail"] for each in joined] == ["a machine with agent-1000, agent-1001"]


@pytest.mark.parametrize("experiment", ["multi_cartpole_mixed", "rps_league"])
def test_a_machine_plays_all_policies_of_a_run(
    machines: TwoMachines, run_folder: Path, experiment: str
) -> None:
    run = HostedRun(
        *(machines, run_folder, "session_config.stop={seconds: 600}", "session_config.agent.max=4"),
        experiment=experiment,
    )
    try:
        join = run.join(agents=1)
        until(lambda: run.running("agent-1000"))
        run.goes_on()
        result = run.stop()
        assert join.wait() == 0, join.words
    finally:
        run.end()
    assert clean(result)
    assert "refused" not in {each["event"] for each in read_lines(run.folder.events)}


def test_strangers_are_refused_and_a_flood_of_them_does_no_harm(
    machines: TwoMachines, run_folder: Path
) -> None:
    run = HostedRun(machines, run_folder, LONG)
    try:
        public = Token.decode(run.token).server_public
        wrong = Token(public, b"x" * 16).encode()
        check_refused(run.join(token=wrong), "wrong token")
        check_refused(run.join(token="sl1-nonsense"), "is no token")
        check_refused(
            run.there([*COMMAND, "join", run.address], "join"), "--token TOKEN is missing"
        )
        other = [sys.executable, "-c", OTHER_PROTOCOL, "join", run.address, "--token", run.token]
        refused = f"'ps' speaks protocol {PROTOCOL_VERSION}, this is protocol {THEIRS}"
        check_refused(run.there(other, "join"), refused)
        join = run.join()
        until(lambda: run.running("agent-1000", "agent-1001"))
        check_refused(run.join(), "this token has been used by another machine")
        check_refused(by_hand(run, None), "missing key: it wants keys and this side has none")
        strange = run_folder.parent / "strange"
        write_keys(strange)
        check_refused(by_hand(run, strange), "breaks off every handshake")
        (strange / "server.pub").write_bytes(public)
        check_refused(by_hand(run, strange), "this run does not know the key of this side")
        flood(run)
        assert join.running
        result = run.stop()
        assert join.wait() == 0, join.words
    finally:
        run.end()
    assert clean(result)
    restarts = {name: each["restarts"] for name, each in result["components"].items()}
    assert {name for name, number in restarts.items() if number} == {"eval-0"}
    said = (run.folder.logs / "all.log").read_text()
    assert f"'join' speaks protocol {THEIRS}, this is protocol {PROTOCOL_VERSION}" in said
    assert "ps.join: wrong token" in said
    assert "ps.requests: refused a connection from 10.77.0.2" in said


def by_hand(run: HostedRun, keys: Path | None) -> Process:
    """A component of the run's config, started on the second machine by whoever has it."""
    words = ["--config", str(run.folder.config), "--address", str(run.folder.addresses)]
    words += ["--keys", str(keys)] if keys is not None else []
    return run.there([sys.executable, "-P", "-m", "main.replay", *words], "by-hand")


def flood(run: HostedRun) -> None:
    """Hundreds of connections that say nothing or garbage, held while the run goes on."""
    book = AddressBook.load(run.folder.addresses)
    ends = ("ps.requests", "ps.join", "replay-0.experience", "learner.control")
    ports = [book[end].connect.rpartition(":")[2] for end in ends]
    command = [*run.machines.guest, sys.executable, "-c", FLOOD, HOST_ADDRESS, *ports]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as own:
        try:
            assert own.stdout is not None
            assert own.stdout.readline() == "ready\n"
            run.goes_on()
            # A part that is connected anew meanwhile comes in.
            with open_run(run.folder) as adopted:
                adopted.restart("eval-0")
            until(lambda: run.running("eval-0", "agent-0", "agent-1000", "learner"))
            run.goes_on()
        finally:
            own.kill()


def test_a_machine_that_leaves_loses_nothing_and_can_come_back(
    machines: TwoMachines, run_folder: Path
) -> None:
    run = HostedRun(machines, run_folder, LONG)
    folder = str(run_folder.parent / "guest")
    try:
        for _ in range(2):
            join = run.join("--folder", folder)
            until(lambda: run.running("agent-1000", "agent-1001"))
            run.goes_on()
            join.signal(signal.SIGINT)
            assert join.wait() == 130, join.words
            assert join.words.splitlines()[-1] == "left the run"
            until(lambda: run.status().get("agent-1000", {}).get("state") == "gone")
            assert (RunFolder(folder).read_result() or {})["status"] == "stopped"
            run.goes_on()
        other = run.join(token=run.further_token(), agents=1)
        until(lambda: run.running("agent-1002"))
        result = run.stop()
        assert other.wait() == 0, other.words
    finally:
        run.end()
    assert clean(result)
    assert result["experience"]["pushed"] > 0
    assert "refused" not in {each["event"] for each in read_lines(run.folder.events)}


def test_a_run_that_has_become_silent_is_left(machines: TwoMachines, run_folder: Path) -> None:
    run = HostedRun(machines, run_folder, LONG, SOON_LOST)
    try:
        join = run.join()
        until(lambda: run.running("agent-1000", "agent-1001"))
        machines.pull_the_cable()
        assert join.wait(60) == 1, join.words
        assert "no message of the run came for 5 s" in join.words.splitlines()[-1]
        run.goes_on()
        result = run.stop()
    finally:
        run.end()
    assert result["status"] == "interrupted"


def test_lost_packets_are_no_deaths(
    machines: TwoMachines, run_folder: Path, record_property: Record
) -> None:
    """First one in a hundred, then all of them for a while that is shorter than any deadline."""
    run = HostedRun(machines, run_folder, LONG)
    try:
        join = run.join()
        until(lambda: run.running("agent-1000", "agent-1001"))
        for share in (0.01, 1.0):
            machines.lose(share)
            wait_for(5.0)
            run.goes_on()
        machines.lose(0.0)
        until(lambda: run.running("agent-1000", "agent-1001"))
        run.goes_on()
        result = run.stop()
        assert join.wait() == 0, join.words
    finally:
        run.end()
    assert clean(result)
    assert not any(each["restarts"] for each in result["components"].values())
    assert not [each for each in read_lines(run.folder.events) if each["event"] == "lost"]
    record_property("seen", f"1 % and 5 s of silence: {result['experience']['pushed']} rows")


def test_the_users_own_algorithm_must_lie_on_both_machines(
    machines: TwoMachines, run_folder: Path
) -> None:
    own = run_folder.parent / "my_dqn.py"
    own.write_text(
        '"""DQN by another name."""\n'
        "from surreal_like.algorithm.dqn import DQN\n\n\nclass Mine(DQN):\n"
        '    """Nothing but another name."""\n'
    )
    run = HostedRun(machines, run_folder, LONG, "--algorithm", f"{own}:Mine")
    copy, other = own.with_name("copy.py"), own.with_name("other.py")
    copy.write_bytes(own.read_bytes())
    other.write_text(own.read_text() + "\n")
    try:
        check_refused(run.join(), "copy it to the joining machine and give --algorithm FILE")
        check_refused(run.join("--algorithm", str(other)), "they must be the same")
        own.unlink()
        join = run.join("--algorithm", str(copy))
        until(lambda: run.running("agent-1000", "agent-1001"))
        result = run.stop()
        assert join.wait() == 0, join.words
    finally:
        run.end()
    assert clean(result)


def test_what_is_missing_on_the_joining_machine_is_named(
    machines: TwoMachines, run_folder: Path
) -> None:
    """As if gymnasium had no CartPole there."""
    run = HostedRun(machines, run_folder, LONG)
    without = [
        sys.executable,
        "-c",
        "import sys; import surreal_like.addons.join.admission_client as k; written = k._write\n"
        "def wrote(fields, *more):\n"
        "    fields['config']['env_config']['env_name'] = 'gym:ALE/NoSuchGame-v5'\n"
        "    return written(fields, *more)\n"
        "k._write = wrote\n"
        "from main.cli import main; raise SystemExit(main(sys.argv[1:]))",
    ]
    given = ["join", run.address, "--token", run.token, "--folder", str(run_folder.parent / "g")]
    try:
        process = run.there([*without, *given], "join")
        check_refused(process, "gym:ALE/NoSuchGame-v5", seconds=30.0)
        assert "Traceback" not in process.words
    finally:
        run.end()


def test_the_network_is_the_only_way_between_the_machines(machines: TwoMachines) -> None:
    """Or the tests above would show less than they seem to."""
    for machine, address in ((machines.host, HOST_ADDRESS), (machines.guest, GUEST_ADDRESS)):
        look = [*machine, "ip", "-4", "-json", "addr"]
        links = json.loads(subprocess.run(look, capture_output=True, check=True).stdout)
        own = [each["local"] for link in links for each in link["addr_info"]]
        assert own == ["127.0.0.1", address]
