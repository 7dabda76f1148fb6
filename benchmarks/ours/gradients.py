"""Gradients from an agent to the learner, the same bytes over plain ipc, and dropped gradients.

python gradients.py                 computes gradients of its own unrolls and drops them,
                                    in rounds of :mod:`worker`
python gradients.py ADDRESS SIZE    adds the arrays that it receives
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import zmq  # noqa: E402
from prepared import CONFIGS, make_learner  # noqa: E402
from services import Services, play  # noqa: E402
from worker import Answer, serve  # noqa: E402

from session.config import Config  # noqa: E402
from session.wire.sockets import poll  # noqa: E402
from surreal_like import RolloutWorker, make_policy  # noqa: E402
from surreal_like.dataflow import Trained  # noqa: E402
from surreal_like.experience.actor_state import acting_of  # noqa: E402
from surreal_like.experience.chunk import Chunk  # noqa: E402
from surreal_like.experience.sender import ExpSender  # noqa: E402
from surreal_like.replay.base import load_replay_class  # noqa: E402
from surreal_like.replay.client import ReplayClient  # noqa: E402
from surreal_like.replay.column_spec import parse_columns  # noqa: E402
from surreal_like.run.request import RunRequest  # noqa: E402

A3C = CONFIGS / "cartpole_a3c.yaml"
ROWS = 128
_POLL_SECONDS = 0.01
_WAIT_SECONDS = 10.0


class GradientPath:
    """Sends a gradient through a replay server, and applies it.

    Args:
        folder: of the files of the run.
        hidden_sizes: of the network.

    Attributes:
        size: number of parameters.
    """

    def __init__(self, folder: Path, hidden_sizes: list[int]) -> None:
        words = (f"learner_config.model.hidden_sizes={hidden_sizes}",)
        config = RunRequest(A3C, overrides=words).resolve().config
        self._learner = make_learner(config)
        self.size = sum(optimizer.size for optimizer in self._learner.optimizers.values())
        self._stack = ExitStack()
        self._stack.enter_context(Services(folder, config))
        agent, learner = self._stack.enter_context(play(str(folder), "agent-0", "learner"))
        self._sender = ExpSender(agent, config.session_config.sender)
        self._learner.replay = ReplayClient(
            learner.wire,
            learner.clock,
            shards=1,
            batch_size=1,
            batches_per_request=1,
            collate=load_replay_class(config.learner_config).collate(config.learner_config),
            consumes=True,
        )
        self._row = _row(config)
        acting_of(agent).pack = self._pack

    def _pack(self, chunk: Chunk) -> Chunk:
        return replace(chunk, columns=self._row)

    def one(self) -> None:
        """Sends a gradient, and waits until it is applied.

        Raises:
            RuntimeError: it did not arrive.
        """
        deadline = time.perf_counter() + _WAIT_SECONDS
        self._sender.send(self._row, streams=[0], finished=[], tail=False, first_seconds=0.0)
        replay = self._learner.replay
        while True:
            self._sender.pump()
            replay.tick()
            if isinstance(self._learner.flow.pull(), Trained):
                break
            if time.perf_counter() > deadline:
                raise RuntimeError(f"{replay.counts()}: the gradient has not arrived")
            poll([*replay.sockets(), self._sender.socket], _POLL_SECONDS)
        self._learner.pop_updates()

    def close(self) -> None:
        """Ends the servers."""
        self._stack.close()


def _row(config: Config) -> dict[str, Any]:
    """Returns a row of small gradients, as an agent sends it."""
    row = {
        name: np.full((1, 1, *shape), 1e-6 if dtype.kind == "f" else 1, dtype)
        for name, (dtype, shape) in parse_columns(config.learner_config.gradient_columns).items()
    }
    row["extras/rows"][:] = ROWS
    return row


class Plain:
    """Sends the same bytes to another process, which adds them to an array.

    Args:
        folder: of the socket.
        size: numbers.
    """

    def __init__(self, folder: Path, size: int) -> None:
        address = f"ipc://{folder}/plain"
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.bind(address)
        command = [sys.executable, str(Path(__file__)), address, str(size)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._numbers = np.full(size, 1e-6, np.float32)
        self.one()

    def one(self) -> None:
        """Sends them, and waits until they are added."""
        self._socket.send(self._numbers.data, copy=False)
        self._socket.recv()

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._context.destroy(0)


def add_all(address: str, size: int) -> None:
    """Adds what arrives to an array, and replies to each message; never ends."""
    context: zmq.Context[Any] = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    numbers = np.zeros(size, np.float32)
    while True:
        numbers += np.frombuffer(socket.recv(copy=False).buffer, np.float32)
        socket.send(b"")


def main() -> None:
    """Computes gradients of CartPole, as an agent of the run does it."""
    torch.set_num_threads(1)
    config = RunRequest(A3C).resolve().config
    policy = make_policy(config.algorithm, env=config.env_config.env_name)
    length: int = config.session_config.sender.flush_iteration
    worker = RolloutWorker(policy, config.env_config.num_envs, length)

    def compute(*, seconds: float) -> Answer:
        count, begin = 0, time.perf_counter()
        while time.perf_counter() < begin + seconds:
            policy.compute_gradients(worker.sample())
            count += 1
        return {"rows": count, "seconds": time.perf_counter() - begin}

    serve({"compute": compute})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        add_all(sys.argv[1], int(sys.argv[2]))
    main()
