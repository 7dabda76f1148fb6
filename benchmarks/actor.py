"""Agents alone: the agent's loop compared with a bare loop of the same environment and network.

The agent runs the loop of an agent process and sends its experience to the replay service of a run;
no learner samples. The bare loop stores nothing. Prints tables and JSON, and writes
benchmarks/results/actor.json.

    python benchmarks/actor.py [--rounds 15] [--seconds 0.6]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "ours"))

from compare import Found, Group, Line, Side, keep, measure, seconds_per_call  # noqa: E402
from contenders import rate  # noqa: E402
from prepared import CONFIGS, resolved  # noqa: E402
from services import Services  # noqa: E402
from setting import Given, arguments  # noqa: E402
from worker import Worker  # noqa: E402

from session.config.sections import sections_of  # noqa: E402
from session.errors import MissingExtra  # noqa: E402
from surreal_like.addons.analysis.export import export  # noqa: E402
from surreal_like.addons.scripts.policy import load_policy  # noqa: E402
from surreal_like.experiment.find import algorithm_of  # noqa: E402
from surreal_like.experiment.read import read_experiment  # noqa: E402
from surreal_like.experiment.resolve import resolve  # noqa: E402
from surreal_like.run.train import train  # noqa: E402

_SETTINGS = (
    # No learner samples, so the limiter must not block inserts.
    "learner_config.replay.samples_per_insert=0",
    "learner_config.algo.epsilon.start=0.05",
    "session_config.at_end=idle",
    "session_config.agent.num=1",
    # Full speed: DQN's own defaults keep chunks short and few.
    "session_config.sender.flush_iteration=100",
    "session_config.sender.max_unacked_chunks=8",
)
_BESIDE = {"gymnasium": "gymnasium", "ale-py": "ale_py"}
_PROCESSOR = "bare processor"
_HIDDEN = ("learner_config.model.hidden_sizes=[64,64]",)
CARTPOLE = (
    "env_config.num_envs=32",
    "learner_config.model.hidden_sizes=[64,64]",
    "learner_config.replay.capacity=100_000",
)
PONG = (
    "env_config.num_envs=8",
    "env_config.frame_stack=4",
    "learner_config.model.hidden_sizes=[]",
    "learner_config.replay.capacity=20_000",
    "session_config.sender.flush_iteration=20",
)


def alone(
    given: Given, env_name: str, settings: Sequence[str], *, name: str, about: str, wanted: str
) -> Found:
    """Measures an agent against the bare loop, in these environments."""
    with ExitStack() as stack:
        user = read_experiment(None, (*_SETTINGS, *settings), algorithm="dqn", env_name=env_name)
        folder = given.folder / env_name.rpartition(":")[2]
        stack.enter_context(Services(folder, resolve(user)))
        worker = stack.enter_context(
            Worker(sys.executable, str(HERE / "ours" / "acting.py"), str(folder))
        )

        def run(do: str) -> dict[str, float]:
            answer = worker.ask(do, seconds=given.seconds)
            return {"clock": rate(answer), "processor": answer["rows"] / answer["cpu_seconds"]}

        sides = [
            Side(
                "agent",
                "surreal_like",
                "Frame and AgentService of main.agent: DQN's agent, ExpSender to ReplayService",
                partial(run, "agent"),
            ),
            Side(
                "bare",
                "bare loop",
                "the environment's own vector code, the same layers in nn.Sequential, argmax, "
                "epsilon; nothing is kept",
                partial(run, "bare"),
            ),
        ]
        lines = [
            Line("agent alone", "agent clock", ("bare clock",), wanted),
            Line("per second of its thread's processor time", "agent processor", (_PROCESSOR,)),
        ]
        return measure(Group(name, "steps/s", "more", about, sides, lines), given.rounds)


def noisy(given: Given) -> Found:
    """Measures the actions of DQN's agent with and without noisy layers."""
    sides = [
        _acting("noisy", "surreal_like", (*_HIDDEN, "learner_config.model.noisy=0.5"), given),
        _acting("plain", "without noise", _HIDDEN, given),
    ]
    about = "DQN's agent in training, 32 observations of CartPole at a time, two layers of 64."
    lines = [Line("noisy layers", "noisy", ("plain",), "0.6 x, aim 0.8 x")]
    group = Group("Noisy acting", "actions per processor second", "more", about, sides, lines)
    return measure(group, given.rounds)


