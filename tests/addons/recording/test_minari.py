"""Recordings as datasets of Minari, and back: bit for bit, or refused, or with a warning."""

from __future__ import annotations

import json
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from session import nest
from session.errors import MissingExtra, SurrealError, UsageError
from surreal_like.addons.recording import writer
from surreal_like.addons.recording.episodes import Episode
from surreal_like.addons.recording.minari import from_minari, to_minari
from surreal_like.addons.recording.minari_spaces import spaces_from_specs
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.env.spaces import specs_from_spaces
from tests.main.conftest import Command

Space = spaces.Space[Any]
Make = Callable[..., Path]

# A dtype that the annotation of a Box leaves out.
BOOL: Any = np.bool_
CONTROL = spaces.Box(-1.0, 1.0, (3,))
TWO: Space = spaces.Discrete(2)
CASES: dict[str, tuple[Space, Space]] = {
    "box": (spaces.Box(-np.inf, np.inf, (4,)), TWO),
    "bounds": (spaces.Box(-1.0, 1.0, (2, 3)), spaces.Box(np.float32(-0.1), 0.1, (2, 2))),
    "number": (spaces.Box(-1.0, 1.0, ()), spaces.Box(0.0, 1.0, ())),
    "image": (spaces.Box(0, 255, (40, 36, 3), np.uint8), TWO),
    "discrete": (spaces.Discrete(7), spaces.Discrete(5)),
    "multi_discrete": (spaces.MultiDiscrete([3, 9]), spaces.MultiDiscrete([3, 2, 4])),
    "grid": (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), CONTROL),
    "multi_binary": (spaces.MultiBinary([2, 3]), spaces.MultiBinary(4)),
    "bool": (spaces.Box(0, 1, (5,), BOOL), CONTROL),
    "int16": (spaces.Box(-(2**15), 2**15 - 1, (2,), np.int16), CONTROL),
    "uint32": (spaces.Box(0, 2**32 - 1, (2,), np.uint32), CONTROL),
    "dict": (
        spaces.Dict({"goal": spaces.Discrete(4), "image": spaces.Box(0, 255, (32, 32), np.uint8)}),
        CONTROL,
    ),
    "mask": (spaces.Dict({"x": CONTROL, "action_mask": spaces.MultiBinary(2)}), TWO),
    "box_mask": (spaces.Dict({"x": CONTROL, "action_mask": spaces.Box(0, 1, (2,), np.int8)}), TWO),
    "tuple": (spaces.Tuple([CONTROL, spaces.Discrete(3)]), TWO),
    "nested": (
        spaces.Dict(
            {
                "a": spaces.Tuple([spaces.Dict({"b": CONTROL}), spaces.MultiBinary(3)]),
                "c": spaces.Tuple([spaces.Discrete(3)]),
            }
        ),
        CONTROL,
    ),
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test connects to anything or writes to the datasets of the user."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)

    def refuse(*_: Any) -> None:
        pytest.fail("a connection was made")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not (tmp_path / "home").exists()


@pytest.fixture
def minari() -> Any:
    """The package; the test is skipped without it."""
    pytest.importorskip("h5py", reason="needs the extra offline")
    return pytest.importorskip("minari", reason="needs the extra offline")


