"""launch, status, logs, attach, scale, restart, stop: what each says, and what each refuses."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from main.cli.arguments import seconds_of
from main.cli.launch import next_steps
from main.cli.watch import select
from session.addons.tmux.session import default_socket
from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.handle import check_launcher, open_run
from session.process.heartbeat import Beat, State, write_beat
from tests.add_ons import needs
from tests.leftovers import names_folder
from tests.main.conftest import Command
from tests.polling import DEADLINE_SECONDS, until
from tests.session.made_run import made_line

LONG = "session_config.stop={seconds: 300}"


def make_run(path: Path, status: str = "", **run: object) -> RunFolder:
    """A run as it lies there afterwards, or, without a status, as one that was cut off."""
    folder = RunFolder(path)
    folder.create()
    experiment = {"algorithm": "dqn", "env_config": {"env_name": "toy:chain"}, "run": run}
    Config(experiment).extend(BASE_CONFIG).dump_file(folder.config)
    book = {"supervisor.control": {"bind": "ipc:///tmp/none", "connect": "ipc:///tmp/none"}}
    folder.addresses.write_text(json.dumps(book))
    if status:
        result = {"status": status, "reason": "all done", "goal_met": None}
        folder.result.write_text(json.dumps(result))
    return folder


# -- what is refused ------------------------------------------------------------------------------

COMMANDS = (
    ("status",),
    ("logs",),
    ("attach",),
    ("scale", "agent=2"),
    ("restart", "learner"),
    ("stop",),
)
# What can still be asked of a run that is over is where it stands and what it said.
STEERING = COMMANDS[2:]


def refused(command: Command, *argv: str) -> str:
    said = command(*argv)
    assert said.code == 2, said
    assert said.err.startswith("surreal-like: error: "), said.err
    assert said.err.count("\n") == 1, said.err
    assert not said.out
    return said.err


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_an_unknown_run_is_refused(command: Command, words: tuple[str, ...]) -> None:
    assert "no run 'nope'" in refused(command, words[0], "nope", *words[1:])


@pytest.mark.parametrize("words", STEERING, ids=lambda words: words[0])
@pytest.mark.parametrize("launcher", ["local", "tmux"])
def test_a_run_that_is_over_cannot_be_steered(
    command: Command, words: tuple[str, ...], launcher: str, tmp_path: Path
) -> None:
    make_run(tmp_path / "r", "stopped", launcher=launcher)
    said = refused(command, words[0], "r", *words[1:])
    assert re.search(r"run \S*r is over \(all done\)", said)


@pytest.mark.parametrize("words", STEERING, ids=lambda words: words[0])
def test_a_run_that_was_cut_off_cannot_be_steered(
    command: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    make_run(tmp_path / "r", launcher="tmux").progress.touch()
    said = refused(command, words[0], "r", *words[1:])
    assert "does not run: it was cut off" in said
    assert "surreal-like train --resume --folder" in said


@pytest.mark.parametrize("words", STEERING, ids=lambda words: words[0])
def test_a_run_whose_components_were_started_by_hand_takes_no_commands(
    command: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    folder = make_run(tmp_path / "r")
    folder.progress.touch()
    write_beat(folder.alive, Beat("agent-0", 1, State.running, 1, time.time()))
    said = refused(command, words[0], "r", *words[1:])
    assert "r has no supervisor, so its components take no commands" in said
    assert "plan --format shell" in said


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_two_runs_of_one_name_are_refused(
    command: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    for path in (tmp_path / "r", tmp_path / "runs" / "r"):
        make_run(path, "stopped")
    said = refused(command, words[0], "r", *words[1:])
    assert "two runs are called 'r': write ./r or runs/r" in said


def test_one_of_two_runs_of_one_name_can_be_named(command: Command, tmp_path: Path) -> None:
    for path in (tmp_path / "r", tmp_path / "runs" / "r"):
        make_run(path, "stopped")
    for name in ("./r", "runs/r"):
        assert command("status", name).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("agent",), "cannot scale to 'agent': write it as agent=8 or eval=2"),
        (("agent=many",), "cannot scale to 'agent=many'"),
        (("agent=-1",), "cannot scale to 'agent=-1'"),
        (("agent=1.5",), "cannot scale to 'agent=1.5'"),
        (("=3",), "cannot scale to '=3'"),
        ((), "required: agent=N"),
    ],
)
def test_a_number_that_is_none_is_refused(
    command: Command, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(command, "scale", "r", *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--since", "yesterday"),
            "--since: 'yesterday' is no time: write it",
        ),
        (("--lines", "-1"), "--lines -1: expected a number"),
        (("--lines", "few"), "'few'"),
        (("--component", "nobody"), "no log of 'nobody'"),
        (("--level", "loud"), "'loud'"),
    ],
)
def test_logs_that_make_no_sense_are_refused(
    command: Command, words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    make_run(tmp_path / "r", "stopped")
    assert message in refused(command, "logs", "r", *words)


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        pytest.param(
            "tmx",
            "for a detached run: local, tmux, kubernetes, slurm, ray; did you mean tmux",
            marks=[needs("kubernetes"), needs("slurm"), needs("ray")],
        ),
        ("moon", "no launcher 'moon'"),
        ("serial", "surreal-like train --on serial"),
    ],
)
def test_an_unknown_launcher_is_refused(command: Command, launcher: str, message: str) -> None:
    assert message in refused(command, "launch", "small.yaml", "--on", launcher)


def test_without_tmux_nothing_is_begun(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/dev/null/bin")
    said = refused(command, "launch", "small.yaml", "--on", "tmux", "--folder", "r")
    assert "no tmux on the PATH: install it" in said
    assert "--on local" in said
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]
    with pytest.raises(UsageError, match="no tmux"):
        check_launcher("tmux")


def test_a_new_run_never_enters_the_folder_of_another(command: Command, tmp_path: Path) -> None:
    make_run(tmp_path / "r", "stopped")
    said = refused(command, "launch", "small.yaml", "--on", "local", "--folder", "r")
    assert "folder r is not empty" in said


def test_attaching_needs_a_terminal(command: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", launcher="local")
    folder.lock()
    try:
        said = refused(command, "attach", "r")
    finally:
        folder.unlock()
    assert "attach needs a terminal; without one: surreal-like logs r --follow" in said


def test_status_shows_a_mode_that_does_not_judge(command: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", "stopped")
    folder.progress.write_text(json.dumps(made_line(100, eval_stochastic=None)) + "\n")
    assert re.search(r"stochastic return +- +does not judge", command("status", "r").out)


def test_status_shows_seconds_as_its_clock_does(command: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", launcher="serial")
    config = Config.load_file(folder.config)
    config.session_config.stop.seconds = 60
    config.dump_file(folder.config)
    folder.addresses.write_text("{}")
    folder.progress.write_text(json.dumps(made_line(790)) + "\n")
    write_beat(folder.alive, Beat("learner", 1, State.running, os.getpid(), time.time()))
    folder.lock()
    try:
        said = command("status", "r").out
    finally:
        folder.unlock()
    assert "running in one thread · after 00:07 counted" in said
    assert re.search(r"budget +━+─+ +00:07 of 01:00 counted", said)


def test_a_serial_run_takes_no_commands(command: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", launcher="serial")
    book = {"supervisor.control": {"bind": "inproc://x", "connect": "inproc://x"}}
    folder.addresses.write_text(json.dumps(book))
    write_beat(folder.alive, Beat("learner", 1, State.running, os.getpid(), time.time()))
    folder.lock()
    try:
        for words in STEERING[1:]:
            said = refused(command, words[0], "r", *words[1:])
            assert "runs in one thread: it takes no commands; Ctrl-C in its terminal" in said
        assert "running in one thread" in command("status", "r").out
    finally:
        folder.unlock()


# -- what is shown --------------------------------------------------------------------------------


def test_logs_can_be_cut_to_size(command: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "r", "stopped")
    now = time.time()
    lines = []
    for age, level, text in (
        (7200, "INFO", "long ago"),
        (600, "ERROR", "broken\n    at the seam"),
        (60, "INFO", "mended"),
        (5, "WARNING", "shaky"),
    ):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now - age))
        lines.append(f"{stamp}.123 {level:<8} learner: {text}")
    (folder.logs / "all.log").write_text("\n".join(lines) + "\n")

    def shown(*words: str) -> list[str]:
        out = command("logs", "r", *words).out
        return [line.partition("learner: ")[2] or line.strip() for line in out.splitlines()]

    everything = ["long ago", "broken", "at the seam", "mended", "shaky"]
    assert shown() == everything
    assert shown("--since", "15m") == everything[1:]
    assert shown("--since", "90s") == ["mended", "shaky"]
    assert shown("--level", "warning") == ["broken", "at the seam", "shaky"]
    assert shown("--level", "warning", "--lines", "2") == ["at the seam", "shaky"]
    assert shown("--lines", "0") == []
    assert shown("--follow") == everything


def test_ages_of_lines() -> None:
    assert [seconds_of(text, "--since") for text in ("30s", "5m", "2h", "1d", "0.5m")] == [
        *(30.0, 300.0, 7200.0, 86_400.0, 30.0),
    ]
    # A line without a time belongs to no age: it is shown.
    assert list(select(["no time here"], "info", time.time())) == ["no time here"]


@needs("kubernetes")
def test_what_one_can_do_after_a_launch() -> None:
    lines = next_steps("runs/a", "tmux")
    assert lines[0] == "run runs/a goes on by itself, on tmux"
    for words in ("status runs/a --watch", "logs runs/a --follow", "attach runs/a", "stop runs/a"):
        assert f"surreal-like {words}" in lines[1]
    assert "attach" not in "\n".join(next_steps("runs/a", "kubernetes"))


# -- a life ---------------------------------------------------------------------------------------


@contextmanager
def launched(command: Command, tmp_path: Path, on: str) -> Iterator[RunFolder]:
    """A run that was launched by the command; it is ended whatever happens."""
    said = command("launch", "small.yaml", "--on", on, "--folder", "r", "--agents", "1", LONG)
    folder = RunFolder(tmp_path / "r")
    try:
        assert said.code == 0, said
        assert "run r goes on by itself" in said.out
        yield folder
    finally:
        with open_run(folder) as run:
            if run.running:
                run.stop(interrupted=True)
                run.wait(DEADLINE_SECONDS)
            until(lambda: not run.running)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if names_folder(" ".join(process.cmdline()), folder.path):
                    process.kill()
        shutil.rmtree(folder.sockets, ignore_errors=True)


def components(command: Command) -> dict[str, dict[str, Any]]:
    """What ``status --json`` tells of those that are there."""
    data: dict[str, Any] = json.loads(command("status", "r", "--json").out)
    ended = ("gone", "done")
    return {n: row for n, row in data["components"].items() if row["state"] not in ended}


def running(command: Command, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    def look() -> dict[str, dict[str, Any]] | None:
        rows = components(command)
        all_run = {row["state"] for row in rows.values()} == {"running"}
        return rows if all_run and set(rows) == set(names) else None

    return until(look)


SERVERS = ("loggerplex", "tensorplex", "ps", "replay-0", "learner")


@pytest.mark.slow
@pytest.mark.parametrize("on", ["local", pytest.param("tmux", marks=pytest.mark.tmux)])
def test_the_life_of_a_detached_run(command: Command, tmp_path: Path, on: str) -> None:
    with launched(command, tmp_path, on) as folder:
        before = running(command, [*SERVERS, "agent-0", "eval-0"])
        niceness = {name: psutil.Process(row["pid"]).nice() for name, row in before.items()}
        assert niceness.pop("agent-0") - os.nice(0) == 5
        assert set(niceness.values()) == {os.nice(0)}
        assert command("scale", "r", "agent=2", "eval=0").code == 0
        running(command, [*SERVERS, "agent-0", "agent-1"])
        assert command("restart", "r", "learner").code == 0
        until(lambda: components(command)["learner"]["restarts"] == 1)
        os.kill(before["agent-0"]["pid"], signal.SIGKILL)
        row = until(lambda: (r := components(command)["agent-0"])["died"] and r, seconds=5.0)
        assert row["died"] == "killed by SIGKILL"
        until(lambda: components(command)["agent-0"]["pid"] not in (0, before["agent-0"]["pid"]))
        after = running(command, [*SERVERS, "agent-0", "agent-1"])
        assert {n: row["restarts"] for n, row in after.items() if row["restarts"]} == {
            "learner": 1,
            "agent-0": 1,
        }
        assert f"running on {on}" in command("status", "r").out

        assert "cannot scale 'replay'" in refused(command, "scale", "r", "replay=2")
        assert "expected 0 to 1000" in refused(command, "scale", "r", "agent=5000")
        assert "no component 'agent-7'; there are" in refused(command, "restart", "r", "agent-7")
        said = refused(command, "launch", "small.yaml", "--on", on, "--folder", "r")
        assert "folder r is not empty" in said
        said = refused(command, "launch", "--resume", "--on", on, "--folder", "r")
        assert "run r is in use by another launcher; stop it with: surreal-like stop r" in said

        said_of = command("logs", "r", "--component", "learner", "--lines", "1")
        assert said_of.out.count("\n") == 1
        stopped = command("stop", "r")
        assert (stopped.code, stopped.out) == (0, "run r has ended: surreal-like stop\n")
        until(lambda: not folder.in_use and not folder.sockets.exists())
        assert json.loads(folder.result.read_text())["status"] == "interrupted"
        assert "is over" in refused(command, "stop", "r")
        if on == "tmux":
            until(lambda: not default_socket().exists())
        data = json.loads(command("status", "r", "--json").out)
        assert (data["state"], data["launcher"]) == ("interrupted", on)
        assert {n: r["exit_code"] for n, r in data["components"].items() if r["exit_code"]} == {}


@pytest.mark.slow
def test_a_detached_run_can_go_on_detached(command: Command, tmp_path: Path) -> None:
    with launched(command, tmp_path, "local") as folder:
        until(lambda: folder.progress.exists())
        assert command("stop", "r").code == 0
        steps = json.loads(folder.result.read_text())["env_steps"] + 500
        budget = f"session_config.stop={{env_steps: {steps}}}"
        said = command("launch", "--resume", "--folder", "r", budget)
        assert said.code == 0, said
        assert "changed: session_config.stop" in said.out
        until(lambda: folder.over and not folder.in_use)
        assert (
            json.loads(folder.result.read_text())["reason"] == f"budget of {steps} env_steps used"
        )


@pytest.mark.slow
def test_attaching_to_a_local_run_draws_its_table(command: Command, tmp_path: Path) -> None:
    with launched(command, tmp_path, "local"):
        running(command, [*SERVERS, "agent-0", "eval-0"])
        ours, theirs = pty.openpty()
        argv = [sys.executable, "-m", "main.cli", "attach", "r"]
        root = str(Path(__file__).resolve().parents[2])
        environment = {**os.environ, "PYTHONPATH": root, "TERM": "xterm", "COLUMNS": "100"}
        with subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=tmp_path
        ) as attached:
            os.close(theirs)
            shown = b""

            def look() -> bool:
                nonlocal shown
                shown += os.read(ours, 1 << 16)
                return b"learner" in shown and b"agent-0" in shown

            until(look)
            attached.send_signal(signal.SIGINT)
            assert attached.wait(DEADLINE_SECONDS) == 0
        os.close(ours)
        assert components(command)["learner"]["state"] == "running"
