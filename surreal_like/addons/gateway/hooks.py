"""Functions of the gateway that the core calls: its components, ports and page."""

from __future__ import annotations

from collections.abc import Iterator

from session.addons import ServedPort
from session.config import Config
from session.process.component import Component


def make_components(
    config: Config, shards: tuple[str, ...], shared: tuple[str, ...]
) -> Iterator[Component]:
    """Yields the gateways of an experiment.

    Args:
        config: resolved experiment.
        shards: ends of the replay shards.
        shared: ends to which every component connects.
    """
    gateway = config.session_config.gateway
    for index in range(gateway.num):
        yield Component(
            f"gateway-{index}",
            "gateway",
            "main.gateway",
            index,
            # Clients may evaluate.
            connects=(*shards, "learner.control", *shared),
            serves={"clients": gateway.port + index if gateway.port else 0},
            needs_torch=True,
        )


def ports_of(config: Config) -> Iterator[ServedPort]:
    """Yields the ports at which clients connect, where the config names them."""
    gateway = config.session_config.gateway
    for index in range(gateway.num if gateway.port else 0):
        key = f"session_config.gateway.port is {gateway.port}"
        yield ServedPort(key, f"gateway-{index}", gateway.host, gateway.port + index)


def pages_of(session_config: Config) -> tuple[str, ...]:
    """Returns the name of the gateway's page, if it serves one."""
    gateway = session_config.gateway
    return ("page",) if gateway.num and gateway.page else ()
