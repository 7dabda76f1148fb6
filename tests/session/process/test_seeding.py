"""Seeds of components."""

from __future__ import annotations

import subprocess
import sys

import pytest

from session import ConfigError
from session.process.seeding import component_seed


def test_golden_values_hold_on_every_machine() -> None:
    assert [component_seed(0, "agent-0", 1), component_seed(1, "learner", 2)] == [
        40360327,
        1012106329,
    ]


def test_another_process_gets_the_same() -> None:
    code = (
        "from session.process.seeding import component_seed; print(component_seed(7, 'agent-3', 2))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == component_seed(7, "agent-3", 2)


def test_seed_name_and_start_all_matter() -> None:
    seeds = {
        component_seed(seed, name, starts)
        for seed in range(10)
        for name in ("learner", "agent-0", "agent-1", "agent-10", "eval-0")
        for starts in range(10)
    }
    assert len(seeds) == 500
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_large_seeds_and_negative_ones() -> None:
    assert component_seed(2**70, "learner", 1) != component_seed(2**70 + 1, "learner", 1)
    with pytest.raises(ConfigError, match=r"session_config\.seed is -1, expected 0 or more"):
        component_seed(-1, "learner", 1)


def test_a_resumed_run_repeats_no_seed() -> None:
    seeds = {
        component_seed(3, "eval-0", starts, part=part) for starts in range(9) for part in (1, 2, 3)
    }
    assert len(seeds) == 27
    assert component_seed(3, "eval-0", 2, part=1) == component_seed(3, "eval-0", 2)
