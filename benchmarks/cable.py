"""Two machines, which are network namespaces, and the cable between them: its rate and its delay.

Each end of the cable is a TUN device. A process carries packets from one to the other and keeps
each on its way for the delay, because many kernels have no `netem`; the rate is that of `tbf`. A
packet may be as large as TCP makes it here, before it would be cut to the size of a frame.
"""

from __future__ import annotations

import fcntl
import os
import select
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

HOST, GUEST = "10.78.0.1", "10.78.0.2"
# Machine -> words that run a command there.
Machines = Mapping[str, tuple[str, ...]]
# Of linux/if_tun.h. The header of virtio lets packets pass that are not cut into frames yet.
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
_TUN_F_CSUM, _TUN_F_TSO4 = 0x01, 0x02
_PACKET_BYTES, _AT_ONCE = 1 << 17, 64
_CLOSED_PORT = 9
# Connects to a port that is closed: the refusal is back after one round trip.
_KNOCK = f"""
import socket, time
for _ in range(9):
    began = time.perf_counter()
    try:
        socket.create_connection(("{HOST}", {_CLOSED_PORT}), timeout=5.0)
    except ConnectionRefusedError:
        print(time.perf_counter() - began)
"""


@contextmanager
def two_machines(rate: str, round_trip_seconds: float) -> Iterator[Machines]:
    """Yields the machines ``host`` and ``guest``, whose addresses are `HOST` and `GUEST`.

    Args:
        rate: of the cable in each direction, as `tc` writes it.
        round_trip_seconds: delay there and back.
    """
    mark = f"slb{os.getpid()}"
    spaces = {"host": f"{mark}h", "guest": f"{mark}g"}
    ends = [_open_tun(name) for name in spaces.values()]
    words = [sys.executable, __file__, *map(str, ends), str(round_trip_seconds / 2)]
    carrier = subprocess.Popen(words, pass_fds=ends)
    try:
        for end in ends:
            os.close(end)
        for address, space in zip((HOST, GUEST), spaces.values(), strict=True):
            _ip("netns", "add", space)
            _ip("link", "set", space, "netns", space, "name", "cable")
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", "cable")
            _ip("-n", space, "link", "set", "cable", "txqueuelen", "10000")
            for link in ("lo", "cable"):
                _ip("-n", space, "link", "set", link, "up")
            shape = ("tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            _ip("netns", "exec", space, "tc", "qdisc", "add", "dev", "cable", "root", *shape)
        yield {name: ("ip", "netns", "exec", space) for name, space in spaces.items()}
    finally:
        carrier.kill()
        carrier.wait()
        for space in spaces.values():
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def sent_bytes(machine: tuple[str, ...]) -> int:
    """Returns the bytes that a machine has sent over the cable, with the headers of IP and TCP."""
    path = "/sys/class/net/cable/statistics/tx_bytes"
    return int(subprocess.check_output([*machine, "cat", path]))


def round_trip(machines: Machines) -> float:
    """Returns the seconds of a round trip from guest to host, the median of nine."""
    said = subprocess.check_output([*machines["guest"], sys.executable, "-c", _KNOCK], text=True)
    return statistics.median(map(float, said.split()))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20)


def _open_tun(name: str) -> int:
    """Makes a TUN device; returns the descriptor that reads what is sent there."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(end, _TUNSETOFFLOAD, _TUN_F_CSUM | _TUN_F_TSO4)
    return end


def carry(ends: tuple[int, int], delay_seconds: float) -> None:
    """Carries packets between two TUN devices for ever; each is on its way for the delay."""
    late: deque[tuple[float, int, bytes]] = deque()
    poller = select.poll()
    for end in ends:
        poller.register(end, select.POLLIN)
    # Made once: to make one for each packet would take most of the time.
    packet = memoryview(bytearray(_PACKET_BYTES))
    other = dict(zip(ends, reversed(ends), strict=True))
    while True:
        wait = max(0.0, late[0][0] - time.monotonic()) * 1e3 if late else None
        for end, _ in poller.poll(wait):
            due = time.monotonic() + delay_seconds
            with suppress(BlockingIOError):
                for _ in range(_AT_ONCE):
                    length = os.readv(end, [packet])
                    late.append((due, other[end], bytes(packet[:length])))
        now = time.monotonic()
        while late and late[0][0] <= now:
            _, end, content = late.popleft()
            # A device that is not up yet takes nothing, as a machine that is off.
            with suppress(OSError):
                os.write(end, content)


if __name__ == "__main__":
    carry((int(sys.argv[1]), int(sys.argv[2])), float(sys.argv[3]))
