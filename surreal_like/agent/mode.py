"""Purposes of acting: training or evaluation."""

from __future__ import annotations

from session.config.string_enum import StringEnum
from session.errors import UsageError


class AgentMode(StringEnum):
    """Training explores; evaluation takes sampled actions, or the best ones."""

    training = ()
    eval_stochastic = ()
    eval_deterministic = ()

    @classmethod
    def _missing_(cls, value: object) -> None:
        names = ", ".join(map(str, cls))
        raise UsageError(f"agent_mode is {value!r}: expected one of {names}")
