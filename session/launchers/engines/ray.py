"""Machines that are actors of a Ray cluster; nothing of a run goes through Ray."""

from __future__ import annotations

import importlib
import logging
import math
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from session.errors import MissingExtra, UsageError
from session.launchers.engines.machines import Order
from session.launchers.engines.places import PlacedMachines, Work
from session.launchers.engines.processes import Child
from session.launchers.instruction import Event

_CONNECT_SECONDS = 5.0
_GRACE_SECONDS = 10.0
# A machine that waits longer than this is reported.
_PATIENCE_SECONDS = 15.0


def connect(address: str) -> Any:
    """Connects this process to a Ray cluster and returns the module ``ray``.

    Args:
        address: ``HOST:PORT`` of its head, or ``auto``: the cluster of this node.

    Raises:
        UsageError: ray is not installed, or no cluster answers.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtra.named("--on ray", "ray") from error
    try:
        if address != "auto":
            # Ray itself tries for minutes.
            host, _, port = address.rpartition("//")[2].rpartition(":")
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        # Ray prints the logs of nodes that die on standard output, and has no setting against it.
        ray._private.worker.print_to_stdstream = lambda *args, **kwargs: None
        ray.init(address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR)
    except Exception as error:
        raise UsageError(f"no Ray cluster answers at {address}: {_first_line(error)}") from error
    return ray


class Node:
    """Runs one child in a process of Ray; the child ends when this process does."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._child: Child | None = None

    def start(self, command: Sequence[str], token: str) -> str:
        """Starts the child; returns the address of the node."""
        self._child = Child(command, token, self._reader)
        return str(importlib.import_module("ray").util.get_node_ip_address())

    def wait(self, address: str) -> str:
        """Waits for the end of the child; returns its cause, empty if it has ended by itself.

        Args:
            address: result of :meth:`start`, so that Ray calls this afterwards.
        """
        return self._child.wait() if self._child else ""

    def terminate(self) -> None:
        """Sends SIGTERM to the child."""
        if self._child:
            self._child.terminate()

    def kill(self) -> None:
        """Ends the child at once."""
        if self._child:
            self._child.kill()


class _Actor(Work):
    """An actor on some node, from when it is asked for."""

    def __init__(self, ray: Any, order: Order, name: str) -> None:
        self._ray = ray
        options = {"num_cpus": order.cpu, "num_gpus": order.gpu, "max_concurrency": 3}
        self._node = ray.remote(Node).options(**options).remote()
        self._started = self._node.start.remote(order.words(name), order.token)
        self._ended = self._node.wait.remote(self._started)

    def _is_there(self, result: Any) -> bool:
        return bool(self._ray.wait([result], timeout=0)[0])

    @property
    def begun(self) -> str | None:
        if not self._is_there(self._started):
            return None
        with suppress(self._ray.exceptions.RayError):
            return f"on {self._ray.get(self._started)}"
        return None

    def poll(self) -> str | None:
        if not self._is_there(self._ended):
            return None
        try:
            return str(self._ray.get(self._ended))
        except self._ray.exceptions.RayError as error:
            return _first_line(error)
        finally:
            self._ray.kill(self._node)

    def terminate(self) -> None:
        if self.begun is None:
            self._ray.kill(self._node)
        else:
            self._node.terminate.remote()

    def kill(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._node.kill.remote(), timeout=_GRACE_SECONDS)
        self._ray.kill(self._node)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class RayMachines(PlacedMachines):
    """Runs each machine as an actor with its resources; Ray's autoscaler sees those that wait.

    Args:
        order: what they run.

    Raises:
        UsageError: ray is not installed, or no cluster answers.
    """

    options = {"address": "Address of the cluster; default: auto"}  # noqa: RUF012 - as in Machines

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._ray = connect(order.options.get("address", "auto"))
        self._waits_at = time.monotonic() + _PATIENCE_SECONDS

    def _begin(self, name: str) -> Work:
        return _Actor(self._ray, self._order, name)

    def poll(self) -> list[Event]:
        events = super().poll()
        if self.num >= self._wanted:
            self._waits_at = time.monotonic() + _PATIENCE_SECONDS
        elif time.monotonic() > self._waits_at:
            self._waits_at = math.inf
            events += self._shortages()
        return events

    def _shortages(self) -> list[Event]:
        """Returns the resources of which even the whole cluster has too little for a machine."""
        free, there = self._ray.available_resources(), self._ray.cluster_resources()
        needs = {"CPU": self._order.cpu, "GPU": self._order.gpu}
        return [
            Event("ray", "waits", f"a machine needs {each:g} {name}, {have:g} of {all_:g} are free")
            for name, each in needs.items()
            if (have := free.get(name, 0)) < each and (all_ := there.get(name, 0)) >= 0
        ]

    def close(self) -> None:
        super().close()
        self._ray.shutdown()
