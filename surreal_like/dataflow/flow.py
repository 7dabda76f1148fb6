"""Flows: lazy sequences of items and signals, which operators turn into other flows.

One file, because the methods of a flow make the other kinds of flows, which are flows themselves.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from time import perf_counter
from typing import Any, ClassVar, Protocol, Self

from session.errors import RunError
from surreal_like.data.batch import Batch
from surreal_like.dataflow.items import Trained, copy_item, size_of

# A clone of a flow is at most so many items ahead of the others.
_AHEAD = 100
# One call of an operator in so many is timed; a power of 2.
_TIMED = 32


class Signal(Enum):
    """Result of a pull that gave no item; operators pass it on, a user's function never gets it."""

    NOT_READY = "another process has to send something first"
    STALLED = "another operator of this plan has to work first"
    PASSED = "something was done that gives no item here"


NOT_READY, STALLED, PASSED = Signal


class Outside(Protocol):
    """The other processes, as a source of a flow reaches them in a script."""

    def tick_script(self) -> bool:
        """Does what is due between two pulls; returns False after a stop request."""

    def wait_script(self) -> None:
        """Waits for a message, 50 ms at most."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A function of items, with the name that `Flow.describe` shows.

    Args:
        name: name with its settings, such as `concat(32)`.
        function: gets an item; returns an item or a signal.
        waits_for: returns what it waits for while it returns STALLED.
        learner: the learner that it works on.
        trains: True if it makes updates.
        generators: the random generators, whose states checkpoints have.
        policies: those whose items it lets through; empty: it makes no choice.
    """

    name: str
    function: Callable[[Any], Any]
    waits_for: Callable[[], str] = lambda: "another operator"
    learner: Any = None
    trains: bool = False
    generators: tuple[Any, ...] = ()
    policies: tuple[str, ...] = ()

    def __call__(self, item: Any) -> Any:
        """Applies the function."""
        return self.function(item)


