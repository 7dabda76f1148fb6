"""Numbers of one of several policies, for the lines and the result of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from session.process.periodic import Rate
from surreal_like.coordinator.lag import Lag


class PolicyStats:
    """Iteration, version, lag, rows and rates of a policy.

    Args:
        whole: lag of the run, to which the batches of the policy count, too.
        seconds: returns the time of the run [s].

    Attributes:
        lag: lag of the policy's rows.
        iteration: number of updates of its present weights.
        version: number of its newest publication.
    """

    def __init__(self, whole: Lag, seconds: Callable[[], float]) -> None:
        self.lag = Lag(whole)
        self.iteration = self.version = 0
        self._seconds = seconds
        self._rates: dict[str, Rate] = {}

    def line(self, agent_steps: int) -> dict[str, Any]:
        """Returns the numbers for a line of progress; its lag is that since the previous line.

        Args:
            agent_steps: steps of its agents.
        """
        rates = {}
        for name, total in self._totals(agent_steps).items():
            if name not in self._rates:
                self._rates[name] = Rate(clock=self._seconds)
                # An earlier process has counted them.
                self._rates[name].begin(total)
            self._rates[name].reach(total)
            rates[name] = self._rates[name].per_second()
        return {"agent_steps": agent_steps, **self._numbers(self.lag.pop_recent(), rates)}

    def result(self, agent_steps: int) -> dict[str, Any]:
        """Returns the numbers of the whole run, see :meth:`line`."""
        seconds = self._seconds()
        rates = {name: total / seconds for name, total in self._totals(agent_steps).items()}
        return {"agent_steps": agent_steps, **self._numbers(self.lag.summary(), rates)}

    def _totals(self, agent_steps: int) -> dict[str, int]:
        return {"agent_steps": agent_steps, "updates": self.iteration}

    def _numbers(self, lag: Mapping[str, Any], rates: Mapping[str, float]) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "version": self.version,
            "rates": {f"{name}_per_second": rate for name, rate in rates.items()},
            "lag": lag,
        }
