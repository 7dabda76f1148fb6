"""The local launcher with real processes and sockets."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from session.errors import HOPELESS, DeadlineError, SurrealError, UsageError
from session.folder import RunFolder
from session.launchers import control_client, memory_use
from session.launchers.fork_client import ForkServers, Preload
from session.launchers.handle import open_run
from session.launchers.instruction import Event
from session.launchers.launcher import Outcome
from session.launchers.local import LocalLauncher
from session.process.heartbeat import read_beats
from tests.contracts.launcher import lives
from tests.polling import DEADLINE_SECONDS, until
from tests.session.launchers.parts import MODULE, drawn, make_config, make_run, make_topology

ROOT = Path(__file__).resolve().parents[3]
DANCE = ("supervisor.control", "dance")
PRELOAD = Preload(shared=[MODULE])
ACTS = {"replay-0": "work", "learner": "learn", "agent-0": "work"}

T = TypeVar("T")


class Run:
    """A launched run that a test looks at."""

    def __init__(self, path: Path, acts: Mapping[str, str] = ACTS, **settings: Any) -> None:
        config = make_config(acts, **settings)
        self.folder = make_run(path, config)
        self.launcher = LocalLauncher(config, make_topology(config), self.folder, preload=PRELOAD)
        self.events: list[Event] = []

    def __enter__(self) -> "Run":
        self.launcher.launch()
        return self

    def __exit__(self, *error: object) -> None:
        self.launcher.__exit__(None, None, None)

    def until(self, look: Callable[[], T | None]) -> T:
        """Polls the launcher until `look` gives something."""

        def step() -> None:
            self.events += self.launcher.poll(0.02)

        return until(look, what=lambda: self.events, step=step)

    def started(self, *names: str) -> None:
        """Waits until these (all, if none is named) are running."""
        self.until(lambda: all(self.state(name) == "running" for name in names or self.names()))

    def names(self) -> list[str]:
        return [row.name for row in self.launcher.status()]

    def state(self, name: str) -> str:
        return next(row.state for row in self.launcher.status() if row.name == name)

    def pid(self, name: str) -> int:
        return next(row.pid for row in self.launcher.status() if row.name == name)

    def kinds(self, name: str) -> list[str]:
        return [each.kind for each in self.events if each.component == name]

    def outcome(self) -> Outcome:
        return self.until(lambda: self.launcher.outcome)

    def result(self) -> dict[str, Any]:
        return dict(self.folder.read_result() or {})


def test_a_run_from_launch_to_its_end(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "eval-0": "work"}) as run:
        assert run.folder.in_use
        assert run.folder.sockets.stat().st_mode & 0o777 == 0o700
        run.started()
        pids = {name: run.pid(name) for name in run.names()}
        titles = {n: " ".join(psutil.Process(p).cmdline()).strip() for n, p in pids.items()}
        assert titles == {
            name: f"python -P -m {MODULE} --name {name} --folder {run_folder}" for name in pids
        }
        run.launcher.stop(interrupted=True)
        assert run.outcome() == Outcome("interrupted", "interrupted")
    assert not any(map(lives, pids.values()))
    assert not run.folder.in_use
    assert not run.folder.sockets.exists()
    result = run.result()
    assert (result["status"], result["iterations"], result["seed"]) == ("interrupted", 7, 0)
    ends = {name: (c["restarts"], c["exit_code"]) for name, c in result["components"].items()}
    assert ends == dict.fromkeys(pids, (0, 0))
    assert all(0 < c["alive_seconds"] < 20 for c in result["components"].values())
    (replay, *_) = json.loads(run.folder.topology.read_text())["components"]
    assert (
        replay["command"]
        == f"{sys.executable} -P -m {MODULE} --name replay-0 --folder {run_folder}"
    )
    assert set(json.loads(run.folder.addresses.read_text())) == {
        "learner.control",
        "supervisor.control",
    }


def test_a_run_that_ends_by_itself(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "learner": "solve"}) as run:
        assert run.launcher.wait(DEADLINE_SECONDS) == Outcome("stopped", "solved")
        assert not run.launcher.running
        assert run.launcher.poll() is not None
    assert run.result()["goal_met"] is True


def test_the_last_words_of_a_library_are_the_cause_of_an_abort(run_folder: Path) -> None:
    acts = {**ACTS, "learner": "learn", "agent-0": "abort", "loggerplex": "work"}
    with Run(run_folder, acts) as run:
        run.until(lambda: "restart" in run.kinds("agent-0"))
        lost = [each for each in run.events if each.kind == "lost"]
        run.launcher.stop()
        run.outcome()
    cause = "killed by SIGABRT: Assertion failed: !_more (src/fq.cpp:80)"
    assert lost == [Event("agent-0", "lost", cause)]
    # Where it was at that time.
    assert 'parts.py", line' in (run.folder.logs / "agent-0.err").read_text()


def test_a_component_that_ends_itself_with_0_is_started_again(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "agent-0": "vanish with 0"}) as run:
        run.until(lambda: "restart" in run.kinds("agent-0"))
        lost = {each.detail for each in run.events if each.kind == "lost"}
    assert lost == {"ended with exit code 0 before its work was done"}


@pytest.mark.slow
def test_a_killed_component_is_started_again(run_folder: Path) -> None:
    """A light one, the one that owns the run, and a heavy one."""
    with Run(run_folder, {**ACTS, "loggerplex": "work"}) as run:
        run.started()
        for name in ACTS:
            old = run.pid(name)
            os.kill(old, signal.SIGKILL)
            run.until(lambda n=name: "restart" in run.kinds(n))  # type: ignore[misc]
            run.started(name)
            assert run.pid(name) not in (0, old)
        lost = [each for each in run.events if each.kind == "lost"]
        assert lost == [Event(name, "lost", "killed by SIGKILL") for name in ACTS]
        run.launcher.stop()
        assert run.outcome().status == "stopped"
    restarts = {name: each["restarts"] for name, each in run.result()["components"].items()}
    assert restarts == {**dict.fromkeys(ACTS, 1), "loggerplex": 0}
    events = [json.loads(line) for line in run.folder.events.read_text().splitlines()]
    losses = [
        (e["event"], e["detail"], e["fields"]["name"])
        for e in events
        if e["component"] == "supervisor" and e["event"] == "lost"
    ]
    assert losses == [("lost", f"{name}: killed by SIGKILL", name) for name in ACTS]


@pytest.mark.slow
def test_what_sigterm_ends_is_started_again_and_sigint_to_the_learner_ends_the_run(
    run_folder: Path,
) -> None:
    with Run(run_folder) as run:
        run.started()
        for name in ACTS:
            old = run.pid(name)
            os.kill(old, signal.SIGTERM)
            run.until(lambda n=name: "restart" in run.kinds(n))  # type: ignore[misc]
            assert run.kinds(name) == ["lost", "restart"]
            run.started(name)
            assert run.pid(name) not in (0, old)
        assert (run.folder.checkpoints / "saved").exists()
        lost = {each.detail for each in run.events if each.kind == "lost"}
        assert lost == {"got SIGTERM or SIGINT while the run goes on"}
        os.kill(run.pid("learner"), signal.SIGINT)
        assert run.outcome() == Outcome("interrupted", "interrupted")
    ends = {name: (c["restarts"], c["exit_code"]) for name, c in run.result()["components"].items()}
    assert ends == dict.fromkeys(ACTS, (1, 0))


def test_beats_of_a_former_process_are_no_sign_of_life(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "agent-0": "hang later"}) as run:
        run.started()
        os.kill(run.pid("agent-0"), signal.SIGKILL)
        run.until(lambda: "restart" in run.kinds("agent-0"))
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            run.launcher.poll(0.02)
            assert run.state("agent-0") == "starting"
        run.launcher.kill()


@pytest.mark.parametrize("name", ["replay-0", "agent-0"])
def test_a_component_that_cannot_start_shows_its_first_error(run_folder: Path, name: str) -> None:
    with Run(run_folder, {**ACTS, name: "crash"}) as run:
        outcome = run.outcome()
    error = f"{name}: ValueError('the environment is broken')"
    # Behind it stands the place in the code.
    assert (outcome.status, outcome.reason[: len(error)]) == ("failed", error)
    assert outcome.details.startswith("Traceback")
    assert outcome.details.endswith("ValueError: the environment is broken")
    # It would be the same at another start.
    assert run.kinds(name) == ["lost", "failed"]
    result = run.result()
    assert (result["status"], result["reason"]) == ("failed", outcome.reason)
    assert result["components"][name]["exit_code"] == HOPELESS
    assert run.launcher.logs(name)[-1] == "ValueError: the environment is broken"


def test_the_first_error_is_shown_not_the_last(run_folder: Path) -> None:
    with Run(run_folder, {"agent-0": "fail later"}) as run:
        outcome = run.outcome()
    assert re.fullmatch(
        r"agent-0: ValueError\('fail at start 1'\), in Worker\.tick \(.*parts\.py:\d+\)"
        r" \(the first of 3 deaths\)",
        outcome.reason,
    )
    assert "fail at start 1" in outcome.details
    assert "fail at start 2" not in outcome.details


def test_a_wrong_config_fails_at_once(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "agent-0": "misconfigured"}) as run:
        outcome = run.outcome()
    assert outcome.reason.startswith(
        "agent-0: env_config.env_name is 'parts', which nobody knows, in build ("
    )
    assert run.result()["components"]["agent-0"] | {"alive_seconds": 0} == {
        "restarts": 0,
        "exit_code": 2,
        "alive_seconds": 0,
    }


def test_a_learner_that_cannot_start_leaves_a_result_all_the_same(run_folder: Path) -> None:
    with Run(run_folder, {**ACTS, "learner": "vanish"}, max_restarts=0) as run:
        assert run.outcome() == Outcome("failed", "learner: ended with exit code 7")
    result = run.result()
    assert (result["status"], result["goal_met"]) == ("failed", None)
    assert (result["algorithm"], result["env_name"]) == ("parts", "parts")


def test_an_import_that_fails_in_a_fork_server_is_the_error(run_folder: Path) -> None:
    config = make_config(ACTS)
    run = Run(run_folder)
    run.launcher = LocalLauncher(
        config, make_topology(config), run.folder, preload=Preload(heavy=["no_such_package"])
    )
    with run:
        outcome = run.outcome()
    assert outcome.status == "failed"
    assert "cannot import no_such_package: No module named 'no_such_package'" in outcome.reason
    assert {each["restarts"] for each in run.result()["components"].values()} == {0}


@pytest.mark.slow
def test_a_silent_component_is_killed_and_replaced(run_folder: Path) -> None:
    with Run(run_folder, timeout=0.6) as run:
        run.started()
        old = run.pid("agent-0")
        os.kill(old, signal.SIGSTOP)
        run.until(lambda: "restart" in run.kinds("agent-0"))
        assert not lives(old)
        assert run.events[0].detail.startswith("gave no sign of life for ")
        run.started("agent-0")
        run.launcher.kill()


def test_what_a_component_has_started_dies_with_it(run_folder: Path) -> None:
    acts = {"replay-0": "parent", "learner": "learn", "agent-0": "parent"}
    with Run(run_folder, acts) as run:
        run.started()
        for name in ("replay-0", "agent-0"):
            (grandchild,) = psutil.Process(run.pid(name)).children()
            os.kill(run.pid(name), signal.SIGKILL)
            run.until(lambda g=grandchild: not psutil.pid_exists(g.pid))  # type: ignore[misc]
        run.launcher.kill()


@pytest.mark.slow
def test_a_component_that_does_not_end_is_killed(run_folder: Path) -> None:
    acts = {"replay-0": "stubborn", "agent-0": "work", "learner": "learn"}
    with Run(run_folder, acts, grace_seconds=0.1) as run:
        run.started()
        run.launcher.stop()
        run.outcome()
    components = run.result()["components"]
    assert components["replay-0"]["exit_code"] == -9
    assert components["agent-0"]["exit_code"] == 0


def test_killing_leaves_no_process(run_folder: Path) -> None:
    acts = {"replay-0": "stubborn", "learner": "deaf", "agent-0": "hang", "agent-1": "work"}
    with Run(run_folder, acts) as run:
        run.started("replay-0", "learner", "agent-1")
        pids = [run.pid(name) for name in acts]
        run.launcher.stop(interrupted=True)
        start = time.monotonic()
        run.launcher.kill()
        assert time.monotonic() - start < 2.0
        assert not run.launcher.running
        assert not any(map(lives, pids))
    assert run.result()["status"] == "interrupted"
    assert not run.folder.in_use


def test_killing_while_the_fork_servers_still_import(run_folder: Path) -> None:
    config = make_config(ACTS)
    run = Run(run_folder)
    slow = Preload(shared=["tests.session.launchers.slow_import"])
    run.launcher = LocalLauncher(config, make_topology(config), run.folder, preload=slow)
    with run:
        start = time.monotonic()
        run.launcher.kill()
        assert time.monotonic() - start < 3.0
        assert not run.launcher.running
    assert run.result()["status"] == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("heavy", [False, True])
def test_a_dead_fork_server_takes_no_component_with_it_and_comes_back_when_needed(
    run_folder: Path, heavy: bool
) -> None:
    name = "agent-0" if heavy else "replay-0"
    with served(run_folder) as (run, servers):
        run.started()
        pids, old = [run.pid(each) for each in ACTS], servers.server(heavy).pid
        assert {psutil.Process(pid).ppid() for pid in pids} == {os.getpid()}
        os.kill(old, signal.SIGKILL)
        run.until(lambda: heavy not in servers.living())
        assert [run.pid(each) for each in ACTS] == pids
        assert run.events == []
        os.kill(run.pid(name), signal.SIGKILL)
        run.until(lambda: "restart" in run.kinds(name))
        run.started(name)
        assert servers.server(heavy).pid != old
        run.launcher.stop()
        assert run.outcome().status == "stopped"
    ends = {name: (c["restarts"], c["exit_code"]) for name, c in run.result()["components"].items()}
    assert ends == {**dict.fromkeys(ACTS, (0, 0)), name: (1, 0)}


@pytest.mark.slow
def test_what_a_dead_fork_server_has_not_forked_is_forked_by_another(run_folder: Path) -> None:
    with served(run_folder, stopped=True) as (run, servers):
        # The requests of the launch have not been read.
        for each in servers.living().values():
            os.kill(each.pid, signal.SIGKILL)
        run.started()
        assert run.events == []
        run.launcher.stop()
        assert run.outcome().status == "stopped"


def test_a_fork_that_fails_is_the_death_of_the_component(run_folder: Path) -> None:
    with served(run_folder) as (run, servers):
        run.started()
        report = servers.server(True).receive
        old = run.pid("agent-0")
        servers.server(True).receive = lambda *wait: dict.fromkeys(  # type: ignore[method-assign]
            report(*wait), 0
        )
        os.kill(old, signal.SIGKILL)
        run.until(lambda: run.kinds("agent-0").count("lost") == 2)
        assert run.events[-1].detail == "cannot start it: fork failed"
        run.launcher.kill()


@contextmanager
def served(path: Path, *, stopped: bool = False) -> Iterator[tuple[Run, ForkServers]]:
    """A run whose fork servers are ready, and stopped by SIGSTOP before the launch if asked."""
    run, servers = Run(path), ForkServers(PRELOAD)
    for each in servers.living().values():
        until(lambda each=each: bool(each.receive() or each.ready))  # type: ignore[misc]
        if stopped:
            os.kill(each.pid, signal.SIGSTOP)
    config = make_config(ACTS)
    run.launcher = LocalLauncher(config, make_topology(config), run.folder, servers=servers)
    with run:
        yield run, servers


def test_tcp(run_folder: Path) -> None:
    with Run(run_folder, transport="tcp") as run:
        run.started()
        book = json.loads(run.folder.addresses.read_text())
        assert book["learner.control"]["bind"].startswith("tcp://127.0.0.1:")
        run.launcher.stop()
        assert run.outcome().status == "stopped"


def test_a_folder_in_use_is_left_alone(run_folder: Path) -> None:
    run, other = Run(run_folder), RunFolder(run_folder)
    other.lock()
    with pytest.raises(UsageError, match="is in use"):
        run.launcher.launch()
    assert not run.folder.topology.exists()
    other.unlock()
    run.__exit__()


def test_a_folder_that_the_caller_has_locked_stays_locked(run_folder: Path) -> None:
    run = Run(run_folder)
    run.folder.lock()
    with run:
        run.launcher.kill()
    assert run.folder.in_use
    run.folder.unlock()


def test_waiting_has_a_deadline(run_folder: Path) -> None:
    with Run(run_folder) as run:
        with pytest.raises(DeadlineError, match=r"goes on after 0\.1 s"):
            run.launcher.wait(0.1)
        run.launcher.kill()


@pytest.mark.slow
def test_commands_from_another_process(run_folder: Path) -> None:
    with Run(run_folder) as run, open_run(run_folder) as adopted:
        run.started()

        def ask(command: Callable[[], Any]) -> Any:
            """Asks from a thread of its own, as another process would."""
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(1) as pool:
                future = pool.submit(command)
                run.until(future.done)
                return future.result()

        rows = ask(adopted.status)
        assert [(row.name, row.state, row.restarts) for row in rows] == [
            (name, "running", 0) for name in ACTS
        ]
        assert rows[0].pid == run.pid("replay-0")
        ask(lambda: adopted.scale("agent", 2))
        run.started("agent-1")
        ask(lambda: adopted.scale("agent", 1))
        run.until(lambda: run.state("agent-1") == "gone")
        old = run.pid("learner")
        ask(lambda: adopted.restart("learner"))
        run.until(lambda: run.pid("learner") not in (0, old))
        assert (run.folder.checkpoints / "saved").exists()
        run.started("learner")
        for command, message in [
            (lambda: adopted.scale("replay", 2), "cannot scale 'replay'; this run has agent"),
            (lambda: adopted.scale("agent", "many"), "'num' is 'many', expected a whole number"),  # type: ignore[arg-type]
            (lambda: adopted.restart("agent-7"), "no component 'agent-7'; there are replay-0"),
            (
                lambda: control_client.ask(run.folder, *DANCE, timeout_seconds=5.0),
                "supervisor.control knows no 'dance'",
            ),
        ]:
            with pytest.raises(SurrealError, match=message):
                ask(command)
        ask(adopted.stop)
        run.outcome()
        assert adopted.wait(5.0) == Outcome("stopped", "stopped by command")
        assert {row.name: row.exit_code for row in adopted.status()} == {
            **dict.fromkeys(ACTS, 0),
            "agent-1": 0,
        }
        with pytest.raises(UsageError, match="is not running: it has no supervisor"):
            adopted.stop()


def test_what_was_never_launched_cannot_be_adopted(run_folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        open_run(run_folder)


SUPERVISOR = f"""
import sys, time
from session.config import Config
from session.folder import RunFolder
from session.launchers.fork_client import Preload
from session.launchers.local import LocalLauncher
from tests.session.launchers.parts import make_topology
folder = RunFolder(sys.argv[1])
config = Config.load_file(folder.config)
launcher = LocalLauncher(config, make_topology(config), folder, preload=Preload([{MODULE!r}]))
launcher.launch()
while launcher.running:
    launcher.poll(0.05)
