"""What a stream is answered does not depend on which other streams are in its batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import main.gateway
from session.config import Config
from session.config.defaults import BASE_ENV_CONFIG, BASE_LEARNER_CONFIG, BASE_SESSION_CONFIG
from surreal_like.addons.gateway.policies import Inference, Policies, concatenate
from surreal_like.agent.agent import Agent, AgentMode
from surreal_like.algorithm.registry import find_algorithm
from surreal_like.env.frame_stack import FrameStack
from surreal_like.env.vector import SyncVector
from surreal_like.experiment.resolve import defaults
from tests.surreal_like.agent.rig import Count

OBS = {"type": "float32", "dim": [3]}
DISCRETE = {"type": "discrete", "dim": [4]}
CONTINUOUS = {"type": "continuous", "dim": [2], "low": -1.0, "high": 1.0}
STREAMS, ROUNDS = 6, 40


def agent_of(algorithm: str, mode: str, action: Any, **changes: Any) -> Agent:
    config = defaults(algorithm)
    config.learner_config.extend(BASE_LEARNER_CONFIG)
    config.learner_config.model.update(changes)
    env = Config({"env_name": "x", "obs_spec": OBS, "action_spec": action}).extend(BASE_ENV_CONFIG)
    torch.manual_seed(0)
    return find_algorithm(algorithm).agent(
        learner_config=config.learner_config,
        env_config=env,
        session_config=BASE_SESSION_CONFIG.copy(),
        agent_id=0,
        agent_mode=mode,
    )


def observations() -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((ROUNDS, STREAMS, 3)).astype(np.float32)


def batches() -> list[list[int]]:
    """In each round some streams, in any order; each stream sees its observations in turn."""
    rng = np.random.default_rng(2)
    return [rng.permutation(STREAMS)[: rng.integers(1, STREAMS + 1)].tolist() for _ in range(300)]


def played(make: Any, order: list[list[int]]) -> list[list[Any]]:
    """All answers of each stream: action, extras."""
    agent = make()
    inference = Inference(agent, agent.env_config, STREAMS)
    obs, at = observations(), [0] * STREAMS
    answers: list[list[Any]] = [[] for _ in range(STREAMS)]
    for batch in order:
        streams = [stream for stream in batch if at[stream] < ROUNDS]
        if not streams:
            continue
        rows = np.stack([obs[at[stream], stream] for stream in streams])
        first = np.array([at[stream] % 7 == 0 for stream in streams])
        advice = inference.act(np.array(streams), rows, first, rows[:, 0])
        for row, stream in enumerate(streams):
            extras = advice.extras
            answers[stream].append((advice.action[row], {k: v[row] for k, v in extras.items()}))
            at[stream] += 1
    return answers


@pytest.mark.parametrize(
    ("algorithm", "mode", "action", "changes"),
    [
        ("dqn", "eval_deterministic", DISCRETE, {}),
        ("ppo", "eval_deterministic", DISCRETE, {}),
        ("ppo", "eval_deterministic", CONTINUOUS, {"memory": "lstm", "memory_size": 8}),
        ("impala", "eval_deterministic", DISCRETE, {"memory": "gru", "memory_size": 8}),
        (
            *("impala", "eval_deterministic", CONTINUOUS),
            {"memory": "gru", "memory_size": 8, "memory_inputs": ["action", "reward"]},
        ),
    ],
)
def test_greedy_answers_do_not_depend_on_the_batch(
    algorithm: str, mode: str, action: Any, changes: dict[str, Any]
) -> None:
    def make() -> Agent:
        return agent_of(algorithm, mode, action, **changes)

    alone = [[stream] for stream in range(STREAMS) for _ in range(ROUNDS)]
    for one, other in zip(played(make, alone), played(make, batches()), strict=True):
        assert len(other) == ROUNDS
        for (mine, _), (theirs, _) in zip(one, other, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_memory_columns_do_not_depend_on_the_batch(kind: str) -> None:
    def make() -> Agent:
        return agent_of("ppo", "training", DISCRETE, memory=kind, memory_size=8)

    alone = [[stream] for stream in range(STREAMS) for _ in range(ROUNDS)]
    for one, other in zip(played(make, alone), played(make, batches()), strict=True):
        for number, ((_, mine), (_, theirs)) in enumerate(zip(one, other, strict=True)):
            assert mine["extras/memory"] == pytest.approx(theirs["extras/memory"], abs=1e-6)
            assert mine["extras/logits"] == pytest.approx(theirs["extras/logits"], abs=1e-6)
            assert (number % 7 == 1) == (number % 7 == 1 and bool(np.any(mine["extras/memory"])))


def test_frames_are_stacked_by_stream() -> None:
    agent = agent_of("dqn", "eval_deterministic", DISCRETE)
    agent.env_config.frame_stack = 3
    seen: list[Any] = []

    def act(obs: Any) -> Any:
        seen.append(obs.numpy().copy())
        return np.zeros(len(obs), np.int64)

    agent.act = act  # type: ignore[method-assign]
    agent.acts_on_arrays = False
    inference = Inference(agent, agent.env_config, 4)
    env = Count(3, "T")
    stack = FrameStack(SyncVector([env], obs_spec=env.obs_spec, action_spec=env.action_spec), 3)
    expected, first = stack.reset()[0], True
    for step in range(12):
        frame = expected[:, -1]
        # Another stream goes its own way in the same batch.
        frames = np.concatenate((np.full((1, 2), step, np.float32), frame))
        inference.act(np.array([3, 1]), frames, np.array([step == 0, first]))
        assert (seen[-1][1] == expected[0]).all()
        assert seen[-1][0][:, 0].tolist() == [max(0, step - 2), max(0, step - 1), step]
        expected, _, terminated, truncated, _ = stack.step(np.array([0]))
        first = bool(terminated[0] or truncated[0])
        if first:
            frames = np.concatenate((np.full((1, 2), step, np.float32), expected[:, -1]))
            expected = stack.step(np.array([0]))[0]


@pytest.mark.parametrize("clips", [True, False])
def test_answers_are_within_bounds_and_the_policy_is_recorded(clips: bool) -> None:
    agent = agent_of("ppo", "training", CONTINUOUS)
    agent.env_config.clip_action = clips
    given = np.array([[3.0, -0.5], [0.5, -7.0]], np.float32)
    agent.act = lambda obs: given  # type: ignore[method-assign]
    policies = Policies(lambda mode: agent, agent.env_config, 4, {"train": AgentMode.training})
    obs = np.zeros((2, 3), np.float32)
    advice, shown = policies.act("train", np.array([2, 0]), obs, np.array([True, False]))
    assert advice.action.tolist() == given.tolist()
    assert shown.tolist() == ([[1.0, -0.5], [0.5, -1.0]] if clips else given.tolist())


def test_a_gateway_explores_as_the_agent_after_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(main.gateway, "make_agent", lambda *given: made.append(given[-1]))
    monkeypatch.setattr(main.gateway, "prepare_agent", lambda context, agent, learner: agent)
    monkeypatch.setattr(
        main.gateway, "GatewayService", lambda context, make: make(AgentMode.training)
    )
    session = BASE_SESSION_CONFIG.copy()
    session.agent.num, session.gateway.num = 3, 2
    context = SimpleNamespace(
        config=Config({"session_config": session, "algorithm": "dqn"}),
        folder=None,
        component=SimpleNamespace(index=1),
        busy=lambda seconds, what: None,
    )
    main.gateway.build(context)  # type: ignore[arg-type]
    assert made == [4]


def test_nests_are_concatenated() -> None:
    one = {"a": np.zeros((1, 2)), "b": (np.ones((1, 1)),)}
    assert concatenate([one]) is one
    found = concatenate([one, one, one])
    assert found["a"].shape == (3, 2)
    assert found["b"][0].shape == (3, 1)
