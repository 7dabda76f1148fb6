"""Runs that are slow on purpose: ``surreal-like doctor`` names the culprit. Good ones: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from session.folder import RunFolder
from session.show.run_view import RunView
from surreal_like.addons.doctor.facts import CURVES
from surreal_like.addons.doctor.rules import Diagnosis, diagnose
from tests.proxy import Proxy
from tests.runs.by_hand import ByHand
from tests.runs.command import CARTPOLE, ROOT, Train

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(120)]

PARTS = ROOT / "tests" / "runs" / "slow_parts.py"
TYPE = f"learner_config.replay.type={PARTS.with_name('slow_replay.py')}"
STOP = "session_config.stop={seconds: 9}"
UPDATES = "session_config.stop={iterations: 300, seconds: 60}"
NO_RATIO = "learner_config.replay.samples_per_insert=0"
FEW_FIRST = "learner_config.replay.min_size=200"
CART = ("--env", "gym:CartPole-v1")


def look(folder: Path) -> Diagnosis:
    view = RunView(RunFolder(folder), curves=CURVES)
    view.refresh()
    return diagnose(view)


def run(folder: Path, *words: str) -> Diagnosis:
    with Train(folder, *words, "--quiet") as train:
        train.wait()
        assert train.line["iterations"] > 0, train.words
    return look(folder)


@pytest.mark.parametrize(
    ("culprit", "words"),
    [
        pytest.param(
            "environments",
            ("--algorithm", "dqn", "--env", f"{PARTS}:SlowEnv", FEW_FIRST, STOP),
            id="slow environment",
        ),
        pytest.param(
            "learner",
            (
                "--algorithm",
                f"{PARTS}:SlowLearner",
                *CART,
                "learner_config.replay.samples_per_insert=32",
                STOP,
            ),
            id="slow learner",
        ),
        pytest.param(
            "replay",
            (CARTPOLE, f"{TYPE}:SlowReplay", NO_RATIO, FEW_FIRST, UPDATES),
            id="slow replay",
        ),
        pytest.param(
            "prefetch",
            (
                *("--algorithm", f"{PARTS}:FastLearner", *CART, NO_RATIO, FEW_FIRST, STOP),
                "session_config.learner={prefetch_requests: 1, batches_per_request: 1}",
            ),
            id="tiny prefetch",
        ),
        pytest.param(
            "too few rows",
            (CARTPOLE, "learner_config.replay.samples_per_insert=0.5", FEW_FIRST, STOP),
            id="too few rows",
        ),
    ],
)
def test_the_part_that_was_made_slow_is_named(
    run_folder: Path, culprit: str, words: tuple[str, ...]
) -> None:
    found = run(run_folder, *words)
    assert found.bottleneck is not None, found
    assert found.bottleneck.name == culprit, found


def test_a_slow_network_is_named(run_folder: Path) -> None:
    stop = "session_config.stop={seconds: 6}"
    few = ("session_config.evaluator.num=0", "session_config.agent.num=1")
    words = ("session_config.launcher.transport=tcp", *few, NO_RATIO, FEW_FIRST, stop)
    with ByHand(run_folder, *words) as run:
        endpoint = "replay-0.batches"
        with Proxy(run.addresses()[endpoint], delay_seconds=0.1) as proxy:
            run.redirect(endpoint, proxy.address)
            run.start()
            run.wait()
    found = look(run_folder)
    assert found.bottleneck is not None
    assert found.bottleneck.name == "network", found


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        pytest.param(
            "slow agent",
            ("--algorithm", f"{PARTS}:OneSlowAgent", *CART, "--agents", "3", STOP),
            id="one slow agent",
        ),
        pytest.param(
            "evaluation",
            (
                *("--algorithm", f"{PARTS}:SlowEvaluator", *CART, FEW_FIRST),
                # At the end the last parameters would be evaluated, however long that takes.
                "session_config.evaluator={interval_seconds: 0, final_seconds: 0}",
                "session_config.stop={seconds: 20}",
            ),
            id="evaluator starved",
        ),
    ],
)
def test_what_was_made_odd_is_named(run_folder: Path, odd: str, words: tuple[str, ...]) -> None:
    found = run(run_folder, *words)
    assert [each.name for each in found.odd] == [odd], found


@pytest.mark.parametrize("name", ["cartpole_dqn", "cartpole_ppo", "cartpole_impala"])
def test_nothing_is_odd_in_a_good_run(run_folder: Path, name: str) -> None:
    found = run(run_folder, str(ROOT / "configs" / f"{name}.yaml"), STOP)
    assert list(found.odd) == []
    assert found.bottleneck is not None
    assert found.bottleneck.name in ("learner", "environments", "agents"), found
