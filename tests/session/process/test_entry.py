"""A component as a process of its own: command line, signals, lifeline, exit codes."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zmq

from session.atomic_file import write_atomically
from session.errors import HOPELESS, START_AGAIN
from session.folder import RunFolder
from session.launchers.launcher import make_addresses, write_run_files
from session.process.component import LIFELINE, Topology
from session.process.context import Launch
from session.process.entry import open_context, release
from session.process.heartbeat import read_beat
from tests.polling import DEADLINE_SECONDS, readable, until
from tests.session.launchers.parts import MODULE, make_config, make_run, make_topology

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def folder(run_folder: Path) -> Iterator[RunFolder]:
    """A run that can be started by hand, as `plan` would have written it."""
    acts = {
        "learner": "learn",
        "agent-0": "work",
        "agent-1": "crash",
        "agent-2": "misconfigured",
        "agent-3": "stubborn",
    }
    config = make_config(acts)
    topology = make_topology(config)
    made = make_run(run_folder, config)
    write_run_files(made, topology, make_addresses(topology, config, made))
    yield made
    # A killed process leaves its sockets to whoever supervises it.
    for left in made.sockets.glob("*"):
        left.unlink()
    if made.sockets.exists():
        made.sockets.rmdir()


def start(*arguments: str, lifeline: int | None = None) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if lifeline is not None:
        environment[LIFELINE] = str(lifeline)
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        pass_fds=() if lifeline is None else (lifeline,),
    )


def finish(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    with process:
        try:
            _, said = process.communicate(timeout=DEADLINE_SECONDS)
        finally:
            process.kill()
    return process.returncode, said


def state(folder: RunFolder, name: str) -> str:
    beat = read_beat(folder.alive, name)
    return beat.state if beat is not None else ""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, START_AGAIN), (signal.SIGINT, 0)])
def test_a_process_ends_well_when_it_is_asked_to(folder: RunFolder, number: int, code: int) -> None:
    process = start("--name", "learner", "--folder", str(folder))
    until(lambda: state(folder, "learner") == "running")
    assert folder.sockets.stat().st_mode & 0o777 == 0o700
    process.send_signal(number)
    assert finish(process) == (code, "")
    # Only a run that goes on has no result.
    assert folder.over == (number == signal.SIGINT)
    assert state(folder, "learner") == "done"
    assert not folder.sockets.exists()


@pytest.mark.slow
def test_processes_end_with_their_launcher_and_the_last_one_tidies_up(folder: RunFolder) -> None:
    reader, writer = os.pipe()
    names = ("learner", "agent-0", "agent-3")
    processes = [start("--name", n, "--folder", str(folder), lifeline=reader) for n in names]
    until(lambda: all(state(folder, name) == "running" for name in names))
    os.close(writer)
    closed = time.monotonic()
    assert [finish(process) for process in processes] == [(0, "")] * 3
    assert time.monotonic() - closed < 4.0  # the grace of a run is longer
    assert not folder.sockets.exists()
    os.close(reader)


def test_in_a_terminal_it_shows_its_records(folder: RunFolder) -> None:
    person, terminal = pty.openpty()
    command = [sys.executable, "-P", "-m", MODULE, "--name", "agent-0", "--folder", str(folder)]
    process = subprocess.Popen(
        command, stderr=terminal, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    os.close(terminal)
    with process:
        try:
            shown = ""
            while not shown.endswith("\n"):
                assert readable([person])
                shown += os.read(person, 10_000).decode()
        finally:
            process.terminate()
            process.wait(DEADLINE_SECONDS)
            os.close(person)
    beat = read_beat(folder.alive, "agent-0")
    assert beat is not None
    assert shown.endswith(f" info    start: incarnation {beat.incarnation}\r\n")


def test_an_error_of_a_users_code_shows_its_traceback(folder: RunFolder) -> None:
    code, said = finish(start("--name", "agent-1", "--folder", str(folder)))
    assert code == HOPELESS
    assert said.startswith("Traceback")
    assert said.endswith("ValueError: the environment is broken\n")
    beat = read_beat(folder.alive, "agent-1")
    assert beat is not None
    assert beat.state == "failed"
    assert beat.doing.startswith("ValueError('the environment is broken'), in build (")


def test_an_error_of_a_config_is_one_line(folder: RunFolder) -> None:
    code, said = finish(start("--name", "agent-2", "--folder", str(folder)))
    assert code == 2
    assert said.startswith("agent-2: env_config.env_name is 'parts', which nobody knows, in build")
    assert said.count("\n") == 1
    assert state(folder, "agent-2") == "failed"


def test_a_process_where_no_folder_is_shared(folder: RunFolder, tmp_path: Path) -> None:
    for path in (folder.config, folder.addresses, folder.topology):
        write_atomically(tmp_path / path.name, path.read_text())
    files = (
        "--config",
        str(tmp_path / "config.yaml"),
        "--address",
        str(tmp_path / "addresses.json"),
    )
    process = start("--name", "learner", *files)
    until(lambda: (folder.sockets / "learner.control").exists())
    assert process.stderr is not None
    assert readable([process.stderr], 0) == []
    process.terminate()
    assert finish(process) == (START_AGAIN, "")
    assert list(folder.alive.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "agent-0"], "give --folder, or --config together with --address"),
        (["--name", "agent-0", "--folder", "/dev/null/run"], "/dev/null/run"),
        (["--name", "replay-9", "--folder", "{}"], "no component 'replay-9'; there are learner"),
        (["--name", "agent-x", "--folder", "{}"], "no component 'agent-x'; there are learner"),
    ],
)
def test_a_wrong_command_is_one_line(folder: RunFolder, arguments: list[str], words: str) -> None:
    code, said = finish(start(*(each.format(folder) for each in arguments)))
    assert code == 2
    assert words in said.splitlines()[-1]
    assert "Traceback" not in said


def test_a_component_reads_the_topology_of_its_run(folder: RunFolder) -> None:
    data = json.loads(folder.topology.read_text())
    data["components"][0]["kind"] = "replay"
    folder.topology.write_text(json.dumps(data))
    code, said = finish(start("--name", "learner", "--folder", str(folder)))
    assert (code, said) == (2, f"learner: 'learner' is a replay; start it with -m {MODULE}\n")
    folder.topology.unlink()
    code, said = finish(start("--name", "learner", "--folder", str(folder)))
    assert code == 2
    assert said.startswith(f"learner: {folder.topology}: not a topology ")
    assert said.count("\n") == 1


def test_an_address_in_use_is_one_line(folder: RunFolder) -> None:
    book = json.loads(folder.addresses.read_text())
    with zmq.Context() as context, context.socket(zmq.ROUTER) as holder:
        port = holder.bind_to_random_port("tcp://127.0.0.1")
        book["learner.control"] = dict.fromkeys(("bind", "connect"), f"tcp://127.0.0.1:{port}")
        folder.addresses.write_text(json.dumps(book))
        code, said = finish(start("--name", "learner", "--folder", str(folder)))
    assert code == 2
    assert said.startswith(f"learner: cannot bind learner.control to tcp://127.0.0.1:{port}: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("part", [1, 4])
def test_the_starts_of_a_component_that_sends_the_same_are_one_incarnation_in_a_part(
    run_folder: Path, part: int
) -> None:
    config = make_config({"learner": "learn", "agent-0": "work"})
    config["run"] = {"part": part}
    plain = make_topology(config)
    topology = Topology(replace(each, sends="rows" * (each.kind == "agent")) for each in plain)
    folder = make_run(run_folder, config)
    addresses = make_addresses(topology, config, folder)
    write_run_files(folder, topology, addresses)
    # By the files that a process reads.
    read = Topology.load(folder.topology)
    seen = []
    for name in ("agent-0", "learner") * 2:
        context = open_context(Launch(read[name], config, read, addresses, folder))
        seen.append(context.incarnation)
        release(context)
        time.sleep(0.002)
    assert seen[0] == seen[2] == part
    assert seen[1] < seen[3]
