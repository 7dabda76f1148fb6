"""Log and metrics of an agent, a learner or a replay, before and after it is connected."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, SupportsFloat

from session.config import Config
from session.process.periodic import Every

# Whoever reads a class of these needs no sockets: its log and metrics are made at their first use.
if TYPE_CHECKING:
    from session.loggerplex.log_client import Log
    from session.process.context import Context
    from session.tensorplex.metrics_client import TensorplexClient


class Reporting:
    """Base of the classes that authors extend: they log and report from their first line on.

    Records are kept until the connection, and sent by it.

    Args:
        session_config: ``session_config`` of the experiment.
        kind: kind of component.
        index: number of the component.
        client_id: ``<group>/<id>`` of its metrics.

    Attributes:
        own_metrics: newest values given to :meth:`update_tensorplex`, by name.
    """

    def __init__(self, session_config: Config, kind: str, index: int, client_id: str) -> None:
        self._reports_as = kind, client_id
        self.own_metrics: dict[str, float] = {}
        self._unreported: dict[str, float] = {}
        self._report_due = Every(calls=1, clock=time.monotonic)
        if session_config.folder is not None:
            from session.process.script import add_part

            add_part(session_config, kind, index, self.log, self.tensorplex)

    @cached_property
    def log(self) -> Log:
        """Log of the component."""
        from session.loggerplex.log_client import early_log

        return early_log(self._reports_as[0])

    @cached_property
    def tensorplex(self) -> TensorplexClient:
        """Metrics client; :meth:`update_tensorplex` is the usual way to report."""
        from session.tensorplex.metrics_client import TensorplexClient

        return TensorplexClient.early(self._reports_as[1])

    def report_by(self, context: Context, metrics: TensorplexClient, seconds: float) -> None:
        """Sends the records by a context: the kept ones now, the later ones as they come.

        Args:
            context: context of the process.
            metrics: metrics client of that context.
            seconds: interval of :meth:`update_tensorplex`.
        """
        self.log = self.log.join(context.log)
        self.tensorplex = self.tensorplex.join(metrics)
        self._report_due = Every(seconds=seconds, clock=context.clock.now)

    def update_tensorplex(
        self, tag_value_dict: Mapping[str, SupportsFloat], global_step: int | None = None
    ) -> None:
        """Reports scalars, once per interval of ``session_config.tensorplex.update_schedule``.

        Only the newest value of each name is reported. It is also added to the metrics of each
        episode that ends.

        Raises:
            UsageError: a name or value is invalid.
        """
        numbers = self.tensorplex.checked(tag_value_dict)
        self.own_metrics |= numbers
        self._unreported |= numbers
        if self._report_due():
            step = self.run_steps if global_step is None else global_step
            self.tensorplex.add_scalars(self._unreported, step)
            self._unreported = {}

    @property
    def run_steps(self) -> int:
        """Environment steps of the whole run, as far as known."""
        return 0
