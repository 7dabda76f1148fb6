"""The policies of one agent process: each asks for its parameters by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

import main.ps
from session.config.sections import sections_of
from surreal_like.agent.policy_actor import PolicyActor
from surreal_like.env.multi_agent_vector import JointStep
from surreal_like.experience.row_sender import RowSender
from surreal_like.policies.agent_builder import JointStepping
from tests.surreal_like.agent.rig import LineAgent, make_config, make_rig


@pytest.mark.parametrize("reports", [True, False])
def test_each_policy_counts_the_episodes_after_which_it_fetches(reports: bool) -> None:
    """Also one that does not send their summaries."""
    with make_rig(agent={"fetch_parameter_mode": "episode:3"}) as rig:
        rig.start("ps", main.ps.build)
        sections: dict[str, Any] = sections_of(rig.config)
        agent = LineAgent(**sections, agent_id=0, agent_mode="training")
        env = rig.config.env_config
        actor = PolicyActor(
            rig.context("agent-0"),
            agent,
            streams=2,
            obs_spec=env.obs_spec,
            action_spec=env.action_spec,
        )
        rig.until(lambda: actor.fetcher.tick() is None and actor.fetcher.idle)
        idle = []
        for ended in (2, 0, 1):
            actor.observe_some(
                None, [{"return": 0.0, "length": 3, "metrics": {}}] * ended, reports=reports
            )
            idle.append(actor.fetcher.idle)
        assert idle == [True, True, False]


def test_the_time_in_environments_of_several_agents_is_measured_where_a_chunk_is_traced() -> None:
    """Otherwise a traced chunk would say that they take none."""
    now, rows = [0.0], []
    config = make_config()
    for traced in (True, False, True):
        sender = RowSender(
            2,
            obs_spec=config.env_config.obs_spec,
            action_spec=config.env_config.action_spec,
            settings=config.session_config.sender,
            overlap=0,
        )
        sender.sender = cast(Any, SimpleNamespace(now=lambda: now[0]))
        sender.traced = traced
        rows.append(sender)

    def step(actions: object) -> JointStep:
        now[0] += 2.0
        return JointStep({}, [])

    actors = [
        SimpleNamespace(
            policy=str(number),
            rows=each,
            has_rows=True,
            act=lambda: None,
            observe_some=lambda *given, **named: None,
        )
        for number, each in enumerate(rows)
    ]
    env = SimpleNamespace(num_envs=2, step=step)
    JointStepping(cast(Any, actors), [], cast(Any, env)).step()
    assert [each._stepping_seconds for each in rows] == [2.0, 0.0, 2.0]
