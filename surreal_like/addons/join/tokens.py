"""Tokens: secrets that admit agents of other machines to a run, by default of one machine.

A token is the run's public key and a secret. The run stores only a hash of the secret, in one file
per token below its keys; the file records the machines that have used it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from zmq.utils import z85

from session.atomic_file import write_atomically
from session.errors import UsageError
from session.json_file import COUNT, NUMBER, TEXT, Leaf, Maybe, Nullable, read_object
from session.process.component import FIRST_JOINED
from session.show.text import duration

_PREFIX = "sl1-"
_KEY_BYTES = 32
_SECRET_BYTES = 16
_CHECK_BYTES = 3
_FOLDER = "tokens"
AGENT, WORKER = "agent", "worker"
_NAME = re.compile(rf"({AGENT}|{WORKER})-[0-9]{{1,9}}")
_MACHINE = {
    "key": TEXT,
    "names": [Leaf("a name of an agent", lambda v: type(v) is str and bool(_NAME.fullmatch(v)))],
    "clients": Maybe([TEXT]),
}
_PLACES = {"uses": COUNT, "until": Nullable(NUMBER), "machines": [_MACHINE]}
USES_LIMIT = 10_000
AGAIN = "get another on the run's machine with: surreal-like join --print RUN"


class NotAdmittedError(Exception):
    """A machine is not admitted; carries the reason in one line.

    Args:
        reason: the reason.
        for_now: True if a later request may be admitted.
    """

    def __init__(self, reason: str, *, for_now: bool = False) -> None:
        super().__init__(reason)
        self.for_now = for_now


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
            # Without the word: all but some letters of it may be the secret.
            raise UsageError(
                f"what was given as the token ({len(text)} characters) is no token: copy the whole "
                f"line that launch has printed, or {AGAIN}"
            )
        return cls(z85.encode(content[:_KEY_BYTES]), content[_KEY_BYTES:])


def _check(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()[:_CHECK_BYTES]


def make_token(keys: Path, uses: int = 1, valid_seconds: float | None = None) -> str:
    """Makes a further token for the run with these keys.

    Args:
        keys: folder of the keys.
        uses: number of machines that it admits.
        valid_seconds: time in which it admits further machines [s]; None: no limit.

    Raises:
        UsageError: the folder has no keys, or is not writable; or the number is wrong.
    """
    if not 1 <= uses <= USES_LIMIT:
        raise UsageError(f"--uses is {uses}, expected 1 to {USES_LIMIT}")
    secret = secrets.token_bytes(_SECRET_BYTES)
    until = None if valid_seconds is None else round(time.time() + valid_seconds, 3)
    try:
        server_public = (keys / "server.pub").read_bytes().strip()
        folder = keys / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / _name(secret), Admissions(uses, until).dump(), private=True)
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
    names: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """True if it has agents or scripts; False if it only asks whether the run goes on."""
        return bool(self.names or self.clients)

    def lacks(self, agents: int, clients: Iterable[str]) -> bool:
        """Returns True if it has fewer agents than these, or not all of these names of scripts."""
        return agents > len(self.names) or not set(clients) <= set(self.clients)


@dataclass(frozen=True, slots=True)
class Admissions:
    """Number and time of the machines that a token admits, and those that have used it.

    A place is that of a machine with agents or scripts. Machines that only ask whether the run
    goes on take none of them: there are as many of these, at most.

    Args:
        uses: number of machines that it admits.
        until: end of the time in which it admits anything further, seconds since 1970; None: no
            limit.
        machines: the machines, in the order in which they came.
    """

    uses: int
    until: float | None = None
    machines: tuple[JoinedMachine, ...] = ()

    def dump(self) -> str:
        """Returns the text of its file."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def load(cls, path: Path) -> Admissions:
        """Reads the file of a token.

        Raises:
            ConfigError: it is damaged.
        """
        entry = read_object(path, _PLACES)
        machines = (
            JoinedMachine(each["key"], tuple(each["names"]), tuple(each.get("clients") or ()))
            for each in entry["machines"]
        )
        return cls(entry["uses"], entry["until"], tuple(machines))

    def machine(self, key: str) -> JoinedMachine | None:
        """Returns the machine with a key; None if it has not used the token."""
        return next((each for each in self.machines if each.key == key), None)

    def make_room(
        self, machine: JoinedMachine, now: float, silent: Callable[[str], bool], *, named: bool
    ) -> JoinedMachine | None:
        """Admits a machine that is new, or that wants more than it has; the only such check.

        Returns the machine that gives its place to this one, with its names; None: there is room.
        That is one that has been silent for ten minutes. At a token for one machine it is never
        one that has agents or scripts.

        Args:
            machine: the machine, with what it has.
            now: seconds since 1970.
            silent: True for the key of a machine that has been silent for ten minutes.
            named: True if the machine is to have agents or scripts.

        Raises:
            NotAdmittedError: the token's time is over, or all of its machines have joined.
        """
        if self.until is not None and now > self.until:
            ago = duration(now - self.until)
            raise NotAdmittedError(f"this token has expired {ago} ago; {AGAIN}")
        if machine.named:
            return None
        others = [each for each in self.machines if each.named == named]
        if self.uses > 1 or not named:
            for other in others:
                if silent(other.key):
                    return other
        if len(others) < self.uses:
            return None
        if self.uses == 1:
            raise NotAdmittedError(f"this token has been used by another machine; {AGAIN}")
        raise NotAdmittedError(
            f"this token is used up: {self.uses} machines have joined with it; a place is free ten "
            f"minutes after the last word of its machine; {AGAIN}",
            for_now=True,
        )

    def without(self, key: str) -> Admissions:
        """Returns the admissions without that of the machine that has a key."""
        return replace(self, machines=tuple(each for each in self.machines if each.key != key))

    def with_machine(self, machine: JoinedMachine) -> Admissions:
        """Returns the admissions with one of a machine, instead of an earlier one with its key."""
        return replace(self, machines=(*self.without(machine.key).machines, machine))


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

    def records(self, key: str, but: Path) -> list[JoinedMachine]:
        """Returns what a machine has by other tokens than this one."""
        others = (Admissions.load(path) for path in self._files() if path != but)
        return [found for each in others if (found := each.machine(key)) is not None]

    def name(self, machine: JoinedMachine, agents: int, kind: str = AGENT) -> JoinedMachine:
        """Returns the machine with names for its agents that no other machine has.

        Args:
            machine: the machine, with its earlier names.
            agents: number of agents that it will run.
            kind: ``agent``, or ``worker`` for a tuning.
        """
        taken = (int(name.rpartition("-")[2]) for each in self._machines() for name in each.names)
        first = max(taken, default=FIRST_JOINED - 1) + 1
        more = (f"{kind}-{first + index}" for index in range(agents - len(machine.names)))
        return replace(machine, names=(*machine.names, *more))

    def name_in_use(self, clients: Iterable[str], keys: Collection[str]) -> str | None:
        """Returns the first of these names of scripts that a machine with another key has."""
        machines = (each for each in self._machines() if each.key not in keys)
        others = {name for each in machines for name in each.clients}
        return next((name for name in clients if name in others), None)

    def write(self, token: Path, admissions: Admissions) -> None:
        """Records the machines that have used a token.

        Args:
            token: token from :meth:`find`.
            admissions: the machines, to be recorded.
        """
        write_atomically(token, admissions.dump(), private=True)

    def _machines(self) -> Iterator[JoinedMachine]:
        """Yields the machines that have used a token."""
        for path in self._files():
            yield from Admissions.load(path).machines

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if path.name[0] != ".")


def _name(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
