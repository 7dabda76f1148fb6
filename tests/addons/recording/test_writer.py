"""Episodes that are written come back bit for bit; what is no episode is refused by its number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from session import nest
from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG
from session.errors import ConfigError, UsageError
from surreal_like.addons.recording import segments as segments_module
from surreal_like.addons.recording import writer as writer_module
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.segments import list_segments
from surreal_like.addons.recording.summary import summarize
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.env.registry import derive_specs
from surreal_like.errors import DataError
from tests.examples import examples

VECTOR = {"type": "float32", "dim": [3]}
NUMBER = {"type": "int64", "dim": [], "num": 5}
IMAGE = {"type": "uint8", "dim": [4, 4]}
OBS: dict[str, Any] = {
    "array": VECTOR,
    "discrete": NUMBER,
    "dict": {"image": IMAGE, "deep": {"a": VECTOR, "b": NUMBER}},
    "tuple": {"0": IMAGE, "1": VECTOR},
    "bool": {"type": "bool", "dim": [2]},
}
ACTIONS: dict[str, Any] = {
    "discrete": {"type": "discrete", "dim": [3]},
    "multi_discrete": {"type": "multi_discrete", "dim": [3, 2]},
    "continuous": {"type": "continuous", "dim": [2, 2], "low": -1, "high": 1},
}


def values(spec: Mapping[str, Any], rows: int, random: np.random.Generator) -> Any:
    """Observations of a spec."""
    if "type" not in spec:
        children = {key: values(each, rows, random) for key, each in spec.items()}
        return tuple(children.values()) if "0" in children else children
    shape = (rows, *spec["dim"])
    if spec["type"] == "float32":
        return random.normal(size=shape).astype(np.float32)
    return random.integers(0, 2 if spec["type"] == "bool" else 5, shape).astype(spec["type"])


def actions(kind: str, rows: int, random: np.random.Generator) -> Any:
    if kind == "continuous":
        return random.uniform(-1, 1, (rows, 2, 2)).astype(np.float32)
    return random.integers(0, 2, (rows, 2) if kind == "multi_discrete" else rows)


def episode(
    obs: str, action: str, steps: int, random: np.random.Generator, extras: bool = False
) -> dict[str, Any]:
    """Arguments of add()."""
    made: dict[str, Any] = {
        "observations": values(OBS[obs], steps + 1, random),
        "actions": actions(action, steps, random),
        "rewards": random.normal(size=steps).astype(np.float32),
        "versions": random.integers(0, 9, steps),
    }
    if extras:
        made["extras"] = {"logits": random.normal(size=(steps, 3)), "deep": {"n": np.arange(steps)}}
    end = random.integers(3)
    return {**made, "terminated": end == 1, "truncated": end == 2}


def writer_of(path: Path, obs: str = "array", action: str = "discrete", **given: Any) -> Any:
    return RecordingWriter(path, obs_spec=OBS[obs], action_spec=ACTIONS[action], **given)


def assert_same(found: Any, expected: Any) -> None:
    flat, wanted = nest.flatten(found, "x"), nest.flatten(expected, "x")
    assert flat.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(flat[name], array, strict=True)


@settings(max_examples=examples(60))
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
    st.sampled_from(list(OBS)),
    st.sampled_from(list(ACTIONS)),
    st.booleans(),
)
def test_episodes_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    lengths: list[int],
    obs: str,
    action: str,
    extras: bool,
) -> None:
    random = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("episodes")
    written = [episode(obs, action, steps, random, extras) for steps in lengths]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer_module, "_ROWS", int(random.choice([1, 7, 30, 1000])))
        patch.setattr(segments_module, "SEGMENT_BYTES", int(random.choice([500, 1 << 20])))
        with writer_of(path, obs, action) as writer:
            for each in written:
                writer.add(**each)
            assert writer.episodes == len(lengths)
    recording = Recording(path)
    found = list(recording)
    assert not recording.damages
    for got, each in zip(found, written, strict=True):
        assert_same(got.observations, each["observations"])
        assert_same(got.actions, each["actions"])
        assert_same(got.rewards, each["rewards"])
        assert_same(got.versions, each["versions"])
        assert_same(got.extras, each.get("extras", {}))
        assert (got.terminated, got.truncated) == (each["terminated"], each["truncated"])
        assert got.begun


@pytest.mark.parametrize("rows", [3, 7, 10, 1000])
def test_long_episodes_are_split_into_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(writer_module, "_ROWS", rows)
    random = np.random.default_rng(0)
    with writer_of(tmp_path) as writer:
        for steps in (30, 1, 14):
            writer.add(**episode("array", "discrete", steps, random))
    recording = Recording(tmp_path)
    chunks = [chunk for _, chunk in recording.chunks()]
    assert max(chunk.size for chunk in chunks) <= rows
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert [chunk.rows for chunk in chunks] == np.cumsum([each.size for each in chunks]).tolist()
    assert (chunks[-1].rows, chunks[-1].env_steps) == (48, 45)
    assert [len(each) for each in recording] == [30, 1, 14]


def test_large_observations_make_small_chunks(tmp_path: Path) -> None:
    spec = {"type": "uint8", "dim": [1000, 1000]}
    obs = np.arange(31, dtype=np.uint8)[:, None, None] + np.zeros((1000, 1000), np.uint8)
    with RecordingWriter(tmp_path, obs_spec=spec, action_spec=ACTIONS["discrete"]) as writer:
        writer.add(obs, np.zeros(30, int), np.zeros(30))
    sizes = [chunk.size_bytes for _, chunk in Recording(tmp_path).chunks()]
    assert max(sizes) <= 4.1 * 2**20
    (found,) = Recording(tmp_path)
    assert_same(found.observations, obs)


def test_a_cut_episode_stays_cut_and_the_next_ones_are_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    ends = [(False, True), (False, False), (True, False), (False, False), (False, False)]
    with writer_of(tmp_path) as writer:
        for terminated, truncated in ends:
            made = episode("array", "discrete", 4, random)
            made |= {"terminated": terminated, "truncated": truncated}
            writer.add(**made)
    found = list(Recording(tmp_path))
    assert [(each.terminated, each.truncated) for each in found] == ends
    assert {(len(each), each.begun) for each in found} == {(4, True)}
    # A stream that is cut gets no further rows.
    chunks = [chunk for _, chunk in Recording(tmp_path).chunks()]
    assert [(chunk.streams, chunk.tail) for chunk in chunks] == [
        ([0], True),
        ([1], True),
        ([2], True),
    ]


GOOD = {"observations": np.zeros((4, 3), np.float32), "actions": [0, 1, 2], "rewards": [1, 2, 3]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"observations": np.zeros((3, 3), np.float32)},
            r"obs: \[3, 3\] given, expected \[4, 3\], the last observation included",
        ),
        ({"observations": np.zeros((4, 2), np.float32)}, r"obs: \[4, 2\] given, expected \[4, 3\]"),
        ({"observations": {"a": np.zeros((4, 3))}}, "obs is missing, there are obs/a"),
        ({"observations": np.full((4, 3), np.nan)}, r"obs: NaN at \[0, 0\] of \[4, 3\]"),
        ({"observations": np.full((4, 3), 1e60)}, "obs: 1e[+]60"),
        ({"observations": np.full((4, 3), "x")}, "obs: <U1 given, expected numbers of float32"),
        ({"actions": [0, 1]}, r"rewards: \[3\] given, expected \[2\], one for each action"),
        ({"actions": [0, 1, 3]}, "actions: 3 at .*, expected 0 to below 3"),
        ({"actions": [0, 1, 0.5]}, "actions: 0.5"),
        ({"actions": [[0], [1], [2]]}, r"actions: \[3, 1\] given, expected \[3\]"),
        ({"actions": []}, r"actions: \[0\] given, expected at least one step"),
        ({"rewards": []}, r"rewards: \[0\] given, expected \[3\]"),
        ({"rewards": 1.0}, r"rewards: \[\] given, expected \[3\]"),
        ({"rewards": [[1], [2], [3]]}, r"rewards: \[3, 1\] given, expected \[3\]"),
        ({"terminated": [False, False, True]}, r"terminated: \[3\] given, .*terminated\[-1\]"),
        ({"rewards": [np.nan, 2, 3]}, r"rewards: NaN at \[0\] of \[3\], expected a finite number"),
        ({"rewards": None}, "no rewards: where there are none, give zeros"),
        ({"versions": [1, 2]}, r"versions: \[2\] given, expected \[3\]"),
        ({"versions": "newest"}, "versions: "),
        ({"extras": {"a": [1, 2]}}, r"extras/a: \[2\] given, expected \[3, \.\.\.\]"),
        ({"extras": {"a": 1}}, r"extras/a: \[\] given"),
        ({"extras": {"a": ["x", "y", "z"]}}, "extras/a: <U1 given, expected numbers"),
        ({"extras": {"a": np.zeros(3, np.longdouble)}}, "extras/a: float128 given, expected"),
        ({"extras": {"a": np.zeros(3, "M8[s]")}}, "extras/a: datetime64.* given, expected"),
        ({"extras": {"a": [1, np.nan, 2]}}, "extras/a holds a NaN"),
    ],
    ids=str,
)
def test_what_is_no_episode_is_refused_with_its_number(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with writer_of(tmp_path) as writer:
        writer.add(**GOOD, terminated=True)
        with pytest.raises(DataError, match=f"^episode 2: .*{said}"):
            writer.add(**({**GOOD, "terminated": True} | changes))
        # It goes on with the next one.
        writer.add(**GOOD, truncated=True)
        assert writer.episodes == 2
    assert [each.end for each in Recording(tmp_path)] == ["terminated", "truncated"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"more": np.zeros((4, 3))}, "obs/more: not in the spec of observations"),
        ({"deep": {"a": np.zeros((4, 3), np.float32)}}, "obs/deep/b is missing, there are obs/"),
        ({"image": np.full((4, 4, 4), 256)}, "obs/image: 256"),
    ],
    ids=str,
)
def test_each_part_of_an_observation_is_checked(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    made = episode("dict", "discrete", 3, np.random.default_rng(0))
    with writer_of(tmp_path, "dict") as writer:
        writer.add(**made)
        wrong = {**made, "observations": {**made["observations"], **change}}
        with pytest.raises(DataError, match=f"^episode 2: {said}"):
            writer.add(**wrong)
    assert len(list(Recording(tmp_path))) == 1


@pytest.mark.parametrize("rows", [1, 1000])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({}, "other extras than the episodes before"),
        ({"a": [1.0] * 3, "b": [1] * 3}, "other extras than the episodes before"),
        ({"a": [1] * 3}, "other extras than the episodes before"),
        ({"a": [[1.0]] * 3}, "other extras than the episodes before"),
    ],
    ids=str,
)
def test_other_extras_are_refused_also_where_those_before_are_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    other: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setattr(writer_module, "_ROWS", rows)
    with writer_of(tmp_path) as writer:
        writer.add(**GOOD, extras={"a": [0.5] * 3})
        with pytest.raises(DataError, match=f"^episode 2: .*{said}"):
            writer.add(**GOOD, extras=other)
        writer.add(**GOOD, extras={"a": [1.5] * 3})
    assert [each.extras["a"].tolist() for each in Recording(tmp_path)] == [[0.5] * 3, [1.5] * 3]


def test_both_ends_at_once_are_a_termination(tmp_path: Path) -> None:
    with writer_of(tmp_path) as writer:
        writer.add(**GOOD, terminated=True, truncated=True)
    (found,) = Recording(tmp_path)
    assert found.end == "terminated"


def test_a_folder_with_a_recording_is_refused(tmp_path: Path) -> None:
    with writer_of(tmp_path) as writer:
        writer.add(**GOOD)
    with pytest.raises(UsageError, match="holds a recording: choose another folder"):
        writer_of(tmp_path)
    assert len(list(Recording(tmp_path))) == 1


def test_a_writer_without_episodes_leaves_no_recording(tmp_path: Path) -> None:
    writer_of(tmp_path).close()
    with pytest.raises(UsageError, match="has no recording"):
        Recording(tmp_path)
    # The folder can be used.
    with writer_of(tmp_path) as writer:
        writer.add(**GOOD)
    assert len(list(Recording(tmp_path))) == 1


def test_segments_have_a_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "SEGMENT_BYTES", 5000)
    monkeypatch.setattr(writer_module, "_ROWS", 10)
    with writer_of(tmp_path, policy="left") as writer:
        for _ in range(50):
            writer.add(**GOOD, terminated=True)
    files = list_segments(tmp_path / "replay-left-0")
    assert len(files) > 2
    assert max(path.stat().st_size for path in files) < 7000
    assert len(list(Recording(tmp_path, "left"))) == 50


def test_an_environment_gives_the_specs(tmp_path: Path) -> None:
    with RecordingWriter.of_env(tmp_path, "toy:chain", frame_stack=0) as writer:
        config = Config({"env_name": "toy:chain"}).extend(BASE_ENV_CONFIG)
        obs_spec, action_spec = derive_specs(config)
        writer.add(
            values(obs_spec, 4, np.random.default_rng(0)), [0, 1, 0], [0, 0, 1], terminated=True
        )
    recording = Recording(tmp_path)
    assert recording.run["environment"] == "toy:chain"
    assert recording.specs == {"obs_spec": obs_spec, "action_spec": action_spec}
    with pytest.raises(ConfigError, match="did you mean toy:chain"):
        RecordingWriter.of_env(tmp_path / "other", "toy:chian")
    assert not (tmp_path / "other").exists()


class Line(gymnasium.Env[Any, Any]):
    """A point on a line."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)


def test_the_class_of_an_environment_will_do_and_actions_beyond_bounds_are_counted(
    tmp_path: Path,
) -> None:
    with RecordingWriter.of_env(tmp_path / "logs", Line) as writer:
        for largest in (0.5, 3.0):
            actions = np.linspace(-0.5, largest, 4)[:, None]
            writer.add(np.zeros((5, 2)), actions, np.ones(4), terminated=True)
    recording = Recording(tmp_path / "logs")
    assert recording.specs["action_spec"]["high"] == [1.0]
    found = summarize(recording)
    assert (found["outside"], found["steps"]) == ({"action": 2}, 8)
    assert found["mean_return"] == 4.0
    assert found["ranges"]["action"] == [-0.5, 3.0]
    assert found["lengths"] == [4.0] * 5
