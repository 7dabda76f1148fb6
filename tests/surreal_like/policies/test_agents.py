"""The policies of one agent process: each asks for its parameters by itself."""

from __future__ import annotations

from typing import Any

import pytest

import main.ps
from session.config.sections import sections_of
from surreal_like.agent.policy_actor import PolicyActor
from tests.surreal_like.agent.rig import LineAgent, make_rig
from tests.surreal_like.policies.test_snapshots import summary


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
            actor.observe_some(None, [summary(0.0)] * ended, reports=reports)
            idle.append(actor.fetcher.idle)
        assert idle == [True, True, False]
