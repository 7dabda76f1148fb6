"""Transitions with goals of later rows: golden numbers, a slow twin, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session.config import Config
from session.errors import ConfigError
from surreal_like.addons.episodes.episode_index import EpisodeIndex
from surreal_like.addons.hindsight.view import (
    GoalReward,
    HindsightView,
    Relabelling,
    check_hindsight,
)
from surreal_like.errors import DataError
from surreal_like.experience.chunk import Chunk
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.replay.kinds import PrioritizedReplay, UniformReplay
from surreal_like.replay.storage import ColumnStorage
from surreal_like.replay.table import Table
from surreal_like.replay.tuple_replay import ChunkSamples, TupleReplay
from surreal_like.transform.reward import RewardTransform
from tests.add_ons import needs
from tests.examples import examples
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs
from tests.surreal_like.replay.test_storage import OPERATIONS, Traffic
from tests.surreal_like.replay.twin import Row, Twin


def near(achieved: Any, desired: Any, info: Any = None) -> Any:
    return np.abs(achieved - desired) <= 0.5


def reward(achieved: Any, desired: Any, info: Any = None) -> Any:
    return near(achieved, desired).astype(np.float32) - 1.0


def with_goals(chunk: Chunk, achieved: Any, desired: Any) -> Chunk:
    """Adds goals ``[T, N]`` to a chunk."""
    shape = chunk.columns["reward"].shape
    goals = {"achieved_goal": achieved, "desired_goal": desired}
    columns = {f"obs/{k}": np.asarray(v, np.float32).reshape(shape) for k, v in goals.items()}
    chunk.columns = {**chunk.columns, **columns}
    return chunk


def episode(letters: str, achieved: list[float], desired: float) -> ColumnStorage:
    storage = ColumnStorage(100)
    rewards = [float(reward(np.float32(a), desired)) for a in achieved]
    chunk = chunk_of(letters, rewards=rewards)
    storage.insert(with_goals(chunk, achieved, np.full(len(achieved), desired)))
    return storage


def view(n: int = 1, *, ends: bool = True, **how: Any) -> HindsightView:
    return HindsightView(
        n, 0.9, goals=GoalReward(reward, near if ends else None), relabelling=Relabelling(**how)
    )


GOLDEN = [
    # row, goal row, n; reward, discount and end with compute_terminated; without
    (1, -1, 2, (-1.9, 0.81, 3), (-1.9, 0.81, 3)),
    (1, 3, 2, (-1.0, 0.0, 3), (-1.0, 0.81, 3)),
    (1, 2, 2, (0.0, 0.0, 2), (-0.9, 0.81, 3)),
    (3, 4, 2, (0.0, 0.0, 4), (0.0, 0.9, 4)),
    (0, 1, 3, (0.0, 0.0, 1), (-1.71, 0.729, 3)),
]


@pytest.mark.parametrize(("row", "goal_row", "n", "with_ends", "without"), GOLDEN)
def test_golden_transitions(row: int, goal_row: int, n: int, with_ends: Any, without: Any) -> None:
    """H2, H4: the table of golden numbers."""
    storage = episode("FMMMU", [0, 1, 2, 3, 3], 5.0)
    for ends, expected in ((True, with_ends), (False, without)):
        found, _ = view(n, ends=ends).transitions_with(
            storage, np.array([row]), np.array([goal_row])
        )
        given = (found.rewards[0], found.discounts[0], storage.number(found.ends)[0])
        assert given == pytest.approx(expected, rel=1e-5)
        assert bool(found.terminated[0]) == (expected[1] == 0.0)


def test_golden_stored_termination() -> None:
    """H4: a termination that the old goal has caused is none for another goal."""
    storage = episode("FMT", [0, 1, 2], 2.0)
    for ends, discount in ((True, 0.9), (False, 0.0)):
        found, _ = view(ends=ends).transitions_with(storage, np.array([1]), np.array([1]))
        assert found.rewards[0] == -1.0
        assert found.discounts[0] == np.float32(discount)
        assert storage.number(found.ends)[0] == 2
        assert bool(found.terminated[0]) is not ends
        assert bool((found.ended & ~found.terminated)[0]) is ends


def test_a_termination_of_another_cause_stays() -> None:
    """H4: the old goal was not achieved, so the environment ended the episode."""
    storage = episode("FMT", [0, 1, 2], 7.0)
    found, _ = view().transitions_with(storage, np.array([1]), np.array([0]))
    assert found.discounts[0] == 0.0
    assert found.terminated[0]


class Rows:
    """A view with its storage, filled by chunks of three rows whose streams are interleaved."""

    def __init__(self, capacity: int, **how: Any) -> None:
        self.storage = ColumnStorage(capacity)
        self.view = view(**how)

    def insert(self, chunk: Chunk) -> None:
        shape = chunk.columns["reward"].shape
        ids = chunk.columns["action"].astype(np.float32)
        chunk = with_goals(chunk, ids, np.zeros(shape))
        numbers = self.storage.insert(chunk)
        self.view.ready(self.storage, numbers, chunk.columns["step_type"])


def goals_of(twin: Twin, row: Row, strategy: str) -> list[int]:
    """Numbers of the rows whose goals may be taken, by a walk."""
    oldest = twin.next_number - len(twin.rows)
    after, one = [], row
    while not one.is_last and one.after is not None:
        one = one.after
        after.append(one.number)
    if strategy == "final":
        return after[-1:]
    before, one = [], row
    while one.values["step_type"] != 0:
        before.append(one.number)
        if one.before is None or one.before.number < oldest or one.before.is_last:
            break
        one = one.before
    return after if strategy == "future" else sorted(before + after)


@settings(max_examples=examples(15))
@given(
    seed=st.integers(0, 2**32),
    operations=OPERATIONS,
    strategy=st.sampled_from(["future", "final", "episode"]),
)
def test_goals_come_from_the_rows_of_a_walk(
    seed: int, operations: list[tuple[int, str, int]], strategy: str
) -> None:
    """H1, H7, H9: against a walk along links, with cuts, evictions and restores."""
    twin, traffic, rows = Twin(50), Traffic(seed), Rows(50, proportion=1.0, strategy=strategy)
    for index, what, steps in operations:
        if what == "evict":
            rows.storage.evict(rows.storage.oldest + 3 * steps)
            twin.evict(rows.storage.oldest)
        for chunk in traffic.arrivals(index, what, steps):
            twin.insert(chunk)
            rows.insert(chunk)
        ready = twin.ready(1)
        if not ready:
            continue
        numbers = np.array(list(ready))
        allowed = [set(goals_of(twin, row, strategy)) for row in ready.values()]
        drawn: list[set[int]] = [set() for _ in ready]
        for turn in range(60):
            if turn == 30:
                rows.view.restore(rows.view.state(), rows.storage)
            for found, number in zip(drawn, rows.view.draw(rows.storage, numbers), strict=True):
                found.add(int(number))
        for found, expected in zip(drawn, allowed, strict=True):
            assert found <= expected
            assert found == expected or len(expected) > 4


def test_an_episode_whose_beginning_never_came_gives_all_its_rows() -> None:
    """H1: its first row is not FIRST, so its goal may be taken; that of FIRST may not."""
    rows = Rows(50, proportion=1.0, strategy="episode")
    rows.insert(chunk_of("MMT", "FMT"))
    drawn = rows.view.draw(rows.storage, np.repeat([2, 3], 200))
    assert set(drawn[:200]) == {0, 2, 4}
    assert set(drawn[200:]) == {3, 5}


@pytest.mark.parametrize("strategy", ["future", "episode"])
def test_frequencies(strategy: str) -> None:
    """H9: chi-square of 10^5 draws, in episodes of 1, 2, 7 and 300 rows beside each other."""
    rows = Rows(2000, proportion=1.0, strategy=strategy)
    lengths = (1, 2, 7, 300)  # rows after FIRST
    texts = [("F" + "M" * (length - 1) + "T") * (303 // (length + 1) + 1) for length in lengths]
    for sequence in range(101):
        part = [text[3 * sequence : 3 * sequence + 3] for text in texts]
        rows.insert(chunk_of(*part, sequence=sequence + 1))
    for stream, length in enumerate(lengths):
        # The second row of the first episode, or the first one where that is LAST.
        place = 0 if length == 1 else 1
        number = rows.storage.oldest + 4 * place + stream
        drawn = rows.view.draw(rows.storage, np.full(100_000, number))
        places = (drawn - stream) // 4
        first = place + 1 if strategy == "future" else 1
        counts = np.bincount(places, minlength=length + 1)
        assert counts[:first].sum() == 0
        kept = counts[first:]
        assert len(kept) == length + 1 - first
        expected = 100_000 / len(kept)
        chi_square = ((kept - expected) ** 2 / expected).sum()
        # Wilson and Hilferty 1931: 3.09 is the normal quantile of 0.999.
        free = max(len(kept) - 1, 1)
        assert chi_square <= free * (1 - 2 / (9 * free) + 3.09 * (2 / (9 * free)) ** 0.5) ** 3


def size_bytes(index: EpisodeIndex) -> int:
    """Bytes of all arrays."""
    return sum(each.nbytes for each in vars(index).values() if isinstance(each, np.ndarray))


def test_the_index_takes_at_most_8_bytes_a_row() -> None:
    """H9: in chunks of 16 steps of 8 streams of three senders, episodes of 50 steps."""
    capacity = 12_000
    rows = Rows(capacity)
    texts = [(("F" + "M" * 48 + "U") * 40)[stream:] for stream in range(8)]
    texts = ["F" + text[1:] for text in texts]
    for sequence in range(100):
        part = [text[16 * sequence : 16 * sequence + 16] for text in texts]
        for sender in "abc":
            rows.insert(chunk_of(*part, sequence=sequence + 1, sender=sender))
    assert len(rows.storage) > capacity - 128
    index = rows.view._index
    assert index is not None
    assert size_bytes(index) <= 8 * capacity


def test_an_episode_without_end_keeps_only_segments_of_rows_that_exist() -> None:
    rows = Rows(96)
    for sequence in range(1, 400):
        for sender in "ab":
            text = "FMM" if sequence == 1 else "MMM"
            rows.insert(chunk_of(text, text, text, text, sequence=sequence, sender=sender))
    index = rows.view._index
    assert index is not None
    assert len(index._row) <= 256


@settings(max_examples=examples(10))
@given(seed=st.integers(0, 2**32), n=st.integers(1, 4), ends=st.booleans())
def test_transitions_equal_a_slow_twin(seed: int, n: int, ends: bool) -> None:
    """H2, H4, H7: goals that move within an episode, own discounts, a transform of rewards."""
    rng = np.random.default_rng(seed)
    letters = "FMMMMTFMUFMMMTFMMM"
    rows = len(letters)
    achieved, desired = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    chunk = with_goals(chunk_of(letters, rewards=rng.normal(size=rows).tolist()), achieved, desired)
    storage = ColumnStorage(50)
    storage.insert(chunk)
    transform = RewardTransform(clip=0.75, scale=2.0)
    goals = GoalReward(reward, near if ends else None)
    made = HindsightView(n, 0.9, goals=goals, transform=transform)
    numbers = np.flatnonzero(made.ready_rows(storage))
    goal_rows = rng.integers(-1, rows, len(numbers))
    found, _ = made.transitions_with(storage, numbers, goal_rows)
    for k, (number, goal_row) in enumerate(zip(numbers, goal_rows, strict=True)):
        total, factor, at = 0.0, 1.0, int(number)
        while True:
            at += 1
            stored = float(chunk.columns["reward"][at, 0])
            discount = float(letters[at] != "T")
            over = letters[at] in "TU"
            if goal_row >= 0:
                stored = float(achieved[at] == achieved[goal_row]) - 1.0
                if ends and achieved[at] == achieved[goal_row]:
                    discount, over = 0.0, True
                elif ends and discount == 0.0 and achieved[at] == desired[at]:
                    discount = 1.0
            total += factor * 2.0 * min(max(stored, -0.75), 0.75)
            factor *= 0.9 * discount
            if over or at == number + n:
                break
        assert storage.number(found.ends)[k] == at
        assert found.rewards[k] == pytest.approx(total, rel=1e-5, abs=1e-6)
        assert found.discounts[k] == pytest.approx(factor, rel=1e-5)
        assert bool(found.terminated[k]) == (over and discount == 0.0)


# -- functions -------------------------------------------------------------------------------------


def test_functions_without_batches_are_called_once_for_each_row() -> None:
    """H5: a function that reduces over its whole argument is not used as one of batches."""
    events: list[tuple[str, str]] = []

    def one(achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) < 0.5)

    goals = GoalReward(reward, one, event=lambda *words: events.append(words))
    a, b = np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 2.0])
    assert goals.terminated(a, b, {}).tolist() == [True, False, True]
    assert goals.rewards(a, b, {}).tolist() == [0.0, -1.0, 0.0]
    assert [kind for kind, _ in events] == ["goals_one_by_one"]
    assert "compute_terminated" in events[0][1]


def test_functions_get_the_columns_of_info() -> None:
    def function(achieved: Any, desired: Any, info: Any) -> Any:
        return np.asarray(info["speed"], np.float32)

    storage = ColumnStorage(20)
    chunk = with_goals(chunk_of("FMM"), np.zeros(3), np.zeros(3))
    chunk.columns = {**chunk.columns, "extras/speed": np.array([[1.0], [2.0], [3.0]])}
    storage.insert(chunk)
    made = HindsightView(
        1, 0.9, goals=GoalReward(function), relabelling=Relabelling(info_keys=("speed",))
    )
    found, _ = made.transitions_with(storage, np.array([0, 1]), np.array([1, 2]))
    assert found.rewards.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    "function",
    [lambda a, d, i: np.zeros((2, 3)), lambda a, d, i: np.full(len(a), np.nan), lambda a: 0],
)
def test_a_function_that_gives_no_numbers_is_an_error(function: Any) -> None:
    with pytest.raises(DataError, match="compute_reward"):
        GoalReward(function).rewards(np.zeros(4), np.zeros(4), {})


def test_rewards_that_are_not_those_of_the_environment_are_an_error() -> None:
    """H6: at most one in a hundred may differ."""
    storage = ColumnStorage(400)
    letters = "F" + "M" * 300
    rewards = np.full(301, -1.0)
    rewards[[5, 6]] = 3.0
    chunk = chunk_of(letters, rewards=list(rewards))
    storage.insert(with_goals(chunk, np.zeros(301), np.ones(301)))
    made = view(proportion=0.0, check_rows=200)
    made.gather(storage, np.arange(100, 300))
    made = view(proportion=0.0, check_rows=200)
    made.gather(storage, np.arange(190))
    made = view(proportion=0.0, check_rows=100)
    for _ in range(2):
        with pytest.raises(DataError, match=r"stored 3, computed -1 .* 0\.0 .* 1\.0"):
            made.gather(storage, np.arange(100))


# -- tables ----------------------------------------------------------------------------------------

ON = {"proportion": 0.5}
GOALS = {
    name: {"type": "float32", "dim": [3]}
    for name in ("observation", "achieved_goal", "desired_goal")
}


def goal_table(kind: type[Table], spec: Any = None, env: Any = None, **hindsight: Any) -> Table:
    made = configs(hindsight={**ON, **hindsight}, min_size=1, capacity=200)
    made["env_config"] = made["env_config"].copy()
    made["env_config"].env_name = "toy:bitflip"
    made["env_config"].env_args = {"bits": 3}
    made["env_config"].obs_spec = GOALS if spec is None else spec
    for key, value in (env or {}).items():
        made["env_config"][key] = value
    return kind(**made)


def bits_chunk(sequence: int) -> Chunk:
    rng = np.random.default_rng(sequence)
    chunk = chunk_of("FMMMU", "FMMMU", sequence=sequence)
    shape = chunk.columns["reward"].shape
    achieved = rng.integers(2, size=(*shape, 3)).astype(np.float32)
    desired = np.broadcast_to(rng.integers(2, size=(1, shape[1], 3)), achieved.shape)
    hit = (achieved == desired).all(-1)
    columns = {k: v for k, v in chunk.columns.items() if not k.startswith("obs")}
    columns["reward"] = np.where(columns["step_type"] == 0, 0, hit - 1.0).astype(np.float32)
    columns |= {"obs/observation": achieved, "obs/achieved_goal": achieved}
    columns["obs/desired_goal"] = desired.astype(np.float32)
    chunk.columns = columns
    return chunk


@pytest.mark.parametrize("kind", [UniformReplay, PrioritizedReplay])
def test_batches_have_the_goals_they_are_rewarded_for(kind: type[Table]) -> None:
    """H2, H7: observations, flags and metrics of a batch; stored rows do not change."""
    table = goal_table(kind)
    for sequence in range(1, 21):
        table.insert(bits_chunk(sequence))
    before = {name: np.concatenate(table.storage.read(name)) for name in table.storage.names}
    batch = table.sample_columns(400)
    relabelled = batch["extras/relabelled"]
    assert relabelled.dtype == np.bool_
    assert 0.4 < relabelled.mean() < 0.6
    np.testing.assert_array_equal(batch["obs/desired_goal"], batch["obs_next/desired_goal"])
    hit = (batch["obs_next/achieved_goal"] == batch["obs_next/desired_goal"]).all(-1)
    np.testing.assert_array_equal(batch["rewards"], hit - 1.0)
    np.testing.assert_array_equal(batch["dones"][relabelled], hit[relabelled])
    for name, column in before.items():
        np.testing.assert_array_equal(np.concatenate(table.storage.read(name)), column)
    numbers = table.statistics()
    assert numbers["relabelled"] == pytest.approx(relabelled.mean())
    assert numbers["relabelled_reward"] == pytest.approx(batch["rewards"][relabelled].mean())


def test_a_restored_table_draws_the_same_goals() -> None:
    """H7: a snapshot keeps the generator; a new seed gives other goals."""
    table, other = goal_table(UniformReplay), goal_table(UniformReplay)
    for sequence in range(1, 15):
        table.insert(bits_chunk(sequence))
    table.sample_columns(10)
    other.restore(table.state())
    first, again = table.sample_columns(50), other.sample_columns(50)
    for name, column in first.items():
        np.testing.assert_array_equal(column, again[name])
    other.restore(table.state())
    other.reseed(9)
    differ = (
        table.sample_columns(50)["extras/relabelled"]
        != other.sample_columns(50)["extras/relabelled"]
    )
    assert differ.any()


WRONG: list[tuple[type[Any], Any, dict[str, Any], dict[str, Any], str]] = [
    (UniformReplay, None, {"frame_stack": 2}, {}, "frame_stack is 2: goals are not stacked"),
    (UniformReplay, {"type": "float32", "dim": [3]}, {}, {}, "no parts"),
    (UniformReplay, {"a": GOALS["observation"]}, {}, {}, "'achieved_goal', .* the parts a:"),
    (
        UniformReplay,
        {**GOALS, "desired_goal": {"type": "float32", "dim": [4]}},
        {},
        {},
        r"shape \[3\], 'desired_goal' \[4\]",
    ),
    (UniformReplay, None, {"env_name": "toy:grid", "env_args": {}}, {}, "toy:grid has no method"),
    (UniformReplay, None, {}, {"reward": "mine"}, "expected env, package.module:function or"),
    (UniformReplay, None, {}, {"reward": "math:cosi"}, "math has no 'cosi'"),
]


@pytest.mark.parametrize(("kind", "spec", "env", "hindsight", "said"), WRONG)
def test_settings_that_cannot_work_are_refused(
    kind: type[Table], spec: Any, env: dict[str, Any], hindsight: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        goal_table(kind, spec, env, **hindsight)


@pytest.mark.parametrize(
    ("algorithm", "setting", "said"),
    [
        (
            "dqn",
            "proportion=0.8",
            "achieved is .*, but the observations have no parts: hindsight needs",
        ),
        ("dqn", "proportion=1.5", r"hindsight\.proportion is 1\.5, expected 0 to 1"),
        ("dqn", "strategy=futur", r"hindsight\.strategy is 'futur'.*did you mean future\?"),
        ("impala", "proportion=0.8", "proportion is 0.8, but FIFOReplay relabels no goals: set it"),
        pytest.param(
            *("r2d2", "proportion=0.5", "SequenceReplay relabels no goals: set it to 0"),
            marks=needs("r2d2"),
        ),
    ],
)
def test_settings_are_refused_before_a_run(algorithm: str, setting: str, said: str) -> None:
    words = [f"learner_config.replay.hindsight.{setting}"]
    with pytest.raises(ConfigError, match=said):
        resolve(read_experiment(None, words, algorithm=algorithm, env_name="toy:chain"))


def test_a_replay_without_a_view_is_refused_before_the_start() -> None:
    made = Config(configs(hindsight=ON))
    check_hindsight(made, UniformReplay)
    with pytest.raises(ConfigError, match="TupleReplay relabels no goals"):
        check_hindsight(made, TupleReplay)


def test_samples_of_single_chunks_keep_their_goals() -> None:
    """Only replay relabels: a chunk alone has no later rows of its episode."""
    made = configs(hindsight={"proportion": 1.0})
    made["env_config"].env_name = "toy:grid"  # builds no reward
    samples = ChunkSamples(made["learner_config"], made["env_config"], continues=True)
    for sequence in (1, 2):
        assert "extras/relabelled" not in samples(bits_chunk(sequence))


def test_a_chunk_without_goals_is_refused() -> None:
    table = goal_table(UniformReplay, {})
    with pytest.raises(DataError, match="no column 'obs/achieved_goal'"):
        table.insert(chunk_of("FM", "FM"))


def test_an_index_of_nothing_is_empty() -> None:
    assert size_bytes(EpisodeIndex.of(ColumnStorage(10))) == 40
