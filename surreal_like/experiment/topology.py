"""Builds the topology of an experiment from its config: processes and their connections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from session.addons.hooks import COMPONENTS, PS_ENDS
from session.config import Config
from session.launchers.fork_client import Preload
from session.process.component import Component, Restart, Topology, resources_of
from surreal_like.data.policy_names import PolicyId
from surreal_like.policies.config import policy_configs

_TELEMETRY = ("tensorplex.records", "loggerplex.records")
# Name and number of each replay shard.
Shards = Sequence[tuple[str, int]]

_SHARED = ("ps.requests", *_TELEMETRY)
# Modules that are slow to import and needed by most components of a kind.
PRELOAD = Preload(
    shared=("main.ps",),
    light=("main.loggerplex", "main.tensorplex", "main.replay"),
    heavy=(
        "torch",
        "gymnasium",
        "surreal_like.experiment.resolve_process",
        "surreal_like.env.vector",
        "surreal_like.env.batched",
        "main.learner",
        "main.agent",
        "main.evaluator",
    ),
)


def make_topology(config: Config) -> Topology:
    """Returns the components of one experiment, servers first.

    Args:
        config: the resolved experiment; ``session_config`` and ``learner_config.replay`` determine
            the number of processes of each kind.
    """
    session = config.session_config
    learning = {PolicyId(name): own for name, own in policy_configs(config).items()}
    shards = [
        (policy.shard(index), index)
        for policy, own in learning.items()
        for index in range(own.learner_config.replay.replay_shards)
    ]
    parameters = tuple(policy.parameters for policy in learning)
    ends = tuple(end for each in PS_ENDS for end in each(session))
    components = [
        *_telemetry_servers(),
        *_servers(shards, parameters, ends, session.learner.num),
        *_clients(config, shards),
    ]
    restart = Restart(session.launcher.max_restarts)
    return Topology(
        replace(each, restart=restart, resources=resources_of(session, each.kind))
        for each in components
    )


def _telemetry_servers() -> Iterator[Component]:
    yield Component(
        "loggerplex",
        "loggerplex",
        "main.loggerplex",
        binds=("loggerplex.records",),
        connects=("ps.requests", "tensorplex.records"),
    )
    yield Component(
        "tensorplex",
        "tensorplex",
        "main.tensorplex",
        binds=("tensorplex.records", "tensorplex.requests"),
        connects=("ps.requests", "loggerplex.records"),
    )


def _servers(
    shards: Shards, parameters: tuple[str, ...], more: tuple[str, ...], ranks: int
) -> Iterator[Component]:
    group = ("learner.group",) if ranks > 1 else ()
    yield Component(
        "ps",
        "ps",
        "main.ps",
        binds=("ps.requests", *more),
        connects=(*parameters, *_TELEMETRY),
    )
    for name, index in shards:
        yield _replay(name, index)
    yield Component(
        "learner",
        "learner",
        "main.learner",
        binds=(*parameters, "learner.control", *group),
        connects=(*_of_shards(shards, "batches", "priorities"), *_SHARED),
        needs_torch=True,
    )
    for rank in range(1, ranks):
        name, module = f"learner-{rank}", "main.learner"
        yield Component(
            name, "learner", module, rank, connects=(*group, *_SHARED), needs_torch=True
        )


def _clients(config: Config, shards: Shards) -> Iterator[Component]:
    session = config.session_config
    ends = _of_shards(shards, "experience", "acks")
    for index in range(session.agent.num):
        yield Component(
            f"agent-{index}",
            "agent",
            "main.agent",
            index,
            connects=(*ends, *_SHARED),
            needs_torch=True,
        )
    for components in COMPONENTS:
        yield from components(config, ends, _SHARED)
    for index in range(session.evaluator.num):
        yield Component(
            f"eval-{index}",
            "evaluator",
            "main.evaluator",
            index,
            connects=("learner.control", *_SHARED),
            needs_torch=True,
        )
    if session.tensorplex.start_tensorboard:
        yield Component("tensorboard", "tensorboard", "main.tensorboard", connects=_SHARED)


def _replay(name: str, index: int) -> Component:
    binds = (f"{name}.{end}" for end in ("experience", "acks", "batches", "priorities"))
    return Component(name, "replay", "main.replay", index, tuple(binds), _SHARED)


def _of_shards(shards: Shards, *ends: str) -> tuple[str, ...]:
    return tuple(f"{name}.{end}" for name, _ in shards for end in ends)