@pytest.fixture
def make(minari: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Returns a function that lets Minari make a dataset of episodes; it returns its folder."""

    def run(obs_space: Space, action_space: Space, *episodes: Any, **more: Any) -> Path:
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
        with warnings.catch_warnings():
            # Its advice about authors and the like.
            warnings.simplefilter("ignore", UserWarning)
            minari.create_dataset_from_buffers(
                "theirs-v0",
                [minari.data_collector.EpisodeBuffer(**each) for each in episodes],
                observation_space=obs_space,
                action_space=action_space,
                **more,
            )
        return tmp_path / "datasets/theirs-v0"

    return run


def buffer(steps: int, **more: Any) -> dict[str, Any]:
    """An episode of Minari with observations and actions of one number, and no end."""
    return {
        "observations": np.arange(steps + 1, dtype=np.float32),
        "actions": np.arange(steps) % 2,
        "rewards": np.arange(steps) / 2.0,
        "terminations": [False] * steps,
        "truncations": [False] * steps,
        **more,
    }


def ends(steps: int, *, at: int = -1) -> list[bool]:
    """Flags of an episode that ends at a step."""
    flags = [False] * steps
    flags[at] = True
    return flags


NUMBER = spaces.Box(-np.inf, np.inf, ())


def draw(spec: ArraySpec, rows: int, rng: np.random.Generator) -> Any:
    """Draws values of a spec, over the whole range of their dtype."""
    shape = (rows, *spec.dim)
    if spec.num is not None:
        return rng.integers(0, spec.num, shape).astype(spec.dtype)
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return rng.random(shape) < 0.5
    limits = np.iinfo(spec.type)
    return rng.integers(limits.min, limits.max, shape, spec.type, endpoint=True)


def write(path: Path, obs_spec: Any, action_spec: Any, **names: str) -> Recording:
    """Writes episodes with each kind of end, and with extras."""
    rng = np.random.default_rng(0)
    parts, action = parse_obs_spec(obs_spec), parse_action_spec(action_spec).array
    with RecordingWriter(path, obs_spec=obs_spec, action_spec=action_spec, **names) as recording:
        for steps, end in ((5, {"terminated": True}), (1, {"truncated": True}), (3, {})):
            recording.add(
                nest.map(lambda spec, rows=steps + 1: draw(spec, rows, rng), parts),
                draw(action, steps, rng),
                rng.standard_normal(steps).astype(np.float32),
                extras={
                    "logp": rng.standard_normal(steps),
                    "deep": {"pair": (rng.random((steps, 2)) < 0.5, np.arange(steps))},
                },
                **end,
            )
    return Recording(path)


def parts_of(episode: Episode) -> dict[str, Any]:
    """Everything in an episode that Minari has, too, with the bits of each array."""
    nests = {
        name: getattr(episode, name) for name in ("observations", "actions", "rewards", "extras")
    }
    arrays = nest.map(lambda array: (array.dtype, array.shape, array.tobytes()), nests)
    return {**nest.flatten(arrays_as_leaves(arrays)), "end": episode.end, "begun": episode.begun}


def arrays_as_leaves(arrays: Any) -> Any:
    """A description of an array is a tuple, which a nest would take apart."""
    if isinstance(arrays, tuple) and isinstance(arrays[0], np.dtype):
        return list(arrays)
    if isinstance(arrays, tuple):
        return tuple(map(arrays_as_leaves, arrays))
    return {key: arrays_as_leaves(part) for key, part in arrays.items()}


def all_parts(recording: Recording) -> list[dict[str, Any]]:
    return [parts_of(episode) for episode in recording]


def edit_metadata(path: Path, **changes: Any) -> None:
    """Changes the metadata of a dataset."""
    file = path / "data/metadata.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


# -- there and back ------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_episodes_come_back_bit_for_bit(
    case: str, minari: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    obs_spec, action_spec = specs_from_spaces(*CASES[case])
    ours = write(tmp_path / "ours", obs_spec, action_spec, environment="toy:grid", algorithm="dqn")
    assert to_minari(ours, tmp_path / "there-v0") == 3
    assert from_minari(tmp_path / "there-v0", tmp_path / "back") == 3
    back = Recording(tmp_path / "back")
    assert all_parts(back) == all_parts(ours)
    assert [episode.end for episode in back] == ["terminated", "truncated", "cut"]
    assert back.specs == ours.specs
    assert [back.run[key] for key in ("environment", "algorithm")] == ["toy:grid", "dqn"]
    assert messages(caplog) == []


@pytest.mark.parametrize("case", CASES)
def test_what_minari_reads_is_in_its_spaces(case: str, minari: Any, tmp_path: Path) -> None:
    obs_spec, action_spec = specs_from_spaces(*CASES[case])
    ours = write(tmp_path / "ours", obs_spec, action_spec)
    to_minari(ours, tmp_path / "there-v0")
    dataset = minari.MinariDataset(tmp_path / "there-v0/data")
    for episode, mine in zip(dataset, ours, strict=True):
        assert episode.rewards.dtype == np.float64
        assert not episode.terminations[:-1].any()
        assert not episode.truncations[:-1].any()
        assert (episode.terminations[-1], episode.truncations[-1]) == (
            mine.terminated,
            mine.truncated,
        )
        first = nest.map(lambda array: np.asarray(array[0]), episode.observations)
        assert dataset.observation_space.contains(first)
        # Those of a Box were drawn without its bounds.
        if not isinstance(dataset.action_space, spaces.Box):
            assert dataset.action_space.contains(episode.actions[0])


def test_a_count_of_another_dtype_keeps_the_dtype(minari: Any, tmp_path: Path) -> None:
    obs_spec = {
        "a": {"type": "uint8", "dim": [], "num": 5},
        "b": {"type": "int8", "dim": [2], "num": [2, 3]},
        "c": {"type": "float32", "dim": [2], "low": -1.0},
    }
    obs_space, _ = spaces_from_specs(obs_spec, {"type": "discrete", "dim": [2]})
    assert obs_space == spaces.Dict(
        {
            "a": spaces.Box(0, 4, (), np.uint8),
            "b": spaces.Box(np.zeros(2, np.int8), np.array([1, 2], np.int8), (2,), np.int8),
            "c": spaces.Box(-1.0, np.inf, (2,)),
        }
    )
    ours = write(tmp_path / "ours", obs_spec, {"type": "discrete", "dim": [2]})
    to_minari(ours, tmp_path / "there-v0")
    from_minari(tmp_path / "there-v0", tmp_path / "back")
    assert all_parts(Recording(tmp_path / "back")) == all_parts(ours)


def test_minari_finds_the_dataset_and_its_environment(
    minari: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = gymnasium.make("CartPole-v1")
    specs = specs_from_spaces(env.observation_space, env.action_space)
    ours = write(tmp_path / "ours", *specs, environment="gym:CartPole-v1", algorithm="dqn")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    to_minari(ours, tmp_path / "datasets/cartpole/expert-v3")
    found = minari.list_local_datasets()
    assert found.keys() == {"cartpole/expert-v3"}
    dataset = minari.load_dataset("cartpole/expert-v3")
    assert (dataset.total_episodes, dataset.total_steps) == (3, 9)
    assert dataset.recover_environment().unwrapped.spec.id == "CartPole-v1"
    assert dataset.storage.metadata["algorithm_name"] == "dqn"


@pytest.mark.parametrize(
    "specs",
    [
        ({"type": "float32", "dim": [3]}, {"type": "discrete", "dim": [2]}),
        ({"type": "float32", "dim": [4]}, {"type": "discrete", "dim": [3]}),
    ],
)
def test_an_environment_of_other_spaces_is_not_recorded(
    specs: Any, minari: Any, tmp_path: Path
) -> None:
    ours = write(tmp_path / "ours", *specs, environment="gym:CartPole-v1")
    to_minari(ours, tmp_path / "there-v0")
    assert minari.MinariDataset(tmp_path / "there-v0/data").env_spec is None


# -- datasets that Minari made -------------------------------------------------------------------


def tree_map(function: Any, first: Any, *others: Any) -> Any:
    """What Minari's collector needs of jax, which is large."""
    if isinstance(first, dict):
        return {key: tree_map(function, first[key], *(x[key] for x in others)) for key in first}
    return function(first, *others)


def test_a_dataset_of_minaris_collector(
    minari: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    jax, tree_util = ModuleType("jax"), ModuleType("jax.tree_util")
    jax.tree_util, tree_util.tree_map = tree_util, tree_map  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax.tree_util", tree_util)
    made = gymnasium.make("CartPole-v1", max_episode_steps=15)
    env = minari.DataCollector(made, record_infos=False)
    seen: list[tuple[list[Any], list[Any], list[Any], str]] = []
    for number in range(6):
        observations: list[Any] = [env.reset(seed=number)[0]]
        actions: list[Any] = []
        rewards: list[Any] = []
        end = "cut"
        while end == "cut" and not (number == 5 and len(actions) == 4):
            # Even episodes fall over, odd ones reach the limit of time.
            balance = int(observations[-1][2] + observations[-1][3] > 0)
            actions.append(np.int64(0 if number % 2 == 0 else balance))
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(reward)
            end = "terminated" if terminated else "truncated" if truncated else "cut"
        seen.append((observations, actions, rewards, end))
    with warnings.catch_warnings():
        # Advice, and its own temporary folders, which it leaves to the interpreter.
        warnings.simplefilter("ignore")
        env.create_dataset("cartpole/fall-v0")
        env.close()
        env._tmp_dir.cleanup()
    # The collector cuts an episode that goes on as by a limit of time.
    assert [end for *_, end in seen] == ["terminated", "truncated"] * 2 + ["terminated", "cut"]
    assert from_minari(tmp_path / "datasets/cartpole/fall-v0", tmp_path / "ours") == 6
    ours = Recording(tmp_path / "ours")
    assert ours.run["environment"] == "gym:CartPole-v1"
    assert ours.specs["action_spec"] == {"type": "discrete", "dim": [2]}
    for episode, (observations, actions, rewards, end) in zip(ours, seen, strict=True):
        assert episode.observations.tobytes() == np.array(observations).tobytes()
        assert episode.actions.tobytes() == np.array(actions).tobytes()
        assert episode.rewards.tolist() == rewards
        assert episode.end == ("truncated" if end == "cut" else end)
    assert messages(caplog) == []


def test_discrete_values_are_counted_from_0(make: Make, tmp_path: Path) -> None:
    given = buffer(2)
    given["observations"] = {"here": np.array([-2, -1, 0]), "there": np.array([[5], [6], [5]])}
    given["actions"] = np.array([10, 12])
    there = make(
        spaces.Dict(
            {"here": spaces.Discrete(3, start=-2), "there": spaces.MultiDiscrete([2], start=[5])}
        ),
        spaces.Discrete(3, start=10),
        given,
    )
    from_minari(there, tmp_path / "ours")
    (episode,) = Recording(tmp_path / "ours")
    assert episode.observations["here"].tolist() == [0, 1, 2]
    assert episode.observations["there"].tolist() == [[0], [1], [0]]
    assert episode.actions.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (spaces.MultiDiscrete([3, 2], start=[1, 7]), [[1, 8], [3, 7]], [[0, 1], [2, 0]]),
        (spaces.MultiBinary(2), np.array([[1, 0], [0, 1]], np.int8), [[1, 0], [0, 1]]),
        (spaces.MultiBinary([1, 2]), np.array([[[1, 0]], [[0, 1]]], np.int8), [[1, 0], [0, 1]]),
        (spaces.Box(0.0, 1.0, ()), np.array([0.5, 0.25], np.float32), [[0.5], [0.25]]),
    ],
)
def test_actions_have_our_shape(
    space: Space, actions: Any, expected: Any, make: Make, tmp_path: Path
) -> None:
    from_minari(make(NUMBER, space, buffer(2, actions=np.asarray(actions))), tmp_path / "ours")
    (episode,) = Recording(tmp_path / "ours")
    assert episode.actions.tolist() == expected


