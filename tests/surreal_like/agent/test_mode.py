"""The three modes of an agent."""

from __future__ import annotations

import pytest

from session.errors import UsageError
from surreal_like import AgentMode, StringEnum


def test_A21_the_modes_are_exactly_three() -> None:
    names = ["training", "eval_stochastic", "eval_deterministic"]
    assert [str(mode) for mode in AgentMode] == names
    assert [mode.name for mode in AgentMode] == names


def test_A22_modes_are_a_string_enum() -> None:
    assert issubclass(AgentMode, StringEnum)
    assert AgentMode.training == "training"
    assert AgentMode("eval_stochastic") is AgentMode.eval_stochastic


def test_another_mode_is_refused() -> None:
    with pytest.raises(UsageError) as refused:
        AgentMode("playing")
    assert str(refused.value) == (
        "agent_mode is 'playing': expected one of training, eval_stochastic, eval_deterministic"
    )
