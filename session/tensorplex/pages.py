"""Where a run can be looked at in a browser: addresses that its components tell as events."""

from __future__ import annotations

import time

from session.config import Config
from session.errors import ConfigError
from session.folder import RunFolder
from session.tail import Tail

# The kinds of events whose detail is an address.
PAGES = ("tensorboard", "prometheus")
_LOOK_SECONDS = 0.05


class Pages:
    """The addresses of one run.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tail = Tail(folder.events, catch_up_bytes=None)
        self._found: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """``tensorboard`` and ``prometheus`` -> address, those that this part of the run told.

        Of a run that does not go on there is none.
        """
        if not self._folder.in_use:
            return {}
        for event in self._tail.objects():
            kind, address = str(event.get("event")), str(event.get("detail", ""))
            if kind in PAGES and address.startswith("http://"):
                known = float(event.get("time", 0.0)) >= self._started()
                if known:
                    self._found[kind] = address
        return dict(self._found)

    def wait(self, timeout_seconds: float) -> dict[str, str]:
        """The same, once all pages that the config asks for are there, or after so long."""
        plex = Config.load_file(self._folder.config).session_config.tensorplex
        asked = {"tensorboard": plex.start_tensorboard, "prometheus": plex.prometheus_port}
        wanted = {name for name, value in asked.items() if value}
        deadline = time.monotonic() + timeout_seconds
        while wanted - set(found := self.read()) and self._folder.in_use:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_SECONDS)
        return found

    def _started(self) -> float:
        """When this part of the run began; what earlier parts told leads nowhere."""
        try:
            run = Config.load_file(self._folder.config).get("run") or {}
        except ConfigError:
            return 0.0
        return float(run.get("started", 0.0))