@pytest.mark.parametrize(
    ("terminated", "truncated", "end"),
    [
        (True, False, "terminated"),
        (False, True, "truncated"),
        (True, True, "terminated"),
        (False, False, "cut"),
    ],
)
def test_ends(terminated: bool, truncated: bool, end: str, make: Make, tmp_path: Path) -> None:
    flags = {"terminations": [False, terminated], "truncations": [False, truncated]}
    from_minari(make(NUMBER, TWO, buffer(2, **flags)), tmp_path / "ours")
    assert [episode.end for episode in Recording(tmp_path / "ours")] == [end]


@pytest.mark.parametrize("which", ["observations", "actions", "rewards", "nothing"])
def test_one_warning_says_what_was_rounded(
    which: str, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    each = buffer(2)
    each["observations"], each["actions"] = np.array([0.5, 1, 2]), np.array([0.5, 0.25])
    if which != "nothing":
        each[which] = np.concatenate([[0.1], each[which][1:]])
    space = spaces.Box(-5, 5, (), np.float64)
    from_minari(make(space, space, each, each), tmp_path / "ours")
    expected = [f": {which}: rounded to float32, which cannot hold all digits"]
    said = [each.removeprefix(str(tmp_path / "datasets/theirs-v0")) for each in messages(caplog)]
    assert said == (expected if which != "nothing" else [])
    first = next(iter(Recording(tmp_path / "ours")))
    assert first.rewards.dtype == np.float32
    assert first.rewards[0] == (np.float32(0.1) if which == "rewards" else 0)


@pytest.mark.parametrize(
    ("size", "jpeg", "expected"), [(32, True, 1), (32, False, 0), (31, True, 0)]
)
def test_one_warning_says_that_images_were_jpeg(
    size: int,
    jpeg: bool,
    expected: int,
    make: Make,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, size, size, 3), np.uint8)
    space = spaces.Tuple([spaces.Box(0, 255, images.shape[1:], np.uint8), NUMBER])
    each = buffer(2)
    each["observations"] = (images, each["observations"])
    from_minari(make(space, TWO, each, each, jpeg_encoding=jpeg), tmp_path / "ours")
    assert sum("stored as JPEG" in line for line in messages(caplog)) == expected
    first = next(iter(Recording(tmp_path / "ours")))
    assert (first.observations[0].tobytes() == images.tobytes()) is not bool(expected)


