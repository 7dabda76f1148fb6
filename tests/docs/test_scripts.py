"""The three scripts of docs/scripts.md as processes that find each other through a planned run."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from session.config.config import Config, apply_overrides
from session.errors import START_AGAIN
from session.folder import RunFolder
from session.show.run_view import state_of
from session.wire import AddressBook, Identity, Wire
from session.wire.requests import DealerSocket
from tests.docs.examples import ROOT, blocks, call, check, program, write_files
from tests.docs.test_metrics import curves_of
from tests.polling import DEADLINE_SECONDS
from tests.session.tensorplex.reading import curves

PAGE = ROOT / "docs" / "scripts.md"
SAMPLES = Path(__file__).resolve().parents[1] / "golden" / "entry_samples"
SERVERS = ("ps", "tensorplex", "loggerplex")

# What the scripts may say otherwise than the samples: the five values of step, and an import.
CHANGES = {
    "U.to_float_tensor": "to_float_tensor",
    "obs, reward, done, info = env.step(action)": (
        "obs, reward, terminated, truncated, info = env.step(action)"
    ),
    "if done:": "if terminated or truncated:",
}


class Terminals:
    """A planned run in a folder, processes of it, and somebody who asks them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = RunFolder(path / "run")
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.context: zmq.Context[Any] = zmq.Context()
        config = Config.load_file(self.folder.config)
        identity = Identity("command", 1, bytes.fromhex(config.fingerprint()[:16]))
        addresses = AddressBook.load(self.folder.addresses)
        self.wire = Wire(self.context, addresses, identity)
        self.sockets = Path(addresses["ps.requests"].bind.removeprefix("ipc://")).parent

    def start(self, name: str, *words: str) -> None:
        self.processes[name] = subprocess.Popen(
            program(["python", *words]),
            cwd=self.path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_module(self, name: str, kind: str) -> None:
        self.start(name, "-P", "-m", f"main.{kind}", "--name", name, "--folder", "run")

    def end(self, name: str, number: int | None = signal.SIGTERM) -> str:
        """What the process said until its clean end; told to end by a signal, or by itself."""
        process = self.processes.pop(name)
        if number is not None:
            process.send_signal(number)
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
        # One that a signal ends before the run is over asks to be started again.
        clean = (0,) if number is None else (0, START_AGAIN)
        assert process.returncode in clean, f"{name} ended with {process.returncode}:\n{said}"
        return said

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} has ended:\n{process.communicate()[0]}"
            if (found := condition()) is not None and found is not False:
                return found
            time.sleep(0.02)
        raise AssertionError(f"waited in vain: {what}")

    def newest(self, ps: DealerSocket) -> tuple[int, str]:
        """Iteration and message of the newest parameters; 0 before the first."""
        answer = ps.request("info", {"policy": "default"})
        return answer.fields.get("iteration", 0), answer.fields.get("info", {}).get("message", "")

    def acted_with(self, batches: DealerSocket) -> int:
        """The newest version of parameters that a sampled row was acted with."""
        answer = batches.request("sample", {"batch_size": 64, "batches": 1})
        return int(answer.arrays["version"].max())

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()
        self.wire.close(0)
        self.context.destroy(0)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the scripts and the run that the page plans."""
    path = tmp_path_factory.mktemp("planned")
    write_files(PAGE, path)
    [plan] = [block for block in blocks(PAGE) if block.language == "console" and block.runs]
    [line] = plan.commands()
    check(line, call(line, path), 0)
    return path


@pytest.fixture
def terminals(planned: Path, tmp_path: Path) -> Iterator[Terminals]:
    path = tmp_path / "copy"
    shutil.copytree(planned, path)
    made = Terminals(path)
    yield made
    made.close()


@pytest.mark.parametrize("name", ["agent", "learner", "replay"])
def test_scripts_are_the_samples(name: str) -> None:
    expected = (SAMPLES / f"{name}.txt").read_text()
    for theirs, ours in CHANGES.items():
        expected = expected.replace(theirs, ours)
    [script] = [block.text for block in blocks(PAGE) if block.file == f"{name}.py"]
    assert normal(expected) in normal(script)


def normal(code: str) -> str:
    """Code as Python sees it: layout and quotes aside."""
    return ast.unparse(ast.parse(textwrap.dedent(code)))


@pytest.mark.slow
def test_three_scripts_are_a_run(terminals: Terminals) -> None:
    for name in SERVERS:
        terminals.start_module(name, name)
    for name in ("replay", "learner", "agent"):
        terminals.start(name, f"{name}.py")
    ps = terminals.wire.dealer("ps.requests")
    iteration, message = terminals.until(
        lambda: (found := terminals.newest(ps))[0] > 0 and found, "a first publication"
    )
    assert message == f"batch {iteration}"
    terminals.until(lambda: terminals.newest(ps)[0] > iteration + 20, "further iterations")
    batches = terminals.wire.dealer("replay-0.batches")
    version = terminals.until(lambda: terminals.acted_with(batches), "rows of a version")
    terminals.until(lambda: terminals.acted_with(batches) > version, "rows of newer versions")
    terminals.until(
        lambda: "agent-0" in curves(terminals.folder.tensorboard), "curves of the agent's monitor"
    )

    terminals.end("agent")
    [account] = ps.request("accounts").fields["accounts"].values()
    assert account["final"]
    assert account["pushed"] == account["inserted"] > 0
    assert account["dropped"] == account["unacked"] == 0
    assert terminals.end("learner") == ""
    # Of replay's script only the service is left, so Ctrl-C interrupts nothing.
    assert terminals.end("replay", signal.SIGINT) == ""
    for name in reversed(SERVERS):
        terminals.end(name)
    log = (terminals.folder.logs / "all.log").read_text()
    assert all(f"{name}: start" in log for name in ("agent-0", "learner", "replay-0"))
    assert not terminals.sockets.exists()


@pytest.mark.slow
def test_what_a_learners_script_reports_is_drawn(terminals: Terminals) -> None:
    script = terminals.path / "learner.py"
    before, start, _ = script.read_text().partition("for i, batch in")
    [loop] = [block.text for block in blocks(PAGE) if "update_tensorplex" in block.text]
    assert start in loop
    script.write_text(before + loop)
    for name in SERVERS:
        terminals.start_module(name, name)
    for name in ("replay", "learner", "agent"):
        terminals.start(name, f"{name}.py")
    terminals.until(
        lambda: curves_of(terminals.folder.tensorboard).get(("learner", "learner/loss")),
        "a curve of the learner",
    )
    for name in ("agent", "learner", "replay", *reversed(SERVERS)):
        terminals.end(name)
    assert state_of(terminals.folder) == "ended"


@pytest.mark.slow
def test_scripts_end_by_themselves_when_the_run_is_over(terminals: Terminals) -> None:
    budget = ["session_config.stop.iterations=30", "session_config.evaluator.num=0"]
    rewrite(terminals.folder, budget)
    for name in SERVERS:
        terminals.start_module(name, name)
    terminals.start_module("learner", "learner")
    for name in ("replay", "agent"):
        terminals.start(name, f"{name}.py")
    for name in ("agent", "learner", "replay", *SERVERS):
        terminals.end(name, None)
    result = terminals.folder.read_result()
    assert result is not None
    assert result["status"] == "stopped"
    rows = result["experience"]
    assert rows["pushed"] == rows["inserted"] > 0
    assert rows["unacked"] == rows["holes"] == 0


def rewrite(folder: RunFolder, overrides: list[str]) -> None:
    """Changes the session_config of a planned run."""
    config = Config.load_file(folder.config)
    apply_overrides(config, overrides)
    config.dump_file(folder.config)


def test_a_script_without_a_planned_run_says_what_to_do(tmp_path: Path) -> None:
    write_files(PAGE, tmp_path)
    code = textwrap.dedent(
        """
        from session.config.config import Config, apply_overrides
        from session.process.script import script_context

        script_context(Config({"folder": "nowhere"}), "agent")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "surreal-like plan CONFIG.yaml --format shell --folder RUN" in done.stderr
