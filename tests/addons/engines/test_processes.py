"""Machines that are processes here: the contract, and what a person sees of a wrong order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session.addons.engines.machines import Machines, MachineSpec, make_machines
from session.addons.engines.processes import ProcessMachines
from session.errors import UsageError
from session.launchers.instruction import Event
from tests.contracts.machines import MachinesContract
from tests.polling import until


class TestProcesses(MachinesContract):
    def make(self, order: MachineSpec) -> Machines:
        return make_machines("processes", order)


class Silent(ProcessMachines):
    """An engine that says what it has done, and then does not answer, for some times."""

    times = 3

    def _poll(self) -> Iterator[Event]:
        yield Event("machine-0", "started")
        self.times -= 1
        if self.times >= 0:
            raise UsageError("no answer" if self.times else "no route")


def test_machines_go_on_while_their_engine_does_not_answer(tmp_path: Path) -> None:
    machines = Silent(order_of(tmp_path, "true"))
    started = "machine-0: started"
    said = [[str(each) for each in machines.poll()] for _ in range(4)]
    assert said == [
        [started, "processes: failed: no answer"],
        [started],
        [started, "processes: failed: no route"],
        [started],
    ]


def order_of(folder: Path, *command: str, **options: str) -> MachineSpec:
    return MachineSpec(command, "token", folder, options=options)


def test_a_machine_that_cannot_start_says_why_and_is_tried_again_later(tmp_path: Path) -> None:
    wrong = "import sys; sys.exit('no such run')"
    machines = ProcessMachines(order_of(tmp_path, sys.executable, "-c", wrong))
    machines.want(1)
    try:
        events = until(lambda: [each for each in machines.poll() if each.kind == "lost"])
        (lost,) = events
        assert str(lost) == "machine-0: lost: ended with exit code 1: no such run"
        assert machines.num == 0
        until(lambda: any(each.kind == "started" for each in machines.poll()))
    finally:
        machines.close()


@pytest.mark.parametrize(
    ("engine", "options", "message"),
    [
        ("proceses", {}, "no engine 'proceses'; did you mean processes"),
        ("cloud", {}, "no engine 'cloud': there are .*processes"),
        ("processes", {"queue": "a"}, "engine processes has no setting 'queue'; it has none"),
    ],
)
def test_a_wrong_engine_or_setting_is_refused(
    tmp_path: Path, engine: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_machines(engine, order_of(tmp_path, "true", **options))


# A controller that is killed: its machines have nothing left that would end them.
_CONTROLLER = """
import sys, time
from pathlib import Path
from session.addons.engines.machines import MachineSpec
from session.addons.engines.processes import ProcessMachines
code = "import sys, time; from session.process.entry import Lifeline; line = Lifeline();"
code += "print('ready', flush=True)\\nwhile not line.broken: time.sleep(0.05)"
machines = ProcessMachines(MachineSpec((sys.executable, "-c", code), "token", Path(sys.argv[1])))
machines.want(1)
while True:
    machines.poll()
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_killed_controller_takes_its_machines_along(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _CONTROLLER, str(tmp_path)]) as controller:
        said = tmp_path / "machine-0.txt"
        until(lambda: said.is_file() and said.read_text() == "ready\n")
        (machine,) = psutil.Process(controller.pid).children()
        os.kill(controller.pid, signal.SIGKILL)
    machine.wait(10)
