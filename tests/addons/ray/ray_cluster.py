"""A real Ray cluster of three nodes on this machine, in a process of its own that obeys its input.

Commands, one a line: ``kill PID`` kills the node whose raylet that is, and adds a new one. The end
of the input ends the cluster.
"""

from __future__ import annotations

import ctypes
import json
import re
import socket
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
from ray._private import services
from ray.cluster_utils import Cluster

# The core of CartPole needs 5.25 cores: it fits on the head of a cluster with jobs only, and leaves
# no room for agents there.
_HEAD_CPUS, _CPUS = 6, 4
_NODE = {"num_cpus": _CPUS, "num_gpus": 0, "object_store_memory": 80 << 20, "memory": 32 << 30}
_PORTS = (
    *("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port"),
    "runtime_env_agent_port",
)
# PR_SET_CHILD_SUBREAPER of prctl(2).
_SUBREAPER = 36
_START = services.start_ray_process
# A killed node is noticed within two seconds; no process is started before it is used.
_QUICK = {
    "enable_worker_prestart": False,
    "prestart_worker_first_driver": False,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 2,
}


def ports() -> dict[str, int]:
    """Ports of a node; it waits 15 s at most for those that its agents choose themselves."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in _PORTS]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(_PORTS, sockets, strict=True)}


def start_with_ports(command: list[str], process_type: str, *args: Any, **options: Any) -> Any:
    """Gives the raylet the one port that Ray gives only to its agent."""
    if process_type == "raylet":
        text = " ".join(command)
        port = re.search(r"--listen-port=(\d+)", text)
        command = [*command, f"--dashboard_agent_listen_port={port[1]}"] if port else command
    return _START(command, process_type, *args, **options)


def report(line: str) -> None:
    """Writes a line for the tests."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(folder: Path, jobs: bool) -> None:
    """Runs the cluster until the end of the input; its address is the first line of the output."""
    # What loses its parent becomes a child of this process, whose end waits for all of them.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    services.start_ray_process = start_with_ports
    place: dict[str, Any] = {"temp_dir": str(folder)}
    head = {**_NODE, **place, **ports(), "num_cpus": _HEAD_CPUS * jobs, "include_dashboard": jobs}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**head, "_system_config": _QUICK})
    for _ in range(2):
        cluster.add_node(**_NODE, **place, **ports())
    report(json.dumps({"address": cluster.address, "url": f"http://{cluster.webui_url}"}))
    for line in sys.stdin:
        pid = int(line.split()[1])
        (node,) = (
            node
            for node in cluster.worker_nodes
            if node.all_processes["raylet"][0].process.pid == pid
        )
        cluster.remove_node(node, allow_graceful=False)
        report("killed")
        cluster.add_node(**_NODE, **place, **ports())
    cluster.shutdown()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), "--jobs" in sys.argv)
    finally:
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.kill()
