"""A run of processes that a controller starts again: SIGTERM saves, and the end is no exit."""

import signal
from pathlib import Path

import pytest

from main.cli import main as surreal_like
from session.errors import START_AGAIN
from session.process.heartbeat import read_beats
from tests.runs.by_hand import ByHand


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_component_that_is_ended_goes_on_and_one_that_is_done_stays(run_folder: Path) -> None:
    settings = (
        "session_config.at_end=idle",
        "session_config.stop={eval_return: null, env_steps: 8_000, eval_episodes: 10}",
    )
    with ByHand(run_folder, *settings) as run:
        run.start()
        run.until(lambda: run.line.get("iterations", 0) > 0)
        learner = run.processes["learner"]
        learner.signal(signal.SIGTERM)
        assert learner.wait() == START_AGAIN
        assert not run.folder.over
        before = run.line["iteration"]
        run_id = run.line["run_id"]

        run.start("learner")
        assert run.processes["learner"].wait(120.0) == 0
        assert run.result["status"] == "stopped"
        assert run.result["iteration"] >= before > 0
        assert run.result["run_id"] == run_id
        assert '"status": "stopped"' in run.processes["learner"].words
        assert [event for event in run.events if event["event"] == "restored"]

        def idle() -> bool:
            beats = read_beats(run.folder.alive)
            return not beats["agent-0"].ready and not beats["eval-0"].ready

        run.until(idle)
        others = {name: each for name, each in run.processes.items() if name != "learner"}
        assert all(each.running for each in others.values())
        assert all(read_beats(run.folder.alive)[name].ready for name in ("ps", "replay-0"))
        for words, code in ((["agent-0"], 0), (["agent-0", "--ready"], 1), (["ps", "--ready"], 0)):
            assert surreal_like(["probe", str(run_folder), *words]) == code

        # A learner that is started once more finds the run over, and ends at once.
        run.start("learner")
        assert run.processes["learner"].wait(60.0) == 0
        assert run.result["env_steps"] < 28_000
        # A late agent learns of the end from the parameter server, and idles too.
        others["agent-0"].signal(signal.SIGTERM)
        assert others["agent-0"].wait() == 0
        run.start("agent-0")
        run.until(lambda: read_beats(run.folder.alive)["agent-0"].state == "running")
        run.until(idle)
        for name in ("eval-0", "agent-1", "replay-0", "tensorplex", "ps", "loggerplex"):
            run.processes[name].signal(signal.SIGTERM)
            assert run.processes[name].wait(30.0) == 0
