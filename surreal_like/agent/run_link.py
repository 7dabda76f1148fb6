"""Connection of an agent to the run of its process."""

from __future__ import annotations

from typing import Any

import torch

from session.config import Config
from session.process.context import Context
from session.process.script import script_context
from surreal_like.data.parameters import Parameters
from surreal_like.data.policy_names import DEFAULT_POLICY
from surreal_like.experience.chunk_sender import acting_of
from surreal_like.ps.parameter_client import ParameterClient
from surreal_like.ps.schemas import ANSWERS

_FETCH_SECONDS = 10.0
_NO_INFO = {"time": 0.0, "iteration": 0, "message": "", "hash": ""}


class AgentLink:
    """Fetches parameters for an agent; :meth:`Agent.attach` takes it.

    Args:
        context: context of this process.
        policy: name of the agent's policy.
        in_script: True if the process is a script, which ends with the run.

    Attributes:
        context, policy: the same.
        acting: state shared with the sender of experience.
        client: client of the parameter server.
    """

    def __init__(
        self, context: Context, *, policy: str = DEFAULT_POLICY, in_script: bool = False
    ) -> None:
        self.context, self.policy = context, policy
        self.acting = acting_of(context, policy)
        dealer = context.wire.dealer("ps.requests", ANSWERS)
        self.client = ParameterClient(dealer, context.clock, policy=policy)
        self._in_script = in_script

    def fetch(self) -> Parameters | None:
        """Waits for the newest parameters; returns them if they are newer, else None."""
        self.context.pulse()
        account = self.acting.account
        current = account() if account is not None else None
        return self.client.fetch(_FETCH_SECONDS, current)

    @property
    def ends_script(self) -> bool:
        """True in a script once the learner has reported the end of the run."""
        return self._in_script and self.client.newest.final

    def fetch_info(self) -> dict[str, Any]:
        """Waits for the description of the newest parameters, see `Agent.fetch_parameter_info`."""
        self.context.pulse()
        info = self.client.fetch_info(_FETCH_SECONDS).info
        return {name: info.get(name, value) for name, value in _NO_INFO.items()}


def link_script(session_config: Config, kind: str) -> AgentLink:
    """Returns the link of a script, which joins its planned run at first use.

    Args:
        session_config: ``session_config`` of the experiment; its ``folder`` is that of the run.
        kind: ``agent`` or ``evaluator``.

    Raises:
        UsageError: there is no planned run folder.
        DeadlineError: the parameter server did not reply in time.
        RefusedError: the parameter server belongs to another experiment.
    """
    link = AgentLink(script_context(session_config, kind), in_script=True)
    torch.set_num_threads(1)
    return link