class Flow:
    """A lazy sequence of items; nothing runs before the first pull.

    A kind of flow overrides :meth:`pull`. Exceptions of a user's function leave a flow usable: the
    item is lost, and the next pull goes on.

    Args:
        name: as :meth:`describe` shows it.
        inputs: flows that it pulls.
        outside: the other processes that it takes items from, if it is a source.

    Attributes:
        items, rows: that an operator was given, or that a source gave; over its whole life.
    """

    # False: it only passes items on, and counts none.
    counts_items: ClassVar[bool] = False

    def __init__(self, name: str, *inputs: Flow, outside: Outside | None = None) -> None:
        self.name = name
        self.inputs = inputs
        self.outside = outside
        self.items = self.rows = self._timed = 0
        self._seconds = 0.0
        self._place = ""
        self._given: Callable[[Any], Any] | None = None

    def pull(self) -> Any:
        """Returns an item or a signal; never waits.

        Raises:
            StopIteration: the flow has ended; at each further call, too.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement pull()")

    def waits_for(self) -> str:
        """Returns what this part waits for while it is stalled, otherwise an empty text."""
        return ""

    # -- operators --------------------------------------------------------------------------------

    def for_each(self, function: Callable[[Any], Any]) -> Flow:
        """Applies a function to each item.

        If it returns NOT_READY or STALLED, the next pull calls it again with the same item.
        """
        return _ForEach(self, function)

    def filter(self, function: Callable[[Any], Any]) -> Flow:
        """Keeps the items for which the function returns something true."""
        return _Filter(self, function)

    def combine(self, function: Callable[[Any], list[Any]]) -> Flow:
        """Applies a function that returns a list; its elements follow one by one."""
        return _Combine(self, function)

    def flatten(self) -> Flow:
        """Gives the elements of lists one by one."""
        return _Combine(self, Operator("flatten", list))

    def batch(self, size: int) -> Flow:
        """Collects items to lists of `size`; the last list of a flow that ends may be shorter.

        Raises ValueError for a size below 1.
        """
        return _Lists(self, size)

    def zip(self, *others: Flow) -> Flow:
        """Gives tuples of one item of each flow; ends with the first flow that ends."""
        return _Zip(self, *others)

    def union(self, *others: Flow) -> Flow:
        """Gives the items of all flows as they come: `concurrently` with mode `async`."""
        flows = [self, *others]
        check_several(flows)
        return Union(flows, set(range(len(flows))))

    def duplicate(self, count: int) -> list[Flow]:
        """Returns clones, each of which gives every item once.

        The clone that pulls first gets the item, the others a copy. A clone that is 100 items
        ahead of another is stalled. Raises ValueError for a count below 2.
        """
        if count < 2:
            raise ValueError(f"duplicate({count}): expected 2 clones or more")
        queues: list[deque[Any]] = [deque() for _ in range(count)]
        return [_Clone(self, queues, index) for index in range(count)]

    # -- in scripts -------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Returns the next item; may wait, until a stop request ends the flow.

        Raises:
            RunError: all parts of the flow wait for each other.
        """
        outsides = {id(part.outside): part.outside for part in self.parts() if part.outside}
        while all(outside.tick_script() for outside in outsides.values()):
            item = self.pull()
            if type(item) is not Signal:
                return item
            if item is STALLED:
                raise self.standstill()
            if item is NOT_READY:
                for outside in outsides.values():
                    outside.wait_script()
        raise StopIteration

    def take(self, count: int) -> list[Any]:
        """Returns the next items, fewer at the end of the flow; may wait."""
        return list(islice(self, count))

    def show(self, count: int = 20) -> None:
        """Prints the next items; may wait."""
        for item in islice(self, count):
            sys.stdout.write(f"{item}\n")

    # -- about the plan ---------------------------------------------------------------------------

    def parts(self) -> list[Flow]:
        """Returns this flow and all that it pulls, each once, sources first."""
        found: dict[int, Flow] = {}
        for flow in self.inputs:
            found |= {id(part): part for part in flow.parts()}
        return [*found.values(), self]

    def operators(self) -> list[Operator]:
        """Returns the operators of all parts; functions of the author are none."""
        return [each for part in self.parts() for each in part.own_operators()]

    def own_operators(self) -> list[Operator]:
        """Returns the operator of this part, if it has one."""
        return [self._given] if isinstance(self._given, Operator) else []

    def before_update(self) -> list[Callable[[Any], Any]]:
        """Returns the functions on each item from the source to the first update, in order.

        Those before a branch, a filter or a list; empty if the flow begins with one of them.
        """
        functions: list[Callable[[Any], Any]] = []
        for part in self.parts()[1:]:
            given = part._given
            if type(part) is not _ForEach or (isinstance(given, Operator) and given.trains):
                break
            assert given is not None  # that of a _ForEach
            functions.append(given)
        return functions

    def describe(self) -> str:
        """Returns the operators in order, such as `replay -> train_one_step`; branches indented."""
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        if len(self.inputs) == 1:
            lines = self.inputs[0]._lines()
            return [*lines[:-1], f"{lines[-1]} -> {self.name}"]
        return [*(f"  {line}" for flow in self.inputs for line in flow._lines()), self.name]

    def outline(self) -> list[str]:
        """Returns the operators in order, one a line; branches indented, a dash at each start."""
        if len(self.inputs) == 1:
            return [*self.inputs[0].outline(), self.name]
        lines = [
            f"{'  ' if row else '- '}{line}"
            for flow in self.inputs
            for row, line in enumerate(flow.outline())
        ]
        return [*lines, self.name]

    def counts(self) -> dict[str, dict[str, float]]:
        """Returns of each operator and source, by name, `items` and `rows`.

        And of one call in 32: their number `timed`, and the sum of their durations `seconds`.
        """
        found: dict[str, dict[str, float]] = {}
        for part in self.parts():
            if part.counts_items:
                found[_unused(part.name, found)] = {
                    "items": part.items,
                    "rows": part.rows,
                    "timed": part._timed,
                    "seconds": part._seconds,
                }
        return found

    def generators(self) -> dict[str, Any]:
        """Returns the random generators of all parts, each once, by the name of its operator."""
        found: dict[str, Any] = {}
        for part in self.parts():
            for each in part.own_generators():
                if not any(each is other for other in found.values()):
                    found[_unused(part.name, found)] = each
        return found

    def own_generators(self) -> tuple[Any, ...]:
        """Returns the random generators of this part alone."""
        return generators_in((self._given,))

    def sent_columns(self, batch: Batch) -> dict[str, Any]:
        """Returns name -> `{type, dim}` of the row that agents send in place of an unroll.

        Empty where they send the unroll itself.

        Args:
            batch: batch of unrolls with zeros.
        """
        return {}

    def name_plan(self, owner: str) -> None:
        """Gives each part its number in the plan of `owner`, for messages of errors.

        Raises:
            ValueError: two sources take the same batches.
        """
        sources: dict[int, Flow] = {}
        for number, part in enumerate(self.parts(), 1):
            part._place = f", operator {number} of the plan of {owner}"
            other = sources.setdefault(id(part.outside), part)
            if part.outside is not None and other is not part:
                raise ValueError(
                    f"{other.name} and {part.name} of the plan of {owner} would take each other's "
                    "batches: use one source and duplicate(2)"
                )

    def standstill(self) -> RunError:
        """Returns the error for a plan that is stalled as a whole: it could never go on."""
        waiting = [f"{part.name} for {text}" for part in self.parts() if (text := part.waits_for())]
        return RunError(
            f"all operators of the plan wait for each other: {'; '.join(waiting) or self.name}"
        )

    def _count(self, item: Any) -> Any:
        """Counts an item; returns it."""
        self.items += 1
        # Behind an update each operator would ask for the size of its batch again.
        self.rows += item.size if type(item) is Trained else size_of(item)
        return item

    def _call(self, function: Callable[[Any], Any], item: Any) -> Any:
        try:
            if self.items % _TIMED:
                return function(item)
            began = perf_counter()
            result = function(item)
            self._seconds += perf_counter() - began
            self._timed += 1
            return result
        except Exception as error:
            # A flow of a script has no name.
            place = self._place or f", operator {len(self.parts())} of its flow"
            error.add_note(f"in {self.name}{place}")
            raise


