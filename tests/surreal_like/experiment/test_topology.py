"""From a config to its components: how many there are, and who binds what."""

from __future__ import annotations

import pytest

from session.config import Config
from session.config.defaults import BASE_CONFIG
from surreal_like.experiment.topology import make_topology
from tests.add_ons import needs


@pytest.fixture
def config() -> Config:
    return BASE_CONFIG.copy()


def test_the_components_of_the_defaults_servers_first(config: Config) -> None:
    topology = make_topology(config)
    assert [each.name for each in topology] == [
        *("loggerplex", "tensorplex", "ps", "replay-0", "learner"),
        *("agent-0", "agent-1", "eval-0"),
    ]
    assert {each.name for each in topology if each.needs_torch} == {
        *("learner", "agent-0", "agent-1", "eval-0"),
    }
    assert all(each.module == f"main.{each.kind}" for each in topology)


def test_numbers_of_processes_follow_the_config(config: Config) -> None:
    config.session_config.agent.num = 3
    config.session_config.evaluator.num = 0
    config.session_config.tensorplex.start_tensorboard = True
    config.session_config.launcher.max_restarts = 2
    config.learner_config.replay.replay_shards = 2
    topology = make_topology(config)
    assert len(topology.of_kind("agent")) == 3
    assert not topology.of_kind("evaluator")
    assert [each.name for each in topology.of_kind("replay")] == ["replay-0", "replay-1"]
    assert "tensorboard" in topology
    assert {each.restart.max_restarts for each in topology} == {2}
    ends = [f"replay-{shard}.{end}" for shard in (0, 1) for end in ("experience", "acks")]
    assert set(ends) <= set(topology["agent-2"].connects)
    assert {"replay-1.batches", "replay-1.priorities"} <= set(topology["learner"].connects)


def test_several_learners_are_one_that_has_the_run_and_others_that_know_only_it(
    config: Config,
) -> None:
    alone = make_topology(config)["learner"]
    assert "learner.group" not in alone.binds
    config.session_config.learner.num = 3
    topology = make_topology(config)
    assert [each.name for each in topology.of_kind("learner")] == [
        *("learner", "learner-1", "learner-2"),
    ]
    assert topology["learner"].binds == (*alone.binds, "learner.group")
    other = topology["learner-2"]
    assert (other.index, other.module, other.binds) == (2, "main.learner", ())
    ends = {"learner.group", "ps.requests", "tensorplex.records", "loggerplex.records"}
    assert set(other.connects) == ends


@needs("join")
def test_only_a_run_that_others_can_reach_can_be_joined(config: Config) -> None:
    assert "ps.join" not in make_topology(config).endpoints
    config.session_config.launcher.host = "192.0.2.1"
    assert make_topology(config)["ps"].binds == ("ps.requests", "ps.join")
    config.session_config.security.insecure = True
    assert "ps.join" not in make_topology(config).endpoints
