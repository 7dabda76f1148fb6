"""Mapping of agents to the policies that play them."""

from __future__ import annotations

from session.config import Config
from surreal_like.data.added_parts import policy_spec
from surreal_like.env.joint_vector import Mapper, Part
from surreal_like.policies.config import policies_of


def parts_of(config: Config, *, evaluation: bool = False) -> dict[str, Part]:
    """Returns the agents that each policy of a resolved experiment plays, with their specs.

    Args:
        config: the resolved experiment.
        evaluation: leaves out what only value functions see.
    """
    parts = {}
    for name, each in policies_of(config).items():
        obs_spec = dict(policy_spec(each.obs_spec)) if evaluation else each.obs_spec
        parts[name] = Part((obs_spec, each.action_spec), list(each.agents))
    return parts


def map_to_only(config: Config) -> Mapper:
    """Returns the mapping of agents to policies."""
    by_agent = {agent: name for name, each in policies_of(config).items() for agent in each.agents}
    return by_agent.__getitem__
