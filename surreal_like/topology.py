"""From an experiment's config to its topology: which processes run, and who talks to whom."""

from __future__ import annotations

from collections.abc import Iterator

from session.component import Component, Restart, Topology
from session.config import Config
from session.errors import ConfigError

_TELEMETRY = ("tensorplex.records", "loggerplex.records")
_EVERYONE = ("ps.requests", *_TELEMETRY)


def make_topology(config: Config) -> Topology:
    """The components of one experiment, servers first.

    Args:
        config: the resolved experiment; its ``session_config`` and ``learner_config.replay`` say
            how many processes of each kind there are.

    Raises:
        ConfigError: a number of processes that cannot be.
    """
    session = config.session_config
    _at_least(0, "session_config.agent.num", session.agent.num)
    _at_least(0, "session_config.evaluator.num", session.evaluator.num)
    replay_shards = config.learner_config.replay.replay_shards
    _at_least(1, "learner_config.replay.replay_shards", replay_shards)
    limits = Restart(session.launcher.max_restarts, session.launcher.restart_window_seconds)
    shards = range(replay_shards)
    return Topology(
        [
            *_telemetry_servers(limits),
            *_servers(shards, limits),
            *_clients(config, shards, limits),
        ]
    )


def _at_least(least: int, key: str, number: int) -> None:
    if number < least:
        raise ConfigError(f"{key} is {number}, expected {least} or more")


def _telemetry_servers(restart: Restart) -> Iterator[Component]:
    yield Component(
        "loggerplex",
        "loggerplex",
        "main.loggerplex",
        binds=("loggerplex.records",),
        connects=("ps.requests", "tensorplex.records"),
        restart=restart,
    )
    yield Component(
        "tensorplex",
        "tensorplex",
        "main.tensorplex",
        binds=("tensorplex.records", "tensorplex.requests"),
        connects=("ps.requests", "loggerplex.records"),
        restart=restart,
    )


def _servers(shards: range, restart: Restart) -> Iterator[Component]:
    yield Component(
        "ps",
        "ps",
        "main.ps",
        binds=("ps.requests",),
        connects=("learner.parameters", *_TELEMETRY),
        restart=restart,
    )
    for index in shards:
        yield _replay(index, restart)
    yield Component(
        "learner",
        "learner",
        "main.learner",
        binds=("learner.parameters", "learner.control"),
        connects=(*_of_shards(shards, "batches", "priorities"), *_EVERYONE),
        needs_torch=True,
        restart=restart,
    )


def _clients(config: Config, shards: range, restart: Restart) -> Iterator[Component]:
    session = config.session_config
    for index in range(session.agent.num):
        yield Component(
            f"agent-{index}",
            "agent",
            "main.agent",
            index,
            connects=(*_of_shards(shards, "experience", "receipts"), *_EVERYONE),
            needs_torch=True,
            restart=restart,
        )
    for index in range(session.evaluator.num):
        yield Component(
            f"eval-{index}",
            "evaluator",
            "main.evaluator",
            index,
            connects=("learner.control", *_EVERYONE),
            needs_torch=True,
            restart=restart,
        )
    if session.tensorplex.start_tensorboard:
        yield Component(
            "tensorboard", "tensorboard", "main.tensorboard", connects=_EVERYONE, restart=restart
        )


def _replay(index: int, restart: Restart) -> Component:
    name = f"replay-{index}"
    binds = (f"{name}.{end}" for end in ("experience", "receipts", "batches", "priorities"))
    return Component(name, "replay", "main.replay", index, tuple(binds), _EVERYONE, restart=restart)


def _of_shards(shards: range, *ends: str) -> tuple[str, ...]:
    return tuple(f"replay-{index}.{end}" for index in shards for end in ends)