def test_infos_of_all_steps_become_extras(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def infos(steps: int, **more: Any) -> dict[str, Any]:
        return {
            "state": {"qpos": np.arange(2.0 * steps).reshape(steps, 2)},
            "after": np.arange(steps + 1),
            "few": np.arange(steps + 2),
            "word": ["a"] * steps,
            "other": np.zeros(steps, np.float32 if steps == 3 else np.float64),
            **more,
        }

    there = make(
        NUMBER, TWO, buffer(2, infos=infos(2, once=np.zeros(2))), buffer(3, infos=infos(3))
    )
    from_minari(there, tmp_path / "ours")
    first, second = Recording(tmp_path / "ours")
    assert first.extras["state"]["qpos"].tolist() == [[0, 1], [2, 3]]
    assert first.extras["after"].tolist() == [1, 2]
    assert second.extras["after"].tolist() == [1, 2, 3]
    assert first.extras.keys() == second.extras.keys() == {"state", "after"}
    lost = "few, once, other, word"
    assert messages(caplog) == [
        f"{there}: infos left out, which are no numbers of all steps: {lost}"
    ]


def test_infos_of_later_episodes_only_are_named(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    there = make(NUMBER, TWO, buffer(2), buffer(2, infos={"x": np.zeros(2)}))
    from_minari(there, tmp_path / "ours")
    assert [line.rpartition(": ")[2] for line in messages(caplog)] == ["x"]


class LateRecording(Recording):
    """A recording whose first episode has begun before it."""

    def episodes(self, *look: Any) -> Iterator[Episode]:
        for number, episode in enumerate(super().episodes(*look)):
            yield replace(episode, begun=number > 0)


def test_an_episode_without_its_beginning_is_counted(
    minari: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO))
    assert to_minari(LateRecording(tmp_path / "ours"), tmp_path / "there-v0") == 3
    assert messages(caplog) == ["episodes without their beginning, which Minari does not mark: 1"]


# -- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            buffer(3, observations=np.zeros(3, np.float32)),
            "episode_1: 3 observations for 3 actions: the one after the last action is missing",
        ),
        (buffer(3, terminations=ends(3, at=1)), "episode_1: it ends at step 1 of 3, and goes on"),
        (buffer(3, truncations=ends(3, at=0)), "episode_1: it ends at step 0 of 3, and goes on"),
        (buffer(2, rewards=[0.0, np.nan]), r"episode_1: rewards: NaN at \[1\] of \[2\], expected"),
        (buffer(2, rewards=[0.0, 1e300]), "episode_1: rewards: 1e.300 .*does not fit into float32"),
        (buffer(2, actions=np.array([0, 2])), "episode_1: actions: 2 .*expected 0 to below 2"),
        (
            buffer(2, actions=np.array([0])),
            "episode_1: rewards: .* given, expected .1., one for each action",
        ),
        (
            buffer(2, observations=np.zeros((3, 2), np.float32)),
            r"episode_1: obs: \[3, 2\] given, expected \[3\]",
        ),
    ],
)
def test_a_wrong_episode_is_refused_by_its_name(
    wrong: dict[str, Any], message: str, make: Make, tmp_path: Path
) -> None:
    there = make(NUMBER, TWO, buffer(2), wrong)
    with pytest.raises(SurrealError, match=message):
        from_minari(there, tmp_path / "ours")
    assert [each.name for each in tmp_path.iterdir()] == ["datasets"]


