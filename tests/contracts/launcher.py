"""The contract of launchers: inherit it, say how a run is launched, and pytest proves the rest.

```
from tests.contracts.launcher import Launched, LauncherContract

class TestMine(LauncherContract):
    @contextmanager
    def launched(self, path):
        cluster = MyCluster(config, topology, folder)
        text = cluster.dry_run()
        cluster.launch()
        try:
            yield Launched(cluster, folder, text)
        finally:
            ...  # leave nothing behind
```

A run of the contract has a learner, a replay shard, one agent and one evaluator; names and what is
said can be set in the class. Its components may do nothing, but they beat and obey.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.status import ComponentStatus
from tests.polling import until

ROOT = Path(__file__).resolve().parents[2]
# What another shell does with a run: python -c THIS folder command arguments...
_OTHER_SHELL = """
import json, sys
from dataclasses import asdict
from session.launchers.handle import open_run
folder, command, *arguments = sys.argv[1:]
with open_run(folder) as run:
    if command == "status":
        print(json.dumps([asdict(row) for row in run.status()]))
    elif command == "scale":
        run.scale(arguments[0], int(arguments[1]))
    elif command == "restart":
        run.restart(arguments[0])
    else:
        run.stop(interrupted=True)
        print(json.dumps(run.wait(60).status))
