"""Metrics client of a component: puts plain records on a bounded channel; no remote calls."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn, SupportsFloat, SupportsInt

import numpy as np
import numpy.typing as npt
import psutil

from session.errors import UsageError
from session.loggerplex.log_client import sendable
from session.process.clock import Clock, WallClock, stamp_of
from session.process.heartbeat import State
from session.tensorplex.groups import check_client_id, check_tag
from session.wire.telemetry_buffer import Channel

_RECORD_LIMIT_BYTES = 16 << 20
_TEXT_LIMIT = 1 << 16
_HISTOGRAM_BINS = 64
# Squares of larger values overflow.
_HISTOGRAM_LIMIT = 1e150
_STEP_LIMIT = 1 << 63
_KINDS = "add_scalar, add_scalars, add_histogram, add_image, add_text, add_video"


class TensorplexClient:
    """Reports metrics under one id; never waits for a server.

    A wrong type raises an error, because the code is wrong; an array that is too large is dropped
    and counted, because its size depends on the data.

    Args:
        client_id: ``<group>/<id>``, such as ``agent/3`` or ``learner/return``.
        channel: receives the records; shared by the clients of one process.
        clock: stamps each record at its source.

    Raises:
        UsageError: in every method: an unsafe id, a bad tag or a value of a wrong type.
    """

    def __init__(self, client_id: str, channel: Channel, *, clock: Clock) -> None:
        self.client_id = check_client_id(client_id)
        self._channel = channel
        self._clock = clock
        self._counts: dict[str, int] = {}

    def __getattr__(self, name: str) -> NoReturn:
        hint = f"; metrics are reported with {_KINDS}" if name.startswith("add_") else ""
        raise AttributeError(f"a Tensorplex client has no '{name}'{hint}")

    @staticmethod
    def early(client_id: str, clock: Clock | None = None) -> TensorplexClient:
        """Makes a client without a connection: its records are buffered until :meth:`join`."""
        return TensorplexClient(client_id, Channel(None, "tensorplex"), clock=clock or WallClock())

    def join(self, client: TensorplexClient) -> TensorplexClient:
        """Moves the buffered records to a connected client, and returns that client.

        Later records are forwarded to it, too.
        """

        def change(record: dict[str, Any]) -> dict[str, Any]:
            return record | {"id": client.client_id} | stamp_of(client._clock)

        self._channel.hand_over(client._channel, change)
        client._counts |= self._counts
        return client

    @property
    def dropped(self) -> int:
        """Number of records dropped by all clients of this process."""
        return self._channel.dropped

    @property
    def buffered(self) -> int:
        """Number of records that wait to be sent, of all clients of this process."""
        return len(self._channel)

    def add_scalar(
        self, tag: str, value: SupportsFloat, global_step: SupportsInt | None = None
    ) -> None:
        """Reports one number; the default step is the next one of this tag, counted from 0."""
        if global_step is None:
            self._counts[tag] = global_step = self._counts.get(check_tag(tag), -1) + 1
        self._put("scalar", tag, global_step, {"value": self._number(tag, value)})

    def add_scalars(
        self, tag_value_dict: Mapping[str, SupportsFloat], global_step: SupportsInt | None = None
    ) -> None:
        """Reports several numbers of one step; the default step is the next one of these tags."""
        values = self.checked(tag_value_dict)
        if global_step is None:
            global_step = 1 + max((self._counts.get(tag, -1) for tag in values), default=-1)
            self._counts |= dict.fromkeys(values, global_step)
        if values:
            self._put("scalars", "", global_step, {"values": values})

    def checked(self, tag_value_dict: Mapping[str, SupportsFloat]) -> dict[str, float]:
        """Checks and converts the numbers as for a report, without reporting them."""
        return {check_tag(tag): self._number(tag, value) for tag, value in tag_value_dict.items()}

    def add_histogram(self, tag: str, values: npt.ArrayLike, global_step: SupportsInt) -> None:
        """Reports a histogram of numbers of any shape; NaN and infinity are left out."""
        numbers = self._array(tag, values).reshape(-1)
        if numbers.dtype.kind not in "biuf":
            raise UsageError(
                f"histogram '{tag}' of {self.client_id}: expected numbers, got {numbers.dtype}"
            )
        numbers = numbers[np.isfinite(numbers)].astype(np.float64)
        numbers = numbers.clip(-_HISTOGRAM_LIMIT, _HISTOGRAM_LIMIT)
        if not numbers.size:
            return
        counts, edges = np.histogram(numbers, _HISTOGRAM_BINS)
        moments = {
            "min": float(numbers.min()),
            "max": float(numbers.max()),
            "num": numbers.size,
            "sum": float(numbers.sum()),
            "sum_squares": float(np.square(numbers).sum()),
        }
        self._put("histogram", tag, global_step, moments, {"counts": counts, "edges": edges})

    def add_image(self, tag: str, image: npt.ArrayLike, global_step: SupportsInt) -> None:
        """Reports a picture, uint8 ``[H, W]`` or ``[H, W, C]`` with 1, 3 or 4 colours."""
        pixels = self._array(tag, image)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        self._check_pixels(tag, pixels, 3, "uint8 [H, W] or [H, W, 1, 3 or 4]")
        self._put("image", tag, global_step, {}, {"image": pixels})

    def add_video(
        self, tag: str, frames: npt.ArrayLike, global_step: SupportsInt, fps: float = 30.0
    ) -> None:
        """Reports a video, uint8 ``[T, H, W, C]``, with ``fps`` frames per second."""
        pixels = self._array(tag, frames)
        self._check_pixels(tag, pixels, 4, "uint8 [T, H, W, 1, 3 or 4]")
        fps = self._number(tag, fps)
        if not fps > 0:
            raise UsageError(f"video '{tag}' of {self.client_id}: fps is {fps:g}, expected above 0")
        self._put("video", tag, global_step, {"fps": fps}, {"frames": pixels})

    def add_text(self, tag: str, text: str, global_step: SupportsInt) -> None:
        """Reports a text in Markdown."""
        if not isinstance(text, str):
            raise UsageError(f"text '{tag}' of {self.client_id}: got {type(text).__name__}")
        self._put("text", tag, global_step, {"text": sendable(text, _TEXT_LIMIT)})

    def heartbeat(self, state: State, incarnation: int, status: Mapping[str, float]) -> None:
        """Sends a heartbeat to the server; the message's sender identifies the component.

        Args:
            state: ``starting``, ``running``, ``draining``, ``done`` or ``failed``.
            incarnation: incarnation of this process.
            status: rates and queue lengths.
        """
        beat = {
            "kind": "heartbeat",
            "time": self._clock.time(),
            "state": state,
            "incarnation": incarnation,
            "pid": os.getpid(),
            "rss_bytes": _process(os.getpid()).memory_info().rss,
            "status": {sendable(key): float(value) for key, value in status.items()},
        }
        self._channel.put(beat)

    def close(self, timeout_seconds: float = 0.5) -> None:
        """Sends until the deadline; drops and counts the remaining records."""
        self._channel.close(timeout_seconds)

    def _put(
        self,
        kind: str,
        tag: str,
        global_step: SupportsInt,
        fields: dict[str, Any],
        arrays: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        step = self._step(global_step)
        record = {"kind": kind, "id": self.client_id, "step": step, "time": self._clock.time()}
        if kind != "scalars":
            record["tag"] = check_tag(tag)
        if sum(array.nbytes for array in (arrays or {}).values()) > _RECORD_LIMIT_BYTES:
            self._channel.dropped += 1
            return
        # Copied, because the caller may overwrite an environment's frame before it is sent.
        copies = {name: array.copy() for name, array in (arrays or {}).items()}
        self._channel.put({**record, **fields}, copies)

    def _step(self, global_step: Any) -> int:
        try:
            # Not converted through a float, which cannot hold every integer.
            step = int(global_step)
        except (TypeError, ValueError, OverflowError):
            step = _STEP_LIMIT
        if isinstance(global_step, str) or not -_STEP_LIMIT <= step < _STEP_LIMIT:
            raise UsageError(
                f"global_step of {self.client_id}: expected a whole number of 64 bits, got "
                f"{global_step!r}"
            )
        return step

    def _number(self, tag: str, value: Any) -> float:
        try:
            if not isinstance(value, str | bytes):
                return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
        raise UsageError(
            f"metric '{tag}' of {self.client_id}: expected a number, got {str(value)[:80]!r} "
            f"of type {type(value).__name__}"
        )

    def _array(self, tag: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
        try:
            return np.asarray(values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"metric '{tag}' of {self.client_id}: no array: {error}") from None

    def _check_pixels(self, tag: str, pixels: npt.NDArray[Any], rank: int, expected: str) -> None:
        fits = pixels.dtype == np.uint8 and pixels.ndim == rank and pixels.shape[-1] in (1, 3, 4)
        if not fits or not pixels.size:
            raise UsageError(
                f"pictures '{tag}' of {self.client_id}: expected {expected}, got {pixels.dtype} "
                f"{list(pixels.shape)}"
            )


@lru_cache(maxsize=1)
def _process(pid: int) -> psutil.Process:
    """Returns this process; to make the object takes three times as long as to ask it."""
    return psutil.Process(pid)
