"""Machines that are actors of a Ray cluster; nothing of a run goes through Ray."""

from __future__ import annotations

import importlib
import logging
import math
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from session.addons.engines.machine_restarts import RestartedMachines, Work
from session.addons.engines.machines import MachineSpec
from session.addons.engines.processes import Child
from session.errors import MissingExtra, UsageError
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


class _Actor(Work):
    """A child of a process of Ray on some node, from when it is asked for.

    Args:
        ray: the module, connected.
        spec: what it runs.
        name: name of the machine.
    """

    def __init__(self, ray: Any, spec: MachineSpec, name: str) -> None:
        self._ray = ray
        # Threads: one waits for the child, one ends it.
        options = {"num_cpus": spec.cpu, "num_gpus": spec.gpu, "max_concurrency": 2}
        self._child = ray.remote(Child).options(**options).remote(spec.words(name), spec.token)
        self._ready = self._child.__ray_ready__.remote()
        self._ended = self._child.wait.remote()

    @property
    def begun(self) -> bool:
        return bool(self._ray.wait([self._ready], timeout=0)[0])

    def poll(self) -> str | None:
        if not self._ray.wait([self._ended], timeout=0)[0]:
            return None
        try:
            return str(self._ray.get(self._ended))
        except self._ray.exceptions.RayError as error:
            return _first_line(error)
        finally:
            self._ray.kill(self._child)

    def terminate(self) -> None:
        if self.begun:
            self._child.terminate.remote()
        else:
            self._ray.kill(self._child)

    def kill(self) -> None:
        with suppress(self._ray.exceptions.RayError):
            self._ray.get(self._child.kill.remote(), timeout=_GRACE_SECONDS)
        self._ray.kill(self._child)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


class RayMachines(RestartedMachines):
    """Runs each machine as an actor with its resources; Ray's autoscaler sees those that wait.

    Args:
        spec: command and resources of each machine.

    Raises:
        UsageError: ray is not installed, or no cluster answers.
    """

    name = "ray"
    options = {"address": "Address of the cluster; default: auto"}  # noqa: RUF012 - as in Machines

    def __init__(self, spec: MachineSpec) -> None:
        super().__init__(spec)
        self._ray = connect(spec.options.get("address", "auto"))
        self._waits_at = time.monotonic() + _PATIENCE_SECONDS

    def _begin(self, name: str) -> Work:
        return _Actor(self._ray, self._spec, name)

    def _poll(self) -> Iterator[Event]:
        try:
            yield from super()._poll()
            yield from self._look_for_shortages()
        except (self._ray.exceptions.RayError, OSError, RuntimeError) as error:
            raise UsageError(f"Ray does not answer: {_first_line(error)}") from error

    def _look_for_shortages(self) -> list[Event]:
        """Returns what a machine waits for, once, after some time."""
        if self.num >= self._wanted:
            self._waits_at = time.monotonic() + _PATIENCE_SECONDS
        elif time.monotonic() > self._waits_at:
            self._waits_at = math.inf
            return self._shortages()
        return []

    def _shortages(self) -> list[Event]:
        """Returns the resources of which the whole cluster has too little for one machine."""
        free = self._ray.available_resources()
        needs = {"CPU": self._spec.cpu, "GPU": self._spec.gpu}
        return [
            Event(
                "ray", "waits", f"a machine needs {each:g} {name}, {free.get(name, 0):g} are free"
            )
            for name, each in needs.items()
            if free.get(name, 0) < each
        ]

    def close(self) -> None:
        super().close()
        self._ray.shutdown()
