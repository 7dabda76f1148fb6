"""TensorBoard's event files: converts records to summaries; one growing file per process."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from session.loggerplex.append_file import AppendFile
from session.nest import Array

# Level 3 compresses a frame nearly as well as level 9 in a fraction of the time.
_LEVEL = 3

Pixels = npt.NDArray[Any]


def png(pixels: Pixels) -> bytes:
    """Encodes one picture as PNG, uint8 ``[H, W, C]`` with 1, 3 or 4 colours."""
    return _encode(pixels[None])


def make_animated_png(frames: Pixels, fps: float) -> bytes:
    """Encodes a video as animated PNG, uint8 ``[T, H, W, C]``, repeated without end.

    A frame that equals the one before it lengthens that one.
    """
    delay_millis = int(np.clip(round(1000 / fps), 1, 0xFFFF))
    return _encode(frames, save_all=True, duration=delay_millis, loop=0)


def _encode(frames: Pixels, **options: Any) -> bytes:
    grey = frames.shape[-1] == 1
    first, *others = [Image.fromarray(each[..., 0] if grey else each) for each in frames]
    file = BytesIO()
    first.save(file, "PNG", compress_level=_LEVEL, append_images=others, **options)
    return file.getvalue()


_PREFIX = "events.out.tfevents."

Record = Mapping[str, Any]
Arrays = Mapping[str, Array]


class EventFile(AppendFile):
    """The event file of one process in the log folder of a run.

    Each process opens a new file, so that a partial record of a killed predecessor damages only
    the end of that file.

    Args:
        folder: folder of the file.
        time: start of the process [s since 1970].
        writer: kind of the process, which is a part of the name.
    """

    def __init__(self, folder: Path, time: float, writer: str = "tensorplex") -> None:
        seconds = max(0, int(time))
        for old in folder.glob(f"{_PREFIX}*"):
            # TensorBoard reads files in order of name and never returns to an earlier one.
            number = old.name.removeprefix(_PREFIX).partition(".")[0]
            seconds = max(seconds, int(number) + 1) if number.isdecimal() else seconds
        super().__init__(folder / f"{_PREFIX}{seconds:010d}.{writer}.{os.getpid()}")
        # Without a version readers discard points when steps decrease, as after a restart.
        self.add(_frame(Event(wall_time=time, file_version="brain.Event:2")))

    def add_values(self, time: float, step: int, values: list[Any]) -> None:
        """Adds one event with summary values.

        Raises:
            TypeError, ValueError: time or step is not a number of 64 bits.
        """
        if isinstance(time, bool) or not math.isfinite(time):
            raise ValueError(f"time {time!r}: expected seconds since 1970")
        if type(step) is not int:  # protobuf would accept None as an unset field
            raise TypeError(f"step {step!r}: expected a whole number")
        self.add(_frame(Event(wall_time=time, step=step, summary=Summary(value=values))))


def _frame(event: Any) -> bytes:
    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()


def summary_values(record: Record, arrays: Arrays, tag_of: Callable[[str], str]) -> list[Any]:
    """Converts one record to summary values.

    Args:
        record: record from a client.
        arrays: the arrays.
        tag_of: tag of the client -> tag in the event file.

    Raises:
        LookupError, TypeError, ValueError: the record is malformed.
    """
    kind = record["kind"]
    if kind == "scalars":
        return [_scalar(tag_of(tag), value) for tag, value in record["values"].items()]
    tag = tag_of(record["tag"])
    if kind == "scalar":
        return [_scalar(tag, record["value"])]
    if kind == "text":
        return list(text_pb(tag, str(record["text"])).value)
    if kind == "histogram":
        return [Summary.Value(tag=tag, histo=_histogram(record, arrays))]
    if kind == "image":
        pixels = _pixels(arrays["image"], 3)
        return [_image(tag, pixels.shape, png(pixels))]
    if kind == "video":
        frames = _pixels(arrays["frames"], 4)
        return [_image(tag, frames.shape[1:], make_animated_png(frames, _fps(record["fps"])))]
    raise ValueError(f"metrics of kind {str(kind)[:80]!r} are not known")


def _scalar(tag: str, value: Any) -> Any:
    if isinstance(value, str):
        raise TypeError(f"metric {tag!r}: expected a number, got {value[:80]!r}")
    return Summary.Value(tag=tag, simple_value=float(value))


def _histogram(record: Record, arrays: Arrays) -> Any:
    counts, edges = arrays["counts"], arrays["edges"]
    if counts.ndim != 1 or edges.shape != (counts.size + 1,):
        raise ValueError(f"histogram of {counts.shape} counts and {edges.shape} edges")
    return HistogramProto(
        min=record["min"],
        max=record["max"],
        num=record["num"],
        sum=record["sum"],
        sum_squares=record["sum_squares"],
        bucket_limit=edges[1:].tolist(),
        bucket=counts.tolist(),
    )


def _pixels(pixels: Array, rank: int) -> Array:
    colours = pixels.shape[-1] if pixels.ndim == rank else 0
    if pixels.dtype != np.uint8 or colours not in (1, 3, 4) or not pixels.size:
        raise ValueError(f"pictures of {pixels.dtype} {list(pixels.shape)}")
    return pixels


def _fps(value: Any) -> float:
    if not 0 < float(value) < math.inf:
        raise ValueError(f"fps {value!r}: expected a number above 0")
    return float(value)


def _image(tag: str, shape: tuple[int, ...], encoded: bytes) -> Any:
    height, width, colours = shape
    image = Summary.Image(
        height=height, width=width, colorspace=colours, encoded_image_string=encoded
    )
    return Summary.Value(tag=tag, image=image)
