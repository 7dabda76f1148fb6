"""Environments that are made anew after an error, with `env_config.on_error: restart`."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from session.errors import SurrealError, describe
from session.line_limit import LineLimit

_WINDOW_SECONDS = 600.0

_log = logging.getLogger(__name__)


class Restarts:
    """Counts and limits the restarts of the environments of one vector.

    Args:
        env_config: has `max_env_restarts`, the most restarts in 10 minutes, and `on_error`:
            without `restart` there is none, and the first error passes.
        seeds: seed of each stream; the new copies get others that follow from it.
        make: builds a new environment; None: another process does.
        now: returns the time [s].

    Attributes:
        wanted: False if an error ends the component.
        count: restarts so far.
        relayed: errors that another process logs; None: they are logged here.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        seeds: Sequence[int],
        make: Callable[[], Any] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.count = 0
        self.relayed: list[Exception] | None = None
        self.wanted = env_config.get("on_error") == "restart"
        self._most = int(env_config["max_env_restarts"]) if self.wanted else 0
        self._seeds, self._make, self._now = seeds, make, now
        self._times: deque[float] = deque(maxlen=self._most + 1)
        self._lines = LineLimit(now, seconds=math.inf)

    def renew(self, env: Any, error: Exception) -> Any:
        """Closes an environment that raised an error, and returns a new one.

        Args:
            env: the environment.
            error: the error of `reset` or `step`; those of the constructor count, too.

        Raises:
            Exception: the error itself if it breaks the contract of environments, which a new copy
                would do, too, or if there were too many.
        """
        while True:
            if isinstance(error, SurrealError) or self._make is None:
                raise error
            self.add(error)
            with suppress(Exception):
                env.close()
            try:
                return self._make()
            except Exception as again:  # noqa: BLE001 - the author's code may raise any error
                error = again

    def add(self, error: Exception) -> None:
        """Counts an error; raises it if it is one of too many, or if restarts are not wanted."""
        if not self.wanted:
            raise error
        now = self._now()
        self._times.append(now)
        many = len(self._times) > self._most and now - self._times[0] < _WINDOW_SECONDS
        if many:
            # A note: the kind of the error decides whether the component is started again.
            limit = f"{self._most} restarts within {_WINDOW_SECONDS / 60:.0f} minutes"
            error.add_note(f"more than {limit} (env_config.max_env_restarts)")
            raise error
        self.count += 1
        if self.relayed is not None:
            self.relayed.append(error)
        elif self._lines.admit("", describe(error)) is not None:
            _log.warning("an environment was made anew after an error: %s", describe(error))

    def seed_of(self, stream: int) -> int:
        """Returns the seed of the newest copy of a stream, in [0, 2**31)."""
        sequence = np.random.SeedSequence(self._seeds[stream], spawn_key=(self.count,))
        return int(sequence.generate_state(1)[0]) >> 1


# Of environments outside of an experiment.
NO_RESTARTS = Restarts({}, ())
