"""Floods each endpoint of a real run from one connection, at the highest rate; loopback only.

    python benchmarks/flood.py --seconds 20

CartPole runs as processes with keys. A guest machine joins the run and floods, with its own key,
the endpoints that accept it; then a process with the key of the run floods the others. Prints the
updates per second during and after each flood as a share of those before it, and the growth of the
run folder and of memory. If the machine has no more cores than busy processes, the flooding process
itself slows the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zmq

import surreal_like
from session.client import Client
from session.folder import RunFolder
from session.wire import AddressBook, Message
from session.wire.security import Security
from surreal_like.join.client import Invitation, request_admission
from surreal_like.join.tokens import make_token

_CARTPOLE = Path(__file__).resolve().parents[1] / "configs" / "cartpole_dqn.yaml"
_NAME = "agent-1000"
_LONG = {"session_config.stop": {"seconds": 3600, "eval_return": None}}
_BATCH = 100

Messages = Callable[[int], Message]


def _request(kind: str, **fields: Any) -> Messages:
    return lambda number: Message(kind, {"id": number + 1, **fields})


def _logs(number: int) -> Message:
    records = [
        {"time": time.time(), "level": "info", "component": f"x{number}-{each}", "text": "y" * 999}
        for each in range(100)
    ]
    return Message("loggerplex", {"records": records, "dropped": 0})


def _own_logs(number: int) -> Message:
    record = {"time": time.time(), "level": "info", "component": _NAME, "text": "y" * 9999}
    return Message("loggerplex", {"records": [record] * 100, "dropped": 0})


def _metrics(number: int) -> Message:
    records = [
        {"kind": "scalar", "id": f"agent/{number * 100 + each}", "tag": f"t{number}", "value": 1.0}
        | {"step": 1, "time": time.time()}
        for each in range(100)
    ]
    return Message("tensorplex", {"records": records, "dropped": 0})


def _account(number: int) -> Message:
    account = {"pushed": 10**8, "inserted": 10**8, "dropped": 0, "unacked": 0}
    account |= {"env_steps": 10**8, "episodes": 10**6, "final": False}
    fields = {"id": number + 1, "policy": "default", "have": [0, 0], "account": account}
    return Message("fetch", fields)


def _priorities(number: int) -> Message:
    indices, values = np.zeros(64, np.int64), np.ones(64, np.float32)
    return Message("priorities", {"replay": 1}, {"indices": indices, "priorities": values})


# Name -> endpoint, owner of the key, messages; None: subscriptions.
FLOODS: dict[str, tuple[str, str, Messages | None]] = {
    "guest: info": ("ps.requests", "guest", _request("info", policy="default")),
    "guest: fetch with accounts": ("ps.requests", "guest", _account),
    "guest: hello of others": ("ps.requests", "guest", _request("hello", name="learner")),
    "guest: wrong experience": ("replay-0.experience", "guest", lambda n: Message("chunk", {})),
    "guest: subscriptions": ("replay-0.acks", "guest", None),
    "guest: logs of others": ("loggerplex.records", "guest", _logs),
    "guest: own logs": ("loggerplex.records", "guest", _own_logs),
    "guest: metrics of others": ("tensorplex.records", "guest", _metrics),
    "guest: control": ("learner.control", "guest", _request("pause")),
    "run: accounts": ("ps.requests", "run", _request("accounts")),
    "run: counts": ("replay-0.batches", "run", _request("counts")),
    "run: priorities": ("replay-0.priorities", "run", _priorities),
    "run: status of the learner": ("learner.control", "run", _request("status")),
    "run: metrics": ("tensorplex.records", "run", _metrics),
}


def attack(which: str, host: RunFolder, guest: Path, seconds: float) -> int:
    """Floods for ``seconds`` at the highest rate; returns the number of messages that were sent."""
    endpoint, owner, messages = FLOODS[which]
    security = Security.load(guest / "keys" if owner == "guest" else host.keys)
    name = _NAME if owner == "guest" else "agent-0"
    book, config = AddressBook.load(host.addresses), host.read_config()
    wire = Client(book, name, config=config, security=security)
    end, sent = time.monotonic() + seconds, 0
    if messages is None:
        raw = wire.subscriber(endpoint, high_water_mark=1_000_000).raw
        while time.monotonic() < end:
            raw.setsockopt(zmq.SUBSCRIBE, b"%d" % sent)
            sent += 1
        wire.close(0)
        return sent
    dealer = endpoint.endswith((".requests", ".control", ".batches"))
    socket = wire.dealer(endpoint) if dealer else wire.push(endpoint, high_water_mark=1000)
    while time.monotonic() < end:
        frames = socket._encode(messages(sent))
        for _ in range(_BATCH):
            sent += socket._send_frames(frames)
        # A normal client reads its replies; unread, they would fill the queue and block this
        # process.
        while dealer and socket.look() & zmq.POLLIN:
            socket.raw.recv_multipart()
    wire.close(0)
    return sent


def updates(folder: RunFolder) -> tuple[float, int]:
    """Returns wall seconds and update count of the newest line of progress."""
    if not folder.progress.exists():
        return 0.0, 0
    for line in reversed(folder.progress.read_text().splitlines()):
        try:
            found = json.loads(line)
            return float(found["wall_seconds"]), int(found["iterations"])
        except (ValueError, KeyError):
            continue
    return 0.0, 0


def rate(folder: RunFolder, seconds: float) -> float:
    """Returns the updates per second over the next ``seconds``."""
    before = updates(folder)
    time.sleep(seconds)
    after = updates(folder)
    return (after[1] - before[1]) / max(1e-9, after[0] - before[0])


def size(folder: RunFolder) -> tuple[int, int, int]:
    """Returns bytes and files of the run folder, and bytes of memory of the run's processes."""
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    memory = 0
    for process in psutil.process_iter():
        try:
            if str(folder.path) in " ".join(process.cmdline()):
                memory += process.memory_info().rss
        except psutil.Error:
            continue
    return sum(path.stat().st_size for path in files), len(files), memory


