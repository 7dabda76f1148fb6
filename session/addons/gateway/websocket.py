"""WebSocket (RFC 6455) of one connection, by the sans-I/O layer of the package `websockets`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from websockets.exceptions import NegotiationError
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from session.addons.gateway.protocols import Encoding
from session.errors import DecodeError

SUBPROTOCOLS = {"surreal.v1.msgpack": Encoding.msgpack, "surreal.v1.json": Encoding.json}
_OPCODES = {Encoding.msgpack: Opcode.BINARY, Encoding.json: Opcode.TEXT}
_NAMES = " or ".join(SUBPROTOCOLS)

# A stranger could fill the log: what is wrong with a connection is reported by its owner.
_SILENT = logging.getLogger("session.addons.gateway.websocket")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def _choose(protocol: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol:
    for name in offered:
        if name in SUBPROTOCOLS:
            return name
    raise NegotiationError(f"expected the subprotocol {_NAMES}")


class WebSocketProtocol:
    """Messages of a WebSocket, one payload each; never compressed.

    Args:
        limit_bytes: Largest payload.
    """

    speaks = True

    def __init__(self, limit_bytes: int) -> None:
        self.encoding: Encoding | None = None
        self._protocol = ServerProtocol(
            max_size=limit_bytes, select_subprotocol=_choose, logger=_SILENT
        )
        self._frames: deque[Frame] = deque()
        self._parts: list[bytes] = []
        self._opcode = Opcode.BINARY

    @property
    def begun(self) -> bool:
        """True while the handshake or a message is incomplete."""
        return bool(self._parts) or self._protocol.state is State.CONNECTING

    @property
    def over(self) -> bool:
        """True once the WebSocket is closed, or was refused."""
        return not self._frames and (
            self._protocol.state in (State.CLOSING, State.CLOSED)
            or self._protocol.handshake_exc is not None
        )

    def feed(self, data: bytes) -> None:
        """Adds received bytes: the request alone, then the frames, in any pieces."""
        protocol = self._protocol
        if protocol.handshake_exc is not None:
            # The connection is closed: what follows a refused request is ignored.
            return
        protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Request):
                response = protocol.accept(event)
                protocol.send_response(response)
                if protocol.subprotocol is not None:
                    self.encoding = SUBPROTOCOLS[protocol.subprotocol]
            elif isinstance(event, Frame):
                self._frames.append(event)

    def next(self) -> bytes | None:
        """Returns the next message.

        Raises:
            DecodeError: it is no message of the chosen subprotocol.
        """
        while self._frames:
            frame = self._frames.popleft()
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
                self._opcode, self._parts = frame.opcode, [bytes(frame.data)]
            elif frame.opcode is Opcode.CONT:
                self._parts.append(bytes(frame.data))
            else:
                continue
            if frame.fin:
                payload, self._parts = b"".join(self._parts), []
                self._check()
                return payload
        return None

    def _check(self) -> None:
        assert self.encoding is not None  # messages follow an accepted request
        if self._opcode is not _OPCODES[self.encoding]:
            kind = "binary" if self.encoding is Encoding.msgpack else "text"
            raise DecodeError(f"expected {kind} messages, by the subprotocol of this WebSocket")

    def wrap(self, payload: bytes) -> bytes:
        """Returns the bytes that carry a payload; none once the WebSocket is closed."""
        protocol = self._protocol
        if protocol.state is not State.OPEN:
            return self.pop_answers()
        if self.encoding is Encoding.json:
            protocol.send_text(payload)
        else:
            protocol.send_binary(payload)
        return self.pop_answers()

    def pop_answers(self) -> bytes:
        """Returns what the protocol has to send: the handshake, pongs, the closing frame."""
        return b"".join(self._protocol.data_to_send())

    def close(self) -> bytes:
        """Returns the closing frame."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
        return self.pop_answers()
