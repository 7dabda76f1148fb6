"""A run folder, addresses and a clock that is turned by hand, for telemetry on real sockets."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from session.config import Config
from session.config.defaults import BASE_CONFIG
from session.folder import RunFolder
from session.process.context import Context, Launch
from session.process.service import Service
from session.wire import AddressBook
from session.wire.socket_state import poll
from surreal_like.experiment.topology import make_topology
from tests.clock import HandClock
from tests.polling import until


class Rig:
    """Makes the contexts of the components of one run, on ipc sockets."""

    def __init__(self, path: Path, **session: Any) -> None:
        experiment = {
            "algorithm": "dqn",
            "env_config": {"env_name": "toy:chain"},
            "session_config": session,
        }
        self.config = Config(experiment).extend(BASE_CONFIG, strict=True)
        self.folder = RunFolder(path / "run")
        self.folder.create()
        sockets = path / "s"
        sockets.mkdir()
        self.clock = HandClock(1_700_000_000.0)
        self.topology = make_topology(self.config)
        self.addresses = AddressBook.ipc(self.topology.endpoints, sockets)
        self.zmq_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.contexts: list[Context] = []

    def context(self, name: str, *, incarnation: int = 1, folder: bool = True) -> Context:
        launch = Launch(
            self.topology.component(name),
            self.config,
            self.topology,
            self.addresses,
            self.folder if folder else None,
        )
        context = Context(launch, self.zmq_context, clock=self.clock, incarnation=incarnation)
        self.contexts.append(context)
        return context

    def write_files(self) -> None:
        """What a launcher leaves in the folder for processes."""
        self.config.dump_file(self.folder.config)
        self.folder.topology.write_text(json.dumps(self.topology.to_dict()))
        self.folder.addresses.write_text(self.addresses.dump())

    def pump(self, service: Service, condition: Callable[[], bool]) -> None:
        """Ticks the service and turns the clock until something holds."""

        def step() -> None:
            for context in self.contexts:
                context.flush()
            if not service.tick():
                poll(service.wait_on(), 0.005)
            self.clock.seconds += 0.01

        until(condition, step=step)

    def close(self) -> None:
        for context in self.contexts:
            for channel in context._channels.values():
                channel._records.clear()  # nobody listens any more: do not wait
            context.close()
        self.zmq_context.destroy(0)


MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[MakeRig]:
    """Makes a rig with the settings given, and closes it."""
    rigs: list[Rig] = []

    def make(**session: Any) -> Rig:
        rigs.append(Rig(tmp_path, **session))
        return rigs[0]

    yield make
    for rig in rigs:
        rig.close()
