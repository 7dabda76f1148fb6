"""Sessions of the documents: commands that belong together do what the text says they do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from session.folder import RunFolder
from session.process.heartbeat import read_beats
from tests.addons.slurm.slurm import slurm
from tests.docs.examples import ROOT, blocks
from tests.docs.sessions import Session
from tests.docs.test_examples import DOCUMENTS
from tests.polling import until

README, SIZES = ROOT / "README.md", ROOT / "docs" / "sizes.md"
RECOVERY, TUTORIAL = (
    ROOT / "docs" / f"{n}.md" for n in ("resume_and_recovery", "tutorial_cluster")
)
# Session -> its document.
HERE = {
    "kill": README,
    "steer": README,
    "mirror": RECOVERY,
    "machines": TUTORIAL,
    "slurm": TUTORIAL,
}
# Those that another test runs.
ELSEWHERE: dict[tuple[str, str], str] = {}


@pytest.fixture
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    """A session of a document; whatever it launched has ended behind it."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    made = Session(HERE[request.param], request.param, tmp_path)
    yield made
    if made.left():
        made.run("for run in runs/*; do surreal-like stop $run; done; true")
    until(lambda: not made.left(), what=made.left)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("session", ["kill"], indirect=True)
def test_what_is_killed_comes_back(session: Session) -> None:
    launch, kill_replay, kill_learner, status, stop, resume = session.lines
    session.run(launch)
    session.wait_until_it_learns()
    for line, name in ((kill_replay, "replay-0"), (kill_learner, "learner")):
        pid = session.pid(name)
        session.run(line)
        session.wait_until_replaced(name, pid)
    rows = {line.split()[0]: line for line in session.run(status).splitlines() if line.split()}
    assert all("1" in rows[name].split() for name in ("replay-0", "learner")), rows  # restarts
    session.run(stop)
    result = session.result()
    assert result["status"] == "interrupted"
    experience = result["experience"]
    assert experience["pushed"] == experience["inserted"] + experience["dropped"]
    until(lambda: not session.left(), what=session.left)
    session.run(resume)
    result = session.result()
    assert result["status"] == "stopped"
    assert result["goal_met"]
    until(lambda: not session.left(), what=session.left)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("session", ["machines"], indirect=True)
