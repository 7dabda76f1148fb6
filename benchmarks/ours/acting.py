"""An agent without a learner, and the least that could act in its place. Rounds of :mod:`worker`.

python acting.py RUN_FOLDER
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "peers")]

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from bare import mlp  # noqa: E402
from networks import make_network  # noqa: E402
from services import play  # noqa: E402
from torch import nn  # noqa: E402
from worker import Answer, serve  # noqa: E402

from main.agent import build  # noqa: E402
from session.config import Config  # noqa: E402
from session.folder import RunFolder  # noqa: E402
from session.process.context import Context, Launch  # noqa: E402
from session.process.entry import make_frame  # noqa: E402
from session.process.service import Frame  # noqa: E402
from session.wire import AddressBook  # noqa: E402
from surreal_like.algorithm.dqn import make_network as make_q_network  # noqa: E402
from surreal_like.learner.publisher import Publisher  # noqa: E402
from surreal_like.network.flat import manifest_of, named_tensors, read_flat  # noqa: E402

_START_SECONDS = 60.0
_ATARI = "atari:"


class Acting:
    """The agent of a run, stepped here as its process would, and a bare loop beside it.

    Args:
        learner: context of the run's learner, which only publishes.
        folder: of the run.
    """

    def __init__(self, learner: Context, folder: RunFolder) -> None:
        self._config = learner.config
        self._num_envs: int = learner.config.env_config.num_envs
        torch.manual_seed(0)
        self._network = make_q_network(self._config.learner_config, self._config.env_config)
        self._publisher = Publisher(
            learner.wire.publisher("learner.parameters"),
            learner.clock,
            incarnation=learner.incarnation,
            version=0,
        )
        modules = {"q_network": self._network}
        self._publisher.publish(
            read_flat(modules), manifest_of(named_tensors(modules)), iteration=1, env_steps=1
        )
        self._frame = _frame_of(learner, folder)
        self._bare_step = make_bare_step(self._config, self._network)
        self._start()

    def _start(self) -> None:
        """Until the agent steps: it needs parameters."""
        deadline, steps = time.perf_counter() + _START_SECONDS, 0
        while steps < 2:
            if time.perf_counter() > deadline:
                raise RuntimeError("the agent does not step")
            self._publisher.tick()
            if not self._frame.step():
                self._frame.idle()
            steps += self._frame.state == "running" and self._frame.step()

    def agent(self, *, seconds: float) -> Answer:
        """As main.agent's process does, with all that it sends and asks for."""
        frame = self._frame
        self._publisher.tick()

        def step() -> bool:
            stepped = frame.step()
            if not stepped:
                frame.idle()
            return stepped

        return self._timed(step, seconds)

    def bare(self, *, seconds: float) -> Answer:
        """Step, forward, argmax, epsilon; nothing is kept."""
        return self._timed(self._bare_step, seconds)

    def _timed(self, step: Callable[[], bool], seconds: float) -> Answer:
        """Steps for so long; also the processor time of this thread."""
        steps, used = 0, time.thread_time()
        begin = time.perf_counter()
        while time.perf_counter() < begin + seconds:
            steps += step()
        passed = time.perf_counter() - begin
        return {
            "rows": steps * self._num_envs,
            "seconds": passed,
            "cpu_seconds": time.thread_time() - used,
        }


def _frame_of(learner: Context, folder: RunFolder) -> Frame:
    topology, addresses = learner.topology, AddressBook.load(folder.addresses)
    agent = topology.component("agent-0")
    launch = Launch(agent, learner.config, topology, addresses, folder)
    return make_frame(launch, build)


def make_bare_step(config: Config, network: nn.Module) -> Callable[[], bool]:
    """One step of the environment's own vector code and of a network in plain torch.

    Its weights are those that the agent has, so that it sees episodes of the same length.
    """
    if config.get("policies"):
        return _make_joint_step(config)
    env_config, num_envs = config.env_config, config.env_config.num_envs
    num_actions = env_config.action_spec.dim[0]
    env = _bare_env(env_config)
    net = _bare_network(config, network)
    epsilon, generator = float(config.learner_config.algo.epsilon.start), np.random.default_rng(0)
    seen: list[Any] = [env.reset(seed=0)[0]]

    @torch.inference_mode()
    def step() -> bool:
        actions = net(torch.from_numpy(seen[0])).argmax(1).numpy()
        explores = generator.random(num_envs) < epsilon
        if explores.any():
            actions = np.where(explores, generator.integers(num_actions, size=num_envs), actions)
        seen[0] = env.step(actions)[0]
        return True

    return step


def _make_joint_step(config: Config) -> Callable[[], bool]:
    """One step of each copy of an environment of several agents, by actions drawn before."""
    module = import_module(config.env_config.env_name.replace(":", "."))
    envs = [module.parallel_env() for _ in range(config.env_config.num_envs)]
    generator = np.random.default_rng(0)
    for env in envs:
        env.reset(seed=0)
    drawn = [
        {name: int(generator.integers(env.action_space(name).n)) for name in env.possible_agents}
        for env in envs
        for _ in range(100)
    ]
    actions = itertools.cycle(drawn)

    def step() -> bool:
        for env in envs:
            env.step(next(actions)) if env.agents else env.reset()
        return True

    return step


def _bare_env(env_config: Config) -> Any:
    name: str = env_config.env_name
    if not name.startswith(_ATARI):
        game = name.removeprefix("gym:")
        return gymnasium.make_vec(game, env_config.num_envs, "vector_entry_point")
    from ale_py.vector_env import AtariVectorEnv

    game = name.removeprefix(_ATARI).lower()
    threads = env_config.env_args.get("num_threads", 1)
    return AtariVectorEnv(
        game, env_config.num_envs, stack_num=4, reward_clipping=False, num_threads=threads
    )


class _Bytes(nn.Module):
    """Frames as numbers from 0 to 1."""

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """float32 of the same shape."""
        return frames.float().mul_(1 / 255)


def _bare_network(config: Config, network: nn.Module) -> nn.Module:
    """The same layers with the same weights, in order."""
    env_config = config.env_config
    num_actions = env_config.action_spec.dim[0]
    if env_config.env_name.startswith(_ATARI):
        net = nn.Sequential(_Bytes(), make_network(num_actions))
    else:
        hidden: list[int] = config.learner_config.model.hidden_sizes
        net = mlp([env_config.obs_spec.dim[0], *hidden, num_actions], nn.ReLU)
    with torch.no_grad():
        for mine, theirs in zip(net.parameters(), network.parameters(), strict=True):
            mine.copy_(theirs)
    return net.requires_grad_(False).eval()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with play(sys.argv[1], "learner") as contexts:
        acting = Acting(contexts[0], RunFolder(sys.argv[1]))
        # As in the processes of a run, whose server has frozen what it imported.
        gc.collect()
        gc.freeze()
        serve({"agent": acting.agent, "bare": acting.bare})
