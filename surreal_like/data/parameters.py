"""Parameters as they travel: one flat buffer, a manifest, a version, and what is known of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session.errors import DecodeError
from session.wire import Message

_ALIGNMENT_BYTES = 8


class Entry(NamedTuple):
    """One tensor of the flat buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


Manifest = tuple[Entry, ...]


def make_manifest(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> Manifest:
    """Lays tensors ``(name, dtype, shape)`` one behind the other, each aligned to eight bytes."""
    entries: list[Entry] = []
    offset = 0
    for name, dtype, shape in tensors:
        entry = Entry(name, dtype, tuple(shape), offset)
        entries.append(entry)
        offset += -(-entry.size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return tuple(entries)


def manifest_size_bytes(manifest: Manifest) -> int:
    """Bytes of the flat buffer that the manifest describes."""
    if not manifest:
        return 0
    last = manifest[-1]
    return last.offset_bytes + -(-last.size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class Parameters:
    """One publication of a learner.

    Args:
        flat: all tensors, uint8 ``[bytes]``.
        manifest: where each tensor lies in it.
        version: counts publications, rises within and over learner incarnations.
        incarnation: the learner's.
        iteration: updates that these weights have had.
        info: ``time``, ``iteration``, ``message``, ``hash``, ``env_steps``, ``final``.
        policy: whose parameters they are.
    """

    flat: npt.NDArray[np.uint8]
    manifest: Manifest
    version: int
    incarnation: int
    iteration: int
    info: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "default"

    @property
    def order(self) -> tuple[int, int]:
        """What is newer is larger."""
        return self.incarnation, self.version

    def about(self) -> dict[str, Any]:
        """What is known of them, for whoever has them or does not want them."""
        return {
            "version": self.version,
            "incarnation": self.incarnation,
            "iteration": self.iteration,
            "info": dict(self.info),
        }

    def fields(self) -> dict[str, Any]:
        """The fields of a ``parameters`` message."""
        return {**self.about(), "policy": self.policy, "manifest": self.manifest}

    def to_message(self) -> Message:
        """The message that publishes them."""
        return Message("parameters", self.fields(), {"flat": self.flat})

    @classmethod
    def from_message(cls, message: Message) -> Parameters:
        """The parameters that a message holds; the buffer is a read-only view.

        Raises:
            DecodeError: a field is missing or the buffer does not fit the manifest.
        """
        fields = message.fields
        try:
            manifest = tuple(
                Entry(str(name), str(dtype), tuple(shape), int(offset))
                for name, dtype, shape, offset in fields["manifest"]
            )
            parameters = cls(
                message.arrays["flat"],
                manifest,
                int(fields["version"]),
                int(fields["incarnation"]),
                int(fields["iteration"]),
                dict(fields["info"]),
                str(fields["policy"]),
            )
            fits = parameters.flat.shape == (manifest_size_bytes(manifest),)
        except (KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"parameters that do not decode: {error!r}") from None
        if not fits:
            raise DecodeError(
                f"parameters of {parameters.flat.size} bytes, the manifest says "
                f"{manifest_size_bytes(manifest)}"
            )
        return parameters


def parameter_hash(flat: npt.NDArray[np.uint8]) -> str:
    """Short hash of the buffer, 16 digits, the same on every machine; against mix-ups, not malice.

    The CRC-32 of all bytes and the sum of all whole 64-bit words. A cryptographic one takes as long
    as the way through the network.
    """
    words = flat[: flat.size // 8 * 8].view("<u8")
    total = int(words.sum(dtype=np.uint64)) & 0xFFFFFFFF
    return f"{zlib.crc32(flat.data):08x}{total:08x}"