def test_other_files_are_refused(make: Make, tmp_path: Path) -> None:
    there = make(NUMBER, TWO, buffer(2), buffer(2))
    with pytest.raises(UsageError, match=r"nowhere is no Minari dataset: there is no .*metadata"):
        from_minari(tmp_path / "nowhere", tmp_path / "ours")
    edit_metadata(there, minari_version="9.0.0")
    with pytest.raises(UsageError, match=r"theirs-v0 cannot be read.* does not support"):
        from_minari(there, tmp_path / "ours")
    edit_metadata(there, minari_version="0.5.4", total_episodes=3)
    with pytest.raises(SurrealError, match=r"an episode cannot be read: .*episode_2"):
        from_minari(there, tmp_path / "ours")
    edit_metadata(there, total_episodes=0)
    with pytest.raises(UsageError, match="theirs-v0 has no episode"):
        from_minari(there, tmp_path / "ours")
    edit_metadata(there, total_episodes=2)
    (there / "data/main_data.hdf5").write_bytes(b"nothing")
    with pytest.raises(SurrealError, match="an episode cannot be read: "):
        from_minari(there / "data", tmp_path / "ours")
    assert [each.name for each in tmp_path.iterdir()] == ["datasets"]


def test_a_space_without_a_spec_is_refused(make: Make, tmp_path: Path) -> None:
    there = make(spaces.Text(5), TWO, buffer(1, observations=["a", "b"]))
    with pytest.raises(SurrealError, match=r"Text.* is not supported"):
        from_minari(there, tmp_path / "ours")


