"""`train` as a function: what it returns, what it writes, how it goes on, how it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from session.config import Config
from session.config.named_code import as_overrides
from session.config.sections import sections_of
from session.errors import UsageError
from session.folder import RunFolder
from session.launchers.instruction import Event
from surreal_like import train
from surreal_like.addons.gradients.a3c import A3C
from surreal_like.experience.chunk import GRADIENT
from surreal_like.experiment.machine import (
    check_memory,
    check_ports,
    find_available_bytes,
    replay_need,
)
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.user_code import edited_files, keep_code, keep_package_list
from surreal_like.learner.publisher import Publisher
from surreal_like.run.folder import experiment_name, held, new_path, newest_path
from surreal_like.run.observer import Interrupts, RunObserver
from surreal_like.run.resume import changes, check_same, reached
from surreal_like.run.train import Run
from tests.add_ons import needs
from tests.session.made_run import made_line

SMALL = {
    "learner_config.replay.min_size": 64,
    "learner_config.replay.batch_size": 16,
    "learner_config.model.hidden_sizes": [16],
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
    "session_config.stop": {"env_steps": 400, "eval_episodes": 4},
}
# For a run that goes on.
LONGER = SMALL | {"session_config.stop.env_steps": 3000}

ALGORITHM = """\
from surreal_like.algorithm.dqn import DQN
from tests.session.made_run import made_line


class Mine(DQN):
    pass
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def small(
    folder: str = "r",
    *,
    watch: RunObserver | None = None,
    changed: Mapping[str, Any] = MappingProxyType({}),
    algorithm: str = "dqn",
) -> Run:
    run: Run = train(
        algorithm=algorithm,
        env="toy:chain",
        overrides={**SMALL, **changed},
        launcher="serial",
        folder=folder,
        watch=watch,
    )
    return run


def test_a_budget_that_is_used_before_the_first_update_is_a_failure() -> None:
    changed = {
        "session_config.stop": {"seconds": 0.5, "eval_episodes": 1},
        "learner_config.replay.min_size": 50_000,
    }
    run = small(changed=changed)
    assert (run.result["status"], run.exit_code) == ("failed", 1)
    reason = str(run.result["reason"])
    assert reason.startswith("budget of 0.5 seconds used before the first update: ")
    assert run.result["iterations"] == 0


def test_a_budget_of_steps_below_the_first_update_ends_with_it() -> None:
    run = small(changed={"session_config.stop": {"env_steps": 10, "eval_episodes": 1}})
    assert (run.result["status"], run.exit_code) == ("stopped", 0)
    assert int(str(run.result["iterations"])) >= 1


# -- a run ----------------------------------------------------------------------------------------


def test_a_run_has_result_progress_and_folder() -> None:
    run = small()
    assert run.ok
    assert run.exit_code == 0
    assert run.folder == Path("r")
    assert run.result["status"] == "stopped"
    assert run.result == json.loads(Path("r/result.json").read_text())
    assert run.progress()[-1]["env_steps"] == run.result["env_steps"] >= 400
    config = Config.load_file("r/config.yaml")
    began = {"started": 0.0, "first_started": 0.0, "seconds_before": 0.0}
    assert config.run.pop("id")
    assert config.run == {**began, "launcher": "serial"}
    assert config.session_config.folder == "r"
    assert "numpy==" in Path("r/code/packages.txt").read_text()
    assert not Path("r/.lock").exists()


def test_two_runs_with_one_seed_are_identical_and_another_seed_is_not() -> None:
    def lines_of(run: Run) -> list[str]:
        return [
            re.sub(r'"\w+_(seconds|per_second)": [^,}]+', "", json.dumps(line))
            for line in run.progress()
        ]

    def parameters(run: Run) -> bytes:
        (path,) = run.folder.glob("checkpoints/learner/*/params.safetensors")
        return path.read_bytes()

    one, two = small("one"), small("two")
    other = small("other", changed={"session_config.seed": 1})
    assert parameters(one) == parameters(two) != parameters(other)
    assert lines_of(one) == lines_of(two) != lines_of(other)


