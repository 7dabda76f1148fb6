from typing import Any

import numpy as np
import pytest

from surreal_like.env.step_results import InfoBatch, ObservationBatch
from surreal_like.errors import DataError

FLAT = {"type": "float32", "dim": [2]}
NESTED = {"a": FLAT, "b": {"0": {"type": "uint8", "dim": []}, "1": {"type": "int64", "dim": [1]}}}
ZEROS = np.zeros(2, np.float32)


def collect(spec: Any, *observations: Any) -> Any:
    batch = ObservationBatch(spec, len(observations))
    for stream, obs in enumerate(observations):
        batch.put(stream, obs)
    return batch.take()


def test_observations_of_streams_are_stacked() -> None:
    stacked = collect(FLAT, np.array([1, 2], np.float32), [3.0, 4.0])
    assert (stacked.dtype, stacked.tolist()) == (np.dtype(np.float32), [[1, 2], [3, 4]])
    one = {"a": np.zeros(2), "b": (np.uint8(3), np.array([4]))}
    two = {"b": (np.uint8(5), np.array([6])), "a": np.ones(2)}
    stacked = collect(NESTED, one, two)
    assert stacked["a"].tolist() == [[0, 0], [1, 1]]
    assert stacked["a"].dtype == np.float32
    assert isinstance(stacked["b"], tuple)
    assert [part.tolist() for part in stacked["b"]] == [[3, 5], [[4], [6]]]


def test_a_nest_of_one_part_stays_a_nest() -> None:
    assert collect({"a": FLAT}, {"a": np.zeros(2)})["a"].shape == (1, 2)


PARTS = {"a": FLAT, "b": {"type": "uint8", "dim": []}}


def test_a_part_of_another_dtype_is_converted() -> None:
    stacked = collect(PARTS, {"a": np.zeros(2), "b": np.array(3)}, {"b": 4, "a": [1, 2]})
    assert stacked["b"].tolist() == [3, 4]
    assert stacked["a"].tolist() == [[0, 0], [1, 2]]


WRONG = [
    (PARTS, {"a": np.zeros(2), "b": np.array(300)}, "obs/b in stream 0: 300 does not fit"),
    (
        PARTS,
        {"a": np.zeros(1, np.float32), "b": np.array(3, np.uint8)},
        r"obs/a: shape \[1\] given",
    ),
    (FLAT, np.zeros(3), r"obs: shape \[3\] given in stream 0, its spec says \[2\]"),
    (FLAT, np.float32(1), r"obs: shape \[\]"),
    (FLAT, {"a": np.zeros(2)}, r"obs: parts \['obs/a'\] given in stream 0, its spec has \['obs'\]"),
    (NESTED, {"a": np.zeros(2)}, "obs: parts"),
    (
        {"type": "uint8", "dim": [2]},
        np.array([0.5, 1.0]),
        r"obs in stream 0: 0\.5 at \[0\] of \[2\] does not fit into uint8",
    ),
    (FLAT, ["a", "b"], "obs in stream 0: <U1 given"),
]


@pytest.mark.parametrize(("spec", "obs", "message"), WRONG)
def test_a_wrong_observation_names_part_and_stream(spec: Any, obs: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        collect(spec, obs)


def test_info_is_empty_where_nothing_is_reported() -> None:
    assert InfoBatch((), 2)([{"x": 1}, {}], ZEROS) == {}


def test_raw_rewards_and_metrics_of_some_streams() -> None:
    rewards = np.array([3, 4], np.float32)
    info = InfoBatch((), 2)([{"raw_reward": 9.0}, {"metrics": {"my/score": 1}}], rewards)
    assert info["raw_reward"].tolist() == [9, 4]
    assert info["raw_reward"].dtype == np.float32
    assert info["metrics"] == [None, {"my/score": 1}]


def test_named_keys_of_info_become_columns_of_one_dtype() -> None:
    batch = InfoBatch(("speed", "frame", "late"), 2)
    frame = np.full((2, 2), 7, np.uint8)
    info = batch([{"speed": 1.5, "frame": frame}, {"frame": frame + 1, "other": 3}], ZEROS)
    assert set(info) == {"speed", "frame", "late"}
    assert (info["speed"].dtype, info["speed"].tolist()) == (np.dtype(np.float32), [1.5, 0])
    assert (info["frame"].dtype, info["frame"].shape) == (np.dtype(np.uint8), (2, 2, 2))
    assert info["late"].tolist() == [0, 0]
    info = batch([{"late": 3}, {"speed": 2}], ZEROS)
    assert (info["late"].dtype, info["late"].tolist()) == (np.dtype(np.float32), [3, 0])
    assert (info["speed"].tolist(), info["frame"].any()) == ([0, 2], False)


def test_an_info_key_keeps_its_shape_and_kind() -> None:
    batch = InfoBatch(("x",), 1)
    batch([{}], ZEROS[:1])
    with pytest.raises(DataError, match=r"info\['x'\]: int64 \[2\] in stream 0.*info of reset"):
        batch([{"x": [1, 2]}], ZEROS[:1])
    batch = InfoBatch(("x",), 1)
    batch([{"x": 1}], ZEROS[:1])
    with pytest.raises(DataError, match="float32"):
        batch([{"x": 1.5}], ZEROS[:1])
    with pytest.raises(DataError, match="str cannot be a column"):
        batch([{"x": "text"}], ZEROS[:1])


def test_a_nan_is_named_before_a_network_sees_it() -> None:
    bad = {"a": np.array([0, np.nan]), "b": (np.uint8(3), np.array([4]))}
    good = {"a": np.zeros(2), "b": (np.uint8(3), np.array([4]))}
    with pytest.raises(DataError, match=r"^obs/a in stream 1: NaN at \[1\] of \[2\]"):
        collect(NESTED, good, bad)


def test_what_a_narrower_type_cannot_hold_is_refused() -> None:
    spec = {"type": "int8", "dim": []}
    assert collect(spec, 7, -100).tolist() == [7, -100]
    with pytest.raises(DataError, match=r"^obs in stream 1: 300 does not fit into int8"):
        collect(spec, 7, 300)


def test_another_type_is_converted_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING"):
        collect(FLAT, np.zeros(2), np.zeros(2))
    assert [record.getMessage() for record in caplog.records] == [
        "obs: float64 given, converted to float32 as its spec says"
    ]
