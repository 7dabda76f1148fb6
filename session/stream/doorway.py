"""The first bytes of a connection, which choose its protocol: an HTTP request, or binary frames."""

from __future__ import annotations

from session.errors import DecodeError
from session.stream.door import Door, DoorSettings, FrameDoor
from session.stream.http_door import HttpDoor

_CHOICE_BYTES = 4
# As the length of a frame, each of these is above 1 GB.
_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC")


class Doorway:
    """Chooses the protocol of a connection by its first bytes, then is that protocol.

    Args:
        settings: of the port.
    """

    def __init__(self, settings: DoorSettings) -> None:
        self.door: Door | None = None
        self._settings = settings
        self._first = b""

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if self.door is not None:
            self.door.feed(data)
            return
        self._first += data
        if len(self._first) < _CHOICE_BYTES:
            return
        is_http = self._first[:_CHOICE_BYTES] in _METHODS
        self.door = HttpDoor(self._settings) if is_http else FrameDoor(self._settings)
        self.door.feed(self._first)
        self._first = b""

    @property
    def begun(self) -> bool:
        """True while the rest of a message is missing."""
        return bool(self._first) if self.door is None else self.door.begun

    def opened(self) -> Door:
        """Returns the protocol; raises DecodeError before it is known."""
        if self.door is None:
            raise DecodeError("nothing was received")
        return self.door
