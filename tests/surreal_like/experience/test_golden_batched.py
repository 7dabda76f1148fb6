"""The rows of a stream are the same, however an environment steps and resets its copies."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from session.config.defaults import BASE_SESSION_CONFIG
from surreal_like.agent.evaluation import Evaluation
from surreal_like.env.frame_stack import FrameStack
from surreal_like.env.vector import make_vector_env
from surreal_like.env.whole_vector import WholeVector
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.row_writer import RowWriter
from tests.add_ons import needs

SAMPLES = "tests.surreal_like.env.batched_samples"
STREAMS, ROWS = 3, 24
FORMS: dict[str, dict[str, Any]] = {
    "sync": {"env_name": f"{SAMPLES}:Ones", "vector": "sync"},
    "process": {"env_name": f"{SAMPLES}:GymOnes", "vector": "process", "workers": 2},
    "own": {"env_name": f"{SAMPLES}:Own"},
    "own, in the step": {"env_name": f"{SAMPLES}:Own", "env_args": {"resets_in_step": True}},
    "function": {"env_name": f"{SAMPLES}:make_many"},
    **{
        f"{name} {mode} {args}": {
            "env_name": f"{SAMPLES}:{name}",
            "env_args": {"mode": mode, **args},
        }
        for name, args in (("sync", {}), ("Many", {}), ("Many", {"kind": "torch"}))
        for mode in ("NextStep", "SameStep", "Disabled")
    },
}
NAMES = [
    pytest.param(name, marks=needs("workers")) if name == "process" else name for name in FORMS
]


def act(obs: Any) -> Any:
    """Actions that depend on stream, episode and step, so that streams come out of step."""
    number = np.arange(len(obs)) * 2 + obs[:, -1, 0] * 3 + obs[:, -1, 1]
    return np.array([0, 1, 1, 0, 2, 1, 0])[number.astype(int) % 7]


def play(config: dict[str, Any], overlap: int, stacked: int = 3) -> list[Chunk]:
    """Chunks of three streams, acted on by stacks of frames."""
    chunks: list[Chunk] = []
    env = make_vector_env({**config, "info_keys": ["clock"]}, num_envs=STREAMS, seed=0)
    with contextlib.closing(env):
        writer = RowWriter(
            STREAMS,
            obs_spec=env.obs_spec,
            action_spec=env.action_spec,
            settings=BASE_SESSION_CONFIG.sender | {"flush_iteration": 4},
            overlap=overlap,
            send=chunks.append,
            resets_in_step=env.resets_in_step,
        )
        writer.keep_frames(stacked - 1)
        stack = FrameStack(env, stacked)
        obs, info = stack.reset()
        writer.begin(obs[:, -1], info)
        for step in range(ROWS + 8):
            extras = {"extras/seen": obs.copy()}
            writer.act(act(obs), extras, version=1 + step // 9, now=0.0, metrics={"my/own": 1.0})
            obs, reward, terminated, truncated, info = stack.step(act(obs))
            writer.observe(obs[:, -1], reward, terminated, truncated, info)
    return chunks


def streams_of(chunks: list[Chunk]) -> list[dict[str, list[Any]]]:
    """Columns of each stream, one row after the other; rows of overlaps count once."""
    found: list[dict[str, list[Any]]] = [{} for _ in range(STREAMS)]
    for chunk in chunks:
        for place, stream in enumerate(chunk.streams):
            for name, column in chunk.columns.items():
                rows = column[: chunk.length, place].tolist()
                found[stream].setdefault(name, []).extend(rows)
    return [{name: rows[:ROWS] for name, rows in stream.items()} for stream in found]


GOLDEN: dict[str, list[Any]] = {
    "step_type": [0, 1, 1, 1, 2, 0, 1, 2, 0],
    "obs": [[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [1, 0], [1, 1], [1, 2], [2, 0]],
    "reward": [0, 0.5, 2, 2.5, 2, 0, 0.5, 3, 0],
    "discount": [1, 1, 1, 1, 1, 1, 1, 0, 1],
    "extras/clock": [0, 10, 20, 30, 40, 0, 10, 20, 0],
}


@pytest.mark.parametrize("overlap", [0, 1])
@pytest.mark.parametrize("form", NAMES)
def test_rows_are_the_same_in_every_form(form: str, overlap: int) -> None:
    chunks = play(FORMS[form], overlap)
    streams = streams_of(chunks)
    for name, rows in GOLDEN.items():
        assert streams[0][name][: len(rows)] == rows, name
    assert streams[0]["step_type"] != streams[1]["step_type"]
    for stream, expected in zip(streams, streams_of(play(FORMS["sync"], 0)), strict=True):
        last = np.array(expected["step_type"]) == 2
        assert 2 < last.sum() < ROWS
        for name in expected.keys() - {"version"}:
            # No action is taken at a last row: there it means nothing, nor what came with it.
            every = name in ("action", "extras/seen")
            keep = ~last if every else np.ones(ROWS, np.bool_)
            given, wanted = np.array(stream[name])[keep], np.array(expected[name])[keep]
            np.testing.assert_array_equal(given, wanted, err_msg=name)


@pytest.mark.parametrize("form", NAMES)
def test_unrolls_have_the_frames_before_them(form: str) -> None:
    chunks = play(FORMS[form], 1)
    assert {chunk.shape for chunk in chunks} == {(5, STREAMS)}
    for chunk in chunks:
        first, seen = chunk.columns["step_type"][0] == 0, chunk.columns["extras/seen"][0]
        lead, obs = np.swapaxes(chunk.lead_in["obs"], 0, 1), chunk.columns["obs"][0][:, None]
        acted = chunk.columns["step_type"][0] != 2
        stack = np.concatenate([lead, obs], axis=1)
        np.testing.assert_array_equal(stack[acted], seen[acted])
        assert first.shape == acted.shape


@pytest.mark.parametrize("form", NAMES)
def test_episodes_and_steps_are_counted_the_same(form: str) -> None:
    chunks = play(FORMS[form], 0)
    finished = [each for chunk in chunks for each in chunk.finished]
    assert {"return": 7.0, "length": 4, "metrics": {"my/own": 1.0}} in finished
    assert {"return": 3.5, "length": 2, "metrics": {"my/own": 1.0}} in finished
    for chunk in chunks:
        assert chunk.env_steps == np.count_nonzero(chunk.columns["step_type"][:4] != 0)


@pytest.mark.parametrize("form", NAMES)
def test_an_evaluation_counts_the_same(form: str) -> None:
    with contextlib.closing(make_vector_env(FORMS[form], num_envs=STREAMS, seed=0)) as env:
        evaluation, vector = Evaluation(12, STREAMS), WholeVector(env)
        step = vector.reset()
        while not evaluation.over:
            [rows] = step.rows.values()
            obs: Any = rows.obs
            assert rows.first.tolist() == (obs[:, 1] == 0).tolist()
            step = vector.step({"default": act(obs[:, None])})
            evaluation.count(step.episodes, 0)
    lengths = {each["return"]: each["length"] for each in evaluation.finished}
    assert (evaluation.summary()["mean_length"], lengths[7.0], lengths[3.5]) == (3.0, 4, 2)
