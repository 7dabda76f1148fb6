"""Sources of plans, and the operators that `learner_config.parts` adds behind them."""

from __future__ import annotations

import inspect
import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from session.addons import collect
from session.config.merge import quote
from session.config.named_code import load_callable
from session.did_you_mean import did_you_mean
from session.errors import ConfigError
from surreal_like.data.batch import Batch, Sampled, make_batch
from surreal_like.data.policy_names import PolicyId
from surreal_like.dataflow.flow import PASSED, STALLED, Flow, Operator, Signal
from surreal_like.dataflow.items import axis_in, axis_of, batch_of, columns_of, copy_item
from surreal_like.errors import DataError
from surreal_like.replay.replay import load_replay_class
from surreal_like.replay.reward_scale import RewardScale

if TYPE_CHECKING:
    from surreal_like.learner.updates import Updates

_KEY = "learner_config.parts"
# What replay gives -> the source of it.
_SOURCES = {
    "rows": "replay",
    "sequences": "replay",
    "unrolls": "rollouts",
    "gradients": "async_gradients",
}
_BATCHES = {"rows": "single rows", "sequences": "sequences", "unrolls": "whole unrolls"}


class LocalReplay:
    """A ring of rows, or of streams of unrolls; drawn uniformly, with replacement.

    Args:
        capacity: rows or streams that it keeps.
        min_size: a source of it is stalled until it holds so many.
        seed: seed of the draws; in a run give `learner.seed`.

    Attributes:
        generator: source of the draws. Checkpoints have its state, but not the rows.

    Raises:
        ValueError: not 1 <= `min_size` <= `capacity`.
    """

    def __init__(self, capacity: int, min_size: int = 1, seed: int = 0) -> None:
        if not 1 <= min_size <= capacity:
            raise ValueError(
                f"a LocalReplay needs 1 <= min_size <= capacity, not {min_size} and {capacity}"
            )
        self.capacity = capacity
        self.min_size = min_size
        self.generator = torch.Generator().manual_seed(seed)
        self._columns: dict[str, torch.Tensor] = {}
        self._axis = 0
        self._next = self._size = 0

    def __len__(self) -> int:
        """Number of rows or streams."""
        return self._size

    def insert(self, batch: Batch) -> None:
        """Copies the rows, or the streams, of a batch; they replace the oldest.

        Raises:
            DataError: other columns, types or shapes than before.
        """
        axis, columns = axis_of(batch), columns_of(batch)
        if not self._columns:
            self._axis = axis
            self._columns = {name: self._ring(column) for name, column in columns.items()}
        self._check(columns)
        count = batch["rewards"].shape[axis]
        kept = min(count, self.capacity)
        places = (self._next + count - kept + torch.arange(kept)) % self.capacity
        for name, column in columns.items():
            along = axis_in(column, axis)
            newest = column.narrow(along, count - kept, kept).detach()
            self._columns[name].index_copy_(along, places.to(column.device), newest)
        self._next = (self._next + count) % self.capacity
        self._size = min(self.capacity, self._size + count)

    def sample(self, size: int) -> Batch:
        """Returns a batch of `size` rows or streams."""
        drawn = torch.randint(self._size, (size,), generator=self.generator)
        return make_batch(
            {
                name: column.index_select(axis_in(column, self._axis), drawn.to(column.device))
                for name, column in self._columns.items()
            }
        )

    def _ring(self, column: torch.Tensor) -> torch.Tensor:
        shape = list(column.shape)
        shape[axis_in(column, self._axis)] = self.capacity
        return column.new_empty(shape)

    def _check(self, columns: dict[str, torch.Tensor]) -> None:
        known, given = (
            {name: self._kind(column) for name, column in each.items()}
            for each in (self._columns, columns)
        )
        for name in known | given:
            if known.get(name) != given.get(name):
                raise DataError(
                    f"a LocalReplay holds {name}: {known.get(name)}, but a batch has "
                    f"{given.get(name)} (without the axis of rows or streams)"
                )

    def _kind(self, column: torch.Tensor) -> list[Any]:
        """Returns type and shape, without the axis of rows or streams."""
        axis = axis_in(column, self._axis)
        return [str(column.dtype), [*column.shape[:axis], *column.shape[axis + 1 :]]]


def store(local: LocalReplay) -> Operator:
    """Returns an operator that stores each batch in a LocalReplay, and gives it back."""

    def keep(item: Any) -> Any:
        local.insert(batch_of(item))
        return item

    return Operator(f"store({local.capacity})", keep)


