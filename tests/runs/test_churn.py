"""Machines that join a run, die and come back in any order: names stay few, no row is lost."""

from __future__ import annotations

import json
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session.folder import RunFolder
from session.launchers.handle import open_run
from tests.polling import until
from tests.runs.command import CARTPOLE, COMMAND, Process, balanced, read_lines, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(700)]

MACHINES = 4
# Kills, and the mean pause between two. With SURREAL_LIKE_TEST_KILLS=50 there are 104 joins and
# kills in about five minutes.
KILLS, PAUSE_SECONDS = int(os.environ.get("SURREAL_LIKE_TEST_KILLS", "12")), 2.5
LONG = "session_config.stop={seconds: 900}"
_JOINED = re.compile(r"joined .* with (agent-\d+);")


class Hosted:
    """A run that others join, with one agent of its own.

    Args:
        folder: of the run.
        words: more of the command line.
    """

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = RunFolder(folder)
        given = ("launch", CARTPOLE, "--on", "local", "--host", "127.0.0.1", *words)
        self.command("launch", *given, "--folder", str(folder))

    def command(self, name: str, *words: str, code: int = 0) -> str:
        """What a command says."""
        with Process([*COMMAND, *words], self.folder.path.parent / f"{name}.txt") as command:
            assert command.wait() == code, command.words
        return command.words

    def token(self, uses: int) -> Path:
        """A file with a token for so many machines."""
        words = ("join", "--print", str(self.folder), "--uses", str(uses), "--valid", "1h")
        path = self.folder.path.parent / "token"
        path.touch(mode=0o600)
        path.write_text(self.command("print", *words).split()[-1])
        return path

    def join(self, token: Path, *words: str, name: str = "guest") -> Process:
        """A machine that joins by the folder of the run."""
        place = self.folder.path.parent / name
        given = ["join", str(self.folder), "--token-file", str(token), "--folder", str(place)]
        return Process([*COMMAND, *given, *words], self.folder.path.parent / f"{name}.txt")

    def end(self) -> None:
        """Leaves nothing behind."""
        if self.folder.in_use:
            with open_run(self.folder) as run:
                run.stop(interrupted=True)
                run.wait(60.0)


@pytest.fixture
def hosted(run_folder: Path) -> Iterator[Hosted]:
    run = Hosted(run_folder, LONG, "session_config.agent.num=1")
    yield run
    run.end()


def names_at_work(folder: Path) -> dict[str, str]:
    """Machine -> name of the agent that it has joined with, of those whose process lives."""
    living = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    places = {Path(line[-1]).name for line in living if str(folder) in (line[-1] if line else "")}
    found = {}
    for place in places:
        joined = _JOINED.findall((folder / f"{place}.txt").read_text())
        if joined:
            found[place] = joined[-1]
    return found


def kill_one(folder: Path, place: str) -> None:
    """Kills the process of a machine; what it has started ends by its lifeline.

    The loss of a node takes the folder for temporary files along, too: that stays here.
    """
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [""])[-1] == str(folder / place):
            os.kill(process.pid, signal.SIGKILL)


def test_machines_that_die_and_come_back_keep_few_names_and_lose_no_row(
    hosted: Hosted, run_folder: Path
) -> None:
    token, machines = hosted.token(2 * MACHINES), run_folder.parent / "guest" / "machines"
    chosen = random.Random(1)
    with hosted.join(token, "--on", "processes", "--machines", str(MACHINES)) as join:
        until(lambda: len(names_at_work(machines)) == MACHINES, what=lambda: join.words)
        for _ in range(KILLS):
            kill_one(machines, chosen.choice(sorted(until(lambda: names_at_work(machines)))))
            wait_for(PAUSE_SECONDS * chosen.expovariate(1.0))
            names = names_at_work(machines)
            assert len(set(names.values())) == len(names), names
        until(lambda: len(names_at_work(machines)) == MACHINES, what=lambda: join.words)
        steps = hosted.folder.last_progress()["env_steps"]
        until(lambda: hosted.folder.last_progress()["env_steps"] > steps + 2000)
        until(lambda: hosted.folder.last_progress()["best_eval"]["mean_return"] >= 475)
        hosted.command("stop", "stop", str(hosted.folder))
        assert join.wait() == 0, join.words
    lost = [line for line in join.words.splitlines() if "lost: killed by SIGKILL" in line]
    assert len(lost) == KILLS
    result = dict(hosted.folder.read_result() or {})
    assert balanced(result), result["experience"]
    senders = {name.partition("/")[0] for name in result["senders"]}
    assert senders <= {"agent-0", *(f"agent-{1000 + number}" for number in range(MACHINES))}
    (kept,) = [
        json.loads(path.read_text())
        for path in (hosted.folder.keys / "tokens").iterdir()
        if json.loads(path.read_text())["uses"] > 1
    ]
    assert len(kept["machines"]) == MACHINES + 1


def test_a_machine_waits_for_a_run_that_is_resumed_and_comes_back_by_its_name(
    hosted: Hosted, run_folder: Path
) -> None:
    token = hosted.token(3)
    with hosted.join(token, "--slots", "2", name="wrong") as wrong:
        assert wrong.wait() == 2, wrong.words
        assert wrong.words.endswith("is a run: give --agents N in place of --slots\n")
    with hosted.join(token, "--keep-trying", name="right") as join:
        until(lambda: "joined" in join.words, what=lambda: join.words)
        until(lambda: "agent-1001" in {path.stem for path in hosted.folder.logs.iterdir()})
        before = hosted.folder.addresses.read_text()
        (supervisor,) = [
            process
            for process in psutil.process_iter(["cmdline"])
            if "main.supervisor" in " ".join(process.info["cmdline"] or ())
            and str(run_folder) in " ".join(process.info["cmdline"] or ())
        ]
        supervisor.send_signal(signal.SIGTERM)
        until(lambda: "waiting for the run" in join.words, what=lambda: join.words)
        until(lambda: not hosted.folder.in_use)
        hosted.command("resume", "launch", "--resume", "--folder", str(run_folder))
        # Who joined by an address finds it there again.
        assert hosted.folder.addresses.read_text() == before
        until(lambda: join.words.count("with agent-1001;") == 2, what=lambda: join.words)
        hosted.command("stop", "stop", str(run_folder))
        assert join.wait() == 0, join.words
    assert "the run goes on later; its agents here have left" in join.words
    assert join.words.splitlines()[-1] == "the run is over; its agents here have left"
    joined = [each for each in read_lines(hosted.folder.events) if each["event"] == "joined"]
    assert len(joined) == 3


def test_sigterm_ends_a_machine_that_waits(run_folder: Path) -> None:
    token = run_folder.parent / "token"
    token.touch(mode=0o600)
    token.write_text("sl1-xILywEL4bqUfbJBk5O7CqXb2iG_qM8xpMW-MlSxGAH9UmyBbEhribqT3I3_cv8_4ufxN")
    given = ["join", str(run_folder), "--token-file", str(token), "--keep-trying"]
    with Process([*COMMAND, *given], run_folder.parent / "join.txt") as join:
        until(lambda: "waiting for the run" in join.words, what=lambda: join.words)
        join.signal(signal.SIGTERM)
        assert join.wait() == 0, join.words
