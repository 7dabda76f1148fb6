"""HTTP of one connection: an answer to one request, or a WebSocket."""

from __future__ import annotations

from collections.abc import Mapping

from session.addons.gateway.protocols import Encoding, ProtocolSettings, StreamProtocol
from session.wire.endpoint import is_own_host

HEAD_LIMIT_BYTES = 8192
WEBSOCKET_PATH = "/v1"
_HEALTH_PATH = "/healthz"
_GET = b"GET "
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class HttpProtocol:
    """An HTTP request, which is answered, or becomes a WebSocket."""

    speaks = True

    def __init__(self, settings: ProtocolSettings) -> None:
        self.encoding: Encoding | None = None
        self.over = False
        self._settings = settings
        self._held = bytearray()
        self._out = b""
        self._inner: StreamProtocol | None = None

    @property
    def begun(self) -> bool:
        """True while the request, or a message, is incomplete."""
        return not self.over if self._inner is None else self._inner.begun

    def feed(self, data: bytes) -> None:
        """Adds received bytes."""
        if self._inner is not None:
            if data:
                self._inner.feed(data)
        elif not self.over:
            self._held += data

    def next(self) -> bytes | None:
        """Returns the next payload of the WebSocket; raises as :class:`StreamProtocol`."""
        if self._inner is None and not self.over:
            self._open()
        if self._inner is None:
            return None
        payload = self._inner.next()
        self.encoding, self.over = self._inner.encoding, self._inner.over
        return payload

    def wrap(self, payload: bytes) -> bytes:
        """Returns the bytes that carry a payload; none before there is a WebSocket."""
        return b"" if self._inner is None else self._inner.wrap(payload)

    def pop_answers(self) -> bytes:
        """Returns the answer to the request, or what the WebSocket has to send."""
        out, self._out = self._out, b""
        return out if self._inner is None else out + self._inner.pop_answers()

    def close(self) -> bytes:
        """Returns the bytes that end the connection properly."""
        return b"" if self._inner is None else self._inner.close()

    def _open(self) -> None:
        head, found, _ = bytes(self._held).partition(b"\r\n\r\n")
        if len(head) > HEAD_LIMIT_BYTES:
            self._refuse(400, f"the request has more than {HEAD_LIMIT_BYTES} bytes")
        elif found or not head.startswith(_GET):
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if words[0] != "GET":
            self._refuse(405, "only GET is answered here")
            return
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or (name.lower() in headers and name.lower() in ("host", "origin")):
                self._refuse(400, "a header is malformed")
                return
            headers[name.strip().lower()] = value.strip()
        if len(words) != 3 or words[2] != "HTTP/1.1":
            self._refuse(400, "expected a request of HTTP/1.1")
            return
        stranger = find_refusal(headers, self._settings)
        if stranger:
            self._refuse(403, stranger)
            return
        self._serve(words[1].partition("?")[0])

    def _serve(self, path: str) -> None:
        settings = self._settings
        if path == WEBSOCKET_PATH:
            self._begin_websocket()
        elif path == _HEALTH_PATH:
            healthy = settings.healthy()
            self._respond(200 if healthy else 503, "ok\n" if healthy else "full or ending\n")
        elif path in settings.pages:
            page = settings.pages[path]
            self._respond(200, page.body, page.content_type)
        else:
            self._refuse(
                404, f"there is nothing at {path[:100]}; clients connect to {WEBSOCKET_PATH}"
            )

    def _begin_websocket(self) -> None:
        try:
            from session.addons.gateway.websocket import WebSocketProtocol
        except ImportError:
            self._refuse(
                501,
                "this server has no WebSocket: install the extra 'gateway' there, "
                "or send binary frames",
            )
            return
        self._inner = WebSocketProtocol(self._settings.limit_bytes)
        head, end, frames = bytes(self._held).partition(b"\r\n\r\n")
        self._held = bytearray()
        # In one piece, `websockets` would read the frames before the request is accepted.
        self._inner.feed(head + end)
        self._inner.feed(frames)

    def _refuse(self, status: int, text: str) -> None:
        self._respond(status, f"{text}\n")

    def _respond(
        self, status: int, body: str | bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        content = body.encode() if isinstance(body, str) else body
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
            f"Content-Type: {content_type}\r\nContent-Length: {len(content)}\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n"
        )
        self._out += head.encode() + content
        self._held.clear()
        self.over = True


def find_refusal(headers: Mapping[str, str], settings: ProtocolSettings) -> str:
    """Returns why a request is refused by its Host or its Origin; empty if it is not.

    Any web page can make a browser connect to this machine. A page of another site is recognized
    by its Origin, and a name that was made to point here by the Host.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if not is_own_host(host, (settings.host, *settings.hosts)):
        return "the Host of the request is unknown here: add it to the allowed hosts"
    own = (f"http://{host}", f"https://{host}")
    if origin is not None and origin not in (*own, *settings.origins):
        return "pages of this Origin may not connect: add it to the allowed origins"
    return ""
