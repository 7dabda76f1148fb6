"""A rank of a group of learners in a process of its own; alone it is started by group.py.

python rank.py FOLDER CONFIG     learns with the rank 0 whose socket lies in the folder
python rank.py FOLDER gloo       adds numbers by torch.distributed
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import zmq
from prepared import make_learner, resolved

from session.config.defaults import BASE_SESSION_CONFIG
from session.process.clock import WallClock
from session.wire import AddressBook, Identity, Wire
from session.wire.socket_state import poll
from surreal_like.data.group import group
from surreal_like.dataflow.flow import PASSED, Flow
from surreal_like.learner.group_leader import ENDPOINT
from surreal_like.learner.group_member import Member
from surreal_like.learner.learner import Learner

# Numbers of a reduction, and how often they are added in a turn.
SIZES = (5_000, 100_000, 1_700_000)
TIMES = 20


def make_context(folder: Path, name: str) -> Any:
    """Returns a context with what a group needs of it."""
    wire = Wire(zmq.Context(), AddressBook.ipc([ENDPOINT], folder), Identity(name, 1))
    return SimpleNamespace(
        name=name,
        clock=WallClock(),
        wire=wire,
        config=SimpleNamespace(session_config=BASE_SESSION_CONFIG.copy()),
        stopping=False,
        pulse=lambda: None,
        event=lambda kind, detail="": None,
    )


class Chosen(Flow):
    """The plan of a learner, or exchanges alone: of so many numbers as its iteration says.

    Args:
        learner: an iteration of 0 makes an update.
    """

    def __init__(self, learner: Learner) -> None:
        super().__init__("chosen", learner.flow)
        self.learner = learner

    def pull(self) -> Any:
        """Makes an update, or the exchanges."""
        if not self.learner.iteration:
            return self.inputs[0].pull()
        numbers = np.ones(self.learner.iteration, np.float32)
        for _ in range(TIMES):
            group().sum(numbers, "gradient")
        return PASSED


def follow(folder: Path, name: str) -> None:
    """Does what rank 0 says, until this process is killed."""
    torch.set_num_threads(1)
    learner = make_learner(resolved(name))
    plan = Chosen(learner)
    member = Member(make_context(folder, "learner-1"), 1, 2, torch.device("cpu"))
    while member.begin() is None:
        poll([member.socket], 0.05)
    member.report_ready()
    while True:
        if not member.learn(plan, {"default": learner}):
            poll([member.socket], 0.05)


def join_gloo(folder: Path, rank: int) -> Any:
    """Returns torch.distributed with two ranks, which find each other by a file."""
    import torch.distributed

    torch.set_num_threads(1)
    store = torch.distributed.FileStore(str(folder / "gloo"), 2)  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    return torch.distributed


def add_gloo(distributed: Any, size: int) -> None:
    """Adds so many numbers over both ranks, several times."""
    numbers = torch.ones(size)
    for _ in range(TIMES):
        distributed.all_reduce(numbers)


def follow_gloo(folder: Path) -> None:
    """Adds the numbers of which rank 0 sends the count, until this process is killed."""
    distributed = join_gloo(folder, 1)
    while True:
        size = torch.zeros(1, dtype=torch.int64)
        distributed.broadcast(size, 0)
        add_gloo(distributed, int(size))


if __name__ == "__main__":
    if sys.argv[2] == "gloo":
        follow_gloo(Path(sys.argv[1]))
    else:
        follow(Path(sys.argv[1]), sys.argv[2])
