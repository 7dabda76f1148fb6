"""Replay shards over real sockets, a sender for each and a learner's side; stepped by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.config.sections import sections_of
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch
from session.process.service import Frame
from session.wire import AddressBook, Identity, Wire
from session.wire.socket_state import poll
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.replay.batch_requests import ReplayClient
from surreal_like.replay.batch_server import ReplayService
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.shared_memory import Slab
from tests.polling import until

ENDS = ("experience", "acks", "batches", "priorities")
BATCH = 8


def config(shards: int, *, algo: Any = None, **replay: Any) -> Config:
    whole = BASE_CONFIG.copy()
    whole.algorithm = "none"
    whole.env_config.env_name = "toy:none"
    whole.env_config.num_envs = 2
    whole.session_config.sender.flush_iteration = 5
    settings = {"capacity": 4000, "min_size": 4, "batch_size": BATCH, "replay_shards": shards}
    whole.learner_config.replay.update(settings | replay)
    whole.learner_config.algo.update(algo or {})
    return whole


class Cluster:
    """Shards, one sender per shard, and a learner's side of them; stepped by hand."""

    def __init__(
        self,
        sockets: Path,
        settings: Config,
        folder: RunFolder | None = None,
        memory: str = "",
    ) -> None:
        self.config = settings
        self.folder = folder
        self.zmq: zmq.Context[Any] = zmq.Context()
        self.clock = CountedClock()
        self.shards = [
            Component(
                f"replay-{index}",
                "replay",
                "main.replay",
                index,
                binds=tuple(f"replay-{index}.{end}" for end in ENDS),
                memory=memory,
            )
            for index in range(settings.learner_config.replay.replay_shards)
        ]
        ends = [end for shard in self.shards for end in shard.binds]
        agents = [
            Component(f"agent-{shard.index}", "agent", "main.agent", shard.index, (), tuple(ends))
            for shard in self.shards
        ]
        learner = Component("learner", "learner", "main.learner", connects=tuple(ends))
        self.topology = Topology([*self.shards, *agents, learner])
        self.addresses = AddressBook.ipc(ends, sockets)
        self.frames: dict[int, Frame] = {}
        self.contexts = [
            Context(self.launch(agent), self.zmq, clock=self.clock, incarnation=1)
            for agent in agents
        ]
        sender = settings.session_config.sender
        self.senders = [ExpSender(context, sender) for context in self.contexts]
        self.kind = load_replay_class(settings.learner_config)
        identity = Identity("learner", 1, bytes.fromhex(settings.fingerprint()[:16]))
        self.client = ReplayClient(
            Wire(self.zmq, self.addresses, identity),
            self.clock,
            shards=[f"replay-{index}" for index in range(len(self.shards))],
            batch_size=BATCH,
            batches_per_request=1,
            collate=self.kind.collate(settings.learner_config),
            consumes=self.kind.consumes,
        )
        self.answers: Counter[int] = Counter()

    def launch(self, component: Component) -> Launch:
        return Launch(component, self.config, self.topology, self.addresses, self.folder)

    def start(self, index: int, *, incarnation: int = 1) -> None:
        launch = self.launch(self.shards[index])
        context = Context(launch, self.zmq, clock=self.clock, incarnation=incarnation)
        self.frames[index] = Frame(context, self._build)

    def _build(self, context: Context) -> ReplayService:
        return ReplayService(context, self.kind(**sections_of(self.config)))

    def stop(self, index: int) -> None:
        """The shard is gone, with all that it had."""
        for socket in list(self.frames.pop(index).context.wire.sockets):
            socket.close()

    def send(self, sender: int, chunks: int = 1) -> None:
        """Chunks of 5 x 2 rows whose reward is the number of the sender."""
        overlap = self.kind.overlap
        for _ in range(chunks):
            shape = (5 + overlap, 2)
            columns: dict[str, Any] = {
                "step_type": np.ones(shape, np.uint8),
                "reward": np.full(shape, sender, np.float32),
                "discount": np.ones(shape, np.float32),
                "version": np.zeros(shape, np.int64),
                "obs": np.zeros((*shape, 3), np.float32),
                "action": np.zeros(shape, np.int64),
            }
            self.until(lambda: self.senders[sender].window.ready)
            self.senders[sender].send(Chunk(columns, 0, [0, 1], env_steps=10, overlap=overlap))

    def step(self) -> None:
        self.clock.advance()
        for frame in self.frames.values():
            frame.step()
        for sender in self.senders:
            sender.pump()
        self.client.tick()
        poll(self.client.sockets(), 0.0005)

    def until(self, condition: Callable[[], Any]) -> None:
        until(condition, step=self.step)

    def acked(self) -> bool:
        return all(sender.window.empty for sender in self.senders)

    def sample(self, batches: int) -> Counter[int]:
        """Rows by sender in so many batches; all of them must come."""
        rows: Counter[int] = Counter()
        for _ in range(batches):
            self.until(lambda: self.client.waiting)
            sampled = self.client.next()
            assert sampled is not None
            rows.update(int(reward) for reward in sampled.columns["rewards"].reshape(-1))
        return rows

    def lent(self, index: int) -> Slab:
        """The memory lent to a shard; samples until there is some."""
        shard = self.client._shards[index]
        for _ in range(1000):
            if shard.slab is not None:
                return shard.slab
            self.sample(1)
        raise AssertionError(f"no memory was lent to shard {index}")

    def close(self) -> None:
        for frame in self.frames.values():
            frame.close()
        for context in self.contexts:
            context.wire.close(0)
        self.client.sockets()[0]._wire.close(0)
        self.zmq.destroy(0)
