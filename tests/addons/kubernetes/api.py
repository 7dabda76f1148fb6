"""A small client of the API of Kubernetes: requests, and lists that a watch keeps up to date."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

Data = dict[str, Any]
_TIMEOUT_SECONDS = 20.0
_RETRY_SECONDS = 0.5
STRATEGIC = "application/strategic-merge-patch+json"


class ApiError(Exception):
    """The API server has refused a request."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Api:
    """Sends requests to an API server.

    Args:
        port: port on the loopback interface.
        token: bearer token of the client.
        authority: file with the certificate of the server.
    """

    def __init__(self, port: int, token: str, authority: Path) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}"}
        self._context = ssl.create_default_context(cafile=str(authority))

    def connect(
        self, timeout_seconds: float | None = _TIMEOUT_SECONDS
    ) -> http.client.HTTPSConnection:
        """Returns a connection on which nothing was sent yet."""
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=timeout_seconds, context=self._context
        )

    def send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: Data | None = None,
        kind: str = "application/json",
    ) -> http.client.HTTPResponse:
        """Sends one request; returns the answer, whose body is still to be read.

        Raises:
            ApiError: the server has refused it.
        """
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {**self._headers, "Content-Type": kind})
        response = connection.getresponse()
        if response.status >= 300:
            raise ApiError(response.status, response.read().decode(errors="replace"))
        return response

    def request(
        self, method: str, path: str, body: Data | None = None, kind: str = "application/json"
    ) -> Any:
        """Sends one request; returns the answer, as data where it is JSON.

        Raises:
            ApiError: the server has refused it.
        """
        connection = self.connect()
        try:
            text = self.send(connection, method, path, body, kind).read()
        finally:
            connection.close()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def find(self, path: str) -> Data | None:
        """Returns an object, None if there is none."""
        try:
            found: Data = self.request("GET", path)
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return found


class WatchedList:
    """Keeps the objects of a list, by a watch in a thread; use it in a ``with`` statement.

    Args:
        api: client of the server.
        path: path of the list.
        selector: field selector, empty for all objects.
    """

    def __init__(self, api: Api, path: str, selector: str = "") -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._objects: dict[str, Data] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._connection = api.connect(None)
        self._thread = threading.Thread(target=self._follow, name=f"watch {path}")

    def __enter__(self) -> WatchedList:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._connection.close()

    def objects(self) -> dict[str, Data]:
        """Returns uid -> object."""
        with self._lock:
            return dict(self._objects)

    def _follow(self) -> None:
        while not self._over.is_set():
            with suppress(OSError, http.client.HTTPException, ApiError, ValueError):
                self._watch(self._list())
            self._over.wait(_RETRY_SECONDS)

    def _list(self) -> str:
        query = urlencode({"fieldSelector": self._selector})
        found = self._api.request("GET", f"{self._path}?{query}")
        with self._lock:
            self._objects = {each["metadata"]["uid"]: each for each in found["items"]}
        return str(found["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        fields = {"watch": "1", "resourceVersion": version, "fieldSelector": self._selector}
        self._connection.close()
        response = self._api.send(self._connection, "GET", f"{self._path}?{urlencode(fields)}")
        while not self._over.is_set() and (line := response.readline()):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            changed = event["object"]
            with self._lock:
                self._objects.pop(changed["metadata"]["uid"], None)
                if event["type"] != "DELETED":
                    self._objects[changed["metadata"]["uid"]] = changed
