"""Constraints of settings beyond their kind: ranges of numbers, and the kind of optional values.

A wrong number is refused before anything is started, with the full key in the message. The
component that uses it starts much later and could name only an argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isfinite
from types import MappingProxyType

from session.config import Config
from session.config.merge import leaves, shown
from session.config.placeholder import expectation
from session.errors import ConfigError

Range = tuple[float, float]

_ANY: Range = (0, inf)
_ONE: Range = (1, inf)
# Above 0: one millisecond, the resolution of the counted clock.
_SOME: Range = (1e-3, inf)
_SHARE: Range = (0, 1)
_PORT: Range = (0, 65_535)
# Whole numbers are sent and stored as int64.
_TOO_LARGE = 1 << 63

# Dotted key -> (minimum, maximum). A section's range applies to every number in it.
RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "learner_config.algo.gamma": _SHARE,
        "learner_config.algo.n_step": _ONE,
        "learner_config.algo.reward_clip": _ANY,
        "learner_config.algo.reward_scale": _ANY,
        "learner_config.algo.learning_rate": _ANY,
        "learner_config.algo.learning_rate.steps": _ONE,
        "learner_config.algo.critic_learning_rate": _ANY,
        "learner_config.algo.critic_learning_rate.steps": _ONE,
        "learner_config.algo.temperature.learning_rate": _ANY,
        "learner_config.algo.adam_epsilon": _ANY,
        "learner_config.algo.optimizer.epsilon": _ANY,
        "learner_config.algo.max_grad_norm": _ANY,
        "learner_config.algo.entropy": _ANY,
        "learner_config.algo.entropy.steps": _ONE,
        "learner_config.algo.epsilon": _SHARE,
        "learner_config.algo.epsilon.steps": _ONE,
        "learner_config.algo.eval_epsilon": _SHARE,
        "learner_config.algo.epsilon_alpha": _ANY,
        "learner_config.algo.epsilon_agents": _ANY,
        "learner_config.algo.random_steps": _ANY,
        "learner_config.model.image_features": _ONE,
        "learner_config.model.memory_size": _ONE,
        "learner_config.replay.batch_size": _ONE,
        "learner_config.replay.capacity": _ONE,
        "learner_config.replay.replay_shards": _ONE,
        "learner_config.replay.replay_proportion": _SHARE,
        "learner_config.replay.hindsight.proportion": _SHARE,
        "learner_config.replay.iteration.num_updates_per_train_iter": _ONE,
        "learner_config.replay.sequence.length": _ONE,
        "learner_config.replay.sequence.period": _ONE,
        "learner_config.replay.priority.alpha": _SHARE,
        "learner_config.replay.priority.eta": _SHARE,
        "learner_config.replay.priority.beta.start": _SHARE,
        "learner_config.replay.priority.beta.end": _SHARE,
        "learner_config.replay.priority.beta.steps": _ONE,
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
        "session_config.gateway.port": _PORT,
        "session_config.gateway.num_envs": _ONE,
        "session_config.gateway.max_clients": _ONE,
        "session_config.gateway.max_batch": _ONE,
        "session_config.gateway.answer_seconds": _SOME,
        "session_config.gateway.threads": _ONE,
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

# Dotted key -> placeholder of its values; the default None is valid, too.
OPTIONAL: Mapping[str, str] = MappingProxyType(
    {
        "learner_config.execution_plan": "_str_",
        "env_config.reward_range": "_list_",
        "session_config.folder": "_str_",
        "session_config.gateway.tls.cert": "_str_",
        "session_config.gateway.tls.key": "_str_",
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
    """Returns the range of a number: its own, else that of the nearest enclosing section."""
    while key:
        if key in RANGES:
            return RANGES[key]
        key = key.rpartition(".")[0]
    return (-inf, inf)


def in_words(limits: Range) -> str:
    """Formats a range: ``1 or more``, ``0 to 1``; empty without a minimum and maximum."""
    least, most = limits
    if most < inf:
        return f"{least:g} to {most:g}"
    return f"{least:g} or more" if least > -inf else ""


def check_ranges(config: Config) -> None:
    """Raises ConfigError for the first value in ``config`` that is outside its range or kind.

    No number may be infinite or NaN, nor a whole number too large for 64 bits.
    """
    for key, value in leaves(config).items():
        if value is not None and key in OPTIONAL:
            wanted = expectation(OPTIONAL[key], key)
            if not wanted.accepts(value):
                raise ConfigError(f"{key} is {shown(value)}, expected {wanted.expected}, or null")
        least, most = range_of(key)
        for number in _numbers(value):
            if not -_TOO_LARGE < number < _TOO_LARGE and not isinstance(number, float):
                raise ConfigError(f"{key} is {shown(value)}, expected less than 2**63")
            if isinstance(number, float) and not isfinite(number):
                limits = in_words((least, most))
                words = f"{limits}, a finite number" if limits else "a finite number"
                raise ConfigError(f"{key} is {shown(value)}, expected {words}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not least <= value <= most:
            raise ConfigError(f"{key} is {shown(value)}, expected {in_words((least, most))}")


def _numbers(value: object) -> Iterator[int | float]:
    """Yields a number, or the numbers in a list of lists."""
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
