"""Mapping of agents to the policies that play them."""

from __future__ import annotations

from session.config import Config
from surreal_like.env.joint_vector import Mapper, Part
from surreal_like.policies.config import policies_of


def parts_of(config: Config) -> dict[str, Part]:
    """Returns the agents that each policy of a resolved experiment plays."""
    return {
        name: Part((each.obs_spec, each.action_spec), list(each.agents))
        for name, each in policies_of(config).items()
    }


def map_to_only(config: Config) -> Mapper:
    """Returns the mapping of agents to policies."""
    by_agent = {agent: name for name, each in policies_of(config).items() for agent in each.agents}
    return by_agent.__getitem__
