"""The wire: messages, endpoints and sockets for communication between processes of a run."""

from session.wire.codec import PROTOCOL_VERSION, Identity, Message, decode, encode
from session.wire.endpoint import Address, AddressBook
from session.wire.wire import Wire

__all__ = [
    "PROTOCOL_VERSION",
    "Address",
    "AddressBook",
    "Identity",
    "Message",
    "Wire",
    "decode",
    "encode",
]