def _unused(name: str, found: Mapping[str, Any]) -> str:
    """Returns a name, with a number from the second of that name on."""
    same = sum(each.partition(" #")[0] == name for each in found)
    return f"{name} #{same + 1}" if same else name


def generators_in(functions: Iterable[Any]) -> tuple[Any, ...]:
    """Returns the random generators of those of some functions that are operators."""
    operators = (each for each in functions if isinstance(each, Operator))
    return tuple(each for operator in operators for each in operator.generators)


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of an operator or of any other callable."""
    if isinstance(function, Operator):
        return function.name
    return getattr(function, "__name__", type(function).__name__)


_NOTHING = object()


def _with_origin(result: Any, item: Any) -> Any:
    """Gives a new batch origin and policy of the batch that a function made it of; returns it."""
    if result is not item and isinstance(result, Batch) and isinstance(item, Batch):
        result.origin = item.origin if result.origin is None else result.origin
        result.policy = result.policy or item.policy
    return result


class _ForEach(Flow):
    counts_items = True

    def __init__(self, flow: Flow, function: Callable[[Any], Any]) -> None:
        super().__init__(name_of(function), flow)
        self._upstream = flow.pull
        self._given = function
        # Called directly: an operator in between would double the time of a call.
        self._function = function.function if isinstance(function, Operator) else function
        self._held: Any = _NOTHING

    def pull(self) -> Any:
        # An item at which the function raises an error is lost, also if it was held.
        item, self._held = self._held, _NOTHING
        if item is _NOTHING:
            item = self._upstream()
            if type(item) is Signal:
                return item
            self._count(item)
        result = self._call(self._function, item)
        if type(result) is Signal and result is not PASSED:
            self._held = item
        return _with_origin(result, item)

    def waits_for(self) -> str:
        if self._held is _NOTHING:
            return ""
        return self._given.waits_for() if isinstance(self._given, Operator) else "another operator"


class _Filter(Flow):
    counts_items = True

    def __init__(self, flow: Flow, function: Callable[[Any], Any]) -> None:
        super().__init__(f"filter({name_of(function)})", flow)
        self._function = self._given = function

    def pull(self) -> Any:
        item = self.inputs[0].pull()
        if type(item) is Signal:
            return item
        return item if self._call(self._function, self._count(item)) else PASSED


class _Combine(Flow):
    counts_items = True

    def __init__(self, flow: Flow, function: Callable[[Any], list[Any]]) -> None:
        super().__init__(name_of(function), flow)
        self._function = self._given = function
        self._left: deque[Any] = deque()

    def pull(self) -> Any:
        if not self._left:
            item = self.inputs[0].pull()
            if type(item) is Signal:
                return item
            given = self._call(self._function, self._count(item))
            self._left.extend(_with_origin(each, item) for each in given)
        return self._left.popleft() if self._left else PASSED


class _Lists(Flow):
    def __init__(self, flow: Flow, size: int) -> None:
        if size < 1:
            raise ValueError(f"batch({size}): expected lists of 1 item or more")
        super().__init__(f"batch({size})", flow)
        self._size = size
        self._collected: list[Any] = []

    def pull(self) -> Any:
        try:
            item = self.inputs[0].pull()
        except StopIteration:
            if not self._collected:
                raise
            return self._pop()
        if type(item) is Signal:
            return item
        if len(self._collected) == self._size - 1:
            # The newest needs no copy: it is given at once.
            self._collected.append(item)
            return self._pop()
        self._collected.append(copy_item(item))
        return PASSED

    def _pop(self) -> list[Any]:
        items, self._collected = self._collected, []
        return items


class _Zip(Flow):
    def __init__(self, *flows: Flow) -> None:
        super().__init__("zip", *flows)
        self._items: list[Any] = [NOT_READY] * len(flows)

    def pull(self) -> Any:
        signals = []
        for index, flow in enumerate(self.inputs):
            if type(self._items[index]) is not Signal:
                continue
            # Without a copy: nothing is pulled from this flow while its item waits.
            item = self._items[index] = flow.pull()
            signals.append(item if type(item) is Signal else PASSED)
        if not any(type(item) is Signal for item in self._items):
            items, self._items = tuple(self._items), [NOT_READY] * len(self.inputs)
            return items
        return next(each for each in (PASSED, NOT_READY, STALLED) if each in signals)


class _Clone(Flow):
    def __init__(self, flow: Flow, queues: list[deque[Any]], index: int) -> None:
        super().__init__(f"clone {index + 1} of {len(queues)}", flow)
        self._queues = queues
        self._own = queues[index]
        self._others = queues[:index] + queues[index + 1 :]

    def pull(self) -> Any:
        if self._own:
            return self._own.popleft()
        if self.waits_for():
            return STALLED
        item = self.inputs[0].pull()
        if type(item) is not Signal:
            for queue in self._others:
                queue.append(copy_item(item))
        return item

    def waits_for(self) -> str:
        if self._own or max(map(len, self._others)) < _AHEAD:
            return ""
        return f"the other clones, which are {_AHEAD} items behind"

    def _lines(self) -> list[str]:
        return super()._lines() if self._own is self._queues[0] else [self.name]

    def outline(self) -> list[str]:
        """Returns what all clones share only for the first of them."""
        return super().outline() if self._own is self._queues[0] else [self.name]


def check_several(flows: Sequence[Flow]) -> None:
    """Raises ValueError if these flows, to be run as one, are fewer than two or hold one twice."""
    if len(flows) < 2:
        raise ValueError(f"concurrently needs 2 flows or more, not {len(flows)}")
    if len({id(flow) for flow in flows}) < len(flows):
        raise ValueError("concurrently got the same flow twice: use duplicate(2)")


class Union(Flow):
    """Gives the first item that is there, beginning behind the flow that gave the last one.

    Args:
        flows: what is asked in turn.
        shown: indexes of the flows whose items come out.
    """

    def __init__(self, flows: Sequence[Flow], shown: set[int]) -> None:
        super().__init__("concurrently(async)", *flows)
        self._shown = shown
        self._live = list(range(len(flows)))
        self._turn = 0

    def pull(self) -> Any:
        stalled = bool(self._live)
        for index in self._live[self._turn :] + self._live[: self._turn]:
            try:
                item = self.inputs[index].pull()
            except StopIteration:
                place = self._live.index(index)
                self._live.remove(index)
                self._turn -= place < self._turn
                continue
            stalled &= item is STALLED
            if item is not STALLED and item is not NOT_READY:
                self._turn = (self._live.index(index) + 1) % len(self._live)
                return item if index in self._shown else PASSED
        if not self._live:
            raise StopIteration
        self._turn %= len(self._live)
        return STALLED if stalled else NOT_READY
