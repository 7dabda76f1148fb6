"""A run in this thread: the library's own components, and beside them those that a test plays."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zmq

from session.config import Config
from session.folder import RunFolder
from session.process.clock import CountedClock
from session.process.context import Context, Launch
from session.process.service import Frame, Service
from session.wire import AddressBook, Message
from session.wire.one_way_sockets import PullSocket, Socket
from surreal_like.experiment.read import read_experiment
from surreal_like.experiment.resolve import resolve
from surreal_like.experiment.topology import make_topology
from tests.polling import until

Record = Mapping[str, Any]


def experiment(*overrides: str, algorithm: str = "dqn", env: str = "gym:CartPole-v1") -> Config:
    """A resolved experiment of few agents that learns soon, with what the test wants otherwise."""
    small = (
        "session_config.agent.num=1",
        "session_config.sender.flush_iteration=4",
        "session_config.stop.eval_episodes=4",
        "session_config.learner.batches_per_request=2",
        "env_config.num_envs=2",
        "learner_config.replay.min_size=64",
        "learner_config.replay.batch_size=16",
        # Or agents wait where a test has no learner.
        "learner_config.replay.samples_per_insert=0.0",
        "learner_config.parameter_publish.min_publish_interval=0.0",
    )
    return resolve(read_experiment(None, [*small, *overrides], algorithm=algorithm, env_name=env))


class Stage:
    """Components over in-process sockets, stepped in turn by a clock that counts rounds.

    While one waits for an answer the others go on, so what blocks in a script works here too.
    """

    def __init__(self, config: Config, path: Path) -> None:
        self.config = config
        self.folder = RunFolder(path)
        self.folder.create()
        config.dump_file(self.folder.config)
        self.topology = make_topology(config)
        self.book = AddressBook.inproc([*self.topology.endpoints, "supervisor.control"])
        self.clock = CountedClock()
        self.zmq: zmq.Context[Any] = zmq.Context()
        self.frames: dict[str, Frame] = {}
        self.contexts: dict[str, Context] = {}
        self._plexes: dict[str, PullSocket] = {}
        self._records: dict[str, list[Record]] = {"tensorplex": [], "loggerplex": []}

    def start(self, *names: str, build: Callable[[Context], Service] | None = None) -> None:
        """Starts components by the modules that stand in the topology."""
        for name in names:
            component = self.topology.component(name)
            build_it = build or importlib.import_module(component.module).build
            launch = Launch(component, self.config, self.topology, self.book, self.folder)
            self.frames[name] = Frame(self._open(launch), build_it)

    def _open(self, launch: Launch) -> Context:
        return Context(launch, self.zmq, clock=self.clock, incarnation=1, pause=self._pause)

    def service(self, name: str) -> Any:
        """The service of a component, once it runs."""
        frame = self.frames[name]
        self.until(lambda: frame.state == "running")
        return frame._service

    def context(self, name: str) -> Context:
        """What a component gets that the test plays itself."""
        if name not in self.contexts:
            component = self.topology.component(name)
            launch = Launch(component, self.config, self.topology, self.book, self.folder)
            self.contexts[name] = self._open(launch)
        return self.contexts[name]

    def listen(self, *plexes: str) -> None:
        """Takes the place of Tensorplex or Loggerplex: what is reported is kept."""
        for plex in plexes:
            self._plexes[plex] = self.context(plex).wire.pull(
                f"{plex}.records", high_water_mark=1000
            )

    def records(self, plex: str) -> list[Record]:
        """What has been reported so far."""
        for _ in range(3):
            self.round()
        return self._records[plex]

    def round(self) -> None:
        """One turn of everybody."""
        self.clock.advance()
        for frame in list(self.frames.values()):
            if not frame.finished:
                frame.step()
        for name, context in self.contexts.items():
            if name not in self._plexes:
                context.flush()
        for plex, socket in self._plexes.items():
            while (message := socket.receive()) is not None:
                self._records[plex] += message.fields["records"]

    def rounds(self, seconds: float) -> None:
        """As many rounds as the clock needs for so many seconds."""
        for _ in range(round(seconds * 1000)):
            self.round()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Goes on until something is so; returns what it is."""
        return until(condition, step=self.round)

    def _pause(self, sockets: Sequence[Socket], seconds: float) -> None:
        self.round()

    def close(self) -> None:
        """Ends everybody at once."""
        for frame in self.frames.values():
            if not frame.finished and frame._service is not None:
                frame._service.close()
            frame.context.wire.close(0)
        for context in self.contexts.values():
            context.wire.close(0)
        self.zmq.destroy(0)


def push_chunk(stage: Stage, chunk: Any, name: str = "agent-0") -> None:
    """Sends a chunk as that agent."""
    wire = stage.context(name).wire
    [socket] = [s for s in wire.sockets if s.endpoint == "replay-0.experience"] or [
        wire.push("replay-0.experience")
    ]
    message: Message = chunk.to_message()
    stage.until(lambda: socket.send(message))  # type: ignore[attr-defined]


def zeros(num: int) -> Any:
    """Observations of CartPole, `[num, 4]`."""
    return np.zeros((num, 4), np.float32)