def rows(seconds: float, chosen: list[str]) -> Iterator[str]:
    """Yields one line of the table for each flood."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = RunFolder(Path(scratch) / "run")
        run = surreal_like.launch(
            _CARTPOLE, folder=folder.path, host="127.0.0.1", overrides=_LONG, seed=1
        )
        try:
            door = AddressBook.load(folder.addresses)["ps.join"].connect
            guest = Path(scratch) / "guest"
            token = make_token(folder.keys)
            request_admission(Invitation(door.removeprefix("tcp://"), token, 1, folder=guest))
            while updates(folder)[1] < 1000:
                time.sleep(0.5)
            for which in chosen:
                yield flood(which, folder, guest, seconds)
        finally:
            run.stop()
            run.wait(60.0)


def flood(which: str, folder: RunFolder, guest: Path, seconds: float) -> str:
    """Runs one flood in a process of its own; returns its line of the table."""
    before, start = rate(folder, seconds / 2), size(folder)
    words = ["--attack", which, str(folder.path), str(guest), "--seconds", str(seconds)]
    command = [sys.executable, __file__, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        during = rate(folder, seconds)
        sent = int(process.communicate()[0] or 0)
    time.sleep(2.0)
    after, end = rate(folder, seconds / 2), size(folder)
    grown = [late - early for early, late in zip(start, end, strict=True)]
    return (
        f"| {which} | {sent:,} | {during / before:.2f} | {after / before:.2f} "
        f"| {grown[0] / 1e6:.1f} MB | {grown[1]} | {grown[2] / 1e6:.0f} MB |"
    )


def main() -> int:
    """Runs the command; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each flood")
    parser.add_argument("--only", nargs="*", default=list(FLOODS), choices=list(FLOODS))
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        which, host, guest = given.attack
        print(attack(which, RunFolder(Path(host)), Path(guest), given.seconds))
        return 0
    print("| flood | messages | updates/s during | after | folder | files | memory |")
    print("|---|---|---|---|---|---|---|")
    for row in rows(given.seconds, given.only):
        print(row, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
