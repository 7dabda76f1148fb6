"""A group of learners in threads of this process, which get the batches that a test gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import torch
import zmq

from session.config.defaults import BASE_SESSION_CONFIG
from session.process.clock import WallClock
from session.process.context import Context
from session.wire import AddressBook, Identity, Wire
from session.wire.socket_state import poll
from surreal_like.data.batch import Batch
from surreal_like.data.group import within
from surreal_like.dataflow import NOT_READY
from surreal_like.learner.group_leader import ENDPOINT, Leader, digest_of
from surreal_like.learner.group_member import Member
from surreal_like.learner.joint import for_policies
from surreal_like.learner.learner import Learner
from surreal_like.learner.saver import Content
from tests.polling import until

POLICY = "default"
Learners = Mapping[str, Learner]


def play_context(book: AddressBook, zmq_context: Any, name: str, incarnation: int = 1) -> Any:
    """What a group needs of the context of a process; it notes events."""
    events: list[tuple[str, str]] = []
    return SimpleNamespace(
        name=name,
        clock=WallClock(),
        wire=Wire(zmq_context, book, Identity(name, incarnation)),
        config=SimpleNamespace(session_config=BASE_SESSION_CONFIG.copy()),
        stopping=False,
        pulse=lambda: None,
        event=lambda kind, detail="": events.append((kind, detail)),
        events=events,
    )


def feed(learner: Learner, batches: Iterable[Batch]) -> None:
    """Gives a learner these batches instead of those of replay; its priorities are kept."""
    rest, sent = iter(batches), list[tuple[Any, torch.Tensor]]()
    learner._link = cast(
        Any,
        SimpleNamespace(
            next_batch=lambda: next(rest, NOT_READY),
            count_steps=lambda: learner.env_steps,
            send_priorities=lambda origin, priorities: sent.append((origin, priorities)),
            pulse=lambda: None,
            publisher=SimpleNamespace(version=0),
            sampled=None,
            sent=sent,
        ),
    )


class Other(threading.Thread):
    """A rank that is not rank 0.

    Attributes:
        error: what has ended it.
    """

    def __init__(self, context: Any, rank: int, size: int, learners: Learners) -> None:
        super().__init__(daemon=True)
        self.context, self.learners, self.flow = context, learners, for_policies(learners)
        self.error: BaseException | None = None
        self._group = Member(cast(Context, context), rank, size, torch.device("cpu"))

    def run(self) -> None:
        try:
            self._learn()
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            self.error = error

    def _learn(self) -> None:
        while self._group.begin() is None and not self.context.stopping:
            poll([self._group.socket], 0.0005)
        self._group.report_ready()
        while not self.context.stopping:
            if not self._group.learn(self.flow, self.learners):
                poll([self._group.socket], 0.0005)


class Ranks:
    """A group; rank 0 is this thread.

    Args:
        make: makes the learners of a rank by policy, all alike.
        size: number of ranks.

    Attributes:
        learners: those of each rank.
        leader: the group of rank 0.
        others: the threads of the other ranks.
    """

    def __init__(self, make: Callable[[], Learners], size: int) -> None:
        self.zmq: Any = zmq.Context()
        book = AddressBook.inproc([ENDPOINT])
        self.learners = [make() for _ in range(size)]
        self.context = play_context(book, self.zmq, "learner")
        own = self.learners[0]
        self.leader = Leader(self.context, size, lambda: digest_of(own))
        self.flow = for_policies(own)
        self.others = [
            Other(play_context(book, self.zmq, f"learner-{rank}"), rank, size, self.learners[rank])
            for rank in range(1, size)
        ]

    def begin(self) -> None:
        for name, learner in self.learners[0].items():
            for learners in self.learners[1:]:
                # As from a checkpoint.
                Content.of(learner).give(learners[name])
        for other in self.others:
            other.start()
        until(self.leader.tick, seconds=20.0, what=self._errors)
        self.leader.begin(dict.fromkeys(self.learners[0], 0))

    def learn(self) -> None:
        """Makes one turn."""
        learners = self.learners[0]
        with within(self.leader):
            try:
                now = {name: (each.iteration, each.env_steps) for name, each in learners.items()}
                with self.leader.turn(now):
                    self.flow.pull()
            finally:
                for learner in learners.values():
                    learner.iteration += len(learner.pop_updates())

    def wait(self) -> None:
        """Waits until all ranks have ended the newest turn."""
        others = self.leader._ranks.values()
        until(
            lambda: all(rank.ready is not None for rank in others),
            seconds=20.0,
            what=self._errors,
            step=self.leader.tick,
        )

    def _errors(self) -> list[BaseException | None]:
        return [other.error for other in self.others]

    def close(self) -> None:
        for other in self.others:
            other.context.stopping = True
            other.join(10.0)
            other.context.wire.close(0)
        self.context.wire.close(0)
        self.zmq.destroy(0)


@contextmanager
def ranks(make: Callable[[], Learners], size: int = 2) -> Iterator[Ranks]:
    made = Ranks(make, size)
    try:
        made.begin()
        yield made
    finally:
        made.close()
