"""Runs on a real Slurm of two nodes: two lives of a core, commands from outside, refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from session.folder import RunFolder
from tests.add_ons import needs
from tests.addons.slurm.slurm import Slurm, slurm
from tests.polling import until

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.slurm, needs("join")]
ROOT = Path(__file__).resolve().parents[3]
EXPERIMENT = "configs/cartpole_dqn.yaml"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A cluster for all tests of this file."""
    with slurm(tmp_path_factory.mktemp("slurm")) as started:
        yield started


@pytest.fixture(autouse=True)
def empty_queue(rig: Slurm) -> Iterator[None]:
    """Leaves no job to the next test."""
    yield
    rig.run("scancel", "--user=root")
    until(lambda: not rig.jobs(), what=rig.jobs)


def command(rig: Slurm, *words: str, tmp: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs ``surreal-like`` on the login node.

    Args:
        rig: the cluster.
        words: the command line.
        tmp: folder of temporary files; another one than the core's is as on another machine.
    """
    away = ["env", f"TMPDIR={tmp}"] if tmp is not None else []
    ours = [sys.executable, "-P", "-m", "main.cli", *words]
    return rig.run(*away, *ours, check=False, cwd=ROOT)


def launch(rig: Slurm, path: Path, *words: str) -> RunFolder:
    """Launches CartPole."""
    done = command(rig, "launch", EXPERIMENT, "--on", "slurm", "--folder", str(path), *words)
    assert done.returncode == 0, done.stderr
    return RunFolder(path)


def number(folder: RunFolder, kind: str) -> str:
    """The first job of a kind."""
    return (folder.path / "slurm" / f"{kind}.job").read_text().split()[0]


def until_steps(rig: Slurm, folder: RunFolder, steps: int) -> None:
    """Waits until the run has so many steps."""

    def outputs() -> dict[str, Any]:
        files = (folder.path / "slurm").glob("*.???")
        return {"queue": rig.jobs(), **{file.name: file.read_text()[-2000:] for file in files}}

    until(lambda: folder.last_progress().get("env_steps", 0) >= steps, what=outputs)


def states(rig: Slurm, job: str) -> list[str]:
    """The states of a job's tasks."""
    lines = (line.split() for line in rig.jobs("%F %T"))
    return [state for owner, state in lines if owner == job]


def begin_again(rig: Slurm, folder: RunFolder) -> None:
    """Begins the requeued core soon: Slurm itself waits for two minutes.

    A node refuses a job that begins in the second of its end.
    """
    rig.run("scontrol", "update", f"JobId={number(folder, 'core')}", "StartTime=now+3")


REFUSED = (
    ("session_config.slurm.partition=nope", "invalid partition specified: nope"),
    ("session_config.slurm.agents.partition=nope", "invalid partition specified: nope"),
    ("session_config.resources={learner: {gpu: 1}}", "Invalid generic resource"),
    ("session_config.resources={learner: {cpu: 99}}", "More processors requested"),
    ("session_config.slurm.time=soon", "Invalid --time specification"),
    ("session_config.slurm.sbatch=--nope", "unrecognized option '--nope'"),
)


@pytest.mark.parametrize(("word", "said"), REFUSED, ids=[word for word, _ in REFUSED])
def test_what_slurm_refuses_leaves_nothing_behind(
    rig: Slurm, tmp_path: Path, word: str, said: str
) -> None:
    path = tmp_path / "run"
    done = command(rig, "launch", EXPERIMENT, "--on", "slurm", "--folder", str(path), word)
    assert done.returncode == 2
    assert re.fullmatch(r"surreal-like: error: Slurm refuses: .*\n", done.stderr), done.stderr
    assert said in done.stderr
    assert not path.exists()
    assert not rig.jobs()


@pytest.mark.timeout(400)
def test_a_run_goes_on_after_a_notice_and_solves_its_task_in_two_lives(
    rig: Slurm, tmp_path: Path
) -> None:
    folder = launch(rig, tmp_path / "run", "--agents", "2", "session_config.stop.seconds=600")
    core, tmp = number(folder, "core"), tmp_path / "tmp"
    tmp.mkdir()
    until_steps(rig, folder, 1000)
    # The signal that `--signal=B:TERM@120` sends before the end of the time.
    rig.run("scancel", "--batch", "--signal=TERM", core)
    until(lambda: states(rig, core) == ["PENDING"], what=rig.jobs)
    saved = folder.last_progress()["env_steps"]
    assert states(rig, number(folder, "agents")) == ["RUNNING", "RUNNING"]
    # Slurm gives the reason a moment after the state.
    waits = rf"core +waiting .* job {core} is PENDING: BeginTime"
    until(lambda: re.search(waits, command(rig, "status", str(folder), tmp=tmp).stdout))
    begin_again(rig, folder)
    until(lambda: not rig.jobs(), seconds=300, what=rig.jobs)
    result = folder.read_result() or {}
    assert (result["status"], result["goal_met"]) == ("stopped", True)
    assert result["env_steps"] >= saved
    experience = result["experience"]
    assert experience["pushed"] == experience["inserted"] + experience["dropped"]
    assert folder.read_run()["part"] == 2
    starts = re.findall(r"(?m)^job (\d+), start (\d)", (folder.path / "slurm/core.out").read_text())
    assert starts == [(core, "1"), (core, "2")]


@pytest.mark.timeout(400)
def test_a_notice_to_every_process_of_the_core_saves_too(rig: Slurm, tmp_path: Path) -> None:
    folder = launch(rig, tmp_path / "run", "session_config.stop={seconds: 600}")
    until_steps(rig, folder, 1000)
    # As Slurm does at its own requeue and pre-emption, where it follows processes by cgroups.
    (shell,) = (
        each.parent()
        for each in psutil.process_iter(["cmdline"])
        if f"-m main.core --folder {folder}" in " ".join(each.info["cmdline"] or ())
    )
    assert shell is not None
    for each in (*shell.children(recursive=True), shell):
        with suppress(psutil.NoSuchProcess):
            each.terminate()
    until(lambda: states(rig, number(folder, "core")) == ["PENDING"], what=rig.jobs)
    assert states(rig, number(folder, "agents")) == ["RUNNING", "RUNNING"]
    saved = max(int(path.name) for path in (folder.checkpoints / "learner").glob("[0-9]*"))
    assert saved >= folder.last_progress()["iteration"] > 0
    assert (folder.read_result() or {})["status"] == "interrupted"
    before = folder.last_progress()["env_steps"]
    begin_again(rig, folder)
    until_steps(rig, folder, before + 200)
    assert command(rig, "stop", str(folder)).returncode == 0
    until(lambda: not rig.jobs(), what=rig.jobs)


@pytest.mark.timeout(400)
def test_agents_give_their_node_back_to_a_core_that_waits_for_it(
    rig: Slurm, tmp_path: Path
) -> None:
    words = [
        "session_config.stop={seconds: 600}",
        "session_config.resources={agent: {cpu: 12}}",
        "session_config.slurm.agents_wait_seconds=45",
        "session_config.heartbeat.timeout=10",
    ]
    folder = launch(rig, tmp_path / "run", "--agents", "1", *words)
    core, agents = number(folder, "core"), number(folder, "agents")
    until_steps(rig, folder, 200)
    places = dict(line.split() for line in rig.jobs("%F %N"))
    assert places[core] != places[agents]
    rig.run("scancel", "--batch", "--signal=TERM", core)
    until(lambda: states(rig, core) == ["PENDING"], what=rig.jobs)
    before = folder.last_progress()["env_steps"]
    # Somebody else gets its node.
    wanted = (f"--nodelist={places[core]}", "--cpus-per-task=12", "--output=/dev/null")
    other = rig.run("sbatch", "--parsable", *wanted, "--wrap=sleep 600").stdout.strip()
    until(lambda: states(rig, other) == ["RUNNING"], what=rig.jobs)
    begin_again(rig, folder)
    # The other node belongs to the agent, which has lost its run.
    why = f"{core} Resources"
    until(lambda: why in rig.jobs("%F %r"), what=lambda: rig.jobs("%F %T %r %S"))
    until(lambda: states(rig, agents) == ["PENDING"], seconds=150, what=rig.jobs)
    until(lambda: states(rig, core) == ["RUNNING"], seconds=90, what=lambda: rig.jobs("%F %T %r"))
    rig.run("scancel", other)
    rig.run("scontrol", "update", f"JobId={agents}", "StartTime=now+3")
    until_steps(rig, folder, before + 200)
    assert command(rig, "stop", str(folder)).returncode == 0
    until(lambda: not rig.jobs(), what=rig.jobs)


@pytest.mark.timeout(400)
def test_agents_end_where_their_core_alone_was_cancelled(rig: Slurm, tmp_path: Path) -> None:
    words = ["session_config.slurm.agents_wait_seconds=30", "session_config.heartbeat.timeout=5"]
    folder = launch(rig, tmp_path / "run", "--agents", "2", *words)
    until_steps(rig, folder, 200)
    rig.run("scancel", number(folder, "core"))
    until(lambda: not rig.jobs(), seconds=150, what=lambda: rig.jobs("%F %T %r"))


@pytest.mark.timeout(400)
def test_commands_from_a_machine_that_only_shares_the_folder(rig: Slurm, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    folder = launch(rig, tmp_path / "a run", "--agents", "1", "session_config.stop={seconds: 600}")
    until_steps(rig, folder, 200)

    def rows() -> dict[str, Any]:
        shown = command(rig, "status", str(folder), "--json", tmp=tmp).stdout
        return dict(json.loads(shown)["components"])

    # An agent of a machine has a row from its first report to Tensorplex on.
    until(lambda: {"learner", "replay-0", "agent-1000"} <= rows().keys())
    assert {rows()[name]["state"] for name in ("learner", "replay-0")} == {"running"}
    again = command(rig, "launch", "--resume", "--on", "slurm", "--folder", str(folder), tmp=tmp)
    assert again.returncode == 2
    assert re.search(r"is in use by another launcher|is this run already", again.stderr)
    refused = command(rig, "scale", str(folder), "eval=2", tmp=tmp)
    assert refused.returncode == 2
    assert f"srun --overlap --jobid={number(folder, 'core')}" in refused.stderr
    assert command(rig, "scale", str(folder), "agent=3", tmp=tmp).returncode == 0
    until(lambda: sorted(rig.jobs("%K %T"))[:3] == [f"{n} RUNNING" for n in range(3)])
    assert command(rig, "scale", str(folder), "agent=1", tmp=tmp).returncode == 0
    until(lambda: sorted(rig.jobs("%K"))[:2] == ["0", "N/A"], what=rig.jobs)
    assert "learner" in command(rig, "logs", str(folder), tmp=tmp).stdout
    stopped = command(rig, "stop", str(folder), tmp=tmp)
    assert (stopped.returncode, "surreal-like stop" in stopped.stdout) == (0, True), stopped
    assert (folder.read_result() or {})["status"] == "interrupted"
    until(lambda: not rig.jobs(), what=rig.jobs)


def test_the_evaluators_are_scaled_on_the_node_of_the_core(rig: Slurm, tmp_path: Path) -> None:
    folder = launch(rig, tmp_path / "run", "session_config.stop={seconds: 600}")
    until_steps(rig, folder, 200)
    ours = (sys.executable, "-P", "-m", "main.cli", "scale", str(folder), "eval=2")
    rig.run("srun", "--overlap", f"--jobid={number(folder, 'core')}", *ours, cwd=ROOT)
    names = [
        row["name"]
        for row in json.loads(command(rig, "status", str(folder), "--json").stdout)[
            "components"
        ].values()
    ]
    assert "eval-1" in names
