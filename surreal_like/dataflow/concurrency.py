"""Several flows at once: round robin by weights, or as items come; and queues between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from surreal_like.dataflow.flow import (
    NOT_READY,
    PASSED,
    STALLED,
    Flow,
    Operator,
    Signal,
    Union,
    check_several,
)
from surreal_like.dataflow.items import copy_item
from surreal_like.errors import DataError

# In its turn, a flow of weight "*" gives at most so many items.
_MOST = 100
MODES = ("round_robin", "async", "each")
Weight = float | str


def concurrently(
    flows: Sequence[Flow],
    *,
    mode: str = "round_robin",
    output_indexes: Sequence[int] | None = None,
    round_robin_weights: Sequence[Weight] | None = None,
) -> Flow:
    """Runs several flows as one, which ends when all of them have ended.

    Args:
        flows: two or more.
        mode: `round_robin`: each flow in its turn gives as many items as its weight says, and the
            others wait for it while it is not ready. `async`: the items as they come. `each`: in
            every pull one item of each flow that has one, as a tuple.
        output_indexes: output indexes of the flows whose items come out; None: of all.
        round_robin_weights: items of each flow in its turn, fractions are carried over; None: 1
            each. `"*"`: all that are there, up to 100.

    Raises:
        ValueError: these arguments are wrong; names the values.
    """
    check_several(flows)
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}, expected {', '.join(MODES)}")
    wrong = [index for index in output_indexes or () if not 0 <= index < len(flows)]
    if wrong:
        raise ValueError(f"output_indexes has {wrong[0]}, but there are {len(flows)} flows")
    shown = set(range(len(flows)) if output_indexes is None else output_indexes)
    if mode == "round_robin":
        return _RoundRobin(flows, shown, _checked(round_robin_weights, len(flows)))
    if round_robin_weights is not None:
        raise ValueError(f"mode {mode} has no weights, but they are {list(round_robin_weights)}")
    return Union(flows, shown) if mode == "async" else _Each(flows, shown)


def _checked(weights: Sequence[Weight] | None, count: int) -> list[Weight]:
    weights = [1.0] * count if weights is None else list(weights)
    if len(weights) != count:
        raise ValueError(f"{len(weights)} weights {weights} for {count} flows")
    if all(weight == "*" for weight in weights):
        raise ValueError(f"the weights are {weights}: at least one must be a number")
    for weight in weights:
        if weight != "*" and (isinstance(weight, str) or not weight > 0):
            raise ValueError(f"a weight is {weight!r}, expected more than 0 or '*'")
    return weights


class _Each(Flow):
    """Pulls all flows once in every pull."""

    def __init__(self, flows: Sequence[Flow], shown: set[int]) -> None:
        super().__init__("concurrently(each)", *flows)
        self._shown = shown
        self._live = list(range(len(flows)))

    def pull(self) -> Any:
        items: list[Any] = []
        signals: set[Signal] = set()
        for index in tuple(self._live):
            try:
                item = self.inputs[index].pull()
            except StopIteration:
                self._live.remove(index)
                continue
            if type(item) is Signal:
                signals.add(item)
            elif index in self._shown:
                items.append(item)
            else:
                signals.add(PASSED)
        if items:
            return tuple(items)
        if not self._live:
            raise StopIteration
        return next(each for each in (PASSED, NOT_READY, STALLED) if each in signals)


class _RoundRobin(Flow):
    """Weighted round robin by credits; deterministic.

    A turn adds the weight of a flow to its credit, and each of its items costs 1.
    """

    def __init__(self, flows: Sequence[Flow], shown: set[int], weights: list[Weight]) -> None:
        ratio = ":".join(str(w) if isinstance(w, str) else f"{w:g}" for w in weights)
        super().__init__(f"concurrently(round_robin {ratio})", *flows)
        self._shown = shown
        self._weights = weights
        self._credits = [0.0] * len(flows)
        self._live = list(range(len(flows)))
        self._turn = 0
        self._began = False

    def pull(self) -> Any:
        blocked: dict[int, Signal] = {}
        while self._live:
            if len(blocked) == len(self._live):
                return NOT_READY if NOT_READY in blocked.values() else STALLED
            index = self._live[self._turn]
            self._begin(index)
            if self._credits[index] < 1.0:
                self._next()
                continue
            try:
                item = self.inputs[index].pull()
            except StopIteration:
                blocked.pop(index, None)
                self._remove(index)
                continue
            if item is STALLED or (item is NOT_READY and self._weights[index] == "*"):
                # Its credit is lost, so that two flows that feed each other never wait in turn.
                blocked[index] = item
                self._credits[index] = 0.0
                self._next()
                continue
            if type(item) is not Signal:
                self._credits[index] -= 1.0
                return item if index in self._shown else PASSED
            return item
        raise StopIteration

    def _begin(self, index: int) -> None:
        if not self._began:
            self._began = True
            weight = self._weights[index]
            if isinstance(weight, str):
                self._credits[index] = _MOST
            else:
                self._credits[index] += weight

    def _next(self) -> None:
        self._turn = (self._turn + 1) % len(self._live)
        self._began = False

    def _remove(self, index: int) -> None:
        self._live.remove(index)
        self._began = False
        if self._live:
            self._turn %= len(self._live)


class Queue:
    """A bounded queue between two flows of one plan.

    Args:
        size: largest number of items.
        name: name for messages.

    Raises:
        ValueError: the size is below 1.
    """

    def __init__(self, size: int, name: str = "queue") -> None:
        if size < 1:
            raise ValueError(f"the size of {name} is {size}, expected 1 or more")
        self.size = size
        self.name = name
        self.items: deque[Any] = deque()


def enqueue(queue: Queue) -> Operator:
    """Returns an operator that puts a copy of each item into a queue; stalled while it is full."""

    def put(item: Any) -> Any:
        if len(queue.items) >= queue.size:
            return STALLED
        queue.items.append(copy_item(item))
        return item

    return Operator(f"enqueue({queue.name})", put, lambda: f"room in {queue.name}")


def dequeue(queue: Queue, check: Callable[[Any], bool] | None = None) -> Flow:
    """Returns the flow of the items of a queue; stalled while it is empty.

    Args:
        queue: filled by `enqueue`.
        check: called with each item; if it returns False, the pull raises DataError.
    """
    return _Dequeue(queue, check)


class _Dequeue(Flow):
    def __init__(self, queue: Queue, check: Callable[[Any], bool] | None) -> None:
        super().__init__(f"dequeue({queue.name})")
        self._queue = queue
        self._check = check

    def pull(self) -> Any:
        if not self._queue.items:
            return STALLED
        item = self._queue.items.popleft()
        if self._check is not None and not self._check(item):
            raise DataError(f"the check of {self._queue.name} refuses an item: {item!r:.80}")
        return item

    def waits_for(self) -> str:
        return "" if self._queue.items else f"an item in {self._queue.name}"
