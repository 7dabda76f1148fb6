"""Machines of a real Slurm: the contract of engines, a notice, and what is refused."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session.addons.engines.machines import Machines, MachineSpec, make_machines
from session.errors import UsageError
from tests.addons.slurm.slurm import Slurm, slurm
from tests.contracts.machines import MachinesContract
from tests.polling import until

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.slurm]
# No process has this number.
GONE = 1 << 30


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster for all tests of this file."""
    with slurm(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture(autouse=True)
def rig(started: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The cluster, whose programs are those of this process; it is empty afterwards."""
    started.put_on_path(tmp_path / "bin", monkeypatch)
    yield started
    assert not started.jobs()


class TestSlurm(MachinesContract):
    """A lost machine is submitted again after ten seconds."""

    seconds = 60.0
    silent_seconds = 60.0

    @pytest.fixture(autouse=True)
    def at(self, rig: Slurm) -> None:
        self.rig = rig

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Stops the controller."""
        self.rig.run("pkill", "-STOP", "-x", "slurmctld")
        try:
            yield
        finally:
            self.rig.run("pkill", "-CONT", "-x", "slurmctld")

    def make(self, order: MachineSpec) -> Machines:
        return make_machines("slurm", order)

    def pid(self, folder: Path) -> int:
        """The process, by its number in the namespace of the cluster."""
        number = super().pid(folder)
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                text = status.read_text()
            except OSError:
                continue
            if found := re.search(rf"(?m)^NSpid:\t(\d+)\t{number}$", text):
                return int(found[1])
        return GONE


def test_the_token_is_for_its_owner_only_and_settings_reach_slurm(
    rig: Slurm, tmp_path: Path
) -> None:
    options = {"partition": "spot", "time": "5", "sbatch": "--comment=mine"}
    order = MachineSpec(("sleep",), "secret", tmp_path / "machines", options=options)
    # `sleep` takes no --folder and fails at once: what counts is what was submitted.
    machines = make_machines("slurm", order)
    try:
        machines.want(2)
        machines.poll()
        said = rig.run("squeue", "--noheader", "--array", "--format=%P %l %k").stdout
        assert said.splitlines() == ["spot 5:00 mine"] * 2
        assert (tmp_path / "machines" / "token").stat().st_mode & 0o777 == 0o600
    finally:
        machines.close()
    assert "secret" not in (tmp_path / "machines" / "array.sbatch").read_text()


def test_a_machine_whose_time_ends_leaves_and_is_requeued(rig: Slurm, tmp_path: Path) -> None:
    waits = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); print('ready')"
    waits += "; sys.stdout.flush(); signal.pause()"
    order = MachineSpec((sys.executable, "-c", waits), "secret", tmp_path / "machines")
    output = tmp_path / "machines" / "machine-0.txt"
    machines = make_machines("slurm", order)
    try:
        machines.want(1)
        until(lambda: machines.poll() and machines.num == 1, what=rig.jobs)
        until(lambda: output.is_file() and "ready" in output.read_text())
        (task,) = rig.jobs("%i")
        rig.run("scancel", "--batch", "--signal=TERM", task)
        (event,) = until(machines.poll, what=rig.jobs)
        assert str(event) == "machine-0: lost: PENDING"
        rig.run("scontrol", "update", f"JobId={task}", "StartTime=now+3")
        (event,) = until(machines.poll, what=rig.jobs)
        assert str(event) == "machine-0: started"
        assert rig.jobs("%i") == [task]
    finally:
        machines.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": "nope"}, "Slurm refuses: invalid partition specified: nope"),
        ({"sbatch": "--gpus=1"}, r"Slurm refuses: Invalid generic resource \(gres\)"),
        ({"partitio": "main"}, "engine slurm has no setting 'partitio'; did you mean partition"),
    ],
)
def test_what_slurm_refuses_is_refused(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_machines(
            "slurm", MachineSpec(("true",), "secret", tmp_path / "machines", options=options)
        )
    assert not (tmp_path / "machines").exists()
