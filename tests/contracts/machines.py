"""The contract of engines: inherit it, say how machines are made and killed, and pytest proves it.

```
from tests.contracts.machines import MachinesContract

class TestMine(MachinesContract):
    def make(self, order):
        return MyMachines(order)
```

What runs on a machine here is a script: it says that it is there, and obeys SIGTERM and the end of
its lifeline.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from session.addons.engines.machines import Machines, MachineSpec, machine_name
from session.launchers.instruction import Event
from tests.polling import until

_SCRIPT = """
import os, pathlib, select, signal, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--folder") + 1])
folder.mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGTERM, lambda *_: (folder.joinpath("left").touch(), os._exit(0)))
new = folder / f"pid.{os.getpid()}"
new.write_text(f"{os.getpid()} {os.environ['SURREAL_LIKE_TOKEN']}")
new.replace(folder / "pid")
lifelines = [int(os.environ[name]) for name in ["SURREAL_LIKE_LIFELINE"] if name in os.environ]
select.select(lifelines, [], [], 300)
"""
_TOKEN = "a secret that no list of processes shows"


class MachinesContract(ABC):
    """What every engine does.

    Attributes:
        seconds: deadline for a machine that starts, or is replaced.
        silent_seconds: time for which the engine is made not to answer; 0: it always answers.
    """

    seconds = 30.0
    silent_seconds = 0.0

    @abstractmethod
    def make(self, order: MachineSpec) -> Machines:
        """Makes the machines."""

    def kill(self, folder: Path) -> None:
        """Kills a machine as the loss of its node does."""
        os.kill(self.pid(folder), signal.SIGKILL)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Keeps the engine from answering."""
        yield

    def pid(self, folder: Path) -> int:
        """The process of the newest machine of that name."""
        return int((folder / "pid").read_text().split()[0])

    @contextmanager
    def machines(self, folder: Path, number: int) -> Iterator[Machines]:
        """So many machines at work."""
        script = folder / "script.py"
        script.write_text(_SCRIPT)
        order = MachineSpec((sys.executable, str(script)), _TOKEN, folder / "machines")
        machines = self.make(order)
        try:
            machines.want(number)
            self.wait(machines, number, folder)
            yield machines
        finally:
            machines.close()

    def wait(self, machines: Machines, number: int, folder: Path) -> list[Event]:
        """Polls until machines 0 to number - 1 are at work, and no other is."""
        events: list[Event] = []
        wanted = {machine_name(each) for each in range(number)}

        def look() -> bool:
            events.extend(machines.poll())
            return machines.num == number and wanted == self.at_work(folder)

        until(look, seconds=self.seconds, what=lambda: (events, self.at_work(folder)))
        return events

    def at_work(self, folder: Path) -> set[str]:
        """Names of the machines whose process lives."""
        files = (folder / "machines").glob("*/pid")
        return {path.parent.name for path in files if psutil.pid_exists(self.pid(path.parent))}

    def test_a_machine_that_is_lost_is_replaced_by_one_of_its_name(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 2) as machines:
            lost = tmp_path / "machines" / machine_name(0)
            kept = self.pid(tmp_path / "machines" / machine_name(1))
            before = self.pid(lost)
            self.kill(lost)
            events: list[Event] = []

            def replaced() -> bool:
                events.extend(machines.poll())
                return self.pid(lost) != before

            until(replaced, seconds=self.seconds, what=lambda: events)
            events += self.wait(machines, 2, tmp_path)
            assert self.pid(tmp_path / "machines" / machine_name(1)) == kept
            kinds = [each.kind for each in events if each.component == machine_name(0)]
            assert kinds[:2] == ["lost", "started"]

    def test_more_come_and_fewer_leave_by_sigterm(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 1) as machines:
            machines.want(2)
            self.wait(machines, 2, tmp_path)
            machines.want(1)
            events = self.wait(machines, 1, tmp_path)
            assert [(each.component, each.kind) for each in events] == [("machine-1", "ended")]
            assert (tmp_path / "machines" / "machine-1" / "left").is_file()
            assert not (tmp_path / "machines" / "machine-0" / "left").exists()

    def test_machines_go_on_while_their_engine_does_not_answer(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 2) as machines:
            folders = [tmp_path / "machines" / machine_name(each) for each in range(2)]
            before = [self.pid(each) for each in folders]
            events: list[Event] = []
            with self.silence():
                end = time.monotonic() + self.silent_seconds
                while time.monotonic() < end:
                    events += machines.poll()
                    time.sleep(0.1)
                assert len(self.at_work(tmp_path)) == 2
            events += self.wait(machines, 2, tmp_path)
            assert [self.pid(each) for each in folders] == before
            assert not [each for each in events if each.kind in ("lost", "ended")]
            machines.want(1)
            events = self.wait(machines, 1, tmp_path)
            assert [(each.component, each.kind) for each in events] == [("machine-1", "ended")]
            assert self.pid(folders[0]) == before[0]

    def test_at_the_end_nothing_is_left(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 2):
            pass
        assert not self.at_work(tmp_path)
        assert {path.parent.name for path in tmp_path.glob("machines/*/left")} == {
            *("machine-0", "machine-1")
        }

    def test_at_the_end_no_file_has_the_token(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 1) as machines:
            for path in self._with_token(tmp_path):
                assert path.stat().st_mode & 0o077 == 0, path
        assert not self._with_token(tmp_path)
        machines.close()

    def _with_token(self, folder: Path) -> list[Path]:
        """Files of the engine that have the token; those of the script prove that it came."""
        files = [path for path in folder.rglob("*") if path.is_file() and path.name != "pid"]
        return [path for path in files if _TOKEN.encode() in path.read_bytes()]

    def test_no_list_of_processes_shows_the_token(self, tmp_path: Path) -> None:
        with self.machines(tmp_path, 1):
            folder = tmp_path / "machines" / machine_name(0)
            assert (folder / "pid").read_text().partition(" ")[2] == _TOKEN
            shown = [
                " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])
            ]
            assert not any(_TOKEN in line for line in shown)
