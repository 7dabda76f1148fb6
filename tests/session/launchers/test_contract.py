"""The contract of launchers, for those of this machine; components are small ones."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session.addons.tmux.run import TmuxCluster
from session.config import Config
from session.folder import RunFolder
from session.launchers.fork_client import Preload
from session.launchers.handle import Cluster
from session.launchers.local import LocalCluster, LocalLauncher
from session.launchers.serial import SerialLauncher
from session.process.component import Topology
from tests.contracts.launcher import Launched, LauncherContract
from tests.session.launchers.parts import MODULE, make_config, make_topology
from tests.session.launchers.parts_supervisor import SUPERVISOR

ACTS = {
    "loggerplex": "collect",
    "replay-0": "work",
    "learner": "learn",
    "agent-0": "say",
    "eval-0": "work",
}


def make_folder(path: Path) -> RunFolder:
    folder = RunFolder(path)
    folder.create()
    return folder


@contextmanager
def detached(cluster: Cluster) -> Iterator[Launched]:
    """Launches a run that goes on by itself; kills what is left of it."""
    folder, lines = cluster.folder, cluster.dry_run()
    assert not folder.config.exists(), "a dry run writes nothing"
    assert not cluster.running
    cluster.launch()
    try:
        yield Launched(cluster, folder, dry_run=lines)
    finally:
        if cluster.running:
            cluster.stop(interrupted=True)
            cluster.wait(30.0)


def lines_of(topology: Topology, folder: RunFolder) -> str:
    """What ``plan`` shows of a run that has no dry run of its own."""
    return "\n".join(shlex.join(component.command(str(folder))) for component in topology)


class OfThisMachine(LauncherContract):
    names = tuple(ACTS)
    said = ("agent-0", "logged by agent-0")


class TestSerial(OfThisMachine):
    processes = False

    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        folder, config = make_folder(path), make_config(ACTS)
        config.dump_file(folder.config)
        topology = make_topology(config)
        with SerialLauncher(config, topology, folder, restarts=True) as launcher:
            launcher.launch()
            yield Launched(
                launcher,
                folder,
                poll=lambda: launcher.poll(0.01),
                signal=lambda row, number: launcher.frames.signal(row.name, number),
                command_line=None,
                dry_run=lines_of(topology, folder),
            )


class TestLocal(OfThisMachine):
    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        folder, config = make_folder(path), make_config(ACTS)
        config.dump_file(folder.config)
        topology = make_topology(config)
        with LocalLauncher(config, topology, folder, preload=Preload([MODULE])) as launcher:
            launcher.launch()
            yield Launched(
                launcher,
                folder,
                poll=launcher.poll,
                dry_run=lines_of(topology, folder),
            )


@pytest.mark.slow
class TestDetached(OfThisMachine):
    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        config: Config = make_config(ACTS)
        cluster = LocalCluster(
            config, make_topology(config), make_folder(path), supervisor_module=SUPERVISOR
        )
        with cluster, detached(cluster) as launched:
            yield launched


# Slow, since test_tmux shows at once what is the launcher's own.
@pytest.mark.slow
@pytest.mark.tmux
class TestTmux(OfThisMachine):
    @contextmanager
    def launched(self, path: Path) -> Iterator[Launched]:
        config = make_config(ACTS)
        cluster = TmuxCluster(
            config, make_topology(config), make_folder(path), supervisor_module=SUPERVISOR
        )
        with cluster, detached(cluster) as launched:
            yield launched
