"""The server's end of ``kubectl exec``: remote command over a WebSocket, RFC 6455."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PROTOCOL = "v5.channel.k8s.io"
_BINARY, _CLOSE = 0x2, 0x8
_STDOUT, _STDERR, _ERROR = 1, 2, 3


class Outcome(NamedTuple):
    """What a command left."""

    code: int
    stdout: bytes
    stderr: bytes


def serve_exec(handler: BaseHTTPRequestHandler, execute: Callable[[], Outcome]) -> None:
    """Answers one request for a command; ends the connection."""
    handler.close_connection = True
    key = handler.headers.get("Sec-WebSocket-Key")
    if key is None:
        handler.send_error(400, "only WebSocket")
        return
    accepted = base64.b64encode(hashlib.sha1((key + _MAGIC).encode()).digest()).decode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", accepted)
    handler.send_header("Sec-WebSocket-Protocol", _PROTOCOL)
    handler.end_headers()
    outcome = execute()
    for channel, text in ((_STDOUT, outcome.stdout), (_STDERR, outcome.stderr)):
        for start in range(0, len(text), 1 << 15):
            _send(handler, _BINARY, bytes([channel]) + text[start : start + (1 << 15)])
    _send(handler, _BINARY, bytes([_ERROR]) + json.dumps(_status(outcome.code)).encode())
    _send(handler, _CLOSE, struct.pack(">H", 1000))


def _status(code: int) -> dict[str, object]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with exit code {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _send(handler: BaseHTTPRequestHandler, kind: int, payload: bytes) -> None:
    size = len(payload)
    head = struct.pack(">BB", 0x80 | kind, size) if size < 126 else b""
    if size >= 126:
        head = struct.pack(">BBH", 0x80 | kind, 126, size)
    handler.wfile.write(head + payload)
    handler.wfile.flush()