@pytest.mark.slow
def test_a_serial_run_leaves_the_threads_of_torch_as_they_were() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        small()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"status": "stopped", "goal_met": True}, 0),
        ({"status": "stopped", "goal_met": None}, 0),
        ({"status": "stopped", "goal_met": False}, 3),
        ({"status": "failed"}, 1),
        ({"status": "interrupted", "goal_met": False}, 130),
        ({"status": "running"}, 1),
        ({}, 1),
    ],
)
def test_exit_codes(result: dict[str, Any], code: int) -> None:
    assert Run(Path("x"), result).exit_code == code
    assert Run(Path("x"), result).ok == (code == 0)
    assert Run(Path("x"), result).progress() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a.b": 1, "c": None, "d": {"e": [1.5, "x"]}}, ["a.b=1", "c=null", "d={e: [1.5, x]}"]),
        ({"a": Path("x/y")}, ["a=x/y"]),
        (["a.b=1"], ["a.b=1"]),
        ((), []),
        ("a.b=1", ["a.b=1"]),
        ({"a.b": Publisher}, ["a.b=surreal_like.learner.publisher:Publisher"]),
        ({"a": {"b": [A3C]}}, ["a={b: ['surreal_like.addons.gradients.a3c:A3C']}"]),
    ],
)
def test_overrides_as_words(given: Any, words: list[str]) -> None:
    assert as_overrides(given) == words


