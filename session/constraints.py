"""What a setting may be beyond its kind: its least and its largest value, and the kind behind None.

A wrong number is refused before anything is started, with the key's whole name; the component that
would stumble over it starts much later, and knows it only by the name of an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from session.config import Config
from session.errors import ConfigError
from session.merge import leaves, shown
from session.placeholder import expectation

Range = tuple[float, float]

_ANY: Range = (0, inf)
_ONE: Range = (1, inf)
# More than nothing: the smallest time that any clock of ours tells apart.
_SOME: Range = (1e-3, inf)
_SHARE: Range = (0, 1)
_PORT: Range = (0, 65_535)

# Dotted key -> the least and the largest value. A section stands for every number in it.
RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "learner_config.algo.gamma": _SHARE,
        "learner_config.algo.n_step": _ONE,
        "learner_config.algo.reward_clip": _ANY,
        "learner_config.replay.batch_size": _ONE,
        "learner_config.replay.capacity": _ONE,
        "learner_config.replay.replay_shards": _ONE,
        "learner_config.replay.replay_proportion": _SHARE,
        "learner_config.replay.priority.alpha": _SHARE,
        "learner_config.replay.priority.beta.start": _SHARE,
        "learner_config.replay.priority.beta.end": _SHARE,
        "learner_config.replay": _ANY,
        "learner_config.parameter_publish.every": _ONE,
        "learner_config.parameter_publish": _ANY,
        "learner_config.max_bad_updates": _ONE,
        "env_config.num_envs": _ONE,
        "env_config.workers": _ANY,
        "env_config.action_repeat": _ONE,
        "env_config.frame_stack": _ANY,
        "session_config.agent.threads": _ONE,
        "session_config.evaluator.threads": _ONE,
        "session_config.learner.threads": _ONE,
        "session_config.learner.prefetch_requests": _ONE,
        "session_config.learner.batches_per_request": _ONE,
        "session_config.replay.high_water_mark": _ONE,
        "session_config.sender.flush_iteration": _ONE,
        "session_config.sender.max_unacked_bytes": _ONE,
        "session_config.sender.max_unacked_chunks": _ONE,
        "session_config.tensorplex.prometheus_port": _PORT,
        "session_config.tensorplex.buffer": _ONE,
        "session_config.stop.eval_episodes": _ONE,
        "session_config.stop.env_steps": _ONE,
        "session_config.stop.iterations": _ONE,
        "session_config.stop.seconds": _SOME,
        "session_config.stop.eval_return": (-inf, inf),
        "session_config.stop.above": (-inf, inf),
        "session_config.max_message_bytes": _ONE,
        "session_config": _ANY,
    }
)

# Dotted key -> what it takes beside the None that is its default.
OPTIONAL: Mapping[str, str] = MappingProxyType(
    {
        "session_config.folder": "_str_",
        "session_config.sender.flush_time": "_num_",
        "session_config.stop.eval_return": "_num_",
        "session_config.stop.env_steps": "_num_",
        "session_config.stop.iterations": "_num_",
        "session_config.stop.seconds": "_num_",
        "session_config.stop.metric": "_str_",
        "session_config.stop.above": "_num_",
        "session_config.launcher.host": "_str_",
        "session_config.kubernetes.name": "_str_",
        "session_config.kubernetes.namespace": "_str_",
        "session_config.kubernetes.context": "_str_",
        "session_config.kubernetes.storage_class": "_str_",
        "session_config.kubernetes.ttl_seconds": "_int_",
    }
)


def range_of(key: str) -> Range:
    """The range of a number, that of the nearest section around it where it has none of its own."""
    while key:
        if key in RANGES:
            return RANGES[key]
        key = key.rpartition(".")[0]
    return (-inf, inf)


def in_words(limits: Range) -> str:
    """A range as a person says it: ``1 or more``, ``0 to 1``; empty where anything goes."""
    least, most = limits
    if most < inf:
        return f"{least:g} to {most:g}"
    return f"{least:g} or more" if least > -inf else ""


def check_ranges(config: Config) -> None:
    """Raises ConfigError for the first value in ``config`` that is outside its range or kind."""
    for key, value in leaves(config).items():
        if value is not None and key in OPTIONAL:
            wanted = expectation(OPTIONAL[key], key)
            if not wanted.accepts(value):
                raise ConfigError(f"{key} is {shown(value)}, expected {wanted.expected}, or null")
        least, most = range_of(key)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not least <= value <= most:
            raise ConfigError(f"{key} is {shown(value)}, expected {in_words((least, most))}")
