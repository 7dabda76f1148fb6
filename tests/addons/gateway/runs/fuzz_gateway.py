"""Sends garbage to a real gateway for some minutes, at all doors: binary, JSON, WebSocket.

A healthy client plays all the time. The script ends with 1 if that client gets no answer in time,
the gateway's process ends, its log has a traceback, or its memory or its descriptors grow.

    python tests/addons/gateway/runs/fuzz_gateway.py [--minutes 10] [--seed 1]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from session.addons.gateway.protocols import Encoding
from session.launchers.launcher import free_ports
from session.process.heartbeat import read_beats
from session.wire.frames import pack_frame
from surreal_like.addons.gateway.clients import surreal_client
from surreal_like.addons.gateway.payloads import encode

ROOT = Path(__file__).resolve().parents[4]
START_SECONDS, ANSWER_SECONDS = 90.0, 10.0
# The first part of the time fills caches, pools and the rows of the healthy client.
WARM_SHARE = 0.3
GROWTH_BYTES = 32 << 20
FIELDS = {
    "v": 1,
    "seq": 1,
    "observation": [0.0] * 4,
    "reward": 1.0,
    "values": {"a": 1},
    "t": 1,
    "mode": "train",
    "name": "x",
    "token": "",
    "num_envs": 1,
    "client": "x",
    "resume": "",
    "action": 1,
    "truncated": False,
    "metrics": {"a": 1},
    "kind": "step",
}
# Arrays without elements whose other axes are as large as they can be.
EMPTY = [0, 2**32 - 1, 2**32 - 1, 2**32 - 1]
# Values of JSON that no program writes.
LITERAL = "@"
LITERALS = (b"1e999", b"-1e999", b'"\\ud800"', b"1" * 4000, b'"\xed\xa0\x80"', b"-0", b"NaN")
KINDS = ("hello", "reset", "step", "end", "metrics", "ping", "bye", "welcome", "")


class Garbage:
    """Makes the bytes of hostile clients.

    Args:
        rng: of all choices.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def session(self) -> bytes:
        """Returns all that one connection sends."""
        rng = self._rng
        door = rng.choice(("binary", "json", "websocket", "noise"))
        if door == "noise":
            return rng.randbytes(rng.randrange(1, 4096))
        hello = {"kind": "hello", "v": 1}
        if rng.random() < 0.2:
            hello[rng.choice(("v", "mode", "name", "token", "num_envs", "resume"))] = self._value()
        # The first spoiled message is the last one that is read: some connections have none.
        share = rng.choice((0.0, 0.1, 0.7))
        parts = [] if rng.random() < 0.2 else [self._message(door, hello, spoiled=False)]
        for _ in range(rng.randrange(1, 8)):
            fields = {**FIELDS, "kind": rng.choice(KINDS), "seq": rng.randrange(0, 4)}
            fields["t" if fields["kind"] == "ping" else rng.choice(list(FIELDS))] = self._value()
            parts.append(self._message(door, fields, spoiled=rng.random() < share))
        return self._upgrade(door) + b"".join(parts)

    def _value(self) -> Any:
        rng = self._rng
        values: list[Any] = [None, True, -1, 2**63, 1e308, "x" * rng.randrange(5000), [], {}]
        values += [
            LITERAL,
            LITERAL,
            [LITERAL],
            {"a": LITERAL},
            [[0.0] * 4],
            [1e39] * 4,
            {"dtype": "float32", "shape": [4], "data": "AA=="},
            {"dtype": "int64", "shape": EMPTY, "data": ""},
            {"a": {"b": [{}]}},
            2**64 - 1,
        ]
        arrays = [np.zeros(4, np.float32), np.zeros((0, 3), np.bool_), np.full((2, 2), 7.0)]
        values += [*arrays, [arrays[0]], {"a": arrays[1]}]
        return rng.choice(values)

    def _upgrade(self, door: str) -> bytes:
        if door != "websocket":
            return b""
        protocol = self._rng.choice(("surreal.v1.json", "surreal.v1.msgpack", "other"))
        head = (
            f"GET /v1 HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {protocol}\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(self._rng.randbytes(16)).decode()}\r\n\r\n"
        ).encode()
        return self._spoiled(head) if self._rng.random() < 0.2 else head

    def _message(self, door: str, fields: dict[str, Any], *, spoiled: bool) -> bytes:
        as_json = door == "json" or (door == "websocket" and self._rng.random() < 0.5)
        payload = encode(fields, Encoding.json if as_json else Encoding.msgpack)
        if as_json:
            payload = payload.replace(b'"%s"' % LITERAL.encode(), self._rng.choice(LITERALS))
        if spoiled:
            payload = self._spoiled(payload)
        if door != "websocket":
            data = pack_frame(payload)
            return self._spoiled(data) if spoiled and self._rng.random() < 0.3 else data
        # A masked frame of a client, with a mask of zeros.
        head = bytes([0x81 if as_json else 0x82])
        size = len(payload)
        head += bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        return head + bytes(4) + payload

    def _spoiled(self, data: bytes) -> bytes:
        rng, changed = self._rng, bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(0, len(changed) + 1)
            changed[at : at + rng.randrange(0, 5)] = rng.randbytes(rng.randrange(0, 9))
        return bytes(changed)


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[int, int]]:
    """Yields port and process id of the gateway of a run."""
    (port,) = free_ports(["gateway"], "127.0.0.1").values()
    settings = [f"session_config.gateway.port={port}", "session_config.stop={seconds: 36000}"]
    config = str(ROOT / "configs" / "cartpole_remote.yaml")
    argv = [sys.executable, "-P", "-m", "main.cli", "train", config, "--quiet"]
    process = subprocess.Popen(
        [*argv, "--folder", str(folder), *settings], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (beat := read_beats(folder / "alive").get("gateway-0")) or not beat.ready:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("the run does not start")
            time.sleep(0.1)
        yield port, beat.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def memory_and_descriptors(pid: int) -> tuple[int, int]:
    """Returns resident bytes and open descriptors of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir(f"/proc/{pid}/fd"))


def attack(port: int, data: bytes, rng: random.Random) -> None:
    """Sends the bytes of one connection in parts, and closes it, mostly without reading."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS) as end:
        at = 0
        while at < len(data):
            size = rng.choice((1, 7, 100, 5000))
            end.sendall(data[at : at + size])
            at += size
        if rng.random() < 0.5:
            # Otherwise the reset of the connection takes along what the gateway has not read.
            end.shutdown(socket.SHUT_WR)
            end.settimeout(0.05)
            while end.recv(4096):
                pass


def fuzz(minutes: float, seed: int) -> dict[str, Any]:
    """Returns what happened: connections, steps of the healthy client, growth, slowest answer."""
    rng = random.Random(seed)
    garbage = Garbage(rng)
    with tempfile.TemporaryDirectory() as scratch:
        with gateway(Path(scratch) / "run") as (port, pid):
            began = time.monotonic()
            found = {"connections": 0, "steps": 0, "slowest_seconds": 0.0}
            before: tuple[int, int] | None = None
            with surreal_client.connect(f"127.0.0.1:{port}") as healthy:
                healthy.reset([0.0] * 4)
                while (passed := time.monotonic() - began) < 60.0 * minutes:
                    for _ in range(10):
                        attack(port, garbage.session(), rng)
                    found["connections"] += 10
                    asked = time.monotonic()
                    healthy.step(1.0, [0.0] * 4)
                    found["steps"] += 1
                    answered = time.monotonic() - asked
                    found["slowest_seconds"] = max(found["slowest_seconds"], answered)
                    if read_beats(Path(scratch) / "run" / "alive")["gateway-0"].pid != pid:
                        events = (Path(scratch) / "run" / "events.jsonl").read_text().splitlines()
                        lost = [line for line in events if '"failed"' in line or '"lost"' in line]
                        raise SystemExit(f"the gateway has ended: {lost}")
                    if before is None and passed >= 60.0 * minutes * WARM_SHARE:
                        before = memory_and_descriptors(pid)
                # Sessions that were begun by garbage have left by then, or are away.
                after = memory_and_descriptors(pid)
                still = read_beats(Path(scratch) / "run" / "alive")["gateway-0"].pid
        # Complete once the run has ended.
        log = (Path(scratch) / "run" / "logs" / "gateway-0.log").read_text()
        found["defects"] = log.count("Traceback")
    first = before or after
    growth = {"memory_growth_bytes": after[0] - first[0], "descriptor_growth": after[1] - first[1]}
    return {**found, **growth, "same_process": still == pid}


def main() -> int:
    """Runs, prints JSON, and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = fuzz(given.minutes, given.seed)
    print(json.dumps({"minutes": given.minutes, "seed": given.seed, **found}))  # noqa: T201
    bad = (
        not found["same_process"]
        or found["defects"]
        or found["slowest_seconds"] > ANSWER_SECONDS
        or found["memory_growth_bytes"] > GROWTH_BYTES
        # 64 connections that have not introduced themselves, and those that are just closed.
        or found["descriptor_growth"] > 512
    )
    return int(bool(bad))


if __name__ == "__main__":
    raise SystemExit(main())