@pytest.mark.slow
def test_options_are_overrides_too(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no launcher 'nowhere'"):
        train(algorithm="dqn", env="toy:chain", launcher="nowhere")
    run = train(
        algorithm="dqn",
        env="toy:chain",
        overrides=SMALL,
        launcher="serial",
        seed=3,
        agents=1,
        evals=0,
    )
    assert re.fullmatch(r"runs/dqn-chain-\d{8}-\d{6}", str(run.folder))
    assert run.result["seed"] == 3
    assert "agent-1" not in run.result["components"]
    assert "eval-0" not in run.result["components"]


@pytest.mark.slow
def test_a_config_may_name_the_folder() -> None:
    run = train(
        algorithm="dqn",
        env="toy:chain",
        overrides=SMALL | {"session_config.folder": "there"},
        launcher="serial",
    )
    assert run.folder == Path("there")


class Recorder(RunObserver):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def prepare(self, path: Path) -> None:
        self.calls.append(f"prepare {path}")

    def begin(self, folder: RunFolder, config: Config) -> None:
        assert folder.config.exists()
        self.calls.append(f"begin {config.algorithm}")

    def on_message(self, text: str) -> None:
        self.calls.append(text)

    def on_event(self, event: Event) -> None:
        self.calls.append(event.kind)

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        assert components["learner"]["restarts"] == 0
        if self.calls[-1] != "look":
            self.calls.append("look")

    def end(self) -> None:
        self.calls.append("end")


@pytest.mark.slow
def test_an_observer_is_called_in_order() -> None:
    watch = Recorder()
    small(watch=watch)
    first, second, *others, last = watch.calls
    assert (first, second, last) == ("prepare r", "begin dqn", "end")
    assert set(others) == {"look", "ended"}
    watch = Recorder()
    with pytest.raises(UsageError):
        small("s", watch=watch, changed={"learner_config.replay.capacity": 10**12})
    assert watch.calls[-1] == "end"


@pytest.mark.slow
def test_a_run_does_not_die_of_how_it_is_shown() -> None:
    class Broken(RunObserver):
        def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
            raise ZeroDivisionError("drawn badly")

    with pytest.warns(RuntimeWarning, match="Broken has failed.*drawn badly"):
        run = small(watch=Broken())
    assert run.ok


class Impatient(Recorder):
    """Presses Ctrl-C as soon as something runs."""

    def __init__(self, number: signal.Signals, times: int) -> None:
        super().__init__()
        self.number, self.times = number, times

    def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
        if self.times:
            self.times -= 1
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(
    ("number", "times"),
    [
        (signal.SIGINT, 1),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_ends_with_130_and_goes_on(number: signal.Signals, times: int) -> None:
    budget = {"session_config.stop": {"env_steps": 10**9}}
    run = small(watch=Impatient(number, times), changed=budget)
    assert run.exit_code == 130
    assert run.result["status"] == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = train(
        folder="r",
        resume=True,
        launcher="serial",
        overrides={"session_config.stop.env_steps": run.result.get("env_steps", 0) + 500},
    )
    assert again.ok


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_ends_at_once_does_not_list_packages(times: int) -> None:
    class Interrupting(RunObserver):
        def on_components(self, components: Mapping[str, Mapping[str, Any]]) -> None:
            while left:
                signal.raise_signal(left.pop())

    left = [signal.SIGINT] * times
    run = small(watch=Interrupting(), changed={"session_config.stop": {"env_steps": 10**9}})
    assert run.exit_code == 130
    assert Path("r/code/packages.txt").is_file() == (times == 1)


def test_an_interrupt_while_it_is_prepared_leaves_nothing() -> None:
    class Early(RunObserver):
        def prepare(self, path: Path) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        small("runs/r", watch=Early())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("signals", "count", "terminated"),
    [
        ([signal.SIGTERM], 1, True),
        ([signal.SIGINT], 1, False),
        ([signal.SIGTERM, signal.SIGTERM], 1, True),
        ([signal.SIGINT, signal.SIGINT], 2, False),
        ([signal.SIGINT, signal.SIGTERM], 2, False),
        ([signal.SIGTERM, signal.SIGINT], 2, False),
        ([], 0, False),
    ],
)
def test_interrupts_tell_a_user_from_a_notice(
    signals: list[int], count: int, terminated: bool
) -> None:
    with Interrupts() as interrupts:
        interrupts.only_count()
        for each in signals:
            os.kill(os.getpid(), each)
        assert (interrupts.count, interrupts.terminated) == (count, terminated)


def test_a_signal_that_came_before_interrupts_raise_again_is_raised_then() -> None:
    with Interrupts() as interrupts:
        interrupts.only_count()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            interrupts.raise_again()


def test_interrupts_are_handled_in_the_main_thread_only() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.only_count()
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.count == 2
    assert signal.getsignal(signal.SIGINT) is before

    def elsewhere() -> None:
        with Interrupts():
            assert signal.getsignal(signal.SIGINT) is before

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("resume", [False, True])
def test_where_the_launch_is_refused_everything_is_as_before(
    resume: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(ALGORITHM)
    options: dict[str, Any] = {
        "algorithm": "mine.py",
        "env": "toy:chain",
        "launcher": "serial",
        "folder": "r",
    }
    if resume:
        train(overrides=SMALL, **options)
        Path("mine.py").write_text(ALGORITHM + "# edited\n")

    def files() -> dict[str, bytes]:
        return {
            str(p): p.read_bytes()
            for p in Path().rglob("*")
            if p.suffix in (".json", ".yaml", ".py")
        }

    def refuse(self: object) -> None:
        raise UsageError("an address is in use")

    monkeypatch.setattr("session.launchers.serial.SerialLauncher.launch", refuse)
    before = files()
    with pytest.raises(UsageError, match="an address is in use"):
        train(overrides=LONGER, resume=resume, allow_change=["algorithm"], **options)
    assert files() == before
    assert Path("r").exists() == resume


# -- its folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "algorithm", "env", "name"),
    [
        ("cartpole_dqn.yaml", "dqn", "gym:CartPole-v1", "cartpole_dqn"),
        ("cartpole_dqn.yaml", "dqn", "gym:Acrobot-v1", "cartpole_dqn-Acrobot-v1"),
        ("cartpole_dqn.yaml", "ppo", "gym:CartPole-v1", "cartpole_dqn-ppo"),
        ("my exp!.yaml", "dqn", "gym:CartPole-v1", "my-exp"),
        (None, "dqn", "gym:CartPole-v1", "dqn-CartPole-v1"),
        (None, "a/b/mine.py", "ns:module:Env", "mine-Env"),
        (None, "pack.mod:Class", "toy:chain", "Class-chain"),
    ],
)
def test_names(tmp_path: Path, file: str | None, algorithm: str, env: str, name: str) -> None:
    path = tmp_path / file if file is not None else None
    if path is not None:
        path.write_text("algorithm: dqn\nenv_config: {env_name: 'gym:CartPole-v1'}\n")
    user = Config({"algorithm": algorithm, "env_config": {"env_name": env}})
    assert experiment_name(path, user) == name


def test_a_new_path_is_free_and_the_newest_is_found() -> None:
    first = new_path("a")
    first.mkdir(parents=True)
    second = new_path("a")
    assert second != first
    with pytest.raises(UsageError, match="runs/a-"):
        newest_path("a")
    for age, name in enumerate(("a-20250101-000000", "a-b-20250101-000000", "a-20240101-000000")):
        config = Path("runs", name, "config.yaml")
        config.parent.mkdir()
        config.touch()
        os.utime(config, (1e9 - age, 1e9 - age))
    assert newest_path("a").name == "a-20250101-000000"
    assert newest_path("a-b").name == newest_path("a-b").name == "a-b-20250101-000000"
    os.utime("runs/a-20240101-000000/config.yaml", (2e9, 2e9))
    assert newest_path(None).name == newest_path("a").name == "a-20240101-000000"


def test_a_folder_that_came_to_nothing_goes_with_the_parents_it_made() -> None:
    with held(Path("x/y/z"), resume=False) as folder:
        assert folder.in_use
        with pytest.raises(UsageError, match="not empty"), held(folder.path, resume=False):
            pass
        with pytest.raises(UsageError, match="in use"), held(folder.path, resume=True):
            pass
        assert folder.in_use
    assert not Path("x").exists()
    with held(Path("x/y/z"), resume=False) as folder:
        folder.config.touch()
    assert folder.config.exists()
    assert not folder.in_use


# -- going on -------------------------------------------------------------------------------------


def test_what_differs_is_listed_by_its_key() -> None:
    before = Config({"algorithm": "a", "env_config": {"x": 1, "y": [1] * 40}, "session_config": {}})
    now = before.copy()
    assert changes(before, now, before) == {}
    now.env_config.y = [1] * 39 + [2]
    now.env_config.z = 5
    del now.env_config["x"]
    found = changes(before, now, ["algorithm", "env_config"])
    assert list(found) == ["env_config.x", "env_config.y", "env_config.z"]
    assert found["env_config.x"] == ("1", "absent")
    assert found["env_config.z"] == ("absent", "5")


@pytest.mark.parametrize(
    ("section", "key", "value", "differs"),
    [
        ("learner_config", "model", {"frozen": []}, False),
        ("learner_config", "algo", {"normalize_advantages_per": "batch"}, False),
        ("learner_config", "algo", {"normalized_reward_clip": 5.0}, True),
        ("learner_config", "algo", {"clip": {"kind": "constant", "start": 0.2, "end": 0}}, False),
        ("learner_config", "algo", {"clip": {"kind": "constant", "start": 0.1}}, True),
        ("learner_config", "algo", {"clip": {"kind": "linear", "start": 0.2}}, True),
        ("learner_config", "model", {"frozen": ["torso"]}, True),
        ("env_config", "seats", "shuffled", False),
        ("env_config", "seats", "fixed", True),
    ],
)
def test_the_default_of_a_key_that_came_later_is_no_change(
    section: str, key: str, value: object, differs: bool
) -> None:
    before = Config({section: {"model": {"memory": ""}, "algo": {"clip": 0.2}}})
    now = Config(before.to_dict())
    if isinstance(value, dict):
        now[section][key] |= value
    else:
        now[section][key] = value
    assert bool(changes(before, now, [section])) is differs
    assert (before.fingerprint() != now.fingerprint()) is differs


def test_an_allowed_section_allows_what_is_below_it_only() -> None:
    before = Config({"algorithm": "a", "learner_config": {"algo": {"x": 1}, "algorithm": 1}})
    now = Config({"algorithm": "a", "learner_config": {"algo": {"x": 2}, "algorithm": 2}})
    folder = RunFolder("r")
    with pytest.raises(UsageError, match=r"learner_config\.algorithm was 1, is 2") as refused:
        check_same(before, now, folder, ["learner_config.algo"])
    assert "algo.x" not in str(refused.value)
    assert len(check_same(before, now, folder, ["learner_config"])) == 2


def test_seconds_go_on_where_the_run_was_cut_off() -> None:
    folder = RunFolder("r")
    assert reached(folder, "wall_seconds") == 0.0
    folder.create()
    lines = [json.dumps(made_line(steps)) for steps in (100, 250)]
    folder.progress.write_text("\n".join([*lines, '{"wall_sec']))
    assert reached(folder, "wall_seconds") == 2.5
    folder.result.write_text('{"status": "running", "wall_seconds": 3.0}')
    assert reached(folder, "wall_seconds") == 3.0


@pytest.mark.slow
def test_a_resumed_run_keeps_its_identity_and_its_clock() -> None:
    class Beginning(RunObserver):
        def begin(self, folder: RunFolder, config: Config) -> None:
            assert not folder.over

    first = small()
    identity = Config.load_file("r/config.yaml").run.id
    Path("r").rename("moved")
    again = train(
        folder="moved",
        resume=True,
        launcher="serial",
        overrides={"session_config.stop.env_steps": 2000},
        watch=Beginning(),
    )
    assert again.result["run_id"] == first.result["run_id"]
    run = Config.load_file("moved/config.yaml").run
    assert run.id == identity != ""
    assert run.seconds_before == pytest.approx(first.result["wall_seconds"], abs=0.1)
    assert again.result["wall_seconds"] > first.result["wall_seconds"]


@pytest.mark.slow
def test_the_steps_of_parameters_go_on_in_a_resumed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedules of agents follow them."""
    first = small()
    steps: list[int] = []
    publish = Publisher.publish

    def record(publisher: Publisher, *given: Any, **named: Any) -> None:
        steps.append(named["env_steps"])
        publish(publisher, *given, **named)

    monkeypatch.setattr(Publisher, "publish", record)
    more = {"session_config.stop.env_steps": 2000}
    assert train(folder="r", resume=True, launcher="serial", overrides=more).ok
    assert steps[0] == first.result["final_eval"]["env_steps"] < steps[-1]
    assert steps == sorted(steps)


@pytest.mark.slow
def test_an_algorithm_of_ones_own_is_kept_and_an_edit_is_noticed() -> None:
    Path("mine.py").write_text(ALGORITHM)

    def go(**options: Any) -> Run:
        run: Run = train(
            algorithm="mine.py",
            env="toy:chain",
            overrides=LONGER if options else SMALL,
            launcher="serial",
            folder="r",
            **options,
        )
        return run

    assert go().ok
    assert Path("r/code/mine.py").read_text() == ALGORITHM
    Path("mine.py").write_text(ALGORITHM + "# edited\n")
    with pytest.raises(UsageError, match=r"algorithm was .*code/, is mine.py, edited"):
        go(resume=True)
    assert Path("r/code/mine.py").read_text() == ALGORITHM
    assert go(resume=True, allow_change=["algorithm"]).ok
    assert Path("r/code/mine.py").read_text().endswith("# edited\n")


def test_the_package_list_is_as_pip_writes_it() -> None:
    folder = RunFolder("r")
    folder.create()
    keep_package_list(folder)
    lines = Path("r/code/packages.txt").read_text().splitlines()
    assert lines == sorted(set(lines), key=str.lower)
    assert all(re.fullmatch(r"\S+==\S+", line) for line in lines)
    named = [each for each in metadata.distributions() if each.name]
    assert {*lines} == {f"{each.name}=={each.version}" for each in named}
    unarchived = {"launcher": {"snapshot": False}}
    plain = Config({"algorithm": "dqn", "session_config": unarchived})
    keep_code(plain, folder)
    assert not edited_files(plain, folder)
    assert len(list(folder.code.iterdir())) == 1


# -- what the machine has -------------------------------------------------------------------------


@pytest.fixture
def config() -> Config:
    return resolve(read_experiment(None, algorithm="dqn", env_name="toy:chain"))


AVAILABLE = "surreal_like.experiment.machine.find_available_bytes"


def test_the_memory_that_replay_needs_is_computed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = replay_need(config)
    assert need.parts["observation"] == 32
    assert need.parts["action"] == 8
    assert need.total_bytes == 100_000 * need.row_bytes
    config.learner_config.replay.max_bytes = 1000
    assert replay_need(config).total_bytes == 1000
    monkeypatch.setattr(AVAILABLE, lambda: 1000)
    check_memory(config)
    monkeypatch.setattr(AVAILABLE, lambda: 999)
    with pytest.raises(UsageError, match=r"100,000 rows of 65 bytes \(32 observation, 8 action"):
        check_memory(config)


def test_the_memory_that_gradients_need_is_that_of_all_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = resolve(read_experiment(None, algorithm="a3c", env_name="toy:chain"))
    agent = A3C.agent(**sections_of(config), agent_id=0, agent_mode="training")
    size = sum(each.numel() for each in agent.network.parameters())
    assert config.learner_config.gradient_columns[GRADIENT] == {"type": "float32", "dim": [size]}
    need = replay_need(config)
    assert 4 * size < need.row_bytes < 4 * size + 100
    monkeypatch.setattr(AVAILABLE, lambda: need.total_bytes - 1)
    with pytest.raises(UsageError, match=rf"rows of {need.row_bytes:,} bytes .* gradient"):
        check_memory(config)
    config.learner_config.gradient_columns = {}
    assert config.fingerprint() == config.recorded["fingerprint"]


@pytest.mark.parametrize(
    ("algorithm", "extras"), [("dqn", 0), pytest.param("r2d2", 4 * 2 * 64, marks=needs("r2d2"))]
)
def test_the_row_that_is_computed_is_the_row_that_is_stored(algorithm: str, extras: int) -> None:
    run = small(algorithm=algorithm)
    size, rows = (run.progress()[-1]["replay"][name] for name in ("size_bytes", "size"))
    need = replay_need(RunFolder(run.folder).read_config())
    assert need.parts.get("extras", 0) == extras
    # Whether bytes counts the whole ring or its filled part, it is a whole number of rows.
    assert size % need.row_bytes == 0
    assert rows > 0


def test_what_is_available_is_some_of_what_there_is() -> None:
    assert 0 < find_available_bytes() < 1 << 50


def test_no_port_is_asked_for_by_default(config: Config) -> None:
    check_ports(config)
    config.session_config.tensorplex.prometheus_port = 70_000
    with pytest.raises(UsageError, match="70000"):
        check_ports(config)
