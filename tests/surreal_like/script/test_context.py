"""What a script has in a run, and how it leaves."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import main.ps
from session.config import Config
from session.config.sections import sections_of
from session.errors import UsageError
from surreal_like.algorithm.dqn import DQNAgent, DQNLearner
from surreal_like.script.context import (
    at_leave,
    current_context,
    run_in_background,
    script_context,
    this_is_agent,
)
from tests.api.planned import end_script, planned_script
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
        learner.publisher.tick()
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
            learner.publisher.tick()
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


@pytest.mark.parametrize("folder", [None, "nowhere"])
def test_without_a_planned_run_it_says_what_to_do(folder: str | None, config: Config) -> None:
    config.session_config.folder = folder
    with pytest.raises(UsageError, match="--format shell --folder RUN"):
        script_context(config.session_config, "agent")
