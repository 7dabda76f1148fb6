"""TLS of one connection, on memory buffers."""

from __future__ import annotations

import ssl
from pathlib import Path

from session.errors import ConfigError, DecodeError

_READ_BYTES = 1 << 16


def make_server_context(certificate: str | Path, key: str | Path) -> ssl.SSLContext:
    """Returns the settings of a TLS server, version 1.2 or newer.

    Args:
        certificate, key: Files in PEM.

    Raises:
        ConfigError: a file cannot be read, or they do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the TLS certificate {certificate} with the key {key} cannot be used: {error}"
        ) from None
    return context


class TlsLayer:
    """Encrypts and decrypts the bytes of one connection.

    Args:
        context: Result of :func:`make_server_context`.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._received, self._to_send, server_side=True)
        self._open = False

    def decrypt(self, data: bytes) -> bytes:
        """Returns the plain bytes that received ones complete.

        Raises:
            DecodeError: they are not valid TLS.
        """
        self._received.write(data)
        parts = []
        try:
            if not self._open:
                self._object.do_handshake()
                self._open = True
            while part := self._object.read(_READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise DecodeError(f"the TLS connection failed: {error.reason}") from None
        return b"".join(parts)

    def encrypt(self, data: bytes) -> bytes:
        """Returns the bytes to send for plain ones, handshake messages before them."""
        if data and self._open:
            try:
                self._object.write(data)
            except ssl.SSLError:
                # The client has closed its side.
                return b""
        return self._to_send.read()
