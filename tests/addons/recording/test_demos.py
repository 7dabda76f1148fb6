"""Demonstrations: a share of each batch, from a table whose rows are never removed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from session.errors import ConfigError
from surreal_like import train
from surreal_like.addons.recording.demos import DemoReplay, with_demos
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.replay.kept_memory import KeptMemory
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.table import Table
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

# Ids of rows of demonstrations are from here on.
DEMO = 1000


def make(kind: type[Table] = UniformReplay, proportion: Any = 0.5, **replay: Any) -> DemoReplay:
    share = proportion if isinstance(proportion, dict) else {"start": proportion}
    demos = {"path": "demos", "proportion": share, "capacity": 100}
    usual: dict[str, Any] = {"capacity": 24, "min_size": 1, "batch_size": 8, "demos": demos}
    options = usual | replay
    made = with_demos(kind)(**configs(algo={"n_step": 1, "gamma": 0.5}, **options))
    assert isinstance(made, DemoReplay)
    return made


def fill(replay: DemoReplay, chunks: int = 1) -> None:
    replay.insert(chunk_of("FMMMMT", sender="demos-0", first_id=DEMO))
    for number in range(chunks):
        replay.insert(chunk_of("FMMMMT", sequence=number + 1, first_id=6 * number))


def draw(replay: DemoReplay, rows: int) -> dict[str, Any]:
    return dict(replay.aggregate_batch(replay.sample(rows)))


def demos_in(replay: DemoReplay, rows: int) -> Any:
    """Returns which rows of a draw are demonstrations, by what they hold."""
    batch = replay.sample_columns(rows)
    found = batch["obs/position"][:, 0] >= DEMO
    assert np.array_equal(found, batch["indices"] >= 1 << 62)
    return found


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
@pytest.mark.parametrize(("proportion", "count"), [(0.0, 0), (0.1, 1), (0.5, 4), (0.8, 6)])
def test_each_batch_has_exactly_their_share(
    kind: type[Table], proportion: float, count: int
) -> None:
    replay = make(kind, proportion)
    fill(replay)
    for batches in (1, 3):
        found = demos_in(replay, 8 * batches).reshape(batches, 8)
        assert (found.sum(1) == count).all()


def test_their_share_is_a_schedule() -> None:
    falling = {"kind": "linear", "by": "iterations", "start": 0.5, "end": 0.0, "steps": 100}
    replay = make(proportion=falling)
    fill(replay)
    shares = []
    for iteration in (0, 50, 100):
        replay.on_learner(version=1, least_mass=1.0, iteration=iteration)
        shares.append(int(demos_in(replay, 8).sum()))
    assert shares == [4, 2, 0]


def test_they_stay_while_others_make_room() -> None:
    replay = make()
    fill(replay, chunks=20)
    assert len(replay.storage) == 24
    assert len(replay.demos.storage) == 6
    assert demos_in(replay, 8).sum() == 4


def test_batches_wait_for_the_first_of_them() -> None:
    replay = make(samples_per_insert=0.001)
    for number in range(3):
        replay.insert(chunk_of("FMMMMT", sequence=number + 1))
    assert not replay.can_sample(8)
    # Else the limit of the other rows would keep them out for ever.
    assert replay.can_insert()
    replay.insert(chunk_of("FMMMMT", sender="demos-0", first_id=DEMO))
    assert replay.demos.selector.drawable


def test_limits_count_the_other_rows_only() -> None:
    replay = make(samples_per_insert=2.0)
    fill(replay, chunks=2)
    before = replay.limiter.sampled
    draw(replay, 8)
    assert replay.limiter.sampled - before == 4
    assert replay.limiter.inserted == 10  # rows at which a sample begins, of the others


def test_priorities_keep_to_their_table() -> None:
    replay = make(PrioritizedReplay, priority={"alpha": 1.0, "beta": {"start": 1.0}})
    fill(replay)
    batch = replay.sample_columns(8)
    demos = batch["indices"] >= 1 << 62
    replay.update_priorities(batch["indices"], np.where(demos, 9.0, 1.0).astype(np.float32))
    assert replay.demos.mass > replay.mass
    assert replay.statistics()["priorities_ignored"] == 0


def test_weights_keep_to_their_table_in_each_shard() -> None:
    replay = make(PrioritizedReplay, priority={"alpha": 1.0, "beta": {"start": 1.0}})
    fill(replay)
    # Of another shard, where a row that is no demonstration has a small priority.
    replay.on_learner(version=1, least_mass=0.01)
    batch = replay.sample_columns(8)
    demos = batch["indices"] >= 1 << 62
    assert batch["weights"][demos].tolist() == [1.0] * 4
    assert batch["weights"][~demos].max() < 0.1


def test_demonstrations_do_not_grow_old() -> None:
    replay = make(age={"max_versions": 3, "half_life_versions": 0.0})
    demos, own = (
        chunk_of("FMMMMT", sender=sender, first_id=first)
        for sender, first in (("demos-0", DEMO), ("agent-0", 0))
    )
    demos.columns["version"][:], own.columns["version"][:] = 0, 10
    replay.insert(demos)
    replay.insert(own)
    replay.on_learner(version=10, least_mass=1.0)
    assert replay.can_sample(8)
    assert demos_in(replay, 8).sum() == 4


def test_trainings_in_turns_keep_the_demonstrations() -> None:
    turns = {
        "unroll_length": 100,
        "num_updates_per_train_iter": 2,
        "whole_replay_buffer_training": True,
        "clear_replay_buffer": True,
    }
    replay = make(iteration=turns, capacity=1000)
    fill(replay, chunks=34)
    batches = 0
    while replay.can_sample(8):
        assert demos_in(replay, 8).sum() == 4
        batches += 1
    # Two passes over 170 rows, with 4 or 5 of them in each batch.
    assert batches == 2 * 42
    assert len(replay.demos.storage) == 6


def test_both_tables_are_saved_and_restored() -> None:
    replay, again = make(), make()
    fill(replay)
    again.restore(replay.state())
    assert len(again.demos.storage) == 6
    assert np.array_equal(demos_in(again, 8), demos_in(replay, 8))


def test_a_snapshot_without_demonstrations_is_restored() -> None:
    replay, before = make(), make()
    fill(before)
    state = before.state()
    del state["demos"]
    replay.restore(state)
    assert len(replay.storage) == 6
    assert not replay.can_sample(8)
    replay.insert(chunk_of("FMMMMT", sender="demos-0", first_id=DEMO))
    assert demos_in(replay, 8).sum() == 4


def test_both_tables_outlive_their_process(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.touch()
    about = {"of": "a test"}
    replay = make()
    memory = KeptMemory(str(path), about)
    replay.keep_in(memory.zeros)
    fill(replay)
    memory.commit(replay.counts())
    again = make()
    kept = KeptMemory(str(path), about)
    again.keep_in(kept.zeros)
    assert kept.committed is not None
    again.adopt(kept.committed)
    assert len(again.demos.storage) == 6
    assert demos_in(again, 8).sum() == 4


def test_a_batch_of_demonstrations_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves no other rows in a batch of 8"):
        make(proportion=1.0)


def test_a_share_of_less_than_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="no demonstration in a batch of 8: raise it"):
        make(proportion=0.05)


def test_they_need_a_replay_of_transitions() -> None:
    options = configs(demos={"path": "demos"}, type="FIFOReplay")
    with pytest.raises(ConfigError, match="FIFOReplay gives no transitions"):
        load_replay_class(options["learner_config"])
    assert load_replay_class(configs()["learner_config"]) is UniformReplay
    assert not issubclass(FIFOReplay, DemoReplay)


def write(folder: Path, episodes: int = 4) -> None:
    rng = np.random.default_rng(1)
    with RecordingWriter.of_env(folder, "gym:CartPole-v1") as demos:
        for _ in range(episodes):
            obs = rng.normal(size=(51, 4)).astype(np.float32)
            demos.add(obs, rng.integers(2, size=50), np.ones(50), terminated=True)


@pytest.mark.slow
def test_a_run_learns_with_them(tmp_path: Path) -> None:
    write(tmp_path / "demos", episodes=24)
    words = {
        "learner_config.replay.demos.path": str(tmp_path / "demos"),
        "learner_config.replay.min_size": 50,
        "learner_config.replay.replay_shards": 2,
        "session_config.stop": {"iterations": 30},
        "session_config.evaluator.num": 0,
    }
    run = train(
        algorithm="dqn",
        env="gym:CartPole-v1",
        launcher="serial",
        folder=tmp_path / "run",
        overrides=words,
    )
    senders = dict(run.result)["senders"]
    sent = [senders[f"demos-{index}"] for index in range(2)]
    assert sum(each["inserted"] for each in sent) == 1224
    assert [each["env_steps"] for each in sent] == [0, 0]


@pytest.mark.parametrize(
    ("episodes", "capacity", "shards", "said"),
    [
        (4, 200, 1, r"204 rows, .*demos\.capacity is 200: 4 rows would be lost; raise it to 204"),
        # One shard gets 1,020 rows, and may keep 650.
        (24, 1300, 2, r"1,224 rows, .* is 1,300: 370 rows would be lost; raise it to 2,040"),
        (4, 1300, 2, "the part of shard replay-1 has no sample"),
    ],
)
def test_demonstrations_that_shards_cannot_share_are_refused(
    tmp_path: Path, episodes: int, capacity: int, shards: int, said: str
) -> None:
    write(tmp_path / "demos", episodes)
    words = {
        "learner_config.replay.demos": {"path": str(tmp_path / "demos"), "capacity": capacity},
        "learner_config.replay.replay_shards": shards,
        "session_config.stop": {"iterations": 30},
    }
    with pytest.raises(ConfigError, match=said):
        train(
            algorithm="dqn",
            env="gym:CartPole-v1",
            launcher="serial",
            folder=tmp_path / "run",
            overrides=words,
        )
