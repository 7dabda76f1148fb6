"""Base of the processes that send experience: agents and gateways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from session.process.context import Context
from session.process.periodic import Every
from session.process.service import Service
from surreal_like.agent.base import Agent
from surreal_like.agent.fetcher import Fetcher
from surreal_like.agent.link import AgentLink
from surreal_like.data.episodes import EpisodeSummary, mean_metrics
from surreal_like.experience.sender import ExpSender
from surreal_like.ps.client import ParameterClient

# Shares of the grace period: for the last acks, then for the leave message.
_ACKS_SHARE = 0.7
_FAREWELL_SHARE = 0.2


class Leaving:
    """Waits for the last acks, then for the parameter server's reply to the leave message.

    Args:
        context: context of the process.
        sender: sender of its experience.
        client: client of the parameter server.
        account: returns the account for the leave message; None: that of the sender.

    Attributes:
        begun: True once no more experience is made.
        over: True once everything is sent, or the time is up.
    """

    def __init__(
        self,
        context: Context,
        sender: ExpSender,
        client: ParameterClient,
        account: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.begun = self.over = False
        self._context, self._sender, self._client = context, sender, client
        self._account = account or sender.account
        self._grace_seconds: float = context.config.session_config.launcher.grace_seconds
        self._acked = False
        self._deadline = 0.0

    @property
    def done(self) -> bool:
        """True once the process may end."""
        return self.over and self._context.may_exit

    def begin(self) -> None:
        """Begins to wait; the caller sends its last rows and the goodbye."""
        self.begun = True
        share = 0.0 if self._context.orphaned else _ACKS_SHARE
        self._deadline = self._context.clock.now() + share * self._grace_seconds

    def tick(self) -> None:
        """Continues with what can be done now."""
        now = self._context.clock.now()
        if not self._acked:
            self._sender.pump()
            if self._sender.window.empty or now >= self._deadline:
                self._acked = True
                self._deadline = now + _FAREWELL_SHARE * self._grace_seconds
        elif not self.over:
            noted = self._client.leave(self._account())
            self.over = bool(noted) or now >= self._deadline


class SendingService(Service):
    """Fetches parameters for an agent, and reports and ends what is sent with them.

    Args:
        context: context of this process.
        agent: agent that chooses the actions; not yet attached.
        sender: sender of the experience.
        renews: True fetches newer parameters at intervals, see :class:`Fetcher`.
    """

    def __init__(
        self, context: Context, agent: Agent, sender: ExpSender, *, renews: bool = True
    ) -> None:
        session = context.config.session_config
        self._context, self._agent = context, agent
        self._link = AgentLink(context)
        agent.attach(self._link)
        self._sender, self._window = sender, sender.window
        self._fetcher = Fetcher(
            self._link.client,
            context.clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
            renews=renews,
        )
        self._leaving = Leaving(context, sender, self._link.client, self._last_account)
        self._steps = 0
        self._steps_per_second = 0.0
        self._report_due = Every(
            seconds=session.tensorplex.update_schedule, clock=context.clock.now
        )
        self._reported_at = context.clock.now()

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        return self._leaving.done

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            "steps_per_second": self._steps_per_second,
            **self._waits_for(),
            "version_lag": float(self._fetcher.lag),
            "unacked_bytes": float(self._window.unacked_bytes),
            "env_steps": float(self._sender.env_steps),
        }

    def _last_account(self) -> dict[str, Any]:
        """Returns the sender's row counts."""
        return self._sender.account()

    def _account(self) -> dict[str, Any]:
        """Returns the row counts, and what this process waits for."""
        return {**self._last_account(), "status": self._waits_for()}

    def _waits_for(self) -> dict[str, float]:
        return {
            "version": float(self._agent.version),
            "waits_for_acks": float(not self._window.ready),
            "waits_above_version": float(self._last_version),
        }

    @property
    def _last_version(self) -> int:
        """Version above which it waits for one; 0: it does not wait."""
        return 0

    def _report(
        self, curves: dict[str, float], episodes: list[EpisodeSummary], *, num_envs: int = 1
    ) -> None:
        """Reports the curves since the last report.

        Args:
            curves: values of this kind of process, by tag.
            episodes: episodes that ended since then.
            num_envs: environment steps in one of :attr:`_steps`.
        """
        now = self._context.clock.now()
        passed = max(1e-9, now - self._reported_at)
        self._steps_per_second = self._steps * num_envs / passed
        curves |= {
            "steps_per_second": self._steps_per_second,
            "version_lag": float(self._fetcher.lag),
            ".core/unacked_bytes": float(self._window.unacked_bytes),
            ".core/resent_chunks": float(self._window.resent),
        }
        epsilon = getattr(self._agent, "epsilon", None)
        if isinstance(epsilon, float):
            curves["epsilon"] = epsilon
        if episodes:
            curves["return"] = float(np.mean([each["return"] for each in episodes]))
            curves["episode_length"] = float(np.mean([each["length"] for each in episodes]))
        env_steps = self._agent.progress.env_steps
        self._context.tensorplex.add_scalars(mean_metrics(episodes) | curves, env_steps)
        self._reported_at, self._steps = now, 0
