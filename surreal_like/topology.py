"""From an experiment's config to its topology: which processes run, and who talks to whom."""

from __future__ import annotations

from collections.abc import Iterator

from session.component import Component, Restart, Topology
from session.config import Config

_TELEMETRY = ("tensorplex.records", "loggerplex.records")
_EVERYONE = ("ps.requests", *_TELEMETRY)


def make_topology(config: Config) -> Topology:
    """The components of one experiment, servers first.

    Args:
        config: the resolved experiment; its ``session_config`` and ``learner_config.replay`` say
            how many processes of each kind there are.
    """
    session = config.session_config
    limits = Restart(session.launcher.max_restarts, session.launcher.restart_window_seconds)
    return Topology(_components(config, limits))


def _components(config: Config, restart: Restart) -> Iterator[Component]:
    session = config.session_config
    shards = range(config.learner_config.replay.replay_shards)
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
