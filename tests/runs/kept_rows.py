"""Kills a replay shard again and again while rows come in; then each row must be there once.

The shard is forked as a launcher does it, with memory that this process holds. Each row has a
number of its own. Prints JSON.

    python tests/runs/kept_rows.py --kills 1000 --kind PrioritizedReplay
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zmq

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from session.config.sections import sections_of
from session.folder import RunFolder
from session.launchers.fork_client import ForkServers, Preload
from session.launchers.held_files import HeldMemory
from session.launchers.launcher import write_run_files
from session.process.clock import WallClock
from session.process.component import Component, Topology
from session.process.context import Context, Launch, run_part
from session.wire import AddressBook
from session.wire.socket_state import poll
from surreal_like.experience.chunk import Chunk
from surreal_like.experience.chunk_sender import ExpSender
from surreal_like.replay.kept_memory import KeptMemory
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.table import Table
from tests.surreal_like.replay.cluster import ENDS, config

CAPACITY = 4_000_000
STEPS, STREAMS = 5, 2
MEAN_SECONDS = 0.15
LIMIT_SECONDS = 60.0


class Shard:
    """A replay shard that can be killed, and a sender of numbered rows.

    Args:
        folder: of the run.
        kind: of the replay.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.config = config(1, type=kind, capacity=CAPACITY)
        self.folder = RunFolder(folder)
        self.folder.create()
        self.folder.sockets.mkdir(mode=0o700, exist_ok=True)
        ends = tuple(f"replay-0.{end}" for end in ENDS)
        shard = Component("replay-0", "replay", "main.replay", binds=ends)
        agent = Component("agent-0", "agent", "main.agent", connects=ends)
        self.held = HeldMemory()
        self.topology = self.held.give(Topology([shard, agent]))
        addresses = AddressBook.ipc(ends, self.folder.sockets)
        self.config.dump_file(str(self.folder.config))
        write_run_files(self.folder, self.topology, addresses)
        self.zmq: zmq.Context[Any] = zmq.Context()
        launch = Launch(agent, self.config, self.topology, addresses, None)
        self.context = Context(launch, self.zmq, clock=WallClock(), incarnation=1)
        self.sender = ExpSender(self.context, self.config.session_config.sender)
        self.servers = ForkServers(Preload(light=("main.replay",)))
        self.rows = self.pid = 0

    def start(self) -> None:
        """Starts the shard."""
        argv = ["--name", "replay-0", "--folder", str(self.folder)]
        stderr = str(self.folder.logs / "replay-0.err")
        self.servers.spawn("replay-0", "main.replay", argv, stderr, heavy=False)
        server, pid = self.servers.server(False), None
        while pid is None:
            assert not server.lines.closed, server.error
            pid = server.receive_one("replay-0", LIMIT_SECONDS)
        self.pid = pid

    def kill(self) -> None:
        """Kills it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def send(self, seconds: float) -> None:
        """Sends rows for a while."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.sender.window.ready:
                self._send_chunk()
            self.sender.pump()
            if not self.sender.window.ready:
                poll([], 0.001)

    def _send_chunk(self) -> None:
        shape = (STEPS, STREAMS)
        numbers = self.rows + np.arange(STEPS * STREAMS).reshape(shape)
        self.rows += STEPS * STREAMS
        columns: dict[str, Any] = {
            "step_type": np.ones(shape, np.uint8),
            "reward": np.zeros(shape, np.float32),
            "discount": np.ones(shape, np.float32),
            "version": np.zeros(shape, np.int64),
            "obs": np.zeros((*shape, 3), np.float32),
            "action": numbers,
        }
        self.sender.send(Chunk(columns, 0, [0, 1], env_steps=STEPS * STREAMS))

    def finish(self) -> None:
        """Waits until every row is acked."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not self.sender.window.empty:
            assert time.monotonic() < deadline, "rows were not acked"
            self.sender.pump()
            poll([], 0.001)

    def stored(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the numbers of the rows in the memory of a shard that was killed."""
        about = {
            "type": self.config.learner_config.replay.type,
            "spec_hash": self.context.spec_hash,
            "part": run_part(self.config),
        }
        memory = KeptMemory(self.topology["replay-0"].memory, about)
        assert memory.committed is not None
        replay = load_replay_class(self.config.learner_config)(**sections_of(self.config))
        assert isinstance(replay, Table)
        replay.keep_in(memory.zeros)
        replay.adopt(memory.committed["replay"])
        found: np.ndarray[Any, np.dtype[np.int64]]
        found = np.concatenate(replay.storage.read("action"))
        return found

    def close(self) -> None:
        """Ends everything."""
        self.context.close(0.0)
        self.zmq.destroy(0)
        self.servers.close()
        self.held.close()
        shutil.rmtree(self.folder.sockets, ignore_errors=True)


def kill_often(kills: int, kind: str, folder: Path, seed: int) -> dict[str, int]:
    """Kills a shard so often; returns the numbers of rows: sent, stored, lost, stored twice."""
    shard, random = Shard(folder, kind), np.random.default_rng(seed)
    try:
        for _ in range(kills):
            shard.start()
            shard.send(float(random.exponential(MEAN_SECONDS)))
            shard.kill()
        shard.start()
        shard.finish()
        shard.kill()
        stored = shard.stored()
        different = np.unique(stored)
        lost = np.setdiff1d(np.arange(shard.rows), different)
        return {
            "kills": kills,
            "sent": shard.rows,
            "stored": len(stored),
            "lost": len(lost),
            "stored_twice": len(stored) - len(different),
        }
    finally:
        shard.close()


def main() -> None:
    """Runs it as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--kind", default="UniformReplay")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sl-kills-") as scratch:
        found = kill_often(given.kills, given.kind, Path(scratch) / "run", given.seed)
    sys.stdout.write(f"{json.dumps(found)}\n")
    if found["lost"] or found["stored_twice"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