"""

T = TypeVar("T")


def _nothing() -> None:
    """A detached run goes on by itself."""


def _signal_process(row: ComponentStatus, number: int) -> None:
    os.kill(row.pid, number)


def lives(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return pid != 0 and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _process_lives(row: ComponentStatus) -> bool:
    return lives(row.pid)


@dataclass(frozen=True)
class Launched:
    """A run that was launched.

    Args:
        run: commands it: a Supervisor, a RunHandle, or what has the same methods.
        folder: the run folder.
        poll: gives it the time that it needs to go on.
        signal: sends a signal to the process of a component.
        lives: whether the process of a component is there.
        command_line: words of the process of a component, None where nobody can look.
        dry_run: the text that said what would be started, before it was; a launcher that has none
            shows its lines with ``plan``.
    """

    run: Any
    folder: RunFolder
    dry_run: str
    poll: Callable[[], object] = _nothing
    signal: Callable[[ComponentStatus, int], None] = _signal_process
    lives: Callable[[ComponentStatus], bool] = _process_lives
    command_line: Callable[[ComponentStatus], str] | None = field(
        default=lambda row: " ".join(psutil.Process(row.pid).cmdline())
    )

    def until(self, look: Callable[[], T | None], seconds: float = 60.0) -> T:
        """Polls until ``look`` gives something that is true."""

        def step() -> None:
            self.poll()
            time.sleep(0.01)

        return until(look, seconds=seconds, what=self.rows, step=step)

    def rows(self) -> dict[str, ComponentStatus]:
        """Name -> row of all components."""
        return {row.name: row for row in self.run.status()}

    def row(self, name: str) -> ComponentStatus:
        """The row of one component."""
        return self.rows()[name]

    def logs(self, name: str) -> list[str]:
        """The last lines of a component, none while it has left none."""
        try:
            return list(self.run.logs(name))
        except UsageError:
            return []

    def running(self, *names: str) -> dict[str, ComponentStatus]:
        """The rows, once exactly these components, and no others, are there and running."""

        def look() -> dict[str, ComponentStatus] | None:
            rows = {name: row for name, row in self.rows().items() if row.state != "gone"}
            ready = all(row.state == "running" and row.pid for row in rows.values())
            return rows if ready and set(rows) == set(names) else None

        return self.until(look)

    def elsewhere(self, *words: str) -> Any:
        """What another shell gets when it commands the run."""
        argv = [sys.executable, "-c", _OTHER_SHELL, str(self.folder), *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as shell:
            self.until(lambda: shell.poll() is not None)
            said, complaint = shell.communicate()
        assert shell.returncode == 0, complaint
        return json.loads(said) if said else None


class LauncherContract(ABC):
    """What every launcher promises.

    Attributes:
        names: the components at launch.
        said: a component, and a part of what it logs.
        processes: False where everything runs in one thread, which no other process can command.
    """

    names: tuple[str, ...] = ("replay-0", "learner", "agent-0", "eval-0")
    said: tuple[str, str] = ("agent-0", "said by agent-0")
    processes: bool = True

    @abstractmethod
    def launched(self, path: Path) -> AbstractContextManager[Launched]:
        """Launches a run in that folder; leaves nothing of it behind."""

    def test_after_the_launch_all_components_run_and_beat(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            rows = launched.running(*self.names)
            assert all(launched.lives(row) for row in rows.values())
            assert [row.restarts for row in rows.values()] == [0] * len(rows)
            assert {row.exit_code for row in rows.values()} == {None}
            assert all(row.age_seconds is not None for row in rows.values())
            assert max(row.age_seconds or 0.0 for row in rows.values()) < 5.0
            assert len({row.pid for row in rows.values()}) == (len(rows) if self.processes else 1)

    def test_what_was_shown_before_is_what_runs(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            rows = launched.running(*self.names)
            lines = launched.dry_run.splitlines()
            for name, row in rows.items():
                (line,) = (each for each in lines if f"--name {name} " in f"{each} ")
                if launched.command_line is not None:
                    module = line.partition(" -m ")[2]
                    assert module in launched.command_line(row)

    def test_logs_are_found(self, run_folder: Path) -> None:
        name, text = self.said
        with self.launched(run_folder) as launched:
            launched.running(*self.names)
            launched.until(lambda: text in "\n".join(launched.logs(name)))
            with pytest.raises(UsageError, match="no log of 'nobody'"):
                launched.run.logs("nobody")

    def test_agents_and_evaluators_come_and_go_in_flight(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            before = launched.running(*self.names)
            launched.run.scale("agent", 3)
            launched.run.scale("eval", 2)
            more = launched.running(*self.names, "agent-1", "agent-2", "eval-1")
            launched.run.scale("agent", 1)
            launched.run.scale("eval", 0)
            less = launched.running(*(name for name in self.names if name != "eval-0"))
            launched.run.scale("eval", 1)
            again = launched.running(*self.names)
            # Whoever was not meant has noticed nothing.
            for rows in (more, less, again):
                kept = set(rows) & set(self.names) - {"eval-0"}
                assert {n: rows[n].pid for n in kept} == {n: before[n].pid for n in kept}
                assert {rows[name].restarts for name in kept} == {0}

    def test_one_component_is_restarted(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            before = launched.running(*self.names)
            for name in ("agent-0", "learner"):
                launched.run.restart(name)
                launched.until(lambda n=name: launched.row(n).restarts == 1)  # type: ignore[misc]
                after = launched.running(*self.names)
                if self.processes:
                    assert after[name].pid != before[name].pid
                    assert not launched.lives(before[name])
            assert after["replay-0"] != before["replay-0"]
            assert after["replay-0"].pid == before["replay-0"].pid

    def test_what_a_signal_ends_is_seen_dead_and_comes_back(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            before = launched.running(*self.names)
            for name, number, seen_as in (
                ("agent-0", signal.SIGKILL, ("SIGKILL", "-9", "137")),
                ("replay-0", signal.SIGTERM, ("SIGTERM", "75")),
                ("learner", signal.SIGTERM, ("SIGTERM", "75")),
            ):
                launched.signal(before[name], number)
                seen = launched.until(lambda n=name: _death(launched.row(n)), seconds=15.0)  # type: ignore[misc]
                assert any(words in seen for words in seen_as)
                after = launched.running(*self.names)
                assert not self.processes or after[name].pid != before[name].pid
                assert after[name].restarts == 1

    def test_a_stop_is_clean_and_leaves_nothing(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            rows = launched.running(*self.names)
            launched.run.stop(interrupted=True)
            outcome = launched.run.wait(60.0)
            assert outcome.status == "interrupted"
            if self.processes:
                launched.until(lambda: not any(map(launched.lives, rows.values())), seconds=5.0)
            assert {row.state for row in launched.run.status()} <= {"gone"}
            self.check_result(launched)

    def check_result(self, launched: Launched) -> None:
        """The end stands in the folder, and nobody holds that any more."""
        assert dict(launched.folder.read_result() or {})["status"] == "interrupted"
        assert not launched.folder.in_use
        assert not launched.folder.sockets.exists()

    def test_another_shell_takes_over(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            rows = launched.running(*self.names)
            seen = launched.elsewhere("status")
            assert {row["name"]: row["pid"] for row in seen} == {
                name: row.pid for name, row in rows.items()
            }
            assert {row["state"] for row in seen} == {"running"}
            if not self.processes:
                with pytest.raises(AssertionError, match="one thread: it takes no commands"):
                    launched.elsewhere("stop")
                return
            launched.elsewhere("scale", "agent", "2")
            launched.elsewhere("restart", "eval-0")
            launched.until(lambda: launched.row("eval-0").restarts == 1)
            launched.running(*self.names, "agent-1")
            assert launched.elsewhere("stop") == "interrupted"

    def test_what_makes_no_sense_is_refused_in_one_line(self, run_folder: Path) -> None:
        with self.launched(run_folder) as launched:
            rows = launched.running(*self.names)
            run = launched.run
            commands: tuple[Callable[[], None], ...] = (
                lambda: run.scale("replay", 2),
                lambda: run.scale("agent", -1),
                lambda: run.scale("agent", 10_000),
                lambda: run.restart("agent-7"),
                lambda: run.restart("nobody"),
            )
            for command in commands:
                with pytest.raises(UsageError) as caught:
                    command()
                assert "\n" not in str(caught.value)
            # None of it has done anything.
            assert launched.running(*self.names).keys() == rows.keys()
            assert {row.restarts for row in launched.rows().values()} == {0}


def _death(row: ComponentStatus) -> str:
    """How a component died, once the table shows that it did."""
    if row.died:
        return row.died
    return f"exit code {row.exit_code}" if row.exit_code else ""
