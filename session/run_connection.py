"""Connections to a run from processes that are no components, such as commands and supervisors."""

from __future__ import annotations

import time
from typing import Self

from session.config import Config
from session.folder import RunFolder
from session.wire import AddressBook, Identity, Wire
from session.wire.contexts import make_context
from session.wire.security import Security

COMMAND = "command"


class Client(Wire):
    """A wire with its own ZeroMQ context, which is closed with it.

    Args:
        addresses: endpoints of the run.
        name: sender name: ``command``, ``join`` or ``supervisor``.
        config: config of the run; None if it is not known yet: messages then have no fingerprint.
        security: keys of the run, if it has any.
    """

    def __init__(
        self,
        addresses: AddressBook,
        name: str = COMMAND,
        *,
        config: Config | None = None,
        security: Security | None = None,
    ) -> None:
        limits, fingerprint = {}, b""
        if config is not None:
            limits["max_message_bytes"] = config.session_config.max_message_bytes
            fingerprint = bytes.fromhex(config.fingerprint()[:16])
        identity = Identity(name, time.time_ns() // 1_000_000, fingerprint)
        super().__init__(make_context(), addresses, identity, security=security, **limits)

    def close(self, linger_seconds: float = 1.0) -> None:
        """Closes every socket, then the context; libzmq sends queued messages until then."""
        super().close(linger_seconds)
        self.context.destroy(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(0.0)


def open_client(
    folder: RunFolder, name: str = COMMAND, *, addresses: AddressBook | None = None
) -> Client:
    """Opens a client of a run with the config, addresses and keys of its folder.

    Args:
        folder: folder of the run, which was started.
        name: as in :class:`Client`.
        addresses: replace those of the folder.

    Raises:
        ConfigError: a file of the folder is missing or damaged.
    """
    config = folder.read_config()
    book = AddressBook.load(folder.addresses) if addresses is None else addresses
    security = Security.of_run(folder.keys, config)
    return Client(book, name, config=config, security=security)
