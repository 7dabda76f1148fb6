"""The page of a gateway: sixteen CartPoles in a browser, which learn while they are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from session.addons.gateway.protocols import Page
from session.config import Config
from session.wire.endpoint import expand
from surreal_like.addons.gateway import clients

_HERE, _CLIENTS = Path(__file__).parent, Path(clients.__file__).parent
_SCRIPT = "text/javascript; charset=utf-8"
_FILES = {
    "/": (_HERE / "index.html", "text/html; charset=utf-8"),
    "/page.js": (_HERE / "page.js", _SCRIPT),
    "/cartpole.js": (_CLIENTS / "cartpole.js", _SCRIPT),
    "/surreal_client.js": (_CLIENTS / "surreal_client.js", _SCRIPT),
}


def read_pages() -> Mapping[str, Page]:
    """Returns path -> page of everything that a browser needs; nothing comes from elsewhere."""
    return {path: Page(kind, file.read_bytes()) for path, (file, kind) in _FILES.items()}


def page_address(config: Config, port: int) -> str:
    """Returns the address of the page of a gateway, for a browser on this machine."""
    gateway = config.session_config.gateway
    host = expand(gateway.host)
    host = f"[{host}]" if ":" in host else host
    return f"http{'' if gateway.tls.cert is None else 's'}://{host}:{port}/"
