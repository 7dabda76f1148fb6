"""Seeds of components."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch

from session import ConfigError
from session.config import Config
from session.process.context import run_generation, run_part
from session.process.seeding import build_seeded, component_seed, seed_all, seed_globals
from tests.drawing import draw


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


def test_large_seeds() -> None:
    assert component_seed(2**70, "learner", 1) != component_seed(2**70 + 1, "learner", 1)


def test_a_resumed_run_repeats_no_seed() -> None:
    seeds = {
        component_seed(3, "eval-0", starts, part=part) for starts in range(9) for part in (1, 2, 3)
    }
    assert len(seeds) == 27
    assert component_seed(3, "eval-0", 2, part=1) == component_seed(3, "eval-0", 2)


def draw_all() -> list[float]:
    """Draw from each global generator."""
    return [*draw(), torch.rand(1).item()]


@pytest.fixture
def kept() -> Iterator[None]:
    """Give the generators back to the other tests as they were."""
    with seed_all(0):
        yield


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1, 2**70])
def test_every_global_generator_gets_the_seed(seed: int) -> None:
    first = build_seeded(seed, draw_all)
    assert draw_all() != first
    seed_globals(seed)
    assert draw_all() == first
    assert len(set(first) | set(build_seeded(seed + 1, draw_all))) == 6


@pytest.mark.usefixtures("kept")
def test_after_a_while_with_a_seed_the_numbers_go_on() -> None:
    seed_globals(3)
    expected = [draw_all(), draw_all()]
    seed_globals(3)
    first = draw_all()
    with seed_all(4):
        assert draw_all() not in expected
    assert [first, draw_all()] == expected


@pytest.mark.slow
@pytest.mark.usefixtures("kept")
def test_torch_is_seeded_also_if_an_author_is_the_first_to_load_it() -> None:
    """Its generator begins with the same numbers in every process."""
    code = (
        "import importlib, sys; from session.process.seeding import build_seeded; "
        "assert 'torch' not in sys.modules; "
        "torch = build_seeded(int(sys.argv[1]), lambda: importlib.import_module('torch')); "
        "print(torch.rand(1).item())"
    )
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen([*command, seed], stdout=subprocess.PIPE, text=True) for seed in "556"
    ]
    first, same, other = (process.communicate()[0] for process in processes)
    assert first == same != other
    assert float(first) == build_seeded(5, lambda: torch.rand(1).item())


@pytest.mark.parametrize("value", [1 << 60, -1, 1.5, "2", True, [3]])
@pytest.mark.parametrize(("name", "read"), [("part", run_part), ("generation", run_generation)])
def test_a_damaged_number_of_a_run_reaches_no_message(
    name: str, read: Callable[[Config], int], value: object
) -> None:
    assert read(Config({"run": {name: 7}})) == 7
    assert read(Config({})) == {"part": 1, "generation": 0}[name]
    with pytest.raises(ConfigError, match=rf"run\.{name} of this run's config\.yaml is .*changed"):
        read(Config({"run": {name: value}}))
