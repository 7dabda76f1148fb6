"""The command line itself: help, errors, numbers, tables, files that grow."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from main.cli import main
from main.cli.commands import all_commands, overview
from main.cli.plan import EXCHANGE_MS, EXCHANGE_MS_PER_MB
from main.cli.runs import all_runs, find_run
from main.cli.train import parse_seeds, process_start
from main.cli.watch import select
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.registry import list_detached
from session.process.heartbeat import Beat, State, write_beat
from session.show.run_view import state_of
from session.version import VERSION
from surreal_like.experiment import user_code
from surreal_like.experiment.find import learners_of
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.learner.joint import for_policies
from surreal_like.run.folder import held
from tests.add_ons import needs
from tests.main.conftest import Command, Said

ROOT = Path(__file__).parents[2]


def test_help_shows_every_command_in_its_group(command: Command) -> None:
    said = command("--help")
    assert said.code == 0
    assert said.out.strip() == overview()
    for each in all_commands():
        assert f"  {each.name} " in said.out
    headings = [line for line in said.out.splitlines() if line and line.endswith(":")]
    assert len(headings) == 4
    assert command().out == said.out


@pytest.mark.parametrize("name", [each.name for each in all_commands()])
def test_every_command_explains_itself(name: str, command: Command) -> None:
    said = command(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"usage: surreal-like {name}")


def test_launch_names_the_launchers_of_this_tree(command: Command) -> None:
    assert f"  --on {'|'.join(list_detached())}\n" in command("launch", "--help").out


def test_the_version_names_the_commit_of_a_checkout_of_the_library(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        line = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        return subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    plain = f"surreal-like {VERSION}\n"
    git("init")
    git("commit", "--allow-empty", "-m", "a")
    monkeypatch.chdir("/")
    monkeypatch.setattr(user_code, "_TOP", tmp_path)
    named = f"surreal-like {VERSION} (commit {git('rev-parse', 'HEAD')[:12]})\n"
    assert command("--version").out == named
    # Installed below the repository of another project.
    monkeypatch.setattr(user_code, "_TOP", tmp_path / ".venv" / "site-packages")
    assert command("--version").out == plain
    monkeypatch.setattr(user_code, "_TOP", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert command("--version").out == plain


def test_help_loads_nothing_heavy_and_little_of_its_own() -> None:
    code = "import sys, main.cli as c; c.main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    loaded = done.stdout.splitlines()[-1].split()
    assert not {"torch", "rich", "gymnasium", "numpy", "zmq"} & set(loaded)
    # Of each add-on what it declares; little else, which would make each command slower.
    own = [name for name in loaded if name.split(".")[0] in ("main", "session", "surreal_like")]
    assert len([name for name in own if ".addons" not in name]) <= 40


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    line = f"{sys.executable} -m main.cli --help | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_gives_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("main.cli.watch.show_status", interrupt)
    assert main(["status", "x"]) == 130


def test_process_start_is_that_of_this_process() -> None:
    now = time.time()
    # psutil knows the boot time in whole seconds only.
    assert process_start() == pytest.approx(psutil.Process(os.getpid()).create_time(), abs=1.1)
    assert process_start() < now


# -- seeds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"), [("1..3", [1, 2, 3]), ("7", [7]), ("1,4,9", [1, 4, 9]), ("0..0", [0])]
)
def test_seeds(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["1,1,1", "4,2,4"])
def test_a_seed_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"seed {text[0]} stands twice"):
        parse_seeds(text)


@pytest.mark.parametrize("word", ["gone.yaml", "configs/gone.yaml"])
def test_a_link_to_nowhere_is_never_proposed(command: Command, word: str, tmp_path: Path) -> None:
    (tmp_path / "gone.yaml").symlink_to("nowhere.yaml")
    said = command("plan", word)
    assert said.code == 2
    assert "mean gone.yaml" not in said.err
    assert ("it links to nowhere.yaml, which is gone" in said.err) == (word == "gone.yaml")


@pytest.mark.parametrize("text", ["3..1", "a..b", "1,,2", "", "-1", "1..", "..3"])
def test_seeds_of_no_kind(text: str) -> None:
    with pytest.raises(UsageError, match=r"1\.\.5"):
        parse_seeds(text)


# -- logs ---------------------------------------------------------------------------------------


def test_log_lines_are_chosen_by_level_with_what_continues_them() -> None:
    lines = [
        "2025-01-31 12:00:00.123 DEBUG    learner: a",
        "2025-01-31 12:00:00.124 ERROR    agent-0: b",
        "    Traceback",
        "2025-01-31 12:00:00.125 INFO     learner: c",
        "    more of c",
        "what is no log line",
    ]
    assert list(select(iter(lines), "warning")) == [*lines[1:3], lines[5]]
    assert list(select(iter(lines), "debug")) == lines


# -- which run is meant ---------------------------------------------------------------------------


def make_runs(folder: Path, *names: str) -> None:
    for age, name in enumerate(reversed(names)):
        config = folder / "runs" / name / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text("algorithm: dqn\n")
        os.utime(config, (1e9 - age, 1e9 - age))


def test_a_run_is_found_by_name_by_path_and_as_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert all_runs() == []
    make_runs(tmp_path, "b-1", "a-1", "c-1")
    (tmp_path / "runs" / "no-run").mkdir()
    assert [run.path.name for run in all_runs()] == ["b-1", "a-1", "c-1"]
    assert find_run("latest").path == Path("runs/c-1")
    assert find_run("a-1").path == Path("runs/a-1")
    assert find_run("runs/a-1").path == Path("runs/a-1")
    assert find_run(str(tmp_path / "runs" / "b-1")).path == tmp_path / "runs" / "b-1"
    with pytest.raises(UsageError, match="did you mean a-1"):
        find_run("a-2")


def test_a_run_of_one_seed_is_found_below_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_runs(tmp_path, "one/seed-1")
    assert find_run("one/seed-1").path == Path("runs/one/seed-1")
    assert find_run("./runs/one/seed-1").path == Path("runs/one/seed-1")
    with pytest.raises(UsageError, match=r"no run '\./one/seed-1'"):
        find_run("./one/seed-1")
    # One of this name in the present folder: which is meant has to be said.
    (tmp_path / "one" / "seed-1").mkdir(parents=True)
    (tmp_path / "one" / "seed-1" / "config.yaml").write_text("algorithm: dqn\n")
    with pytest.raises(UsageError, match=r"two runs .* write \./one/seed-1"):
        find_run("one/seed-1")
    assert find_run("./one/seed-1").path == Path("one/seed-1")


def test_the_state_of_a_run_in_a_word(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "r")
    folder.create()
    assert state_of(folder) == "planned"
    beat = Beat("learner", 1, State.running, 1, time.time())
    write_beat(folder.alive, beat)
    assert state_of(folder) == "running"
    write_beat(folder.alive, replace(beat, time=time.time() - 60, boot=-1.0))
    assert state_of(folder) == "cut off"
    # Scripts leave no result.
    write_beat(folder.alive, replace(beat, state=State.done, time=time.time() - 60, boot=-1.0))
    assert state_of(folder) == "ended"
    folder.progress.touch()
    assert state_of(folder) == "cut off"
    for status, goal_met, state in (
        ("running", None, "cut off"),
        ("failed", None, "failed"),
        ("interrupted", False, "interrupted"),
        ("stopped", True, "goal met"),
        ("stopped", False, "goal not met"),
        ("stopped", None, "done"),
    ):
        folder.result.write_text(json.dumps({"status": status, "goal_met": goal_met}))
        assert state_of(folder) == state
    with held(folder.path, resume=True):
        assert state_of(folder) == "running"


# -- lists and plans ------------------------------------------------------------------------------


def test_lists(command: Command) -> None:
    shown = command("list", "algorithms").out
    rows = {line.split()[0]: line for line in shown.splitlines()[1:] if line}
    assert "discrete, multi_discrete, continuous   unrolls: FIFOReplay" in rows["ppo"]
    assert "lstm or gru" in rows["ppo"]
    assert "continuous within bounds" in rows["sac"]
    assert "rows: UniformReplay or PrioritizedReplay   none" in rows["dqn"]
    assert "images" in shown
    environments = command("list", "environments").out.splitlines()
    assert "toy:chain" in environments
    assert "gym:CartPole-v1" in environments
    specs = command("list", "environments", "--specs", "gym:CartPole-v1").out
    assert specs.splitlines() == [
        "env_config:",
        "  env_name: gym:CartPole-v1",
        "  obs_spec:",
        "    type: float32",
        "    dim: [4]",
        "  action_spec:",
        "    type: discrete",
        "    dim: [2]",
    ]
    agents = yaml.safe_load(command("list", "environments", "--specs", "toy:multi_cartpole").out)
    assert list(agents["env_config"]["agents"]) == ["cart_0", "cart_1"]
    assert agents["env_config"]["agents"]["cart_1"]["obs_spec"] == {"type": "float32", "dim": [4]}
    experiments = command("list", "experiments").out
    assert re.search(r"^cartpole_dqn +gym:CartPole-v1 +dqn +475 +\d+\.\d s$", experiments, re.M)
    assert "no runs" in command("list", "runs").out


def test_init_writes_files_that_stand(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    said = command("init", "a project")
    assert said.code == 0
    assert said.out.startswith("cd 'a project'\n")
    files = {path.name: path.read_text() for path in Path("a project").iterdir()}
    assert sorted(files) == ["environment.py", "experiment.yaml", "test_environment.py"]
    monkeypatch.chdir("a project")
    Path("environment.py").unlink()
    refused = command("init", ".")
    assert refused.code == 2
    assert "experiment.yaml and test_environment.py: nothing is written" in refused.err
    assert not Path("environment.py").exists()
    Path("environment.py").write_text(files["environment.py"])
    checked = command("check", "experiment.yaml", "--steps", "100")
    assert (checked.code, checked.err) == (0, "")


@pytest.mark.usefixtures("quick")
def test_plan_says_what_several_learners_exchange_and_when_they_pay(command: Command) -> None:
    said = command("plan", "small.yaml", "session_config.learner.num=2")
    assert said.code == 0, said.err
    facts, components = said.out.split("\n\n")[:2]
    row = next(line for line in facts.splitlines() if line.startswith("learners "))
    found = re.fullmatch(
        r"learners +2 that add up gradients: (\d+) B a step, faster than one where that takes "
        r"(.+) ms",
        row,
    )
    assert found is not None, row
    exchange = EXCHANGE_MS + EXCHANGE_MS_PER_MB * int(found[1]) / 1e6
    assert float(found[2]) == pytest.approx(2 * exchange, abs=0.06)
    assert "learner-1 " in components
    assert "learners " not in command("plan", "small.yaml").out


@pytest.mark.usefixtures("quick")
def test_plan_shows_components_and_starts_nothing(command: Command, tmp_path: Path) -> None:
    said = command("plan", "small.yaml", "--agents", "3")
    assert said.code == 0, said.err
    components, dataflow = said.out.split("\n\n")[1:]
    assert [line.split()[0] for line in components.splitlines()[1:]] == [
        *("loggerplex", "tensorplex", "ps", "replay-0", "learner"),
        *("agent-0", "agent-1", "agent-2", "eval-0"),
    ]
    operators = ["replay", "train_one_step", "learn_moments", "update_target", "update_priorities"]
    assert [line.strip() for line in dataflow.splitlines()] == [
        "dataflow of the learner",
        *operators,
    ]
    assert "2,000 rows of 65 B: 130 kB" in said.out
    assert "torso          hidden_sizes [" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml"]


MINE = """
from torch import nn

