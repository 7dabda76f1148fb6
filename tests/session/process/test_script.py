"""What a script has in a run, and how it leaves."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import main.ps
from session.config import Config
from session.config.sections import sections_of
from session.errors import UsageError
from session.process.script import (
    at_leave,
    current_context,
    outside_a_run,
    run_in_background,
    script_context,
    this_is_agent,
)
from session.wire.one_way_sockets import PullSocket
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.experiment.topology import make_topology
from surreal_like.run.request import Plan
from tests.api.planned import end_script, looking_on, planned_script
from tests.api.stage import experiment
from tests.polling import until


@pytest.fixture
def config() -> Config:
    return experiment()


@pytest.fixture
def script(config: Config, tmp_path: Path) -> Iterator[Config]:
    with planned_script(config, tmp_path / "run") as planned:
        yield planned


def agent_of(config: Config) -> Any:
    return DQNAgent(**sections_of(config), agent_id=0, agent_mode="training")


def test_the_first_component_says_what_the_script_is(script: Config) -> None:
    assert current_context() is None
    this_is_agent(3)
    context = script_context(script.session_config, "agent")
    assert context.name == "agent-3"
    assert context.welcome.starts == 1
    assert script_context(script.session_config, "learner") is context is current_context()
    end_script(script)
    assert current_context() is None


def test_a_script_may_begin_anew_after_leaving(script: Config) -> None:
    first = script_context(script.session_config, "agent")
    # The parameter server is a service of this process: it goes, too.
    end_script(script)
    assert first.wire.sockets == []
    run_in_background(script.session_config, "ps", 0, main.ps.build)
    second = script_context(script.session_config, "agent")
    assert second is not first


def test_agent_and_learner_of_one_script_share_its_context(script: Config) -> None:
    learner = DQNLearner(**sections_of(script))
    agent = agent_of(script)
    assert learner.publish_parameter(1, message="one")

    def arrived() -> bool:
        learner.link.publisher.tick()
        return bool(agent.fetch_parameter_info()["message"])

    until(arrived)
    assert agent.fetch_parameter()
    assert agent.q_network.hash() == learner.q_network.hash()
    assert current_context() is not None


def test_an_agent_s_script_ends_when_the_run_is_over(script: Config) -> None:
    learner = DQNLearner(**sections_of(script))
    agent = agent_of(script)
    learner.publish_parameter(1)
    learner.publish_parameter(2, final=True)

    def act() -> None:
        while True:
            learner.link.publisher.tick()
            agent.fetch_parameter()

    with pytest.raises(SystemExit) as end:
        act()
    assert end.value.code == 0
    assert agent.version == 2, "the last parameters are taken first"


def test_what_is_to_be_closed_goes_first_and_the_newest_before_the_others(script: Config) -> None:
    closed: list[str] = []
    context = script_context(script.session_config, "agent")
    for name in ("first", "second"):
        at_leave(partial(closed.append, name))
    at_leave(lambda: closed.append(f"{len(context.wire.sockets) > 0}"))
    end_script(script)
    assert closed == ["True", "second", "first"]
    assert context.wire.sockets == []


def test_one_that_cannot_be_closed_keeps_no_other_from_it(script: Config) -> None:
    closed: list[str] = []
    context = script_context(script.session_config, "agent")
    at_leave(lambda: closed.append("other"))
    at_leave(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        end_script(script)
    assert closed == ["other"]
    assert context.wire.sockets == []


# Each part of a script ends before it has made a call that would connect it.
PARTS = {
    "agent": "from surreal_like.algorithm.dqn import DQNAgent as Part; more = {'agent_id': 3, "
    "'agent_mode': 'training'}",
    "learner": "from surreal_like.algorithm.dqn import DQNLearner as Part; more = {}",
    "replay": "from surreal_like import UniformReplay as Part; more = {}",
}
EARLY_END = """
import sys
from surreal_like import Config
config = Config.load_file(sys.argv[1] + "/config.yaml")
names = ("learner_config", "env_config", "session_config")
def work():
    part = Part(**{name: config[name] for name in names}, **more)
    part.log.info("made")
    part.tensorplex.add_scalar("made", 7, 1)
    sys.exit("as asked")
work()
"""


def read_records(server: PullSocket) -> list[dict[str, Any]]:
    """All records that have arrived."""
    found: list[dict[str, Any]] = []
    while (message := server.receive()) is not None:
        assert message.sender.name in ("agent-3", "learner", "replay-0")
        found += message.fields["records"]
    return found


# Those with torch take seconds to import it.
@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=pytest.mark.slow if part != "replay" else ()) for part in PARTS],
)
def test_a_script_that_ends_before_it_connects_sends_its_records(
    config: Config, tmp_path: Path, part: str
) -> None:
    Plan(config, make_topology(config)).write(tmp_path / "run")
    with looking_on(config, "sink") as wire:
        servers = {plex: wire.pull(f"{plex}.records") for plex in ("tensorplex", "loggerplex")}
        words = [sys.executable, "-c", PARTS[part] + EARLY_END, str(tmp_path / "run")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=90)
        assert (done.returncode, done.stderr) == (1, "as asked\n")
        found = {plex: read_records(server) for plex, server in servers.items()}
    assert [record["text"] for record in found["loggerplex"] if "text" in record] == ["made"]
    assert [(each["id"], each["tag"]) for each in found["tensorplex"]] == [
        ({"agent": "agent/3", "learner": "learner/learner", "replay": "replay/0"}[part], "made")
    ]
    assert not (tmp_path / "run" / "alive").exists() or not list(
        (tmp_path / "run" / "alive").iterdir()
    )


@pytest.mark.slow
def test_without_servers_a_script_that_ends_early_says_what_it_lost(
    config: Config, tmp_path: Path
) -> None:
    Plan(config, make_topology(config)).write(tmp_path / "run")
    words = [sys.executable, "-c", PARTS["replay"] + EARLY_END, str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    lines = ["as asked", "replay-0: 2 of 2 records were lost: its run's servers do not answer"]
    assert (done.returncode, done.stderr.splitlines()) == (1, lines)


@pytest.mark.parametrize("agent_first", [True, False])
def test_an_agent_that_never_fetches_reports_by_the_context_of_its_script(
    script: Config, agent_first: bool
) -> None:
    agent = agent_of(script) if agent_first else None
    context = script_context(script.session_config, "agent")
    agent = agent or agent_of(script)
    context.flush()
    before = context.log.buffered, context.tensorplex.buffered
    agent.log.info("acts")
    agent.update_tensorplex({"mine": 1.0})
    agent.tensorplex.add_scalar("mine", 1.0, 3)
    assert agent.log.buffered == 0
    after = context.log.buffered, context.tensorplex.buffered
    assert after == (before[0] + 1, before[1] + 2)


def test_agents_of_a_policy_are_no_parts_of_the_run(script: Config) -> None:
    context = script_context(script.session_config, "learner")
    with outside_a_run():
        agent = agent_of(script)
    agent.log.info("acts")
    assert agent.log.buffered == 1
    assert agent_of(script).log.buffered == 0
    assert context.log is not agent.log


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_without_a_planned_run_it_says_what_to_do(folder: str | None, config: Config) -> None:
    config.session_config.folder = folder
    with pytest.raises(UsageError, match="--format shell --folder RUN"):
        script_context(config.session_config, "agent")