class DrawnLocally(Flow):
    """Source of batches of a LocalReplay; use `replay(local, batch_size=...)`."""

    counts_items = True

    def __init__(self, local: LocalReplay, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
        super().__init__(f"replay({batch_size} of {local.capacity})")
        self._local = local
        self._batch_size = batch_size

    def pull(self) -> Any:
        """Returns a batch of its own memory, or STALLED."""
        return STALLED if self.waits_for() else self._count(self._local.sample(self._batch_size))

    def own_generators(self) -> tuple[Any, ...]:
        """Returns the generator of the LocalReplay."""
        return (self._local.generator,)

    def waits_for(self) -> str:
        """Returns how much the LocalReplay lacks."""
        size, least = len(self._local), self._local.min_size
        return "" if size >= least else f"min_size {least} in its LocalReplay, which holds {size}"


def mix_in(slots: int, proportion: float, seed: int = 0) -> Operator:
    """Returns an operator for `combine`: each item, then some items of a ring of earlier ones.

    Args:
        slots: items in the ring; the newest is stored first.
        proportion: replayed items for each new one; the fraction is a probability.
        seed: seed of the draws; in a run give `learner.seed`. Checkpoints have the state of their
            generator, but not the items.

    Raises:
        ValueError: a negative number, or a proportion above 0 without slots.
    """
    if slots < 0 or proportion < 0 or (proportion > 0 and not slots):
        raise ValueError(f"mix_in({slots}, {proportion}): a proportion above 0 needs slots")
    ring: deque[Any] = deque(maxlen=slots)
    rng = random.Random(seed)

    def mix(item: Any) -> list[Any]:
        if slots:
            ring.append(copy_item(item))
        whole, fraction = divmod(proportion, 1.0)
        count = int(whole) + (rng.random() < fraction)
        # Copies, because later operators add columns.
        return [item, *(copy_item(ring[rng.randrange(len(ring))]) for _ in range(count))]

    return Operator(f"mix_in({slots}, {proportion:g})", mix, generators=(rng,))


# The first one with `algo.normalize_rewards`; the others are those of add-ons.
_PARTS = {"normalize_rewards": "surreal_like.learner.sources:normalize_rewards"}


def with_parts(learner: Updates, source: Flow) -> Flow:
    """Returns a source of batches followed by the operators of the config.

    Raises:
        ConfigError: a part does not exist, stands twice, or has other arguments.
    """
    names: set[str] = set()
    parts, learner.unused_parts = learner.unused_parts, []
    for given in parts:
        name, args = _checked(given)
        if name in names:
            raise ConfigError(f"{_KEY} has {name} twice: leave one of them out")
        names.add(name)
        source = source.for_each(_make(learner, name, args))
    return source


def normalize_rewards(learner: Updates) -> Operator:
    """Returns an operator that divides rewards by the deviation of all returns known before.

    It clips the quotients with `algo.normalized_reward_clip`. Batches that do not come from replay
    change no count.

    Raises:
        ConfigError: replay does not count returns, because the setting is off.
    """
    algo = learner.learner_config.algo
    if not algo.normalize_rewards:
        raise ConfigError(
            f"{_KEY} has normalize_rewards: set learner_config.algo.normalize_rewards to true "
            "instead"
        )
    scale = learner.keep("reward_scale", RewardScale())
    clip = algo.normalized_reward_clip or math.inf

    def normalize(batch: Batch) -> Batch:
        origin = batch.origin
        if isinstance(origin, Sampled) and origin.returns is not None:
            scale.add(f"{origin.shard}/{origin.incarnation}", origin.returns)
        deviation = scale.deviation
        batch["rewards"] = (batch.rewards / deviation).clamp(-clip, clip)
        learner.add_metrics({"reward_deviation": deviation})
        return batch

    return Operator("normalize_rewards", normalize, learner=learner)


def _checked(given: Any) -> tuple[str, dict[str, Any]]:
    wrong = not isinstance(given, Mapping) or not {"part"} <= given.keys() <= {"part", "args"}
    if (
        wrong
        or not isinstance(given["part"], str)
        or not isinstance(given.get("args", {}), Mapping)
    ):
        raise ConfigError(f"{_KEY} has {quote(given)}, expected {{part: NAME, args: {{...}}}}")
    return given["part"], dict(given.get("args", {}))


def _make(learner: Updates, name: str, args: dict[str, Any]) -> Operator:
    function = _find(name)
    try:
        inspect.signature(function).bind(learner, **args)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(function).parameters)[1:])
        raise ConfigError(f"args of {_KEY} {name!r}: {error}; it takes {known}") from None
    operator = function(learner, **args)
    if not isinstance(operator, Operator):
        raise ConfigError(
            f"{_KEY} {name!r} gives a {type(operator).__name__}, expected an Operator of batches"
        )
    return operator


def _find(name: str) -> Callable[..., Any]:
    parts = collect("parts") | _PARTS
    place = str(parts.get(name, name))
    if ":" not in place:
        hint = did_you_mean(name, parts, otherwise=f"there is {', '.join(parts)}")
        raise ConfigError(
            f"{_KEY} has no part {name!r}: {hint}; your own is given as "
            "package.module:function or file.py:function"
        )
    return load_callable(place, _KEY)


