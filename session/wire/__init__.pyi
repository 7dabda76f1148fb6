from session.wire.codec import PROTOCOL_VERSION as PROTOCOL_VERSION
from session.wire.codec import Identity as Identity
from session.wire.codec import Message as Message
from session.wire.codec import decode as decode
from session.wire.codec import encode as encode
from session.wire.endpoint import Address as Address
from session.wire.endpoint import AddressBook as AddressBook
from session.wire.wire import Wire as Wire

__all__: list[str]
