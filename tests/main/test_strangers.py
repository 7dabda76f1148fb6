"""A component that is not let in, or finds nobody: one clear line, and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from session.errors import START_AGAIN
from session.folder import RunFolder
from session.launchers.launcher import write_topology
from session.wire import AddressBook, Identity, Wire
from session.wire import codec as codec_module
from session.wire.requests import RouterSocket
from session.wire.security import Security, write_keys
from session.wire.socket_state import poll
from surreal_like.experiment.topology import make_topology
from tests.polling import DEADLINE_SECONDS
from tests.session.process.test_entry import finish
from tests.session.wire.rig import free_port
from tests.surreal_like.agent.rig import make_config

ROOT = Path(__file__).resolve().parents[2]
# Python's start on a machine that others use is not what is measured.


class Run:
    """The keys, the config and the parameter server's socket of a run.

    Args:
        path: for its files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys, self.config = path / "keys", path / "config.yaml"
        write_keys(self.keys)
        config = make_config()
        config.dump_file(self.config)
        topology = make_topology(config)
        write_topology(RunFolder(path), topology)
        self.book = AddressBook.tcp({name: free_port() for name in topology.endpoints})
        (path / "addresses.json").write_text(self.book.dump())
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        security = Security.load(self.keys)
        self.wire = Wire(self._context, self.book, Identity("ps"), security=security)
        self.router: RouterSocket = self.wire.router("ps.requests")

    def component(self, *words: str) -> subprocess.Popen[str]:
        """A light component that was started by hand."""
        places = ["--config", str(self.config), "--address", str(self.path / "addresses.json")]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "main.replay", *places, *words],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def close(self) -> None:
        self.wire.close(0)
        self._context.destroy(0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.close()


def check(process: subprocess.Popen[str], *words: str) -> None:
    code, said = finish(process)
    *waits, last = said.splitlines()
    assert code == 2
    assert last.startswith("replay-0: ")
    for word in words:
        assert word in last
    # On a machine that is busy an answer may come later than the first of these.
    assert all("nothing answers there" in line for line in waits), waits


def test_without_keys(run: Run) -> None:
    check(run.component(), "refused by tcp://127.0.0.1:", "missing key: it wants keys")


def test_with_keys_of_another_run(run: Run, tmp_path: Path) -> None:
    write_keys(tmp_path / "other")
    (tmp_path / "other" / "server.pub").write_bytes((run.keys / "server.pub").read_bytes())
    check(run.component("--keys", str(tmp_path / "other")), "does not know the key of this side")


def test_with_the_keys_of_another_run(run: Run, tmp_path: Path) -> None:
    write_keys(tmp_path / "other")
    check(run.component("--keys", str(tmp_path / "other")), "breaks off every handshake")


def test_a_folder_without_keys_is_named(run: Run, tmp_path: Path) -> None:
    check(run.component("--keys", str(tmp_path / "none")), "cannot read the key", "none/server.pub")


def test_another_version_of_the_protocol(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    process = run.component("--keys", str(run.keys))
    monkeypatch.setattr(codec_module, "PROTOCOL_VERSION", 5)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        run.router.receive()
        poll([run.router], 0.01)
    check(process, "'ps' speaks protocol 5, this is protocol 4; install the same version")


@pytest.mark.slow
def test_a_missing_peer_is_reported_before_all_patience_is_gone(run: Run) -> None:
    run.wire.close(0)
    process = run.component("--keys", str(run.keys))
    assert process.stderr is not None
    line = process.stderr.readline()
    where = run.book["tensorplex.records"].connect
    assert (
        line == f"replay-0: cannot connect to {where} (tensorplex.records): nothing answers there\n"
    )
    process.terminate()
    assert finish(process)[0] == START_AGAIN
