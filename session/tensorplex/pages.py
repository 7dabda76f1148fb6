"""Web pages of a run: addresses that its components report as events."""

from __future__ import annotations

from session.addons.hooks import RUN_PAGES
from session.folder import EVENT, RunFolder
from session.process.periodic import wait_until
from session.tail import Tail

# Kinds of events whose detail is an address.
PAGES = ("tensorboard", "prometheus", "page")
_LOOK_SECONDS = 0.05


class Pages:
    """The addresses of one run.

    Args:
        folder: the run folder.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._tail = Tail(folder.events, catch_up_bytes=None, shape=EVENT)
        self._found: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """Returns ``tensorboard``, ``prometheus`` and ``page`` -> address; empty if it is over.

        ``page`` is that of a gateway. Only addresses of this part of the run are included.
        """
        if not self._folder.in_use:
            return {}
        for event in self._tail.objects():
            kind, address = str(event.get("event")), str(event.get("detail", ""))
            if kind in PAGES and address.startswith(("http://", "https://")):
                # Addresses of earlier parts of the run are invalid.
                started = float(self._folder.read_run().get("started", 0.0))
                if (event.get("time") or 0.0) >= started:
                    self._found[kind] = address
        return dict(self._found)

    def wait(self, timeout_seconds: float) -> dict[str, str]:
        """Waits for all configured pages, at most the timeout; returns those of :meth:`read`."""
        session = self._folder.read_config().session_config
        plex = session.tensorplex
        configured = {"tensorboard": plex.start_tensorboard, "prometheus": plex.prometheus_port}
        wanted = {name for name, value in configured.items() if value}
        wanted |= {name for pages in RUN_PAGES for name in pages(session)}
        wait_until(
            lambda: wanted <= set(self.read()) or not self._folder.in_use,
            timeout_seconds,
            look_seconds=_LOOK_SECONDS,
        )
        return self.read()
