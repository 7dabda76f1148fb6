"""Rows become the columns of chunks, exactly as a step-by-step assembly of time steps says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surreal_like.data.timestep import StepType
from surreal_like.errors import DataError
from surreal_like.experience.row_buffer import RowBuffer
from tests.examples import examples

Array = npt.NDArray[Any]

OBS = {"type": "float32", "dim": [2], "low": -100.0, "high": 100.0}
ACTION = {"type": "discrete", "dim": [3]}

# One character per row: S a step, T the row of a termination, U of a truncation, B of both.
# What follows an end is the first row of the next episode.
EPISODES = {
    "a termination": "SSST",
    "a truncation": "SSSU",
    "both at once": "SSSB",
    "cut by the end of the rows": "SSSS",
    "episodes of one step": "STSUST",
    "ends in the last row of a chunk": "SST",
    "ends in the first row of a chunk": "SSST",
    "several episodes": "SSTSSUSSSBS",
}


def buffer(length: int = 3, num_envs: int = 1, **spec: Any) -> RowBuffer:
    return RowBuffer(length, num_envs, obs_spec=OBS | spec, action_spec=ACTION)


def row(step: int, letters: str, **changes: Array) -> dict[str, Array]:
    """The row of one step: each stream's letter says how it ends."""
    n = len(letters)
    leaves: dict[str, Array] = {
        "obs": np.array([[step, stream] for stream in range(n)], np.float32),
        "reward": np.zeros(n, np.float32),
        "terminated": np.array([letter in "TB" for letter in letters]),
        "truncated": np.array([letter in "UB" for letter in letters]),
        "action": np.full(n, step % 3),
    }
    return leaves | changes


class Step(NamedTuple):
    """One time step of one stream."""

    step_type: StepType
    reward: float
    discount: float


@dataclass
class Naive:
    """One stream, assembled step by step from time steps."""

    steps: list[Step]

    @classmethod
    def of(cls, letters: str, rewards: Array) -> Naive:
        steps: list[Step] = []
        for letter, reward in zip(letters, rewards.tolist(), strict=True):
            if not steps or steps[-1].step_type == StepType.LAST:
                steps.append(Step(StepType.FIRST, 0.0, 1.0))
            elif letter == "S":
                steps.append(Step(StepType.MID, reward, 1.0))
            else:
                steps.append(Step(StepType.LAST, reward, 1.0 if letter == "U" else 0.0))
        return cls(steps)

    def column(self, name: str) -> list[float]:
        return [getattr(step, name) for step in self.steps]


def settled(letters: str) -> str:
    """An end cannot fall on the first row of an episode: there the stream steps on."""
    result = ""
    for letter in letters:
        begins = not result or result[-1] != "S"
        result += "S" if begins else letter
    return result


