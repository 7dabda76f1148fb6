"""The network of played pods: a namespace for each on one bridge, and Services by DNAT.

The bridge lies in a namespace of its own, and each pod translates addresses of Services for itself,
so that nothing changes in the machine's own network.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from itertools import count

_CHAIN = "SERVICES"


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _number(address: str) -> int:
    """Returns the number of a pod, from its address."""
    high, low = address.split(".")[2:]
    return int(high) << 8 | int(low)


class PodNetwork:
    """Namespaces and addresses.

    Args:
        prefix: of the names of namespaces.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._hub = f"{prefix}-hub"
        self._pods: dict[str, str] = {}
        self._numbers = count(2)
        self._rules = ""
        _run("ip", "netns", "add", self._hub)
        for command in (
            ("link", "add", "br0", "type", "bridge"),
            ("link", "set", "br0", "up"),
        ):
            _run("ip", "-n", self._hub, *command)

    def namespace(self, pod: str) -> str:
        """The name of a pod's namespace, as ``ip netns`` knows it."""
        return f"{self._prefix}-{_number(pod)}"

    def add_pod(self) -> str:
        """Makes a namespace; returns its address."""
        number = next(self._numbers)
        # Below 10.77.128.0, where the addresses of Services begin.
        address = f"10.77.{number >> 8}.{number & 255}"
        namespace, link = self.namespace(address), f"v{number}"
        _run("ip", "netns", "add", namespace)
        _run(
            *("ip", "-n", self._hub, "link", "add", link, "type", "veth"),
            *("peer", "name", "eth0", "netns", namespace),
        )
        _run("ip", "-n", self._hub, "link", "set", link, "master", "br0", "up")
        _run("ip", "-n", namespace, "addr", "add", f"{address}/16", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", namespace, "link", "set", device, "up")
        self._pods[address] = namespace
        if self._rules:
            self._restore(namespace)
        return address

    def unplug(self, address: str) -> None:
        """From now on nothing leaves or reaches this pod, as if its node had lost its cable."""
        _run("ip", "-n", self._hub, "link", "set", f"v{_number(address)}", "down")

    def remove_pod(self, address: str) -> None:
        """Removes a namespace with all that is in it."""
        _run("ip", "netns", "del", self._pods.pop(address))

    def route(self, targets: Mapping[str, str]) -> None:
        """Leads the address of each Service to a pod's; one without a pod refuses connections."""
        nat = ["*nat", f":{_CHAIN} - [0:0]", "-A OUTPUT -j " + _CHAIN]
        refuse = ["*filter"]
        for address, target in sorted(targets.items()):
            if target:
                nat.append(f"-A {_CHAIN} -d {address} -p tcp -j DNAT --to-destination {target}")
            else:
                refuse.append(f"-A OUTPUT -d {address} -p tcp -j REJECT --reject-with tcp-reset")
        rules = "\n".join([*nat, "COMMIT", *refuse, "COMMIT", ""])
        if rules != self._rules:
            self._rules = rules
            for namespace in self._pods.values():
                self._restore(namespace)

    def _restore(self, namespace: str) -> None:
        _run("ip", "netns", "exec", namespace, "iptables-restore", given=self._rules)

    def close(self) -> None:
        """Removes everything."""
        for address in list(self._pods):
            self.remove_pod(address)
        _run("ip", "netns", "del", self._hub)
