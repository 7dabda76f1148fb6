"""Published parameters: one flat buffer, a manifest, a version and other metadata."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from session.errors import DecodeError

if TYPE_CHECKING:
    from session.wire import Message

_ALIGNMENT_BYTES = 8
# An agent reads the same one at each publication.
_MANIFESTS_KEPT = 16
_DTYPE, _OFFSET = itemgetter(1), itemgetter(3)
# float32 that travels in 16 bits.
HALF = "float32:half"
# Names of torch, which has types that numpy has not.
ITEM_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", HALF), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


class ParameterEntry(NamedTuple):
    """One tensor of the flat buffer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


Manifest = tuple[ParameterEntry, ...]


def make_manifest(tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> Manifest:
    """Lays tensors ``(name, dtype, shape)`` one after the other, each aligned to 8 bytes."""
    return _lay(tuple(tensors))


@lru_cache(maxsize=_MANIFESTS_KEPT)
def _lay(tensors: tuple[tuple[str, str, tuple[int, ...]], ...]) -> Manifest:
    entries: list[ParameterEntry] = []
    offset = 0
    for name, dtype, shape in tensors:
        entry = ParameterEntry(name, dtype, shape, offset)
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
        manifest: place of each tensor in it.
        version: number of the publication; rises within and over learner incarnations.
        incarnation: the learner's.
        iteration: updates that these weights have had.
        info: ``time``, ``iteration``, ``message``, ``hash``, ``env_steps``, ``final``;
            of a trial that has taken over another one also ``generation`` and ``settings``, of a
            run with tasks ``task``, its ``number`` and ``settings``; at the end ``final_seconds``,
            in which evaluators play them.
        policy: name of the policy.
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
        """Sort key: newer parameters have a larger one."""
        return self.incarnation, self.version

    @property
    def env_steps(self) -> int:
        """Environment steps that they have learned from."""
        return int(self.info.get("env_steps", 0))

    @property
    def final(self) -> bool:
        """True for the last ones of a run."""
        return bool(self.info.get("final", False))

    def encode_half(self, weights: Collection[str]) -> Parameters:
        """Returns them with the weights in float32 as float16, rounded to the nearest.

        The error of a number is at most 2**-11 of it, or 2**-25 if that is more. A tensor with a
        number that float16 cannot hold, beyond 65504 or not finite, stays as it is.

        Args:
            weights: names of the tensors that may be rounded. Others stay as they are: by a
                rounded mean, observations that differ become equal.
        """
        found = [
            (entry, _halve(array) if entry.name in weights else array)
            for entry, array in ((each, self._array(each)) for each in self.manifest)
        ]
        return self._with(
            [(e, array, HALF if array.dtype == "f2" else e.dtype) for e, array in found]
        )

    def decode_half(self) -> Parameters:
        """Returns them with float32 as such; the same object if all of it is."""
        if HALF not in map(_DTYPE, self.manifest):
            return self
        found = [(entry, self._array(entry)) for entry in self.manifest]
        return self._with(
            [
                (e, array.astype("<f4"), "float32") if e.dtype == HALF else (e, array, e.dtype)
                for e, array in found
            ]
        )

    def _array(self, entry: ParameterEntry) -> npt.NDArray[Any]:
        """Returns the numbers of a tensor, or its bytes if no type of numpy is needed here."""
        place = self.flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes]
        return place.view({"float32": "<f4", HALF: "<f2"}.get(entry.dtype, "u1"))

    def _with(self, tensors: Sequence[tuple[ParameterEntry, npt.NDArray[Any], str]]) -> Parameters:
        """Returns a copy with other numbers and types of the tensors."""
        manifest = make_manifest([(e.name, dtype, e.shape) for e, _, dtype in tensors])
        flat = np.zeros(manifest_size_bytes(manifest), np.uint8)
        for entry, (_, array, _) in zip(manifest, tensors, strict=True):
            flat[entry.offset_bytes : entry.offset_bytes + entry.size_bytes] = array.view("u1")
        return replace(self, flat=flat, manifest=manifest)

    def about(self) -> dict[str, Any]:
        """Returns the metadata without the parameters."""
        return {
            "version": self.version,
            "incarnation": self.incarnation,
            "iteration": self.iteration,
            "info": dict(self.info),
        }

    def fields(self) -> dict[str, Any]:
        """Returns the fields of a ``parameters`` message."""
        return {**self.about(), "policy": self.policy, "manifest": self.manifest}

    def to_message(self) -> Message:
        """Returns the message that publishes them."""
        from session.wire import Message  # an algorithm needs no wire

        return Message("parameters", self.fields(), {"flat": self.flat})

    @classmethod
    def from_message(cls, message: Message) -> Parameters:
        """Returns the parameters of a message; the buffer is a read-only view.

        Args:
            message: one that fits the schema of `surreal_like.ps.schemas`.

        Raises:
            DecodeError: the manifest does not lay tensors one after the other, or the buffer does
                not fit it.
        """
        fields, flat = message.fields, message.arrays["flat"]
        given = fields["manifest"]
        manifest = make_manifest([(name, dtype, tuple(shape)) for name, dtype, shape, _ in given])
        if list(map(_OFFSET, given)) != list(map(_OFFSET, manifest)):
            raise DecodeError("parameters whose manifest does not lay tensors behind each other")
        if flat.size != manifest_size_bytes(manifest):
            raise DecodeError(
                f"parameters of {flat.size} bytes, the manifest says "
                f"{manifest_size_bytes(manifest)}"
            )
        about = (fields["version"], fields["incarnation"], fields["iteration"])
        return cls(flat, manifest, *about, fields["info"], fields["policy"])


def _halve(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype != "<f4":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        half = array.astype("<f2")
    return half if np.isfinite(half).all() else array


def parameter_hash(flat: npt.NDArray[np.uint8]) -> str:
    """Short hash of the buffer, 16 digits, equal on every machine; against errors, not malice.

    It consists of the CRC-32 of all bytes and the sum of all whole 64-bit words. A cryptographic
    hash takes as long as the transfer over the network.
    """
    words = flat[: flat.size // 8 * 8].view("<u8")
    total = int(words.sum(dtype=np.uint64)) & 0xFFFFFFFF
    return f"{zlib.crc32(flat.data):08x}{total:08x}"
