"""Two machines in one: network namespaces that see each other over a cable, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from typing import Self

HOST_ADDRESS, GUEST_ADDRESS = "10.77.0.1", "10.77.0.2"


def find_obstacle() -> str:
    """Returns why there cannot be two machines here, empty if there can be."""
    for program in ("ip", "iptables", "unshare"):
        if shutil.which(program) is None:
            return f"no {program}: install Debian's packages iproute2, iptables and util-linux"
    command = ["unshare", "--net", "ip", "link", "add", "type", "veth"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return f"no network namespaces: {done.stderr.strip()}" if done.returncode else ""


class TwoMachines:
    """A machine for the run and one for its guests; needs root.

    Attributes:
        host, guest: what stands before a command line to run it there.
    """

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self._spaces = (f"slt-{mark}-h", f"slt-{mark}-g")
        self._cable = (f"sl{mark}h", f"sl{mark}g")
        self.host, self.guest = (["ip", "netns", "exec", space] for space in self._spaces)

    def __enter__(self) -> Self:
        try:
            for space in self._spaces:
                ip("netns", "add", space)
            ip("link", "add", self._cable[0], "type", "veth", "peer", "name", self._cable[1])
            addresses = (HOST_ADDRESS, GUEST_ADDRESS)
            for space, end, address in zip(self._spaces, self._cable, addresses, strict=True):
                ip("link", "set", end, "netns", space)
                ip("-n", space, "addr", "add", f"{address}/24", "dev", end)
                for link in ("lo", end):
                    ip("-n", space, "link", "set", link, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def pull_the_cable(self) -> None:
        """From now on neither machine hears of the other."""
        ip("-n", self._spaces[0], "link", "set", self._cable[0], "down")

    def lose(self, share: float) -> None:
        """From now on this share of the packets is lost, both ways, without a word; 0 heals it."""
        for space, end in zip(self._spaces, self._cable, strict=True):
            table = ("netns", "exec", space, "iptables")
            ip(*table, "-F", "INPUT")
            if share:
                rule = ("-m", "statistic", "--mode", "random", "--probability", str(share))
                ip(*table, "-A", "INPUT", "-i", end, *rule, "-j", "DROP")

    def __exit__(self, *error: object) -> None:
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def ip(*words: str) -> None:
    """Runs the command of that name."""
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)
