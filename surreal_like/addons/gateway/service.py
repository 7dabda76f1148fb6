"""Service of a gateway: an agent whose environments are the sessions of its clients."""

from __future__ import annotations

import json
from typing import Any

from session.atomic_file import write_atomically
from session.process.context import Context
from session.process.periodic import Every
from session.wire.socket_state import Pollable
from surreal_like.addons.gateway.evaluations import Evaluations
from surreal_like.addons.gateway.frontend import Frontend
from surreal_like.addons.gateway.gateway import Gateway
from surreal_like.addons.gateway.page import page_address
from surreal_like.addons.gateway.policies import MakeAgent, Policies
from surreal_like.addons.gateway.slots import Recorder
from surreal_like.agent.agent import AgentMode
from surreal_like.agent.evaluation import ANSWERS as SCORED
from surreal_like.agent.evaluation import EvaluationReporter
from surreal_like.agent.sending import Sending, SendingService

_PUMP_SECONDS = 0.01
_CHORES_SECONDS = 0.05
_METRICS_SECONDS = 0.1
_TABLE_SECONDS = 1.0
_IN_STATUS = ("latency_p50_seconds", "batch")
# Of the grace period, for the last acks.
_LAST_ACKS_SECONDS = 3.0


class GatewayService(SendingService):
    """Answers the requests of all sessions with the newest parameters; sends their rows to replay.

    Args:
        context: Context of this process.
        make: Function that makes the agent of a mode, not attached.
    """

    def __init__(self, context: Context, make: MakeAgent) -> None:
        config, clock = context.config, context.clock
        session = config.session_config
        settings = session.gateway
        self._now = clock.now
        self._recorder = Recorder(context)
        self._policies = Policies(
            make,
            config.env_config,
            settings.max_clients * settings.num_envs,
            {
                "train": AgentMode.training,
                "evaluate": AgentMode(session.evaluator.mode[0]),
                "act": AgentMode.eval_deterministic,
            },
        )
        agent, sender = self._policies.agent("train"), self._recorder.sender
        super().__init__(context, [Sending(context, agent, sender)])
        self._sending.more = self._client_totals
        self._fetcher, self._leaving = self._sending.fetcher, self._sending.leaving
        self._grace_seconds: float = session.launcher.grace_seconds
        self._drain_until: float | None = None
        # Of the newest report.
        self._times: dict[str, float] = {}
        self._pump_due, self._chores_due, self._metrics_due, self._table_due = (
            Every(seconds=seconds, clock=clock.now)
            for seconds in (_PUMP_SECONDS, _CHORES_SECONDS, _METRICS_SECONDS, _TABLE_SECONDS)
        )
        self._evaluations = Evaluations(
            config,
            self._policies,
            EvaluationReporter(context.wire.dealer("learner.control", SCORED), clock),
            clock.now,
        )
        self._gateway = Gateway(context, self._recorder, self._policies, self._evaluations)
        self._frontend = Frontend(self._gateway, context.component.serves["clients"])
        port = self._frontend.listener.port
        context.event("listening", f"clients connect to port {port}")
        if settings.page:
            context.event("page", page_address(config, port))

    # -- the frame of a service

    def tick(self) -> bool:
        """Handles what has arrived, and answers one batch."""
        fetcher, gateway, recorder = self._fetcher, self._gateway, self._recorder
        received = self._frontend.receive()
        if self._leaving.begun:
            # No fetch any more: its account would be taken for the last one.
            self._leaving.tick()
            return False
        parameters = fetcher.tick()
        if parameters is not None:
            self._policies.load(parameters)
        gateway.over = fetcher.client.newest.final
        if fetcher.client.newest.final:
            self._begin_leaving("finished", reconnect=False)
            return True
        if fetcher.idle and (self._evaluations.wants_newer or not self._policies.version):
            fetcher.want()
        pumps = self._pump_due()
        if pumps or not recorder.has_room:
            # Before the answers, which an ack may allow.
            recorder.sender.pump()
        answered = gateway.answer()
        if answered:
            fetcher.count(0)
        self._count()
        if pumps:
            if self._steps and self._report_due():
                self._report_curves()
            if self._chores_due():
                self._do_chores()
        return received or answered

    def _count(self) -> None:
        counters = self._gateway.counters
        self._steps += counters.steps
        for _ in range(counters.ended):
            self._fetcher.count(1)
        counters.steps = counters.ended = 0

    def drain(self) -> None:
        """Handles the stop request: open episodes may end, then all rows are sent."""
        if not self._leaving.begun:
            wait = 0.0 if self._context.orphaned else self._grace_seconds - _LAST_ACKS_SECONDS
            self._drain_until = self._now() + wait
            self._gateway.draining = True
            self._continue_draining()

    def _continue_draining(self) -> None:
        """Sends sessions away between two episodes; at the deadline all of them."""
        assert self._drain_until is not None  # drain() was called
        self._gateway.leave_between_episodes("draining")
        if not len(self._gateway.sessions) or self._now() >= self._drain_until:
            self._begin_leaving("draining", reconnect=True)

    def _begin_leaving(self, reason: str, *, reconnect: bool) -> None:
        self._gateway.draining = True
        self._gateway.leave_all(reason, reconnect=reconnect)
        self._show_client_curves()
        self._leaving.begin()
        self._recorder.finish()
        self._count()
        if self._steps:
            self._report_curves()

    @property
    def ready(self) -> bool:
        """False while all places are taken, from the stop request on, and once the run is over."""
        return self._gateway.open and not self._leaving.begun

    def wait_on(self) -> list[Pollable]:
        """Returns the port for clients, and the sockets of parameters, of scores and of acks.

        Acks are read by the next pump, and wake the gateway only while it waits for one: an unread
        ack would end each sleep at once.
        """
        sockets: list[Pollable] = [
            self._frontend.listener,
            self._fetcher.client.socket,
            self._evaluations.scores.socket,
        ]
        awaited = self._leaving.begun or not self._recorder.has_room
        return [*sockets, self._recorder.sender.socket] if awaited else sockets

    def close(self) -> None:
        """Closes the port and all connections."""
        self._frontend.close()

    # -- reports

    def status(self) -> dict[str, float]:
        """Returns rates and queue lengths for the heartbeat."""
        return {
            **super().status(),
            "sessions": float(len(self._gateway.sessions)),
            **{name: self._times[name] for name in _IN_STATUS if name in self._times},
        }

    def _client_totals(self) -> dict[str, Any]:
        return {"clients": self._totals()}

    def _totals(self) -> dict[str, int]:
        """Returns the totals of clients since the start, see ``CLIENT_TOTALS``."""
        counters = self._gateway.counters
        return {
            "sessions": self._gateway.sessions.begun,
            "resumed": counters.resumed,
            "refused": counters.refused + self._frontend.listener.refused,
            "episodes_cut": counters.cut,
            "unrecorded": counters.unrecorded,
        }

    def _report_curves(self) -> None:
        self._times = self._gateway.counters.times.pop()
        totals = {name: float(total) for name, total in self._totals().items()}
        # The curve shows the sessions of now, the totals have all that began.
        curves = {**self._times, **totals, "sessions": float(len(self._gateway.sessions))}
        self._report(curves, self._recorder.pop_recent())

    def _show_client_curves(self) -> None:
        curves = self._gateway.curves.pop()
        if curves:
            self._context.tensorplex.add_scalars(curves, self._sending.agent.progress.env_steps)

    def _do_chores(self) -> None:
        recorded = sum(each.mode == "train" for each in self._gateway.sessions)
        self._recorder.flush(self._now(), recorded)
        self._frontend.do_chores()
        if self._evaluations.trouble:
            self._context.log.warning(self._evaluations.trouble)
            self._evaluations.trouble = ""
        if self._metrics_due():
            self._show_client_curves()
        if self._table_due():
            self._write_table()
        if self._drain_until is not None:
            self._continue_draining()

    def _write_table(self) -> None:
        """Writes the sessions to ``gateway/gateway-0.json`` of the run folder, for ``clients``."""
        folder = self._context.folder
        if folder is None:
            return
        now = self._now()
        rows = [session.describe(now) for session in self._gateway.sessions]
        folder.gateways.mkdir(exist_ok=True)
        path = folder.gateways / f"{self._context.name}.json"
        write_atomically(path, json.dumps({"time": self._context.clock.time(), "sessions": rows}))