"""


@pytest.mark.slow
def test_a_killed_supervisor_leaves_nothing(run_folder: Path) -> None:
    acts = {"replay-0": "work", "learner": "learn", "agent-0": "parent"}
    folder = make_run(run_folder, make_config(acts))
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(run_folder)]) as supervisor:
        until(lambda: [b.state for b in read_beats(folder.alive).values()] == ["running"] * 3)
        family = psutil.Process(supervisor.pid).children(recursive=True)
        assert len(family) == 6  # three components, a child of one, two fork servers
        assert folder.in_use
        supervisor.kill()
    killed = time.monotonic()
    until(lambda: not any(lives(each.pid) for each in family))
    until(lambda: not folder.sockets.exists())
    assert time.monotonic() - killed < 5.0
    assert not folder.in_use


@pytest.mark.slow
def test_a_run_can_be_launched_again_after_a_kill(run_folder: Path) -> None:
    with Run(run_folder) as run:
        run.started()
        run.launcher.kill()
    run.folder.result.unlink()
    run.folder.sockets.mkdir()
    (run.folder.sockets / "learner.control").touch()
    config = make_config(ACTS)
    run.launcher = LocalLauncher(config, make_topology(config), run.folder, preload=PRELOAD)
    with run:
        run.started()
        run.launcher.stop()
        assert run.outcome().status == "stopped"


def test_no_two_processes_draw_the_same_numbers(run_folder: Path) -> None:
    """Neither those that are forked from one server nor those with an interpreter of their own."""
    drawing = ("agent-0", "agent-1", "agent-2", "eval-0", "replay-0", "replay-1")
    with Run(run_folder, {"learner": "solve", **dict.fromkeys(drawing, "draw")}) as run:
        assert run.outcome().status == "stopped"
    numbers = [number for name in drawing for number in drawn(run_folder, name)]
    assert len(set(numbers)) == len(numbers) == 2 * len(drawing)


@pytest.mark.slow
def test_without_memory_a_run_saves_and_ends_as_failed(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = [0.5]
    monkeypatch.setattr(
        memory_use, "read_memory", lambda: memory_use.Reading(int(1e9 * used[0]), 10**9)
    )
    monkeypatch.setattr(memory_use, "_LOOK_SECONDS", 0.05)
    with Run(run_folder) as run:
        run.started()
        used[0] = 0.92
        run.until(lambda: any(each.kind == "memory" for each in run.events))
        assert run.launcher.outcome is None
        used[0] = 0.97
        outcome = run.outcome()
    assert outcome.status == "failed"
    assert outcome.reason.startswith("memory: 97 % of 1.0 GB used; the most: ")
    [warning] = [each for each in run.events if each.kind == "memory"]
    assert warning.detail.startswith("92 % of 1.0 GB used")
    # The learner has ended by itself, after a checkpoint.
    assert run.result()["components"]["learner"]["exit_code"] == 0
