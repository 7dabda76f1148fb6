"""Checks, before anything is started, that this machine has the resources of a run."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import NamedTuple

from session import nest
from session.addons.hooks import PORTS
from session.config import Config
from session.errors import UsageError
from session.launchers.launcher import free_ports, resolve_host
from session.launchers.memory_use import read_memory
from session.wire.endpoint import LOOPBACK
from surreal_like.data.added_parts import critic_parts, policy_spec
from surreal_like.data.columns import parse_columns, row_bytes
from surreal_like.data.frames import frame_spec, stack_size
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec
from surreal_like.replay.storage import LINK_BYTES

# step_type, reward, discount, version, and the links of a row to its neighbours.
_FIXED_BYTES = 1 + 4 + 4 + 8 + LINK_BYTES
_LAST_PORT = 65_535


class Need(NamedTuple):
    """Memory of a full replay.

    Attributes:
        rows: rows over all shards.
        parts: name -> bytes of one row: those of the environment, and ``extras``, which the
            algorithm adds; of an algorithm whose agents compute gradients ``gradient`` and
            ``links``.
        max_bytes: bound on the memory, 0 for none.
    """

    rows: int
    parts: Mapping[str, int]
    max_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return sum(self.parts.values())

    @property
    def total_bytes(self) -> int:
        """Bytes of all shards together."""
        rows_bytes = self.rows * self.row_bytes
        return min(rows_bytes, self.max_bytes) if self.max_bytes else rows_bytes


def replay_need(config: Config) -> Need:
    """Returns the memory needed by the replay of a resolved experiment, over all shards."""
    replay, gradient = config.learner_config.replay, config.learner_config.gradient_columns
    rows = replay.capacity + (replay.replay_capacity if replay.replay_proportion else 0)
    parts = env_row_parts(config)
    columns = parse_columns(replay.columns)
    extras = {name: each for name, each in columns.items() if name.startswith("extras/")}
    if extras:
        parts["extras"] = row_bytes(extras)
    if gradient:
        parts = {"gradient": row_bytes(parse_columns(gradient)), "links": LINK_BYTES}
    return Need(rows, parts, replay.max_bytes)


def env_row_parts(config: Config) -> dict[str, int]:
    """Returns name -> bytes of one row of the environment."""
    env = config.env_config
    # Of a stack only the newest frame is stored: the previous rows have the others.
    spec = frame_spec(env.obs_spec, stack_size(env))
    obs = nest.leaves(parse_obs_spec(policy_spec(spec)))
    hidden = [parse_obs_spec(spec[name]) for name in critic_parts(spec)]
    action = parse_action_spec(env.action_spec).array
    parts = {"observation": sum(map(_bytes, obs)), "action": _bytes(action), "other": _FIXED_BYTES}
    return {**parts, "state": sum(map(_bytes, hidden))} if hidden else parts


def check_memory(config: Config) -> None:
    """Rejects a resolved experiment whose replay exceeds the memory of this machine.

    Raises:
        UsageError: with the calculation, and the settings that would fit.
    """
    need, available = replay_need(config), find_available_bytes()
    if need.total_bytes > available:
        parts = ", ".join(f"{size:,} {name}" for name, size in need.parts.items())
        raise UsageError(
            f"replay would fill {_gigabytes(need.total_bytes)}: {need.rows:,} rows of "
            f"{need.row_bytes:,} bytes ({parts}), but this machine has {_gigabytes(available)} "
            "available; set learner_config.replay.capacity to at most "
            f"{available // need.row_bytes:,}, or learner_config.replay.max_bytes"
        )


def check_ports(config: Config) -> None:
    """Rejects an experiment with a port that is in use, or a host that is not this machine.

    Raises:
        UsageError: names the setting, and the port or the host.
    """
    host: str | None = config.session_config.launcher.host
    if host is not None:
        free_ports(["any"], resolve_host(host))
    session = config.session_config
    port: int = session.tensorplex.prometheus_port
    if port > 0 and (reason := _why_taken(LOOPBACK, port)):
        raise UsageError(
            f"session_config.tensorplex.prometheus_port is {port}: {reason}; choose another, or 0 "
            "for none"
        )
    for served in (each for ports in PORTS for each in ports(config)):
        if reason := _why_taken(served.host, served.port):
            raise UsageError(
                f"{served.key}: {served.component} needs port {served.port} of {served.host}: "
                f"{reason}; choose another"
            )


def _why_taken(host: str, port: int) -> str:
    """Returns why a port cannot be bound; empty if it can."""
    if port > _LAST_PORT:
        return "there is no such port"
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        return str(error.strerror or error).lower()
    return ""


def find_available_bytes() -> int:
    """Returns the memory that is available on this machine, within the limit of its container."""
    found = read_memory()
    return max(0, found.total_bytes - found.used_bytes)


def _bytes(spec: ArraySpec) -> int:
    return spec.zeros().nbytes


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:,.2f} GB"
