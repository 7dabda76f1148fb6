"""Schedule of parameter fetches, and a new agent once its trial has taken over settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from session.config.merge import with_settings
from session.config.sections import sections_of
from session.errors import ConfigError
from session.process.clock import Clock
from session.process.context import Context
from session.process.periodic import MOMENT_SECONDS
from surreal_like.agent.agent import Agent
from surreal_like.agent.run_link import AgentLink
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk_sender import acting_of
from surreal_like.network.generators import generators_of, restore_states, states_of
from surreal_like.ps.parameter_client import ParameterClient

# Longest time between two requests; of an agent that renews its policy, also its greatest age.
_LOOK_SECONDS = 1.0
_KEY = "session_config.agent.fetch_parameter_mode"


def parse_mode(text: str) -> tuple[str, int]:
    """Returns the counted unit, ``episode`` or ``step``, and the number of units between fetches.

    Raises:
        ConfigError: the text is neither of ``episode``, ``episode:<n>``, ``step``, ``step:<n>``.
    """
    what, colon, number = text.partition(":")
    count = number if colon else "1"
    if what not in ("episode", "step") or not count.isdecimal() or int(count) < 1:
        raise ConfigError(
            f"{_KEY} is {text!r}: expected episode, episode:<n>, step or step:<n>, "
            "n a whole number from 1"
        )
    return what, int(count)


class Fetcher:
    """Requests parameters on schedule and receives them.

    Between fetches it sends a request once per second, so that the end of the run is noticed during
    long episodes: for newer parameters if it renews the policy, else only for their info.

    Args:
        client: sends the requests.
        clock: clock for the schedule.
        mode: ``episode``, ``episode:<n>``, ``step`` or ``step:<n>``: event since the last fetch
            that triggers the next one.
        interval_seconds: shortest time between two fetches.
        account: returns the sender's account, sent with each request; None without a sender.
        renews: fetches once per second whatever the mode: an episode may have no end. False for
            callers that may not change their parameters at any time.

    Attributes:
        client: the same.
        by_episodes: True if the mode counts episodes.
    """

    def __init__(
        self,
        client: ParameterClient,
        clock: Clock,
        *,
        mode: str,
        interval_seconds: float,
        account: Callable[[], Mapping[str, Any]] | None = None,
        renews: bool = False,
    ) -> None:
        self.client = client
        self._clock = clock
        by, self._every = parse_mode(mode)
        self.by_episodes = by == "episode"
        self._interval_seconds = interval_seconds
        self._account = account
        self._renews = renews
        self._counted = 0
        self._wanted = True
        self._patient = False
        self._fetched_at = self._asked_at = -math.inf
        # Until then nothing is due and no reply can come.
        self._rests_until = -math.inf

    @property
    def idle(self) -> bool:
        """True while no request is pending or scheduled."""
        return not (self._wanted or self._patient or self.client.waiting)

    @property
    def lag(self) -> int:
        """Number of versions between the loaded parameters and the newest known ones."""
        return max(0, self.client.newest.order[1] - self.client.have[1])

    def count(self, ended: int) -> None:
        """Counts a vector step in which ``ended`` streams ended an episode."""
        self._counted += ended if self.by_episodes else 1
        if self._counted >= self._every:
            self.want()
            self._counted = 0

    def want(self) -> None:
        """Schedules a fetch as soon as the interval has passed, regardless of the mode."""
        self._wanted = True
        self._rests_until = -math.inf

    def want_newer(self) -> None:
        """Fetches newer parameters as soon as possible, regardless of mode and interval."""
        self._patient = True
        self._rests_until = -math.inf

    def tick(self) -> Parameters | None:
        """Sends a request if one is due; returns newer parameters if they have arrived."""
        now, client = self._clock.now(), self.client
        if now < self._rests_until:
            return None
        if client.waiting:
            return client.receive()
        looks = now - self._asked_at >= _LOOK_SECONDS
        wanted = self._wanted or (looks and self._renews)
        due = wanted and now - self._fetched_at >= self._interval_seconds
        if not (due or self._patient or looks):
            until = self._asked_at + _LOOK_SECONDS
            if self._wanted:
                until = min(until, self._fetched_at + self._interval_seconds)
            self._rests_until = until - MOMENT_SECONDS
            return None
        account = self._account() if self._account is not None else None
        if not (due or self._patient):
            asked = client.ask_info(account)
        elif asked := client.ask(account, patient=self._patient):
            self._wanted = self._patient = False
            self._fetched_at = now
        if asked:
            self._asked_at = now
        return None


def agent_for(
    context: Context, agent: Agent, parameters: Parameters, policy: str = DEFAULT_POLICY
) -> Agent:
    """Returns the agent that loads these parameters: a new one if their generation is.

    The new one has the settings that came with the parameters; random numbers go on.

    Args:
        context: context of the process.
        agent: the present one, attached.
        parameters: that arrived.
        policy: name of the agent's policy.

    Raises:
        ConfigError: the settings do not fit the experiment.
    """
    acting, generation = acting_of(context, policy), int(parameters.info.get("generation", 0))
    if generation <= acting.generation:
        return agent
    acting.generation = generation
    config = with_settings(context.config, parameters.info.get("settings", {}))
    new = type(agent)(
        **sections_of(config),
        agent_id=agent.agent_id,
        agent_mode=agent.agent_mode,
    )
    new.attach(AgentLink(context, policy=policy))
    restore_states(generators_of(new), states_of(generators_of(agent)))
    context.event("generation", f"{generation}, built anew")
    return new