def _acting(key: str, label: str, changes: Sequence[str], given: Given) -> Side:
    config = resolved("cartpole_dqn", changes)
    agent = algorithm_of(config, None).agent(
        **sections_of(config),
        agent_id=0,
        agent_mode="training",
    )
    obs = torch.randn(32, 4)
    act = torch.inference_mode()(partial(agent.act, obs))
    return Side(
        key,
        label,
        f"DQNAgent.act of configs/cartpole_dqn.yaml {' '.join(changes)}",
        lambda: len(obs) / seconds_per_call(act, given.seconds),
    )


def exported(given: Given) -> Found:
    """Measures one action of an exported policy and of the policy in this package.

    Raises:
        MissingExtra: a package of the extra ``export`` is not installed.
    """
    folder, path = given.folder / "exported", given.folder / "policy.onnx"
    short: dict[str, Any] = {"session_config.stop": {"iterations": 2, "eval_episodes": 2}}
    short["learner_config.model.hidden_sizes"] = [64, 64]
    train(CONFIGS / "cartpole_dqn.yaml", overrides=short, launcher="serial", folder=folder)
    export(folder, path, checkpoint="latest")
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options)
    policy, obs = load_policy(folder, "latest"), np.zeros((1, 4), np.float32)
    acts: dict[str, tuple[str, Callable[[], Any]]] = {
        "exported": ("surreal_like", lambda: session.run(None, {"obs": obs})),
        "torch": ("load_policy, torch", lambda: policy(obs[0])),
    }
    sides = [
        Side(key, label, f"one action, {key}", partial(_microseconds, act, given.seconds))
        for key, (label, act) in acts.items()
    ]
    about = "One observation of CartPole, two layers of 64, onnxruntime with one thread."
    lines = [Line("exported policy", "exported", ("torch",), "1 x, aim 0.5 x")]
    group = Group("Exported policy", "processor microseconds", "less", about, sides, lines)
    return measure(group, given.rounds)


def _microseconds(call: Callable[[], Any], seconds: float) -> float:
    return 1e6 * seconds_per_call(call, seconds)


def main() -> None:
    """Measures, prints the tables and writes the results."""
    with arguments(__doc__, seconds=0.6) as given:
        groups = [
            alone(
                given,
                "gym:CartPole-v1",
                CARTPOLE,
                name="CartPole, agent alone",
                about="32 environments of Gymnasium's vector code, two layers of 64, one thread, "
                "chunks 100 x 32.",
                wanted="0.8 x, aim 0.9 x and 250 k",
            )
        ]
        try:
            groups.append(
                alone(
                    given,
                    "atari:Pong",
                    PONG,
                    name="Pong, agent alone",
                    about="8 games of ale-py's vector code in one thread, frames 84 x 84 in "
                    "stacks of four, the Nature CNN, chunks 20 x 8.",
                    wanted="0.75 x, aim 0.9 x",
                )
            )
        except MissingExtra as error:
            given.left_out["Pong"] = str(error)
        torch.set_num_threads(1)
        given.seconds /= 2
        groups.append(noisy(given))
        try:
            groups.append(exported(given))
        except MissingExtra as error:
            given.left_out["exported policy"] = str(error)
        versions = {name: metadata.version(name) for name in _BESIDE if find_spec(_BESIDE[name])}
        keep("actor", groups, versions, given.left_out)


if __name__ == "__main__":
    main()
