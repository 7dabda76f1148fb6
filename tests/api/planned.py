"""A planned run in which this very process is a script."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

import main.ps
from session.config import Config
from session.folder import RunFolder
from session.process.entry import remove_socket_folders
from session.process.script import leave, run_in_background, this_is_agent
from session.wire import AddressBook, Identity, Wire
from surreal_like.experiment.topology import make_topology
from surreal_like.run.request import Plan


@contextmanager
def planned_script(
    config: Config, path: Path, telemetry: Sequence[str] = ("tensorplex", "loggerplex")
) -> Iterator[Config]:
    """Plans a run and starts its parameter server; gives the config that a script loads.

    ``telemetry`` is taken and thrown away, so that nobody waits at the end for it to leave.
    """
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    # A test before may have made another agent in this process.
    this_is_agent(0)
    Plan(config, make_topology(config)).write(path)
    with looking_on(config, "sink") as wire:
        for plex in telemetry:
            wire.pull(f"{plex}.records", high_water_mark=1000)
        run_in_background(config.session_config, "ps", 0, main.ps.build)
        try:
            yield config
        finally:
            end_script(config)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def end_script(config: Config) -> None:
    """Leaves a planned run."""
    # Nobody waits for anybody any more.
    RunFolder(config.session_config.folder).result.write_text('{"status": "stopped"}')
    leave()


@contextmanager
def looking_on(config: Config, name: str) -> Iterator[Wire]:
    """Sockets of somebody else who takes part in a planned run."""
    folder = RunFolder(config.session_config.folder)
    context: zmq.Context[Any] = zmq.Context()
    identity = Identity(name, 1, bytes.fromhex(config.fingerprint()[:16]))
    wire = Wire(context, AddressBook.load(folder.addresses), identity)
    try:
        yield wire
    finally:
        wire.close(0)
        context.destroy(0)
        remove_socket_folders(wire.addresses)
