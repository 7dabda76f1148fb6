"""The files of a run on Slurm: what they ask for, and that a shell takes them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from main.cli import main as surreal_like
from session.addons.engines.machines import GIVEN_UP
from session.addons.slurm.jobs import array_script, batch_script
from session.addons.slurm.submission import SlurmCluster
from session.config import Config
from session.config.config import apply_overrides
from session.errors import ConfigError, UsageError
from session.folder import RunFolder
from session.launchers.handle import check_launcher
from session.launchers.registry import launcher_of
from session.process.component import Resources, Topology
from surreal_like.experiment.topology import make_topology
from surreal_like.run.request import RunRequest
from tests.add_ons import needs

pytestmark = pytest.mark.usefixtures("quick")
FILES = ("agents.sbatch", "cancel.sh", "core.sbatch", "submit.sh")
GPU = "session_config.resources={learner: {gpu: 1}}"


@functools.cache
def experiment() -> Config:
    return RunRequest("configs/cartpole_dqn.yaml").resolve().config


def cluster(path: Path, *words: str) -> SlurmCluster:
    config = apply_overrides(experiment().copy(), words)
    return SlurmCluster(config, make_topology(config), RunFolder(path))


def options(text: str) -> dict[str, str]:
    """Returns the options of a batch script, without their dashes."""
    lines = re.findall(r"(?m)^#SBATCH (.*)$", text)
    words = [word for line in lines for word in re.findall(r"--\S+", line)]
    return {name[2:]: value for name, _, value in (word.partition("=") for word in words)}


@pytest.mark.parametrize("name", ["run", "a run's $HOME"])
def test_a_shell_takes_each_script(tmp_path: Path, name: str) -> None:
    own = cluster(tmp_path / name, 'session_config.launcher.preamble_cmd="module load cuda"')
    texts = own.scripts()
    assert sorted(texts) == sorted(FILES)
    for file, text in texts.items():
        path = tmp_path / file
        path.write_text(text)
        subprocess.run(["bash", "-n", str(path)], check=True, timeout=30)
    assert "\nmodule load cuda\n" in texts["core.sbatch"]


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck: install Debian's package shellcheck")
    for file, text in cluster(tmp_path / "a run", GPU).scripts().items():
        command = ["shellcheck", "--shell=bash", "-"]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert not done.stdout, f"{file}: {done.stdout}"


def test_a_notice_before_the_command_ends_it_at_once(tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    report = 'echo "notice $notice, code $code"'
    early = "kill -TERM $$"
    text = batch_script(str(tmp_path), {}, Resources(), "sleep 300", before=early, after=report)
    script.write_text(text)
    variables = {**os.environ, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "node"}
    done = subprocess.run(
        ["bash", str(script)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (143, "")
    assert done.stdout.endswith("notice 1, code 143\n")


# A controller that is away for a while, and a job that goes on.
AWAY = """#!/bin/bash
echo x >>"$0.calls"
[ "$(wc -l <"$0.calls")" -gt {times} ] || exit 1
echo {state}
"""


@pytest.mark.parametrize(
    ("times", "state", "said"),
    [(0, "RUNNING", "requeue 1"), (2, "RUNNING", "requeue 1"), (1, "COMPLETING", "")],
)
def test_a_controller_that_is_away_for_a_moment_is_asked_again(
    tmp_path: Path, times: int, state: str, said: str
) -> None:
    programs = {"squeue": AWAY.format(times=times, state=state), "sleep": "#!/bin/bash\n"}
    programs["scontrol"] = '#!/bin/bash\necho "$*" >"$0.said"\n'
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    text = array_script(str(tmp_path), {}, Resources(), ["bash", "-c", f"exit {GIVEN_UP}"])
    (tmp_path / "job.sbatch").write_text(text)
    (tmp_path / "token").write_text("secret")
    variables = {**os.environ, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "node"}
    variables["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sbatch")], env=variables, timeout=60, check=False
    )
    assert done.returncode == GIVEN_UP
    requeued = tmp_path / "scontrol.said"
    assert (requeued.read_text().strip() if requeued.exists() else "") == said


@pytest.mark.parametrize(("queue", "requeued"), [("7 1", True), ("1", False), ("", True)])
def test_agents_whose_core_has_left_the_queue_are_not_requeued(
    tmp_path: Path, queue: str, *, requeued: bool
) -> None:
    own = cluster(tmp_path / "run")
    own.jobs.mkdir(parents=True)
    (own.jobs / "core.job").write_text("7\n")
    (own.jobs / "token").write_text("secret")
    script = own.scripts()["agents.sbatch"]
    text = re.sub(r"(?m)^.* join .*&$", f"bash -c 'exit {GIVEN_UP}' &", script)
    # Without a word the controller does not answer.
    listed = f"printf '%s\\n' {queue}" if queue else "exit 1"
    answers = f'#!/bin/bash\ncase "$*" in *%T*) echo RUNNING ;; *) {listed} ;; esac\n'
    programs = {"squeue": answers, "scontrol": '#!/bin/bash\necho "$*" >"$0.said"\n'}
    for name, script in programs.items():
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o700)
    (tmp_path / "job.sbatch").write_text(text)
    variables = {**os.environ, "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "node"}
    variables["PATH"] = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(tmp_path / "job.sbatch")], env=variables, timeout=60, check=False
    )
    assert done.returncode == GIVEN_UP
    assert (tmp_path / "scontrol.said").exists() == requeued


def test_core_asks_for_all_but_its_agents(tmp_path: Path) -> None:
    texts = cluster(tmp_path / "run", "session_config.agent.num=8").scripts()
    core, agents = options(texts["core.sbatch"]), options(texts["agents.sbatch"])
    named = {name: core.get(name) for name in ("nodes", "cpus-per-task", "mem", "gpus", "signal")}
    assert named == {
        "nodes": "1",
        "cpus-per-task": "6",
        "mem": "11264M",
        "gpus": None,
        "signal": "B:TERM@120",
    }
    assert agents["array"] == "0-7%8"
    assert agents["signal"] == "B:TERM@30"
    assert (agents["cpus-per-task"], agents["mem"]) == ("1", "1024M")
    assert {"requeue", "open-mode"} <= core.keys() & agents.keys()


def test_core_has_the_gpu_of_its_learner(tmp_path: Path) -> None:
    texts = cluster(tmp_path / "run", GPU).scripts()
    assert options(texts["core.sbatch"])["gpus"] == "1"
    assert "gpus" not in options(texts["agents.sbatch"])


def test_agents_have_settings_of_their_own_and_else_those_of_the_core(tmp_path: Path) -> None:
    own = cluster(
        tmp_path / "run",
        "session_config.slurm.partition=gpu",
        "session_config.slurm.account=robots",
        "session_config.slurm.time=4:00:00",
        "session_config.slurm.sbatch=--qos=high --exclusive",
        "session_config.slurm.agents.partition=spot",
        "session_config.slurm.agents.time=1-0",
    )
    core, agents = (options(own.scripts()[f"{name}.sbatch"]) for name in ("core", "agents"))
    names = ("partition", "account", "time", "qos")
    assert [core[name] for name in names] == ["gpu", "robots", "4:00:00", "high"]
    assert [agents[name] for name in names] == ["spot", "robots", "1-0", "high"]
    assert "exclusive" in core


def test_a_setting_of_several_lines_is_refused(tmp_path: Path) -> None:
    own = cluster(tmp_path / "run", 'session_config.slurm.sbatch="--qos=x\\nrm"')
    with pytest.raises(ConfigError, match=r"session_config\.slurm.* has several lines"):
        own.scripts()


def test_a_run_without_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs keys"):
        cluster(tmp_path / "run", "session_config.security.insecure=true")


def test_a_machine_without_slurm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/dev/null/bin")
    with pytest.raises(UsageError, match="no sbatch here"):
        check_launcher("slurm")


def test_plan_prints_the_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert surreal_like(["plan", "configs/cartpole_dqn.yaml", "--on", "slurm"]) == 0
    said = capsys.readouterr()
    assert re.findall(r"(?m)^# slurm/(\S+)$", said.out) == [
        *("core.sbatch", "agents.sbatch", "submit.sh", "cancel.sh")
    ]
    assert "the run requests 7.25 cores" in said.err
    assert "neither a goal nor a budget" not in said.err


@pytest.mark.parametrize("on", ["slurm", "ray"])
def test_plan_questions_a_run_without_an_end(capsys: pytest.CaptureFixture[str], on: str) -> None:
    words = ["plan", "--algorithm", "dqn", "--env", "gym:CartPole-v1", "--on", on]
    assert surreal_like(words) == 0
    said = capsys.readouterr().err
    assert "surreal-like: note: the run has neither a goal nor a budget" in said


def test_plan_prints_what_the_launcher_advises(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, _, name = launcher_of("slurm").advice.partition(":")
    monkeypatch.setattr(f"{module}.{name}", lambda config, names: [f"look at {names[0]}"])
    assert surreal_like(["plan", "configs/cartpole_dqn.yaml", "--on", "slurm"]) == 0
    assert "surreal-like: note: look at " in capsys.readouterr().err


@needs("join")
def test_plan_writes_a_folder_to_submit_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    words = ["plan", "configs/cartpole_dqn.yaml", "--on", "slurm", "--folder", str(path)]
    assert surreal_like(words) == 0
    assert f"then: bash {path}/slurm/submit.sh" in capsys.readouterr().out
    assert sorted(each.name for each in (path / "slurm").iterdir()) == sorted((*FILES, "token"))
    assert (path / "slurm" / "token").stat().st_mode & 0o777 == 0o600
    folder = RunFolder(path)
    assert (folder.launcher, folder.read_run()["part"]) == ("slurm", 0)
    assert not Topology.load(folder.topology).of_kind("agent")
    assert json.loads(folder.topology.read_text())["components"]
    assert surreal_like(words) == 2
    assert "is not empty" in capsys.readouterr().err
    assert surreal_like(["status", str(path)]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"(?m)^(learner|ps) +waiting", shown) == ["ps", "learner"]
    assert surreal_like(["stop", str(path)]) == 2
    assert f"to begin: bash {path}/slurm/submit.sh" in capsys.readouterr().err
