"""What an agent acts for."""

from __future__ import annotations

from session.enumeration import StringEnum


class AgentMode(StringEnum):
    """Training explores; evaluation plays sampled actions, or the best ones."""

    training = ()
    eval_stochastic = ()
    eval_deterministic = ()
