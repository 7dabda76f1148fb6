"""Check of the address of a port for clients, before it is bound."""

from __future__ import annotations

import ipaddress
import os

from session.config import Config
from session.errors import ConfigError

_LOCALHOST = "localhost"


def check_address(gateway: Config, *, insecure: bool) -> None:
    """Rejects a port that strangers could use, and half a certificate.

    Args:
        gateway: ``session_config.gateway``.
        insecure: True if any host is allowed.

    Raises:
        ConfigError: says what to set.
    """
    cert, key = gateway.tls.cert, gateway.tls.key
    if (cert is None) != (key is None):
        missing = "key" if key is None else "cert"
        raise ConfigError(f"session_config.gateway.tls.{missing} is null: TLS needs cert and key")
    for name, path in (("cert", cert), ("key", key)):
        if path is not None and not os.path.isfile(path):
            raise ConfigError(f"session_config.gateway.tls.{name}: there is no file {path}")
    encrypted = cert is not None or gateway.plaintext
    if not (_is_loopback(gateway.host) or insecure or (gateway.tokens and encrypted)):
        raise ConfigError(
            f"session_config.gateway.host is {gateway.host}, which other machines can reach: set "
            "gateway.tokens to true and gateway.tls, or gateway.plaintext to true if something in "
            "front encrypts, or security.insecure to true"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == _LOCALHOST or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