def test_machines_join_are_killed_and_come_back(session: Session) -> None:
    launch, status, token, join, again, kill_replay, kill_agent, killed, *rest = session.lines
    session.run(launch)
    session.wait_until_it_learns()
    machine = RunFolder(session.folder / "machine")
    assert "agent-1 " in session.run(status)
    session.run(token)
    session.run(join)
    names = ("agent-1000", "agent-1001")
    until(lambda: all(f"{name} " in session.run(again) for name in names))
    before = session.pid("replay-0"), read_beats(machine.alive)["agent-1000"].pid
    session.run(kill_replay)
    session.run(kill_agent)
    session.wait_until_replaced("replay-0", before[0])
    until(lambda: read_beats(machine.alive)["agent-1000"].pid != before[1])
    rows = {line.split()[0]: line.split() for line in session.run(killed).splitlines() if line}
    assert "1" in rows["replay-0"]  # restarts
    assert "agent-1000 restart" in (session.folder / "machine.txt").read_text()
    kill_machine, back, engine, kill_one, said, stop, words, account = rest
    session.run(kill_machine)
    until(lambda: not any("--folder machine" in each for each in session.left()))
    session.run(back)
    joined = session.folder / "machine.txt"
    until(lambda: "with agent-1000, agent-1001;" in joined.read_text(), what=joined.read_text)
    session.run(engine)
    until(lambda: all(f"agent-{number} " in session.run(status) for number in (1002, 1003)))
    session.run(kill_one)
    until(lambda: session.run(said).count("machine-1: started") == 2)
    began, lost = "machine-{}: started", "machine-1: lost: killed by SIGKILL"
    shown = [line[: len(lost)] for line in session.run(said).splitlines()]
    assert shown == [began.format(0), began.format(1), lost, began.format(1)]
    session.run(stop)
    until(lambda: not session.left(), what=session.left)
    ends = session.run(words)
    assert "its agents here have left" in ends
    assert "its machines have left" in ends
    rows = session.result()["experience"]
    assert rows["pushed"] == rows["inserted"] + rows["dropped"] + rows["unacked"]
    assert rows["lost"] == 0
    assert f"'pushed': {rows['pushed']}, " in session.run(account)
    assert session.result()["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.slurm
@pytest.mark.timeout(400)
@pytest.mark.parametrize("session", ["slurm"], indirect=True)
def test_a_core_of_slurm_goes_on_after_its_notice(
    session: Session, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, status, notice, waits, end = session.lines
    with slurm(tmp_path_factory.mktemp("slurm")) as rig:
        rig.put_on_path(tmp_path_factory.mktemp("path") / "bin", monkeypatch)
        session.run(launch)
        run = session.wait_until_it_learns()
        assert "learner" in session.run(status)
        session.run(notice)
        until(lambda: re.search("core +waiting .* is PENDING", session.run(waits)))
        core = (run.path / "slurm" / "core.job").read_text().strip()
        # The page waits for two minutes.
        rig.run("scontrol", "update", f"JobId={core}", "StartTime=now+3")
        until(lambda: not rig.jobs(), seconds=300, what=rig.jobs)
        assert "goal met" in session.run(end)
        assert run.read_run()["part"] == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_mirrored_run_goes_on(tmp_path: Path) -> None:
    session = Session(RECOVERY, "mirror", tmp_path)
    train, lose, show, evaluate, resume = session.lines
    for line in (train, lose):
        session.run(line)
    assert "kept" in session.run(show)
    assert "over 5 episodes" in session.run(evaluate)
    session.run(resume)
    assert session.result()["iterations"] == 400
    assert not session.left()


def descriptors(session: Session, name: str) -> int:
    """Return the number of open descriptors of a component."""
    return psutil.Process(session.pid(name)).num_fds()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("session", ["steer"], indirect=True)
def test_a_run_is_steered_from_another_terminal(session: Session) -> None:
    launch, status, doctor, scale, restart, logs, stop, *after = session.lines
    session.run(launch)
    session.wait_until_it_learns()
    assert "learner" in session.run(status)
    assert "bottleneck" in session.run(doctor)
    # What docs/sizes.md says of descriptors.
    costs = {"replay-0": 2, "ps": 1, "tensorplex": 1, "loggerplex": 1}
    before = {name: descriptors(session, name) for name in costs}
    session.run(scale)
    session.wait_until_replaced("agent-2", 0)
    more = {name: before[name] + cost for name, cost in costs.items()}
    until(lambda: {name: descriptors(session, name) for name in costs} == more, what=lambda: more)
    most = re.search(r"an agent has at most (\d+) of its own", SIZES.read_text())
    assert most is not None
    assert 0.8 * int(most[1]) < descriptors(session, "agent-2") <= int(most[1])
    pid = session.pid("learner")
    session.run(restart)
    session.wait_until_replaced("learner", pid)
    session.run(logs)
    session.run(stop)
    until(lambda: not session.left(), what=session.left)
    for line in after:
        session.run(line)
    for name in ("curves.png", "pole.mp4"):
        assert (session.folder / name).stat().st_size > 1000


def elsewhere() -> dict[str, str]:
    """Return the launcher of each command in README's table of them."""
    section = README.read_text().split("## The same run elsewhere")[1].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    found = re.findall(r"`(surreal-like [^`]* --on (\w+)[^`]*)`", "\n".join(rows))
    return {f"{on} {'host' if '--host' in line else 'alone'}": line for line, on in found}


STOP = "'session_config.stop={seconds: 60}'"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("session", ["steer"], indirect=True)
@pytest.mark.parametrize(
    "row",
    ["local alone", "local host", pytest.param("tmux alone", marks=pytest.mark.tmux)],
)
def test_the_same_run_is_launched_elsewhere(session: Session, row: str) -> None:
    line = elsewhere()[row].replace("ADDRESS", "127.0.0.1")
    said = session.run(f"{line} {STOP}")
    assert ("surreal-like join 127.0.0.1:" in said) == (row == "local host")
    session.wait_until_it_learns()
    session.run("surreal-like stop latest")
    experience = session.result()["experience"]
    assert experience["pushed"] == experience["inserted"] + experience["dropped"] > 0


def test_the_other_rows_of_that_table() -> None:
    rows = elsewhere()
    assert set(rows) == {
        *("serial alone", "local alone", "local host", "tmux alone"),
        *("kubernetes alone", "slurm alone"),
    }
    experiment = "surreal-like {} configs/cartpole_dqn.yaml --on {}"
    assert rows["serial alone"] == experiment.format("train", "serial")
    assert rows["kubernetes alone"] == experiment.format("launch", "kubernetes")
    assert rows["slurm alone"] == experiment.format("launch", "slurm")
    overlay = re.search(r"&& kubectl apply -k ([^`]*)`", README.read_text())
    assert overlay is not None
    assert (ROOT / overlay[1] / "kustomization.yaml").is_file()


def test_every_session_has_a_test() -> None:
    found = {(d.name, block.session) for d in DOCUMENTS for block in blocks(d) if block.session}
    here = {(document.name, name) for name, document in HERE.items()}
    assert found == here | set(ELSEWHERE)
