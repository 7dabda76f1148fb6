"""Machines with valid keys send what they like, at every endpoint that lets them in."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from session.config import Config
from session.wire import Message
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from tests.addons.join.runs.guests import Guest, GuestStage, Hostility, keep_examples
from tests.api.stage import experiment
from tests.runs.command import ROOT

GUESTS = ("agent-1000", "agent-1001")
COMMON = (
    "session_config.launcher.host=127.0.0.1",
    "session_config.evaluator.num=1",
    "session_config.stop={env_steps: 1000000, metric: return/train, above: 450}",
)
PARTS = ("loggerplex", "tensorplex", "ps", "learner", "eval-0")


def one_policy() -> Config:
    return experiment(*COMMON)


def two_policies() -> Config:
    given = [
        *COMMON,
        "session_config.agent.num=1",
        "session_config.stop.eval_episodes=2",
        "policies.right.learner_config.replay.min_size=64",
        "env_config.num_envs=2",
    ]
    return resolve(read_experiment(ROOT / "configs" / "multi_cartpole_mixed.yaml", given))


CASES = {"one policy": one_policy, "two policies": two_policies}


def start(config: Config, folder: Path) -> GuestStage:
    stage = GuestStage(config, folder)
    shards = [each.name for each in stage.topology.components if each.name.startswith("replay")]
    stage.start(*PARTS, *shards)
    return stage


def updates(stage: GuestStage) -> int:
    return int(stage.service("learner").coordinator.record.iterations)


@pytest.fixture(params=CASES)
def config(request: pytest.FixtureRequest) -> Config:
    return CASES[request.param]()


@pytest.fixture
def examples(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[tuple[str, str], Message]:
    """What the parts of a calm run send to each other."""
    monkeypatch.setattr("surreal_like.experience.chunk_sender.TRACE_EVERY", 1)
    found = keep_examples(monkeypatch)
    with closing(start(config, tmp_path / "calm")) as stage:
        stage.start("agent-0")
        stage.until(lambda: updates(stage) > 3)
        stage.until(lambda: ("loggerplex.records", "loggerplex") in found)
    return dict(found)


def check(stage: GuestStage) -> None:
    """Checks that guests have decided nothing."""
    coordinator = stage.service("learner").coordinator
    assert coordinator.verdict is None, coordinator.verdict
    assert {name: frame.state for name, frame in stage.frames.items()} == dict.fromkeys(
        stage.frames, "running"
    )
    record = coordinator.record
    json.dumps(record.state(1, 1), allow_nan=False)
    names = record.accounts.by_name()
    own = {name: rows for name, rows in names.items() if name.startswith("agent-0")}
    for name, rows in own.items():
        assert rows["dropped"] == rows["holes"] == 0, (name, rows)
    assert not record.accounts.clients()
    most = record.accounts._steps_per_row
    for name, rows in names.items():
        if name not in own:
            received = rows["inserted"] + rows["dropped"]
            assert rows["env_steps"] <= most * received, (name, rows)
            assert rows["pushed"] == received + rows["unacked"], (name, rows)
    assert record.accounts.env_restarts <= most * record.accounts.rows().pushed


@pytest.mark.parametrize("sequences", [150, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_guests_decide_nothing(
    sequences: int,
    config: Config,
    examples: dict[tuple[str, str], Message],
    tmp_path: Path,
) -> None:
    with closing(start(config, tmp_path / "run")) as stage:
        stage.until(lambda: stage.service("learner"))
        with closing(Guest(stage, *GUESTS)) as guest:
            hostility = Hostility(guest, examples, seed=1)
            for _ in range(sequences // 10):
                hostility.sequence()
            stage.start("agent-0")
            stage.service("agent-0")
            for number in range(sequences):
                hostility.sequence()
                if number % 100 == 0:
                    check(stage)
            stage.until(lambda: updates(stage) > 3)
            stage.rounds(0.3)
            check(stage)
