"""The commands `record` and `data`: what they play, write, say and refuse."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from main.addons.recording.rerun import _page
from session.config import Config
from session.wire import Message
from session.wire.codec import encode
from surreal_like import train
from surreal_like.addons.recording.other_code import Comparison, Difference
from surreal_like.addons.recording.play import RecordedPolicy
from surreal_like.addons.recording.reader import Recording
from surreal_like.addons.recording.rerun import Rerun
from surreal_like.addons.recording.segments import (
    Kind,
    Record,
    SegmentedWriter,
    list_segments,
)
from surreal_like.addons.recording.writer import RecordingWriter
from surreal_like.data.rows import Rows
from tests.addons.recording.recorded import (
    ACTION,
    OBS,
    Recorded,
    config_of,
    numbered,
    write_shard,
)
from tests.main.conftest import Command
from tests.surreal_like.replay.chunks import chunk_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "recordings.md"
SMALL: dict[str, Any] = {
    "learner_config.model.hidden_sizes": [16],
    "learner_config.replay.batch_size": 8,
    "env_config.num_envs": 4,
    "session_config.sender.flush_iteration": 8,
    "session_config.launcher.snapshot": False,
    "session_config.evaluator.num_envs": 4,
    "session_config.stop": {"env_steps": 300, "eval_episodes": 4},
}
DQN = {"learner_config.replay.min_size": 64}
TWO = {
    "policies": {"left": {}, "right": {}},
    "env_config.policy_mapping": {"cart_0": "left", "cart_1": "right"},
}


def trained(folder: Path, env: str, algorithm: str = "dqn", **settings: Any) -> Path:
    """Return the folder of a small run that has ended."""
    overrides = SMALL | (DQN if algorithm == "dqn" else {}) | settings
    run = train(algorithm=algorithm, env=env, overrides=overrides, launcher="serial", folder=folder)
    assert run.ok, run.details
    return folder


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("chain") / "run", "toy:chain")


def actions(path: Path) -> list[int]:
    return [int(action) for episode in Recording(path) for action in episode.actions]


# -- record -------------------------------------------------------------------------------------


@pytest.mark.parametrize("episodes", [1, 4, 10, 11])
def test_exactly_so_many_whole_episodes_are_recorded(
    command: Command, chain: Path, tmp_path: Path, episodes: int
) -> None:
    said = command("record", str(chain), "--out", "demos", "--episodes", str(episodes), "--json")
    assert said.code == 0, said.err
    found, recorded = json.loads(said.out), list(Recording(tmp_path / "demos"))
    assert found["episodes"] == len(recorded) == episodes
    assert all(episode.complete for episode in recorded)
    returns = [episode.total_reward for episode in recorded]
    assert found["mean_return"] == pytest.approx(np.mean(returns))
    assert found["checkpoint"] == "best"
    (versions,) = {tuple(set(each.versions.tolist())) for each in recorded}
    assert len(versions) == 1


def test_record_tells_what_it_has_done(command: Command, chain: Path, tmp_path: Path) -> None:
    said = command("record", str(chain), "--out", "demos", "--episodes", "2")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("demos: 2 episodes, return ")
    assert said.out.rstrip().endswith(f"checkpoint best of {chain}")
    run = Recording(tmp_path / "demos").run
    assert (run["algorithm"], run["environment"], run["policy"]) == ("dqn", "toy:chain", "default")


def test_the_same_seed_records_the_same_episodes(
    command: Command, chain: Path, tmp_path: Path
) -> None:
    words = ("record", str(chain), "--stochastic", "--epsilon", "0.5", "--episodes", "6")
    for out, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert command(*words, "--out", out, "--seed", seed).code == 0
    a, b, c = (actions(tmp_path / name) for name in "abc")
    assert a == b != c


@pytest.mark.slow
def test_the_best_actions_are_played_or_those_of_the_policy(
    command: Command, tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", "toy:chain", "ppo")
    words = ("record", str(run), "--episodes", "6", "--seed", "1")
    assert command(*words, "--out", "best").code == 0
    assert command(*words, "--out", "drawn", "--stochastic").code == 0
    # In each state the chain goes the same way.
    assert len(set(actions(tmp_path / "best"))) == 1
    assert set(actions(tmp_path / "drawn")) == {0, 1}


@pytest.mark.slow
def test_the_environment_is_that_of_training(command: Command, tmp_path: Path) -> None:
    limits = {
        "env_config.env_args": {"max_episode_steps": 12},
        "env_config.eval_mode": {"max_episode_steps": 3},
    }
    run = trained(tmp_path / "run", "gym:CartPole-v1", "dqn", **limits)
    assert command("record", str(run), "--out", "demos", "--episodes", "8").code == 0
    lengths = [len(episode) for episode in Recording(tmp_path / "demos")]
    assert min(lengths) > 3
    assert max(lengths) <= 12


def test_epsilon_is_the_share_of_random_actions(
    command: Command, chain: Path, tmp_path: Path
) -> None:
    words = ("record", str(chain), "--episodes", "40", "--seed", "1")
    for epsilon in ("0", "1"):
        assert command(*words, "--out", epsilon, "--epsilon", epsilon).code == 0
    greedy, random = actions(tmp_path / "0"), actions(tmp_path / "1")
    # The best action of the chain is one; those that are drawn are both.
    share = np.mean(random)
    assert 0.35 < share < 0.65
    assert abs(float(np.mean(greedy)) - share) > 0.2


def explore(spec: dict[str, Any], given: Any, obs: Any, frame_stack: int = 0) -> Any:
    """Return the actions of the first step of as many streams, half of them random."""
    acting: Any = SimpleNamespace(agent=None, act=lambda *_: (given, {}))
    writer: Any = None
    env = Config({"action_spec": spec, "frame_stack": frame_stack})
    played = RecordedPolicy("default", acting, writer, env, epsilon=0.5, quotas=[1], seed=0)
    rows = len(given)
    no, first = np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    none, steps = np.zeros(rows, np.float32), np.zeros(rows, np.int64)
    return played.act(Rows(np.arange(rows), obs, none, no, no, first, steps))


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        ({"type": "continuous", "dim": [2], "low": [-1.0, 0.0], "high": [1.0, 5.0]}, (200, 2)),
        ({"type": "discrete", "dim": [3]}, (200,)),
        ({"type": "multi_discrete", "dim": [2, 5]}, (200, 2)),
    ],
    ids=str,
)
def test_random_actions_are_drawn_over_their_whole_range(
    spec: dict[str, Any], shape: tuple[int, ...]
) -> None:
    dtype = np.float32 if spec["type"] == "continuous" else np.int64
    given = np.full(shape, 77, dtype)
    found = explore(spec, given, np.zeros((200, 4), np.float32))
    assert found.dtype == dtype
    assert found.shape == shape
    rows = found.reshape(200, -1)
    random = rows[(rows != 77).any(axis=1)]
    # A whole action is random, or none of it.
    assert (random != 77).all()
    assert 70 < len(random) < 130
    if spec["type"] == "continuous":
        assert (random >= spec["low"]).all()
        assert (random <= spec["high"]).all()
        np.testing.assert_allclose(random.mean(axis=0), [0.0, 2.5], atol=0.5)
    else:
        counts = spec["dim"] if len(shape) > 1 else spec["dim"][:1]
        assert [set(column) for column in random.T.tolist()] == [set(range(n)) for n in counts]


@pytest.mark.parametrize(
    ("spec", "shape", "legal"),
    [
        ({"type": "discrete", "dim": [5]}, (200,), {0, 2}),
        ({"type": "multi_discrete", "dim": [3, 2]}, (200, 2), {(0, 1), (2, 1)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("frame_stack", [0, 2])
def test_random_actions_are_legal(
    spec: dict[str, Any], shape: tuple[int, ...], legal: set[Any], frame_stack: int
) -> None:
    last = int(spec["type"] == "multi_discrete")
    mask = np.tile(np.array([1, 0, 1, 0, last], np.int8), (200, 1))
    # Of a stack the newest mask counts.
    obs = np.stack([1 - mask, mask], axis=1) if frame_stack else mask
    found = explore(spec, np.full(shape, 77), {"action_mask": obs}, frame_stack)
    random = {tuple(row) if last else row for row in found.tolist() if np.max(row) != 77}
    assert random == legal


@pytest.mark.slow
def test_each_policy_of_several_is_recorded(command: Command, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "toy:multi_cartpole", "ppo", **TWO)
    assert command("record", str(run), "--out", "demos", "--episodes", "3").code == 0
    lengths = {}
    for policy in ("left", "right"):
        recording = Recording(tmp_path / "demos", policy)
        assert recording.run["policy"] == policy
        assert all(episode.complete for episode in recording)
        lengths[policy] = [len(episode) for episode in recording]
        assert len(lengths[policy]) == 3
    # Each pole falls at a time of its own.
    assert lengths["left"] != lengths["right"]
    said = command("data", "demos")
    assert said.code == 2
    assert "is of the policies left, right: name one of them" in said.err
    assert command("data", "demos", "--policy", "left").code == 0


@pytest.mark.slow
def test_frames_are_recorded_singly(command: Command, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "toy:chain", "dqn", **{"env_config.frame_stack": 3})
    assert command("record", str(run), "--out", "demos", "--episodes", "2").code == 0
    plain = trained(tmp_path / "plain", "toy:chain")
    assert command("record", str(plain), "--out", "others", "--episodes", "2").code == 0
    first, second = Recording(tmp_path / "demos"), Recording(tmp_path / "others")
    assert first.specs["obs_spec"] == second.specs["obs_spec"]
    assert {each.observations.shape[1:] for each in (*first, *second)} == {
        tuple(first.specs["obs_spec"]["dim"])
    }


def test_what_was_recorded_is_not_written_over(command: Command, chain: Path) -> None:
    words = ("record", str(chain), "--out", "demos", "--episodes", "1")
    assert command(*words).code == 0
    said = command(*words)
    assert said.code == 2
    assert "holds a recording: choose another folder" in said.err
    assert len(list(Recording("demos"))) == 1


@pytest.mark.slow
def test_an_environment_that_resets_within_its_step_is_refused(
    command: Command, tmp_path: Path
) -> None:
    path = Path(__file__).parents[2] / "runs" / "in_step.py"
    run = trained(tmp_path / "run", f"{path}:cartpole")
    said = command("record", str(run), "--out", "demos", "--episodes", "4")
    assert said.code == 2
    assert "resets within its step" in said.err
    assert "session_config.record.what=all" in said.err


@pytest.mark.usefixtures("quick")
def test_a_training_from_nothing_is_refused_in_one_line(command: Command, tmp_path: Path) -> None:
    said = command("train", "small.yaml", "--on", "serial", "session_config.dataset.path=nope")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "nope: there is no such folder" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


# -- rerun --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Rerun, Comparison, Difference])
def test_the_page_names_the_keys_of_a_rerun(kind: type[Any]) -> None:
    page = PAGE.read_text()
    names = [each.name for each in fields(kind)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_the_tensors_that_differ_are_listed() -> None:
    found = Comparison(Rerun(updates=9), Rerun(updates=9, differs=(4, 5)), update=3, tensors=14)
    found.differences = [Difference("a", None, 1.0), Difference("b", 1e-6, 0.5)]
    found.differences += [Difference(f"c{number}", 1e-9, 0.5) for number in range(10)]
    assert [" ".join(line.split()) for line in _page(found, "../b").splitlines()[:6]] == [
        "../b and the run: the first difference is at update 5",
        "(the journal has marks of some parameters of each optimizer only)",
        "../b learns something else from update 3 on",
        "12 of 14 tensors differ after it, the largest relative difference first:",
        "a has another shape, or is not finite",
        "b by 1e-06 of at most 0.5",
    ]
    assert _page(found, "../b").endswith("and 2 more: --json has all")
    same = Comparison(Rerun(updates=9), Rerun(updates=9))
    assert _page(same, "../b") == (
        "../b learns the same: 9 updates equal; all tensors compared at the end"
    )


# -- data ---------------------------------------------------------------------------------------


def test_data_shows_the_numbers_of_a_recording(command: Command, tmp_path: Path) -> None:
    first = chunk_of("FMTFMU", "FMMMTF", sender="agent-0")
    late = chunk_of("MMTFMM", sender="agent-1", first_id=50)
    write_shard(tmp_path / "run", [first, late])
    said = command("data", "run")
    assert (said.code, said.err) == (0, "")
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    size = sum(path.stat().st_size for path in (tmp_path / "run").glob("recording/*/*"))
    assert lines[:2] == [
        "run a-run: dqn in toy:none, policy default",
        f"rows 18, one for each observation, in {size / 1000:.1f} kB, 1 shard",
    ]
    assert lines[2] == "episodes 5 of 12 steps: 3 terminated, 1 truncated, 1 cut"
    assert lines[3] == "late 1 episode without its beginning"
    assert lines[4] == "lengths 2.0 to 4.0, quartiles 2.0, 2.0, 3.0; of complete episodes"
    assert lines[5] == "returns 2.0 to 4.0, quartiles 2.0, 2.0, 3.0, mean 2.7; of complete episodes"
    assert lines[6] == "versions 0 to 5 of the parameters"
    assert lines[7] == "senders agent-0 12, agent-1 6"
    assert lines[8:10] == [f"obs {json.dumps(OBS)}", f"action {json.dumps(ACTION)}"]
    assert lines[10].startswith("ranges obs/image ")


def test_data_gives_the_same_as_json(command: Command, tmp_path: Path) -> None:
    write_shard(tmp_path / "run", [chunk_of("FMTFMU"), chunk_of("FMMM", sequence=2)])
    write_shard(tmp_path / "run", [numbered(1, sender="agent-1")], name="replay-1")
    said = command("data", "run", "--json")
    assert said.out.count("\n") == 1
    found = json.loads(said.out)
    assert found["run"]["id"] == "a-run"
    assert found["specs"] == {"obs_spec": OBS, "action_spec": ACTION}
    names = ("rows", "steps", "episodes", "late", "versions", "returns")
    assert {name: found[name] for name in names} == {
        "rows": 13,
        "steps": 9,
        "episodes": 4,
        "late": 1,
        "versions": [0, 10100],
        "returns": [2.0] * 5,
    }
    assert found["shards"] == {"replay-0": 10, "replay-1": 3}
    assert found["senders"] == {"agent-0": 10, "agent-1": 3}
    assert found["ends"] == {"terminated": 1, "truncated": 1, "cut": 2}
    assert found["damages"] == []
    page = PAGE.read_text()
    assert [key for key in found if f"`{key}`" not in page] == []


@pytest.mark.parametrize("words", [(), ("--json",)], ids=str)
def test_data_names_what_is_damaged_and_ends_with_1(
    command: Command, tmp_path: Path, words: tuple[str, ...]
) -> None:
    write_shard(tmp_path / "run", [numbered(n) for n in (1, 2, 3)])
    (path,) = list_segments(tmp_path / "run" / "recording" / "replay-0")
    path.write_bytes(path.read_bytes()[:-1])
    said = command("data", "run", *words)
    assert (said.code, said.err) == (1, "")
    assert f"{path.relative_to(tmp_path)}: record 5 at byte" in said.out
    if not words:
        assert "rows       6, one for each observation, in" in said.out
        assert said.out.splitlines()[-1].startswith("left out  ")


def test_data_ends_with_1_for_a_shard_of_which_nothing_can_be_read(
    command: Command, tmp_path: Path
) -> None:
    for shard in range(2):
        write_shard(tmp_path / "run", [numbered(1)], name=f"replay-{shard}")
    (path,) = list_segments(tmp_path / "run" / "recording" / "replay-1")
    path.write_bytes(bytes(4096))
    said = command("data", "run")
    assert (said.code, said.err) == (1, "")
    assert f"left out   {path.relative_to(tmp_path)}: is no segment of a recording" in said.out


def test_names_in_a_file_neither_steer_the_terminal_nor_forge_a_line(
    command: Command, tmp_path: Path
) -> None:
    forged = "\x1b[31mred\nrows       1,000,000"
    shard = Recorded(tmp_path / "run", config=config_of(env_name=forged))
    chunk = numbered(1)
    chunk.columns = {**chunk.columns, f"obs/{forged}": chunk.columns["reward"]}
    shard.accept(chunk)
    shard.recorder.close()
    said = command("data", "run")
    assert (said.code, said.err) == (1, "")
    assert said.out.splitlines()[0] == (
        "run        a-run: dqn in ?[31mred?rows       1,000,000, policy default"
    )
    assert "column 'obs/?[31mred?rows       1,000,000' is unknown here" in said.out
    assert all(line.isprintable() for line in said.out.splitlines())
    (tmp_path / "two").mkdir()
    for policy in ("left\x1b[2J", "right"):
        about = Recording(tmp_path / "run").run | {"policy": policy}
        specs = Recording(tmp_path / "run").specs
        writer = SegmentedWriter(
            tmp_path / "two" / f"replay-{policy[:4]}-0",
            encode(Message("about", {"run": about, "specs": specs})),
        )
        writer.append([Record(Kind.BEGIN, 0, 0.0, encode(Message("own")))])
        writer.close()
    said = command("data", "two")
    assert said.code == 2
    assert "is of the policies left?[2J, right: name one of them" in said.err


def test_data_of_a_recording_without_an_episode(command: Command, tmp_path: Path) -> None:
    write_shard(tmp_path / "run", [chunk_of("F")])
    said = command("data", "run")
    assert said.code == 0
    assert "episodes   0 of 0 steps\n" in said.out
    write_shard(tmp_path / "none", [])
    assert command("data", "none").code == 0
    assert json.loads(command("data", "none", "--json").out)["versions"] == []


def test_data_of_own_episodes(command: Command, tmp_path: Path) -> None:
    with RecordingWriter.of_env("demos", "gym:CartPole-v1") as demos:
        demos.add(np.zeros((4, 4)), [0, 1, 0], [1, 1, 1], truncated=True)
    said = command("data", "demos")
    assert said.code == 0
    assert "gym:CartPole-v1" in said.out
    assert "1 of 3 steps: 1 truncated" in said.out
    # No algorithm has played.
    assert ": gym:CartPole-v1, policy default" in said.out
    assert "outside" not in said.out


def test_data_counts_numbers_beyond_the_bounds(command: Command, tmp_path: Path) -> None:
    action = {"type": "continuous", "dim": [1], "low": [-1.0], "high": [1.0]}
    obs = {"type": "float32", "dim": [2], "low": 0.0, "high": 1.0}
    with RecordingWriter("demos", obs_spec=obs, action_spec=action) as demos:
        demos.add(np.full((4, 2), 2.0), [[0.0], [1.0], [1.5]], [1, 1, 1], truncated=True)
    said = command("data", "demos")
    (line,) = (line for line in said.out.splitlines() if line.startswith("outside"))
    assert line.split(None, 1)[1] == "obs in 4 rows, action in 1 row: beyond the bounds of the spec"