def assemble(streams: list[str], length: int) -> tuple[dict[str, Array], Array]:
    """All rows of equally long streams, through the buffer; and the rewards that went in."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(len(streams[0]), len(streams))).astype(np.float32)
    for stream, letters in enumerate(streams):
        for step in range(len(letters)):
            if step == 0 or letters[step - 1] != "S":
                rewards[step, stream] = 0.0
    rows, chunks = buffer(length, len(streams)), []
    for step in range(len(streams[0])):
        letters = "".join(stream[step] for stream in streams)
        rows.write(row(step, letters, reward=rewards[step]))
        if rows.rows == length:
            chunks.append(rows.cut())
    if rows.rows:
        chunks.append(rows.cut())
    return {name: np.concatenate([c[name] for c in chunks]) for name in chunks[0]}, rewards


def assert_as_naive(streams: list[str], length: int) -> None:
    columns, rewards = assemble(streams, length)
    for stream, letters in enumerate(streams):
        naive = Naive.of(letters, rewards[:, stream])
        for name in ("step_type", "discount", "reward"):
            assert columns[name][:, stream].tolist() == pytest.approx(naive.column(name)), name
    steps = np.arange(len(streams[0]))
    assert (columns["obs"][:, :, 0] == steps[:, None]).all()
    assert (columns["action"] == steps[:, None] % 3).all()


@pytest.mark.parametrize("length", [1, 2, 3, 100])
@pytest.mark.parametrize("letters", EPISODES.values(), ids=EPISODES)
def test_rows_are_the_time_steps_of_the_episodes(letters: str, length: int) -> None:
    assert_as_naive([settled(letters)], length)


def test_discount_is_zero_at_a_termination_and_one_at_a_time_limit() -> None:
    columns, _ = assemble(["STSUSB"], 6)
    first, last = StepType.FIRST, StepType.LAST
    assert columns["step_type"][:, 0].tolist() == [first, last] * 3
    assert columns["discount"][:, 0].tolist() == [1, 0, 1, 1, 1, 0]
    assert {name: c.dtype.name for name, c in columns.items()} == {
        "obs": "float32",
        "reward": "float32",
        "action": "int64",
        "step_type": "uint8",
        "discount": "float32",
        "version": "int64",
    }


@settings(max_examples=examples(60))
@given(
    st.integers(1, 30).flatmap(
        lambda n: st.lists(st.text("SSSTUB", min_size=n, max_size=n), min_size=1, max_size=3)
    ),
    st.integers(1, 12),
)
def test_streams_of_any_episodes_are_assembled_like_time_steps(
    streams: list[str], length: int
) -> None:
    assert_as_naive([settled(letters) for letters in streams], length)


def test_a_chunk_is_never_written_to_again() -> None:
    for count in (3, 2):  # a full one, and a short one
        rows = buffer()
        for step in range(count):
            rows.write(row(step, "S"))
        columns = rows.cut()
        kept = {name: column.copy() for name, column in columns.items()}
        for step in range(3):
            rows.write(row(50 + step, "S"))
        assert all((columns[name] == kept[name]).all() for name in kept)
        assert all(column.flags.c_contiguous for column in columns.values())


def test_each_row_has_the_version_that_it_was_acted_with() -> None:
    rows = buffer(4)
    rows.begin_version(3)
    rows.write(row(0, "S"))
    rows.write(row(1, "S"))
    rows.begin_version(4)
    rows.begin_version(5)
    rows.write(row(2, "S"))
    assert rows.cut()["version"][:, 0].tolist() == [3, 3, 5]
    rows.write(row(3, "S"))
    assert rows.cut()["version"][:, 0].tolist() == [5]


def test_a_row_without_an_action_has_zeros_and_keeps_its_observation() -> None:
    rows = buffer()
    rows.write(row(1, "S", **{"extras/logits": np.ones((1, 3), np.float32)}))
    end = row(2, "T", reward=np.ones(1, np.float32))
    del end["action"]
    rows.write_end(end)
    columns = rows.cut()
    assert columns["action"][:, 0].tolist() == [1, 0]
    assert columns["extras/logits"][1].tolist() == [[0, 0, 0]]
    assert columns["obs"][1].tolist() == [[2, 0]]
    assert columns["reward"][1].tolist() == [1]


def test_a_row_without_an_action_fits_into_a_buffer_that_was_just_cut() -> None:
    rows = buffer(1)
    rows.write(row(1, "S", **{"extras/value": np.ones(1, np.float32)}))
    rows.cut()
    rows.write_end({name: leaf for name, leaf in row(2, "S").items() if name != "action"})
    assert rows.cut()["extras/value"].tolist() == [[0]]


def test_begin_makes_the_next_row_the_first_of_an_episode() -> None:
    rows = buffer()
    rows.write(row(0, "S"))
    rows.cut()
    rows.begin()
    rows.write(row(1, "S"))
    assert rows.cut()["step_type"].tolist() == [[StepType.FIRST]]


def nan(shape: tuple[int, ...]) -> Array:
    return np.full(shape, np.nan, np.float32)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "NaN in obs": ({"obs": nan((1, 2))}, r"^obs: NaN at \[1, 0, 0\]"),
    "obs out of bounds": ({"obs": np.full((1, 2), 101, np.float32)}, "^obs: 101.0"),
    "obs of another dtype": ({"obs": np.zeros((1, 2))}, r"^obs: float64 \[1, 2\] given"),
    "obs of another shape": ({"obs": np.zeros((1, 3), np.float32)}, r"^obs: float32 \[1, 3\]"),
    "obs that would broadcast": ({"obs": np.zeros((1, 1), np.float32)}, "^obs: "),
    "NaN in reward": ({"reward": nan((1,))}, "^reward: NaN"),
    "infinite reward": ({"reward": np.full(1, np.inf, np.float32)}, "^reward: inf"),
    "reward of another dtype": ({"reward": np.zeros(1)}, "^reward: float64"),
    "flags of another dtype": ({"terminated": np.zeros(1)}, "^terminated: float64"),
    "truncated of another shape": ({"truncated": np.zeros(2, np.bool_)}, "^truncated: "),
    "an unknown action": ({"action": np.full(1, 3)}, "^action: 3"),
    "another dtype of the same size": ({"reward": np.zeros(1, np.int32)}, "^reward: int32"),
    "the same values in another shape": ({"obs": np.zeros((2, 1), np.float32)}, "^obs: float32"),
    "no array": ({"reward": 0.0}, "^reward: a float given"),
    "action of another shape": ({"action": np.zeros((1, 2), np.int64)}, "^action: "),
    "NaN in extras": ({"extras/value": nan((1,))}, r"^extras/value: NaN at \[1, 0\]"),
    "extras of another shape": ({"extras/value": nan((1, 2))}, "^extras/value: "),
    "something never given before": ({"extras/more": nan((1,))}, "^extras/more: "),
}


@pytest.mark.parametrize(("changes", "message"), BROKEN.values(), ids=BROKEN)
def test_bad_data_is_refused_with_the_name_of_the_field(
    changes: dict[str, Any], message: str
) -> None:
    rows = buffer()
    value = {"extras/value": np.zeros(1, np.float32)}
    rows.write(row(0, "S", **value))
    with pytest.raises(DataError, match=message):
        write_and_cut(rows, row(1, "S", **value | changes))


def write_and_cut(rows: RowBuffer, leaves: dict[str, Array]) -> None:
    rows.write(leaves)
    rows.cut()


def test_a_field_that_is_left_out_is_named() -> None:
    without = row(1, "S")
    del without["reward"]
    with pytest.raises(DataError, match=r"^reward: nothing given"):
        buffer().write(without)
    rows = buffer()
    rows.write(row(0, "S"))
    with pytest.raises(DataError, match=r"^reward: nothing given"):
        write_and_cut(rows, without)


def test_wrong_lengths_that_add_up_to_the_right_one_are_refused() -> None:
    rows = buffer(3, 2)
    rows.write(row(0, "SS"))
    rows.write(row(1, "SS", reward=np.zeros(1, np.float32)))
    rows.write(row(2, "SS", reward=np.zeros(3, np.float32)))
    with pytest.raises(DataError, match=r"^reward: float32 \[1\] given, expected float32 \[2\]"):
        rows.cut()


def test_leaves_that_are_views_become_columns_like_others() -> None:
    rows = buffer(2, 2)
    wide = np.arange(8, dtype=np.float32).reshape(2, 4)
    rows.write(row(0, "SS", obs=wide[:, ::2]))
    rows.write(row(1, "SS", obs=np.asfortranarray(wide[:, :2])))
    assert rows.cut()["obs"].tolist() == [[[0, 2], [4, 6]], [[0, 1], [4, 5]]]


def test_text_cannot_be_an_extra() -> None:
    with pytest.raises(DataError, match=r"^extras/name: .* expected numbers"):
        buffer().write(row(0, "S", **{"extras/name": np.array(["x"])}))


def test_a_reward_at_the_first_row_of_an_episode_is_refused() -> None:
    rows = buffer()
    rows.write(row(0, "S", reward=np.ones(1, np.float32)))
    with pytest.raises(DataError, match=r"^reward: "):
        rows.cut()


def test_an_episode_that_ends_where_it_begins_is_refused() -> None:
    rows = buffer()
    rows.write(row(0, "T"))
    with pytest.raises(DataError, match="both FIRST and LAST"):
        rows.cut()


def test_nested_observations_become_columns_of_their_own() -> None:
    spec = {"image": {"type": "uint8", "dim": [2, 2]}, "place": {"type": "float32", "dim": []}}
    rows = RowBuffer(1, 2, obs_spec=spec, action_spec=ACTION)
    leaves = row(0, "SS")
    del leaves["obs"]
    leaves["obs/image"] = np.full((2, 2, 2), 7, np.uint8)
    leaves["obs/place"] = np.zeros(2, np.float32)
    rows.write(leaves)
    columns = rows.cut()
    assert columns["obs/image"].shape == (1, 2, 2, 2)
    assert columns["obs/image"].dtype == np.uint8
    assert columns["obs/place"].shape == (1, 2)