class Own(nn.Module):
    def __init__(self, obs_spec, width):
        super().__init__()
        self.layer = nn.Linear(obs_spec["dim"][0], width)
        self.out_features = width

    def forward(self, obs):
        return self.layer(obs)

def stages(progress, task):
    return {"size": 2}
"""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (
            ("learner_config.model={torso: mine.py:Own, torso_args: {width: 4}}",),
            "torso          mine.py:Own {width: 4}\n",
        ),
        pytest.param(
            ("env_config.curriculum=mine.py:stages",),
            "curriculum     mine.py:stages\n",
            marks=needs("curriculum"),
        ),
    ],
)
def test_plan_names_the_code_of_a_user(
    command: Command, tmp_path: Path, words: tuple[str, ...], shown: str
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    said = command("plan", "small.yaml", *words)
    assert said.code == 0, said.err
    assert shown in said.out
    assert ("curriculum" in said.out) == ("curriculum" in shown)


@pytest.mark.slow
def test_plan_shows_every_policy(command: Command) -> None:
    said = command("plan", str(ROOT / "configs" / "multi_cartpole_mixed.yaml"))
    assert said.code == 0, said.err
    facts, components, dataflow = said.out.split("\n\n")
    shown = dict(re.split(" {2,}", line, maxsplit=1) for line in facts.splitlines())
    assert shown["algorithm"] == "left ppo, right dqn"
    assert re.fullmatch(r"left .* rows of .* B: .*, right .* rows of .* B: .*", shown["replay"])
    assert shown["stop"].startswith("eval_returns left 150, right 150, ")
    [learner] = [line for line in components.splitlines() if line.startswith("learner ")]
    assert "  learner-left.parameters, learner-right.parameters, control  " in learner
    lines = dataflow.splitlines()
    assert lines[1] == "  - rollouts(left)"
    assert "  - replay(right)" in lines
    assert lines[-1] == "  concurrently(each)"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [None, "weighted"])
def test_plan_shows_what_the_learner_runs(
    command: Command, tmp_path: Path, plan: str | None
) -> None:
    (tmp_path / "plans.py").write_text(
        "from surreal_like.dataflow import concurrently\n"
        "def weighted(learners):\n"
        "    flows = [each.execution_plan() for each in learners.values()]\n"
        "    return concurrently(flows, round_robin_weights=[2, 1])\n"
    )
    experiment = str(ROOT / "configs" / "multi_cartpole_mixed.yaml")
    words = [f"policies_plan={tmp_path / 'plans.py'}:{plan}"] if plan else []
    said = command("plan", experiment, *words)
    assert said.code == 0, said.err
    shown = [line.removeprefix("  ") for line in said.out.splitlines()]
    config = resolve(read_experiment(experiment, words))
    runs = for_policies(learners_of(config, RunFolder(tmp_path))).outline()
    assert shown[-len(runs) :] == runs
    assert runs[-1] == f"concurrently({'round_robin 2:1' if plan else 'each'})"


@pytest.mark.slow
def test_plan_says_what_the_state_costs_in_each_row(command: Command) -> None:
    words = ("--algorithm", "ppo", "--env", "tests.surreal_like.env.joint_samples:Stated")
    path = f"session_config.import_path=[{ROOT}]"
    said = command("plan", *words, path, "env_config.observe_state=true")
    assert said.code == 0, said.err
    assert ", 8 B of each the state\n" in said.out
    assert "the state" not in command("plan", *words, path).out


SUMS = {
    "local": ("--on", "local"),
    "tmux": ("--on", "tmux"),
    "shell": ("--format", "shell"),
    "procfile": ("--format", "procfile"),
    "mermaid": ("--format", "mermaid"),
    "kubernetes": ("--on", "kubernetes"),
    "kubernetes, mermaid": ("--on", "kubernetes", "--format", "mermaid"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("how", SUMS)
def test_plan_shows_what_all_processes_request(how: str, command: Command) -> None:
    each = "session_config.resources.agent={cpu: 1.5, memory_bytes: 1_000_000_000, gpu: 1}"
    few, many = (
        command("plan", "small.yaml", each, "--agents", number, *SUMS[how])
        for number in ("2", "12")
    )
    cores, gigabytes, gpus, processes = zip(*(_sums(said) for said in (few, many)), strict=True)
    assert cores[1] - cores[0] == 10 * 1.5
    assert abs(gigabytes[1] - gigabytes[0] - 10) < 0.2
    assert gpus == (2, 12)
    assert processes[1] - processes[0] == 10


def _sums(said: Said) -> tuple[float, float, int, int]:
    form = r"requests +([\d.]+) cores, ([\d.]+) GB of memory, (\d+) GPUs for (\d+) processes"
    ((cores, gigabytes, gpus, processes),) = re.findall(form, said.out + said.err)
    return float(cores), float(gigabytes), int(gpus), int(processes)


def test_plan_explains_what_decided(command: Command) -> None:
    said = command("plan", "small.yaml", "--explain", "--seed", "5", "learner_config.algo.n_step=2")
    settings, stages, *_ = said.out.split("\n\n")
    rows = {line.split()[0]: line.split(maxsplit=2)[1:] for line in settings.splitlines()}
    assert [line.split("  ")[0] for line in stages.splitlines()] == [
        *("pipeline", "relabel goals", "stack frames", "each reward"),
        *("sum of n steps", "scale of rewards", "observations", "bonus of parts"),
    ]
    assert rows["session_config.seed"] == ["5", "command line"]
    assert rows["learner_config.algo.n_step"] == ["2", "command line"]
    assert rows["learner_config.replay.capacity"] == ["2000", "small.yaml"]
    assert rows["learner_config.algo.huber_kappa"] == ["1.0", "algorithm dqn"]
    assert rows["learner_config.algo.gamma"] == ["0.99", "default"]


def test_plan_shows_a_newcomer_at_most_130_settings(command: Command) -> None:
    out = command("plan", str(ROOT / "configs" / "cartpole_dqn.yaml"), "--explain").out
    assert 100 < sum("_config." in line for line in out.splitlines()) <= 130


def test_plan_explains_which_settings_have_no_effect(command: Command) -> None:
    given = "learner_config.replay.priority.alpha=0.5"
    lines = command("plan", "small.yaml", "--explain", given).out.splitlines()
    rows = {line.split()[0]: line for line in lines if "_config." in line}
    assert rows["learner_config.replay.priority.alpha"].endswith("  command line, no effect")
    assert "learner_config.replay.priority.initial" not in rows
    assert [line for line in lines if line.startswith("no effect here, so not shown: ")]
    both = "learner_config.replay.type=PrioritizedReplay"
    lines = command("plan", "small.yaml", "--explain", given, both).out.splitlines()
    rows = {line.split()[0]: line for line in lines if "_config." in line}
    assert rows["learner_config.replay.priority.alpha"].endswith("  command line")
    assert rows["learner_config.replay.priority.initial"].endswith("  default")
    assert "learner_config.replay.priority.beta.start" in rows
    assert "learner_config.replay.priority.beta.end" not in rows


@needs("gateway")
@needs("kubernetes")
def test_plan_explains_settings_of_add_ons_where_one_is_given(command: Command) -> None:
    """So the settings of what a run does not have hide none of those that it has."""
    given = "session_config.gateway.num=1"
    found = [command("plan", "small.yaml", "--explain", *words).out for words in ((), (given,))]
    rows = [{line.split()[0] for line in out.splitlines() if "_config." in line} for out in found]
    assert not [each for each in rows[0] if "kubernetes" in each or "gateway" in each]
    assert rows[0] < rows[1]
    assert all(each.startswith("session_config.gateway.") for each in rows[1] - rows[0])
    unnamed = [out.rpartition("not named, so not shown: ")[2] for out in found]
    assert ["gateway" in each for each in unnamed] == [True, False]
    assert all("kubernetes" in each for each in unnamed)


@needs("kubernetes")
def test_a_long_value_does_not_hide_what_decided(command: Command) -> None:
    labels = ["cloud.example.org/a-rather-long-label=true", "x" * 150]
    setting = f"session_config.kubernetes.spot_labels={json.dumps(labels)}"
    _, *lines = command("plan", "small.yaml", "--explain", setting).out.splitlines()
    assert max(map(len, lines)) <= 120
    place = next(i for i, line in enumerate(lines) if "spot_labels" in line)
    assert lines[place].endswith("   command line")
    below = [line.strip() for line in lines[place + 1 :]]
    count = next(i for i, line in enumerate(below) if line.startswith("session_config"))
    value = lines[place].removesuffix("command line").split(maxsplit=1)[1] + "".join(below[:count])
    assert "".join(value.split()) == json.dumps(labels, separators=(",", ":"))


@pytest.mark.usefixtures("quick")
def test_plan_takes_specs_where_the_environment_is_not_installed(
    command: Command, without_box2d: None, tmp_path: Path
) -> None:
    lander = ("plan", "small.yaml", "env_config.env_name=gym:LunarLander-v3")
    said = command(*lander)
    assert said.code == 2
    assert "list environments --specs gym:LunarLander-v3" in said.err
    said = command(
        *lander,
        "env_config.obs_spec={type: float32, dim: [8]}",
        "env_config.action_spec={type: discrete, dim: [4]}",
    )
    assert said.code == 0, said.err
    assert "{type: discrete, dim: [4]}" in said.out


@pytest.mark.usefixtures("quick")
def test_plan_writes_the_folder_that_its_lines_need(command: Command, tmp_path: Path) -> None:
    said = command("plan", "small.yaml", "--format", "procfile", "--folder", "by_hand")
    lines = dict(line.split(": ", 1) for line in said.out.splitlines())
    assert list(lines)[:3] == ["loggerplex", "tensorplex", "ps"]
    assert lines["agent-1"].endswith("-P -m main.agent --name agent-1 --folder by_hand")
    written = {path.name for path in (tmp_path / "by_hand").iterdir()}
    assert {"config.yaml", "topology.json", "addresses.json", "logs", "alive"} <= written
    assert "learner.control" in json.loads((tmp_path / "by_hand/addresses.json").read_text())
    said = command("plan", "small.yaml", "--format", "shell")
    assert said.out.count("-P -m main.") == 8
    assert len(list((tmp_path / "runs").iterdir())) == 1
    before = "session_config.launcher.preamble_cmd=source x;"
    said = command("plan", "small.yaml", "--on", "tmux", "--format", "shell", before)
    assert said.out.count("\n{ source x; } && ") == 8


@pytest.mark.root
def test_the_first_process_of_a_container_can_be_ended_while_it_imports() -> None:
    line = "import main; print('imports', flush=True); import time; time.sleep(60.0)"
    prefix = ("unshare", "--pid", "--fork", "--kill-child")
    with subprocess.Popen(
        [*prefix, sys.executable, "-P", "-c", line], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "imports\n"
        (first,) = psutil.Process(process.pid).children()
        first.terminate()
        try:
            assert process.wait(10.0) == 128 + signal.SIGTERM
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("wrong_samples:Exits", r"SystemExit\(3\), in Exits.__init__ \("),
        ("samples:Broken", r"OSError\('no robot at port 7'\), in Broken.__init__ \("),
    ],
)
def test_a_users_code_that_fails_or_exits_is_one_line(
    command: Command, env: str, words: str
) -> None:
    said = command("list", "environments", "--specs", f"tests.surreal_like.env.{env}")
    assert said.code == 1
    assert re.fullmatch(
        rf"surreal-like: error: the experiment's code failed: {words}.*\n", said.err
    )


def test_an_error_of_this_library_keeps_its_traceback(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("main.cli._find", len)
    with pytest.raises(AttributeError):
        command("status")
