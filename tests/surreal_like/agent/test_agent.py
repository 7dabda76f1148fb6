"""The agent's base class alone; tests/api has what authors rely on, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from session.config import Config
from session.config.sections import sections_of
from session.errors import UsageError
from session.loggerplex.log_client import Log
from surreal_like import AgentMode
from surreal_like.agent.run_link import AgentLink
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import acting_of
from tests.surreal_like.agent.rig import (
    LearnerPeer,
    LineAgent,
    Rig,
    make_config,
)
from tests.surreal_like.agent.rig import rig as rig
from tests.surreal_like.ps.test_parameter_server import served


def make_agent(
    config: Config | None = None, *, mode: str = "training", **changes: Any
) -> LineAgent:
    config = config or make_config()
    values: dict[str, Any] = {
        **sections_of(config),
        "agent_id": 0,
        "agent_mode": mode,
    }
    return LineAgent(**{**values, **changes})


def test_log_and_tensorplex_work_without_a_run() -> None:
    agent = make_agent()
    assert isinstance(agent.log, Log)
    agent.log.info("acted %d times", 3)
    agent.tensorplex.add_scalar("mine", 1.0, 0)


def test_another_mode_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        AgentMode("playing")
    assert str(refused.value) == (
        "agent_mode is 'playing': expected one of training, eval_stochastic, eval_deterministic"
    )


def test_an_agent_alone_knows_its_part() -> None:
    agent = make_agent(make_config(agent={"num": 4}))
    assert agent.num_agents == 4
    assert (agent.progress.env_steps, agent.progress.iteration) == (0, 0)
    assert agent.first.tolist() == [True]
    assert agent.initial_state(3) is None
    chunk = Chunk({}, 1, [])
    assert agent.postprocess(chunk) is chunk


def test_agents_have_random_numbers_of_their_own() -> None:
    draws = [
        make_agent(agent_id=i, mode=m).rng.random()
        for i in (0, 1)
        for m in ("training", "eval_stochastic")
    ]
    assert len(set(draws)) == 4
    assert make_agent().rng.random() == draws[0]


def test_the_version_that_acts_is_set_at_the_sender(rig: Rig) -> None:
    learner, agent = LearnerPeer(rig), make_agent(rig.config)
    context = rig.context("agent-0")
    agent.attach(AgentLink(context))
    learner.publish()
    served(rig, 1)
    agent.fetch_parameter()
    assert acting_of(context).version == 1