def from_items(items: Iterable[Any]) -> Flow:
    """Returns the flow of some items, for tests and notebooks."""
    return _Items(items)


class _Items(Flow):
    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__("from_items")
        self._items = items
        self._rest: Iterator[Any] | None = None

    def pull(self) -> Any:
        if self._rest is None:
            self._rest = iter(self._items)
        return next(self._rest)


class _Received(Flow):
    """Batches that replay sends to a learner."""

    counts_items = True

    def __init__(self, name: str, learner: Updates) -> None:
        super().__init__(f"{name}{PolicyId(learner.policy_name).add('({})')}", outside=learner)
        self._learner = learner

    def pull(self) -> Any:
        item = self._learner.next_batch()
        if isinstance(item, Signal):
            return item
        item.policy = self._learner.policy_name
        return self._count(item)


def experience(learner: Updates) -> Flow:
    """Returns the flow of batches of a learner's replay: `rollouts` or `replay`, by its kind.

    Raises ConfigError if replay gives gradients: use `async_gradients`.
    """
    kind = load_replay_class(learner.learner_config).gives()
    if kind == "gradients":
        check_kind(learner, "experience", "unrolls")
    return with_parts(learner, _Received(_SOURCES[kind], learner))


def rollouts(learner: Updates | Mapping[str, Updates], mode: str | None = None) -> Flow:
    """Returns the flow of batches of whole unrolls, each of which comes once, the oldest first.

    Args:
        learner: learner of the run; or several by policy, whose batches come in turn, see `select`.
        mode: `async`: as they come; `bulk_sync`: one unroll of every agent, which then waits for
            the next version. None: as `learner_config.algo.synchronous` says.

    Raises:
        ConfigError: replay gives single rows, or the mode contradicts the config.
    """
    if isinstance(learner, Mapping):
        return _of_all([rollouts(each, mode) for each in learner.values()])
    check_kind(learner, "rollouts", "unrolls")
    synchronous = bool(learner.learner_config.algo.get("synchronous", False))
    wanted = "bulk_sync" if synchronous else "async"
    if mode not in (None, wanted):
        raise ConfigError(
            f"rollouts has mode {mode!r}, but learner_config.algo.synchronous is {synchronous}, "
            f"which is mode {wanted!r}: change one of them"
        )
    return with_parts(learner, _Received("rollouts", learner))


def replay(
    source: Updates | Mapping[str, Updates] | LocalReplay, *, batch_size: int | None = None
) -> Flow:
    """Returns the flow of batches that are drawn again and again.

    Args:
        source: a learner, whose replay servers draw; several by policy, whose batches come in turn,
            see `select`; or a LocalReplay.
        batch_size: batch size of a LocalReplay.

    Raises:
        ConfigError: replay gives whole unrolls or gradients.
        ValueError: a LocalReplay needs a batch size of 1 or more, a learner has its own.
    """
    if isinstance(source, LocalReplay):
        return DrawnLocally(source, batch_size or 0)
    if batch_size is not None:
        raise ValueError("replay(learner) has no batch_size: set learner_config.replay.batch_size")
    if isinstance(source, Mapping):
        return _of_all(list(map(replay, source.values())))
    check_kind(source, "replay", "rows", "sequences")
    return with_parts(source, _Received("replay", source))


def _of_all(flows: list[Flow]) -> Flow:
    first, *others = flows
    return first.union(*others) if others else first


def select(*policies: str) -> Operator:
    """Returns an operator that lets the items of these policies through, and drops others.

    Raises:
        ValueError: none is given.
    """
    if not policies:
        raise ValueError("select() needs the name of a policy")

    def choose(item: Any) -> Any:
        return item if batch_of(item).policy in policies else PASSED

    return Operator(f"select({', '.join(policies)})", choose, policies=policies)


def check_kind(learner: Updates, name: str, *wanted: str) -> None:
    """Raises ConfigError, with the remedy, unless a learner's replay gives what a source needs.

    Args:
        learner: learner of the plan.
        name: name of the source.
        wanted: rows, sequences, unrolls or gradients.
    """
    config = learner.learner_config
    kind = load_replay_class(config)
    if kind.gives() in wanted:
        return
    if "gradients" in (*wanted, kind.gives()):
        key, given = "gradients_at", config.get("gradients_at", "learner")
        remedy = f"set that to {'agent' if 'gradients' in wanted else 'learner'}"
        what = f"which gives {kind.gives()}"
    else:
        key, given, remedy = "replay.type", kind.__name__, "set another type"
        what = f"which gives {_BATCHES[kind.gives()]}"
    raise ConfigError(
        f"the plan has {name}(learner), but learner_config.{key} is {given}, {what}: "
        f"use {_SOURCES[kind.gives()]}(learner), or {remedy}"
    )
