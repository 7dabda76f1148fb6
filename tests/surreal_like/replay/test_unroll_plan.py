"""What a batch of unrolls is made of, and the settings that can never make one."""

from __future__ import annotations

from typing import Any

import pytest

from session.errors import ConfigError
from surreal_like.replay.unrolls import UnrollPlan, plan_unrolls
from tests.surreal_like.replay.configs import configs

NO_AGE = {"max_versions": 0, "half_life_versions": 0.0}


def plan(**replay: Any) -> UnrollPlan:
    """Unrolls of 3 steps of 2 streams: 6 rows."""
    options = {"capacity": 48, "replay_capacity": 60, "batch_size": 8} | replay
    return plan_unrolls(**configs(session={"sender": {"flush_iteration": 3}}, **options))


def test_numbers_are_those_of_a_shard() -> None:
    made = plan(replay_proportion=0.25)
    assert (made.steps, made.num_envs, made.batch, made.again, made.queue, made.ring) == (
        3,
        2,
        4,
        1,
        8,
        10,
    )
    made = plan(replay_proportion=0.75, replay_shards=2, max_bytes=1001)
    assert (made.batch, made.again, made.queue, made.ring, made.max_bytes) == (4, 3, 4, 5, 501)
    assert plan().ring == plan().again == 0


@pytest.mark.parametrize(("share", "again"), [(0.333, 1), (0.6667, 2), (1 / 3, 1)])
def test_a_third_may_be_written_as_people_do(share: float, again: int) -> None:
    assert plan(batch_size=6, replay_proportion=share).again == again


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 5}, r"batch_size is 5 streams, no multiple of env_config.num_envs 2"),
        (
            {"replay_proportion": 0.4},
            r"0\.4 x 4 unrolls of a batch \(learner_config.replay.batch_size 8 / "
            r"env_config.num_envs 2\) = 1\.6, .* possible are 0, 0\.25, 0\.5, 0\.75",
        ),
        ({"replay_proportion": 1.0}, "= 4, expected a whole number below 4"),
        ({"replay_proportion": 0.001}, r"= 0\.004, expected a whole number below 4"),
        ({"batch_size": 2, "replay_proportion": 0.5}, "possible are 0$"),
        ({"capacity": 47, "batch_size": 16}, r"47 rows .* 16 streams x 3 steps = 48 rows .*start"),
        (
            {"replay_proportion": 0.5, "replay_capacity": 11},
            r"replay_capacity leaves 11 rows .* 4 streams x 3 steps = 12 .* ever be replayed",
        ),
        (
            {"capacity": 48, "replay_shards": 3},
            r"capacity leaves 16 rows to a shard, .* 8 streams x 3 steps = 24 rows",
        ),
        ({"samples_per_insert": 4.0}, "samples_per_insert is 4, .* gives each row once"),
        ({"age": NO_AGE | {"max_versions": 3}}, "replay_proportion is 0: set that, or evict_rule"),
    ],
)
def test_what_cannot_be_is_refused_with_its_numbers(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(**settings)


def test_bytes_make_both_smaller_in_proportion() -> None:
    made = plan(replay_proportion=0.5, max_bytes=1000)
    assert made.within_bytes(50) == made  # 18 unrolls of 50 bytes
    smaller = made.within_bytes(100)  # 10 of 18
    assert (smaller.queue, smaller.ring) == (4, 6)
    assert plan(max_bytes=1000).within_bytes(150).queue == 6
    assert plan().within_bytes(10**9) == plan()
    said = (
        r"max_bytes leaves 1000 bytes to a shard, that is 3 unrolls in the queue and 5 to be "
        r"replayed, of 3 steps x 2 streams = 112 bytes each, but one batch takes 4 "
    )
    with pytest.raises(ConfigError, match=said):
        made.within_bytes(112)
