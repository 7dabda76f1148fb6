"""A new agent where a trial has taken over the settings of another one."""

from __future__ import annotations

from session.config.merge import with_settings
from session.config.sections import sections_of
from session.process.context import Context
from surreal_like.agent.base import Agent
from surreal_like.agent.link import AgentLink
from surreal_like.data.parameters import Parameters
from surreal_like.experience.actor_state import acting_of
from surreal_like.network.generators import generators_of, restore_states, states_of


def agent_for(context: Context, agent: Agent, parameters: Parameters) -> Agent:
    """Returns the agent that loads these parameters: a new one if their generation is.

    The new one has the settings that came with the parameters; random numbers go on.

    Args:
        context: context of the process.
        agent: the present one, attached.
        parameters: that arrived.

    Raises:
        ConfigError: the settings do not fit the experiment.
    """
    acting, generation = acting_of(context), int(parameters.info.get("generation", 0))
    if generation <= acting.generation:
        return agent
    acting.generation = generation
    config = with_settings(context.config, parameters.info.get("settings", {}))
    new = type(agent)(
        **sections_of(config),
        agent_id=agent.agent_id,
        agent_mode=agent.agent_mode,
    )
    new.attach(AgentLink(context))
    restore_states(generators_of(new), states_of(generators_of(agent)))
    context.event("generation", f"{generation}, built anew")
    return new