def test_folders_are_not_overwritten(make: Make, tmp_path: Path) -> None:
    there = make(NUMBER, TWO, buffer(2))
    ours = write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO))
    before = all_parts(ours)
    with pytest.raises(UsageError, match="ours is not empty: choose another folder"):
        from_minari(there, tmp_path / "ours")
    with pytest.raises(UsageError, match="theirs-v0 is not empty: choose another folder"):
        to_minari(ours, there)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="x-v0 cannot be written: Not a directory"):
        to_minari(ours, tmp_path / "file/x-v0")
    (tmp_path / "empty-v0").mkdir()
    assert to_minari(ours, tmp_path / "empty-v0") == 3
    assert all_parts(Recording(tmp_path / "ours")) == before


@pytest.mark.parametrize("name", ["cartpole", "cartpole-v", "cart pole-v0"])
def test_a_folder_that_minari_cannot_name_is_refused(
    name: str, minari: Any, tmp_path: Path
) -> None:
    ours = write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO))
    with pytest.raises(UsageError, match="names no Minari dataset: call the folder NAME-vN"):
        to_minari(ours, tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == ["ours"]


@pytest.mark.parametrize("package", ["minari", "h5py"])
def test_without_minari_its_extra_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"Minari needs a package.*\[offline\]"):
        to_minari(ours, tmp_path / "there-v0")
    with pytest.raises(MissingExtra, match=r"Minari needs a package.*\[offline\]"):
        from_minari(tmp_path / "there-v0", tmp_path / "back")


def test_a_storage_without_its_package_is_named(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = make(NUMBER, TWO, buffer(2))
    edit_metadata(there, data_format="arrow")
    monkeypatch.delitem(sys.modules, "minari.dataset._storages.arrow_storage", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match="pyarrow is not installed"):
        from_minari(there, tmp_path / "ours")


# -- the command ---------------------------------------------------------------------------------


def test_the_command_converts_both_ways(minari: Any, command: Command, tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO), policy="guard")
    said = command("data", "ours", "--to", "minari", "sets/there-v0")
    assert (said.code, said.out, said.err) == (0, "sets/there-v0: 3 episodes\n", "")
    said = command("data", "--from", "minari:sets/there-v0", "back", "--policy", "guard", "--json")
    assert (said.code, json.loads(said.out), said.err) == (0, {"episodes": 3}, "")
    back = Recording(tmp_path / "back", "guard")
    assert all_parts(back) == all_parts(ours)


def test_the_command_reports_what_is_damaged(
    minari: Any, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_ROWS", 4)
    ours = write(tmp_path / "ours", *specs_from_spaces(NUMBER, TWO))
    path = ours.shards[0].segments[0].path
    path.write_bytes(path.read_bytes()[:-100])
    said = command("data", "ours", "--to", "minari", "there-v0")
    # The last one lacks its end.
    assert (said.code, said.out) == (1, "there-v0: 3 episodes\n")
    assert said.err.startswith("left out: ")
    assert path.name in said.err


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("data", "ours", "--to", "minary", "x-v0"), "no format 'minary'; there is minari"),
        (("data", "--from", "sets/x-v0", "ours"), "no format 'sets/x-v0'; there is minari"),
        (
            ("data", "--from", "minari:a", "--to", "minari", "b", "ours"),
            "--to: not allowed with argument --from",
        ),
    ],
)
def test_wrong_words(argv: tuple[str, ...], line: str, command: Command) -> None:
    said = command(*argv)
    assert said.code == 2
    assert line in said.err
