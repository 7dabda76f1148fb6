"""When an agent asks for parameters: never waiting, one request in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from session.clock import Clock
from session.errors import ConfigError
from surreal_like.data.parameters import Parameters
from surreal_like.ps.client import ParameterClient

_INFO_SECONDS = 1.0
_KEY = "session_config.agent.fetch_parameter_mode"


def parse_mode(text: str) -> tuple[str, int]:
    """What is counted, ``episode`` or ``step``, and after how many of them parameters are fetched.

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
    """Asks for parameters in time, and takes what has come.

    Between fetches it asks once a second what the newest parameters are, so that the end of the
    run is seen however long an episode lasts.

    Args:
        client: asks.
        clock: when.
        mode: ``episode``, ``episode:<n>``, ``step`` or ``step:<n>``: what must have happened since
            the last fetch.
        interval_seconds: shortest time between two fetches.
        account: gives what is told of the sender at each fetch, None without a sender.
    """

    def __init__(
        self,
        client: ParameterClient,
        clock: Clock,
        *,
        mode: str,
        interval_seconds: float,
        account: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.client = client
        self._clock = clock
        self._by, self._every = parse_mode(mode)
        self._interval_seconds = interval_seconds
        self._account = account
        self._counted = 0
        self._wanted = True
        self._patient = False
        self._fetched_at = self._asked_at = -float("inf")

    @property
    def final(self) -> bool:
        """True once the learner has said that the run is over."""
        return self.client.newest.final

    @property
    def idle(self) -> bool:
        """True while nothing has been asked for, and nothing will be."""
        return not (self._wanted or self._patient or self.client.waiting)

    @property
    def lag(self) -> int:
        """Versions between what is here and the newest that is known of."""
        return max(0, self.client.newest.order[1] - self.client.have[1])

    def count(self, ended: int) -> None:
        """A vector step has been taken, in which ``ended`` streams ended an episode."""
        self._counted += ended if self._by == "episode" else 1
        if self._counted >= self._every:
            self._wanted = True
            self._counted = 0

    def want(self) -> None:
        """Fetch as soon as the interval has passed, whatever the mode says."""
        self._wanted = True

    def want_newer(self) -> None:
        """Fetch newer parameters as soon as there are any, whatever mode and interval say."""
        self._patient = True

    def tick(self) -> Parameters | None:
        """Asks if it is time; gives newer parameters if they have come."""
        client = self.client
        if client.waiting:
            return client.receive()
        now = self._clock.now()
        due = self._wanted and now - self._fetched_at >= self._interval_seconds
        if not (due or self._patient or now - self._asked_at >= _INFO_SECONDS):
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
