"""Base of the processes that send experience: agents and gateways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from session.process.context import Context
from session.process.periodic import Every
from session.process.service import Service
from surreal_like.agent.agent import Agent
from surreal_like.agent.fetcher import Fetcher, agent_for
from surreal_like.agent.run_link import AgentLink
from surreal_like.data.episodes import EpisodeSummary, mean_metrics
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.experience.leaving import Leaving


class Sending:
    """Fetches the parameters of a policy, and accounts for the experience that they make.

    Args:
        context: context of the process.
        agent: agent that chooses the actions; not yet attached.
        sender: sender of the experience.
        policy: name of the policy.
        renews: True fetches newer parameters at intervals, see :class:`Fetcher`.

    Attributes:
        policy, sender: the same.
        more: returns further fields of the account.
        agent: the present agent; another one after some parameters, see :func:`agent_for`.
        link: connection of the agent.
        window: chunks that are not acked.
        fetcher: fetches the parameters.
        leaving: ends the sending.
        waits_above: version above which it waits for one; 0: it does not wait.
    """

    def __init__(
        self,
        context: Context,
        agent: Agent,
        sender: ExpSender,
        *,
        policy: str = DEFAULT_POLICY,
        renews: bool = True,
    ) -> None:
        self.more: Callable[[], Mapping[str, Any]] = dict
        session = context.config.session_config
        self._context, self.agent, self.policy = context, agent, policy
        self.link = AgentLink(context, policy=policy)
        agent.attach(self.link)
        self.sender, self.window = sender, sender.window
        self.fetcher = Fetcher(
            self.link.client,
            context.clock,
            mode=session.agent.fetch_parameter_mode,
            interval_seconds=session.agent.fetch_interval_seconds,
            account=self._account,
            renews=renews,
        )
        self.leaving = Leaving(context, sender, self.link.client, self._last_account)
        self.waits_above = 0
        # Age of the parameters when they were loaded, and when that was.
        self._age_then, self._loaded_at = 0.0, context.clock.now()

    def load(self, parameters: Parameters) -> None:
        """Loads parameters that have arrived; this may take another agent."""
        self.agent = agent_for(self._context, self.agent, parameters, self.policy)
        self.agent.load(parameters)
        clock = self._context.clock
        self._loaded_at = clock.now()
        self._age_then = max(0.0, clock.time() - parameters.info.get("time", clock.time()))

    @property
    def age_seconds(self) -> float:
        """Seconds since the parameters with which it acts were published."""
        return self._age_then + self._context.clock.now() - self._loaded_at

    def _last_account(self) -> dict[str, Any]:
        """Returns the sender's row counts."""
        return {**self.sender.account(), **self.more()}

    def _account(self) -> dict[str, Any]:
        """Returns the row counts, and what this process waits for."""
        return {**self._last_account(), "status": self.waits_for()}

    def waits_for(self) -> dict[str, float]:
        """Returns what it waits for, for its account and the heartbeat."""
        return {
            "version": float(self.agent.version),
            "waits_for_acks": float(not self.window.ready),
            "waits_above_version": float(self.waits_above),
        }

    def curves(self) -> dict[str, float]:
        """Returns the numbers to report, by tag."""
        curves = {
            "version_lag": float(self.fetcher.lag),
            ".core/unacked_bytes": float(self.window.unacked_bytes),
            ".core/resent_chunks": float(self.window.resent),
        }
        epsilon = getattr(self.agent, "epsilon", None)
        return curves | {"epsilon": epsilon} if isinstance(epsilon, float) else curves


class SendingService(Service):
    """Reports and ends what is sent with the policies of a process.

    Args:
        context: context of this process.
        sendings: one for each policy, the first of which owns the run.
    """

    def __init__(self, context: Context, sendings: Sequence[Sending]) -> None:
        self._context, self._sendings = context, sendings
        self._sending = sendings[0]
        self._steps = 0
        self._steps_per_second = 0.0
        self._report_due = Every(
            seconds=context.config.session_config.tensorplex.update_schedule,
            clock=context.clock.now,
        )
        self._reported_at = context.clock.now()

    @property
    def env_restarts(self) -> int:
        """Number of environments of this process that were made anew after an error."""
        return 0

    def _restarts(self) -> dict[str, int]:
        """Returns their number as a field of accounts and heartbeats; empty without any."""
        return {"env_restarts": self.env_restarts} if self.env_restarts else {}

    @property
    def done(self) -> bool:
        """True once everything is sent, unless the process has to stay."""
        # The usual answer comes first: this is asked after each step.
        if not self._sending.leaving.begun:
            return False
        return all(each.leaving.done for each in self._sendings)

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat, of the policy that waits most."""
        each = [sending.waits_for() for sending in self._sendings]
        return {
            "steps_per_second": self._steps_per_second,
            **{name: max(one[name] for one in each) for name in each[0]},
            "version": min(one["version"] for one in each),
            "version_lag": float(max(sending.fetcher.lag for sending in self._sendings)),
            "unacked_bytes": float(sum(s.window.unacked_bytes for s in self._sendings)),
            "unacked_rows": float(sum(s.window.unacked for s in self._sendings)),
            "env_steps": float(sum(s.sender.env_steps for s in self._sendings)),
            **self._restarts(),
        }

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
        curves |= {"steps_per_second": self._steps_per_second, **self._restarts()}
        for sending in self._sendings:
            prefix = f"{sending.policy}/" if len(self._sendings) > 1 else ""
            curves |= {prefix + name: value for name, value in sending.curves().items()}
        if episodes:
            curves["return"] = float(np.mean([each["return"] for each in episodes]))
            curves["episode_length"] = float(np.mean([each["length"] for each in episodes]))
        env_steps = self._sending.agent.progress.env_steps
        self._context.tensorplex.add_scalars(mean_metrics(episodes) | curves, env_steps)
        self._reported_at, self._steps = now, 0
