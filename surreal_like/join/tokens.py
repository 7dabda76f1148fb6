"""One-time tokens: secrets that admit agents of another machine to a run.

A token is the run's public key and a secret. The run stores only a hash of the secret, in one file
per token below its keys; the file records the machine that has used it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from zmq.utils import z85

from session.atomic_file import write_atomically
from session.errors import UsageError
from session.json_file import TEXT, Leaf, Maybe, read_object
from session.process.component import FIRST_JOINED

_PREFIX = "sl1-"
_KEY_BYTES = 32
_SECRET_BYTES = 16
_CHECK_BYTES = 3
_FOLDER = "tokens"
_AGENT = re.compile(r"agent-[0-9]{1,9}")
_USED = {
    "key": TEXT,
    "names": [Leaf("a name of an agent", lambda v: type(v) is str and bool(_AGENT.fullmatch(v)))],
    "clients": Maybe([TEXT]),
}


@dataclass(frozen=True, slots=True)
class Token:
    """Invitation that a user passes on by other means than the run's network.

    Args:
        server_public: the run's public key, in Z85.
        secret: proof of the invitation.
    """

    server_public: bytes
    secret: bytes = field(repr=False)

    def encode(self) -> str:
        """Returns the token as one word."""
        content = z85.decode(self.server_public) + self.secret
        return _PREFIX + base64.urlsafe_b64encode(content + _check(content)).decode()

    @classmethod
    def decode(cls, text: str) -> Token:
        """Decodes the word.

        Raises:
            UsageError: the word is no token, or is incomplete.
        """
        content = b""
        if text.startswith(_PREFIX):
            with suppress(ValueError):
                content = base64.b64decode(
                    text.removeprefix(_PREFIX), altchars=b"-_", validate=True
                )
        content, check = content[:-_CHECK_BYTES], content[-_CHECK_BYTES:]
        if len(content) != _KEY_BYTES + _SECRET_BYTES or check != _check(content):
            raise UsageError(
                f"'{text[:80]}' is no token: copy the whole line that launch has printed, or get "
                "another with: surreal-like join --print RUN"
            )
        return cls(z85.encode(content[:_KEY_BYTES]), content[_KEY_BYTES:])


def _check(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECK_BYTES]


def make_token(keys: Path) -> str:
    """Makes a further token for the run with these keys.

    Raises:
        UsageError: the folder has no keys, or is not writable.
    """
    secret = secrets.token_bytes(_SECRET_BYTES)
    try:
        server_public = (keys / "server.pub").read_bytes().strip()
        folder = keys / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / _name(secret), "{}\n", private=True)
    except OSError as error:
        raise UsageError(f"cannot make a token in {keys}: {error.strerror}") from None
    return Token(server_public, secret).encode()


@dataclass(frozen=True, slots=True)
class JoinedMachine:
    """Machine that has used a token.

    Args:
        key: public key of the machine, in Z85.
        names: names of its agents.
        clients: names of its scripts.
    """

    key: str
    names: tuple[str, ...]
    clients: tuple[str, ...] = ()


class TokenFolder:
    """Tokens of one run, used by its parameter server.

    Args:
        keys: folder of the run's keys.
    """

    def __init__(self, keys: Path) -> None:
        self._folder = keys / _FOLDER

    def find(self, secret: bytes) -> Path | None:
        """Returns the file of a token; takes the same time for every wrong secret."""
        name = _name(secret)
        there = [path for path in self._files() if hmac.compare_digest(path.name, name)]
        return there[0] if there else None

    def machine(self, token: Path) -> JoinedMachine | None:
        """Returns the machine that has used a token, None if it is unused.

        Raises:
            ConfigError: the file is damaged.
        """
        entry = read_object(token)
        if not entry:
            return None
        entry = read_object(token, _USED)
        return JoinedMachine(entry["key"], tuple(entry["names"]), tuple(entry.get("clients") or ()))

    def name(self, machine: JoinedMachine, agents: int) -> JoinedMachine:
        """Returns the machine with names for its agents that no other machine has.

        Args:
            machine: the machine, with its earlier names.
            agents: number of agents that it will run.
        """
        taken = (int(name.rpartition("-")[2]) for each in self._machines() for name in each.names)
        first = max(taken, default=FIRST_JOINED - 1) + 1
        more = (f"agent-{first + index}" for index in range(agents - len(machine.names)))
        return replace(machine, names=(*machine.names, *more))

    def name_in_use(self, clients: Iterable[str], key: str) -> str | None:
        """Returns the first of these names of scripts that a machine with another key has."""
        others = {name for each in self._machines() if each.key != key for name in each.clients}
        return next((name for name in clients if name in others), None)

    def mark_used(self, token: Path, machine: JoinedMachine) -> None:
        """Records that a machine has used a token.

        Args:
            token: token from :meth:`find`.
            machine: the machine.
        """
        write_atomically(token, json.dumps(asdict(machine)) + "\n")

    def _machines(self) -> Iterator[JoinedMachine]:
        """Yields the machines that have used a token."""
        return filter(None, map(self.machine, self._files()))

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name[0] != ".")


def _name(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
