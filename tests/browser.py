"""Chromium without a window, driven through its own debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import websocket
from PIL import Image

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0"),
)
# Generous, for the machine may be shared; nothing waits for so long when all is well.
ANSWER_SECONDS = 120.0
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.2


class Page:
    """One page of a running Chromium."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(
            address, timeout=ANSWER_SECONDS, suppress_origin=True
        )
        self._number = 0
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self.console: list[str] = []
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        # A page in no window of a desktop has no focus, without which some pages do less.
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the browser; remember what it fetches meanwhile."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            said: dict[str, Any] = json.loads(self._socket.recv())
            if said.get("id") == self._number:
                assert "error" not in said, f"{method}: {said['error']}"
                result: dict[str, Any] = said["result"]
                return result
            self._notice(said)

    def _notice(self, said: dict[str, Any]) -> None:
        if said.get("method") == "Network.requestWillBeSent":
            self.requested.append(said["params"]["request"]["url"])
        if said.get("method") == "Network.webSocketCreated":
            self.requested.append(said["params"]["url"])
        if said.get("method") in ("Runtime.consoleAPICalled", "Log.entryAdded"):
            self.console.append(json.dumps(said["params"])[:500])
        if said.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(said["params"]["exceptionDetails"])[:500])

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """Return the value of an expression; promises are awaited."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, f"{script}: {done['exceptionDetails']}"
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = WAIT_SECONDS) -> Any:
        """Return the value of an expression once it is true."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            assert time.monotonic() < deadline, f"in vain: {script}; {self.text()[-2000:]}"
            time.sleep(LOOK_SECONDS)

    def text(self) -> str:
        return str(self.run("document.body ? document.body.innerText : ''"))

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG file."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def outside(self) -> list[str]:
        """Return what was fetched from elsewhere than this machine."""
        here = ("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:", "chrome")
        return [url for url in self.requested if not url.startswith(here)]

    def close(self) -> None:
        self._socket.close()


def keep(page: Page, name: str) -> None:
    """Write what is seen into the folder that the caller of the test names, if he names one."""
    if folder := os.environ.get("SURREAL_LIKE_PICTURES"):
        path = Path(__file__).resolve().parents[1] / folder / name
        page.picture(path)
        with Image.open(path) as image:
            few = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


@contextmanager
def browser(folder: Path, *, width: int = 1280, height: int = 900) -> Iterator[Page]:
    """Start Chromium with an empty profile in a folder; give its page."""
    program = next(found for name in PROGRAMS if (found := shutil.which(name)))
    profile = folder / "profile"
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        page = Page(_first_page(profile / "DevToolsActivePort"))
        try:
            yield page
        finally:
            # It takes its files in the temp folder away itself, if it is asked to end.
            page.call("Browser.close")
            page.close()
    finally:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _first_page(file: Path) -> str:
    """Return the address of the first page, once Chromium has written its port into the file."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        if file.is_file() and (words := file.read_text().split()):
            address = f"http://127.0.0.1:{words[0]}/json/list"
            with urllib.request.urlopen(address, timeout=ANSWER_SECONDS) as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(LOOK_SECONDS)
    raise AssertionError("Chromium does not start")
