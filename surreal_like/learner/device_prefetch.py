"""Batches on their way to the learner's device."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
import torch

from session.errors import RunError
from surreal_like.data.batch import Columns, Sampled
from surreal_like.network.flat import to_tensor
from surreal_like.replay.storage import SENDER

# Batches that may be on their way while another one is learned from.
AHEAD = 2
_LOOK_SECONDS = 1.0

Tensors = dict[str, torch.Tensor]


class Copies(Protocol):
    """Copies from the memory of this machine to a device: CUDA, or a stand-in in tests."""

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Returns memory of this machine that the device reads, for a tensor like this one."""

    def copy(self, staged: Tensors) -> tuple[Tensors, Any]:
        """Begins to copy; returns the tensors on the device, and an event at the end of it."""

    def wait(self, event: Any) -> None:
        """Waits in this thread until the device has read the memory."""

    def use(self, tensors: Tensors, event: Any) -> None:
        """Makes the device's further work of this thread follow the copy."""


class CudaCopies:
    """Copies through pinned memory on a stream of their own, beside the work on other batches."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def copy(self, staged: Tensors) -> tuple[Tensors, Any]:
        with torch.cuda.stream(self._stream):
            tensors = {
                name: tensor.to(self._device, non_blocking=True) for name, tensor in staged.items()
            }
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return tensors, event

    def wait(self, event: Any) -> None:
        event.synchronize()

    def use(self, tensors: Tensors, event: Any) -> None:
        user = torch.cuda.current_stream(self._device)
        user.wait_event(event)
        for tensor in tensors.values():
            # Otherwise the allocator could give its memory to the next batch while it is in use.
            tensor.record_stream(user)


class _Staging:
    """Memory of this machine for one batch on its way."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._memory: Tensors = {}
        self._event: Any = None

    def send(self, columns: Columns) -> tuple[Tensors, Any]:
        """Fills the memory, and begins the copy of it."""
        if self._event is not None:
            self._copies.wait(self._event)
        for name, column in columns.items():
            source = torch.from_numpy(column)
            known = self._memory.get(name)
            if known is None or known.shape != source.shape or known.dtype != source.dtype:
                known = self._copies.allocate(source)
            self._memory[name] = known.copy_(source)
        self._memory = {name: self._memory[name] for name in columns}
        tensors, self._event = self._copies.copy(self._memory)
        return tensors, self._event

    def columns(self) -> Columns:
        """Returns the filled memory as arrays."""
        return {name: each.numpy() for name, each in self._memory.items()}


class DeviceTransfer:
    """Converts columns to tensors, in the thread that uses them.

    On the CPU they share the memory of the arrays. To CUDA they are copied; the arrays may be
    reused as soon as the call returns.

    Args:
        device: device of the tensors.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies = CudaCopies(device) if device.type == "cuda" else None
        self._staging = [_Staging(self._copies) for _ in range(2) if self._copies is not None]

    def __call__(self, columns: Mapping[str, Any]) -> Tensors:
        """Returns the tensors of the columns, by the same names."""
        if self._copies is None:
            return {name: to_tensor(column, self._device) for name, column in columns.items()}
        self._staging.reverse()
        tensors, event = self._staging[0].send(dict(columns))
        self._copies.use(tensors, event)
        return tensors


@dataclass(slots=True)
class _Job:
    """A batch on its way."""

    sampled: Sampled
    staging: _Staging
    tensors: Tensors = field(default_factory=dict)
    event: Any = None
    error: Exception | None = None
    sent: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Copies the batch; its columns are then those of the staging memory."""
        try:
            columns = self.sampled.columns
            own = transfer_columns(columns)
            self.tensors, self.event = self.staging.send(own)
            kept = self.staging.columns()
            if SENDER in columns:
                kept[SENDER] = np.array(columns[SENDER])
            self.sampled = replace(self.sampled, columns=kept)
        except Exception as error:  # noqa: BLE001 - raised where the batch is needed
            self.error = error
        finally:
            self.sent.set()


def transfer_columns(columns: Columns) -> Columns:
    """Returns the columns that learning uses: only the quarantine reads the senders."""
    return {name: each for name, each in columns.items() if name != SENDER}


class DevicePrefetch:
    """Copies the next batches to the device in a thread, while a batch is learned from.

    Args:
        next_sampled: returns the next batch of replay, or None; called in the user's thread, and
            only once the memory of the batch before is not needed any more.
        leaves_out: returns True for a batch that must not be used any more.
        copies: copies to the device.

    Attributes:
        waited_seconds: time in which the user has waited for copies, since :meth:`pop_waited`.
        size_bytes: size of the newest batch.
    """

    def __init__(
        self,
        next_sampled: Callable[[], Sampled | None],
        leaves_out: Callable[[Sampled], bool],
        copies: Copies,
    ) -> None:
        self.waited_seconds = 0.0
        self.size_bytes = 0
        self._next_sampled, self._leaves_out, self._copies = next_sampled, leaves_out, copies
        self._ahead: deque[_Job] = deque()
        # One more: that of the batch that is learned from.
        self._stagings = deque(_Staging(copies) for _ in range(AHEAD + 1))
        jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._jobs = jobs
        self._thread = threading.Thread(target=_work, args=(jobs,), name="feed", daemon=True)
        self._thread.start()
        self.close = weakref.finalize(self, jobs.put, None)

    def next(self) -> tuple[Sampled, Tensors] | None:
        """Returns the next batch with its tensors, None if none is ready.

        The batch is valid until the one after it.

        Raises:
            Exception: the error of its copy.
        """
        self._top_up()
        while self._ahead:
            job = self._ahead.popleft()
            self._wait_for(job)
            self._top_up()
            if job.error is not None:
                raise job.error
            if not self._leaves_out(job.sampled):
                self._copies.use(job.tensors, job.event)
                self.size_bytes = sum(each.nbytes for each in job.sampled.columns.values())
                return job.sampled, job.tensors
        return None

    def __len__(self) -> int:
        """Number of batches ahead."""
        return len(self._ahead)

    def pop_waited(self) -> float:
        """Returns the seconds for which the user has waited for copies since the last call."""
        waited, self.waited_seconds = self.waited_seconds, 0.0
        return waited

    def _wait_for(self, job: _Job) -> None:
        began = time.monotonic()
        while not job.sent.wait(_LOOK_SECONDS):
            if not self._thread.is_alive():
                raise RunError("the thread that copies batches to the device has ended")
        self.waited_seconds += time.monotonic() - began

    def _top_up(self) -> None:
        """Gives batches to the thread, while there are few ahead and it has read the newest."""
        while len(self._ahead) < AHEAD and all(job.sent.is_set() for job in self._ahead):
            sampled = self._next_sampled()
            if sampled is None:
                return
            self._stagings.rotate()
            job = _Job(sampled, self._stagings[0])
            self._ahead.append(job)
            self._jobs.put(job)


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
