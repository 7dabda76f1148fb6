"""Client of a surreal_like gateway: an environment anywhere drives an agent.

This file may be copied; it needs Python 3.9 or newer and nothing else. Where numpy is installed,
actions are numpy arrays. The protocol is in docs/gateway.md.

```
import gymnasium, surreal_client

env = gymnasium.make("CartPole-v1")
with surreal_client.connect("127.0.0.1:7100") as session:
    for episode in session.episodes():
        observation, _ = env.reset(seed=episode.seed)
        action, over = session.reset(observation), False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            if over:
                session.end(reward, observation, truncated=truncated and not terminated)
            else:
                action = session.step(reward, observation)
```
"""

from __future__ import annotations

import array
import hashlib
import logging
import math
import random
import re
import socket
import ssl
import struct
import sys
import time
from types import TracebackType
from typing import Any, Callable, Iterator, NamedTuple  # noqa: UP035 - Python 3.9

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

PROTOCOL = 1
CLIENT = f"surreal_client.py {PROTOCOL}"
_FIRST_DELAY, _LAST_DELAY = 0.5, 10.0
# The gateway sends a sign of life every 5 s while it owes an answer.
_SILENT_SECONDS = 20.0
_CONNECT_SECONDS = 5.0
_REPORT_STEPS = 100
_log = logging.getLogger("surreal_client")
_UNKNOWN = (
    "no authority vouches for the certificate of this server; if it is your own, give "
    "fingerprint=, as surreal-like clients RUN --certificate HOST has printed it"
)
# Type codes of the standard library's array, and numbers of bytes.
_DTYPES = {
    1: ("float32", "f", 4),
    2: ("uint8", "B", 1),
    3: ("int8", "b", 1),
    4: ("int16", "h", 2),
    5: ("int32", "i", 4),
    6: ("int64", "q", 8),
    7: ("uint16", "H", 2),
    8: ("uint32", "I", 4),
    9: ("bool", "?", 1),
    10: ("float64", "d", 8),
}
_CODES = {name: code for code, (name, _, _) in _DTYPES.items()}


class ClientError(Exception):
    """Base of the errors of this client."""


class Finished(ClientError):
    """The run is over, or this session has ended for good; the message is the reason."""


class Refused(ClientError):
    """The gateway refuses a message.

    Args:
        code: Code of the table of errors in the protocol.
        message: what is wrong, where, and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class InvalidAddress(ClientError, ValueError):
    """The address is not `host:port` or `tls://host:port`."""


class Unavailable(ClientError):
    """The gateway could not be reached, or did not answer, for `patience_seconds`."""


class Episode(NamedTuple):
    """An episode that begins: `seed` may be given to the environment."""

    seed: int


class Result(NamedTuple):
    """An episode that has ended: its return and its length in steps."""

    total: float
    length: int


# -- msgpack


def pack(value: Any) -> bytes:
    """Returns a value in msgpack: None, bool, int, float, str, bytes, lists, dicts, numpy."""
    out = bytearray()
    _pack(value, out)
    return bytes(out)


def _pack(value: Any, out: bytearray) -> None:
    kind = type(value)
    if kind is str:
        text = value.encode()
        _head(out, len(text), 0xA0, 31, (0xD9, 0xDA, 0xDB))
        out += text
    elif kind is float:
        out += struct.pack(">Bd", 0xCB, value)
    elif kind is int:
        _pack_int(value, out)
    elif kind is bool or value is None:
        out.append(0xC0 if value is None else 0xC3 if value else 0xC2)
    elif kind is dict:
        _head(out, len(value), 0x80, 15, (None, 0xDE, 0xDF))
        for key, each in value.items():
            _pack(str(key), out)
            _pack(each, out)
    elif kind in (list, tuple):
        _head(out, len(value), 0x90, 15, (None, 0xDC, 0xDD))
        for each in value:
            _pack(each, out)
    elif kind is bytes:
        _head(out, len(value), None, -1, (0xC4, 0xC5, 0xC6))
        out += value
    else:
        _pack_other(value, out)


def _pack_int(value: int, out: bytearray) -> None:
    if 0 <= value < 128:
        out.append(value)
    elif -32 <= value < 0:
        out.append(value & 0xFF)
    elif value >= 0:
        out += struct.pack(">BQ", 0xCF, value)
    else:
        out += struct.pack(">Bq", 0xD3, value)


def _head(out: bytearray, size: int, fix: int | None, most: int, codes: Any) -> None:
    """Writes the head of a value of a variable size."""
    if fix is not None and size <= most:
        out.append(fix | size)
    elif codes[0] is not None and size < 1 << 8:
        out += struct.pack(">BB", codes[0], size)
    elif size < 1 << 16:
        out += struct.pack(">BH", codes[1], size)
    else:
        out += struct.pack(">BI", codes[2], size)


def _pack_other(value: Any, out: bytearray) -> None:
    if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
        raise TypeError(f"a {type(value).__name__} cannot be sent: give numbers, lists or arrays")
    items = numpy.asarray(value)
    name = items.dtype.name
    if name not in _CODES:
        raise TypeError(f"an array of {name} cannot be sent")
    little = items.astype(items.dtype.newbyteorder("<"), copy=False)
    head = struct.pack(f"<BB{items.ndim}I", _CODES[name], items.ndim, *items.shape)
    data = head + little.tobytes()
    _head(out, len(data), None, -1, (0xC7, 0xC8, 0xC9))
    out.append(1)
    out += data


def unpack(data: bytes) -> Any:
    """Returns the value in a msgpack payload.

    Raises:
        ValueError: it is not valid, or there is more than one value.
    """
    try:
        value, at = _unpack(data, 0, 0)
    except (IndexError, struct.error) as error:
        raise ValueError(f"the payload is cut off ({error})") from None
    if at != len(data):
        raise ValueError("bytes after the end of the value")
    return value


_FIXED: dict[int, str] = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_CONSTANTS: dict[int, Any] = {0xC0: None, 0xC2: False, 0xC3: True}
_SIZES = {1: ">B", 2: ">H", 4: ">I"}
# Code -> (kind, bytes of the size).
_VARIABLE = {
    0xC4: ("bytes", 1),
    0xC5: ("bytes", 2),
    0xC6: ("bytes", 4),
    0xC7: ("ext", 1),
    0xC8: ("ext", 2),
    0xC9: ("ext", 4),
    0xD9: ("str", 1),
    0xDA: ("str", 2),
    0xDB: ("str", 4),
    0xDC: ("list", 2),
    0xDD: ("list", 4),
    0xDE: ("dict", 2),
    0xDF: ("dict", 4),
}


def _unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > 16:
        raise ValueError("values are nested too deeply")
    code = data[at]
    at += 1
    if code < 0x80 or code >= 0xE0:
        return code if code < 0x80 else code - 256, at
    if code in _CONSTANTS:
        return _CONSTANTS[code], at
    if code in _FIXED:
        form = _FIXED[code]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if code < 0xC0:
        kind = "dict" if code < 0x90 else "list" if code < 0xA0 else "str"
        return _unpack_sized(data, at, depth, kind, code & (0x1F if kind == "str" else 0x0F))
    if 0xD4 <= code <= 0xD8:
        return _unpack_sized(data, at, depth, "ext", 1 << (code - 0xD4))
    if code not in _VARIABLE:
        raise ValueError(f"the byte {code:#x} begins no value")
    kind, width = _VARIABLE[code]
    (size,) = struct.unpack_from(_SIZES[width], data, at)
    return _unpack_sized(data, at + width, depth, kind, size)


def _unpack_sized(data: bytes, at: int, depth: int, kind: str, size: int) -> tuple[Any, int]:
    if kind == "list":
        items = []
        for _ in range(size):
            value, at = _unpack(data, at, depth + 1)
            items.append(value)
        return items, at
    if kind == "dict":
        found = {}
        for _ in range(size):
            key, at = _unpack(data, at, depth + 1)
            found[key], at = _unpack(data, at, depth + 1)
        return found, at
    number = 0
    if kind == "ext":
        number, at = data[at], at + 1
    end = at + size
    if end > len(data):
        raise ValueError("the payload is cut off")
    raw = data[at:end]
    if kind == "str":
        return raw.decode(), end
    return (_to_array(number, raw) if kind == "ext" else raw), end


def _to_array(number: int, raw: bytes) -> Any:
    """Returns an array of the gateway; nested lists without numpy."""
    if number != 1 or raw[0] not in _DTYPES:
        raise ValueError("an extension that is no array")
    name, code, width = _DTYPES[raw[0]]
    shape = struct.unpack_from(f"<{raw[1]}I", raw, 2)
    start = 2 + 4 * raw[1]
    if len(raw) - start != width * math.prod(shape):
        raise ValueError("an array with too many or too few bytes")
    if numpy is not None:
        return numpy.frombuffer(raw, f"<{numpy.dtype(name).str[1:]}", -1, start).reshape(shape)
    flat: list[Any]
    if code == "?":
        flat = [byte != 0 for byte in raw[start:]]
    else:
        items = array.array(code, raw[start:])
        if sys.byteorder == "big":
            items.byteswap()
        flat = items.tolist()
    for size in reversed(shape[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat if shape else flat[0]


# -- the connection


class _Lost(Exception):
    """The connection is gone."""


class _Connection:
    """Binary frames on a TCP connection."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None, pin: str) -> None:
        try:
            raw = socket.create_connection((host, port), _CONNECT_SECONDS)
        except OSError as error:
            raise _Lost(str(error)) from None
        self._held = b""
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = (
                raw if context is None else context.wrap_socket(raw, server_hostname=host)
            )
            self._check_pin(pin)
        except ssl.SSLCertVerificationError as error:
            # To try again would not help.
            raw.close()
            raise Refused("certificate", f"{error.verify_message}: {_UNKNOWN}") from None
        except (OSError, ssl.SSLError) as error:
            raw.close()
            raise _Lost(str(error)) from None

    def _check_pin(self, pin: str) -> None:
        if pin and isinstance(self._socket, ssl.SSLSocket):
            shown = hashlib.sha256(self._socket.getpeercert(True) or b"").hexdigest()
            if shown != pin.lower().replace(":", ""):
                self._socket.close()
                raise Refused("fingerprint", f"the server has the fingerprint {shown}")

    def send(self, fields: dict[str, Any]) -> None:
        payload = pack(fields)
        try:
            self._socket.sendall(struct.pack("<I", len(payload)) + payload)
        except OSError:
            # What the gateway has sent before it closed is read first.
            pass

    def receive(self, seconds: float) -> dict[str, Any]:
        held = self._held
        deadline = time.monotonic() + seconds
        while len(held) < 4 or len(held) < 4 + struct.unpack_from("<I", held)[0]:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                part = self._socket.recv(1 << 16)
            except OSError as error:
                raise _Lost(f"no answer ({error})") from None
            if not part:
                raise _Lost("the gateway has closed the connection")
            held += part
        end = 4 + struct.unpack_from("<I", held)[0]
        self._held = held[end:]
        try:
            fields = unpack(held[4:end])
        except (ValueError, UnicodeDecodeError, TypeError) as error:
            raise Refused(
                "malformed", f"the gateway has sent what is no message: {error}"
            ) from None
        if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str):
            raise Refused("malformed", "the gateway has sent what is no message")
        return fields

    def close(self) -> None:
        self._socket.close()


def connect(
    address: str,
    *,
    token: str = "",
    mode: str = "",
    name: str = "",
    num_envs: int = 1,
    fingerprint: str = "",
    patience_seconds: float = 60.0,
    report_latency: bool = True,
) -> Session:
    """Connects to a gateway; waits for it up to `patience_seconds`.

    Args:
        address: ``host:port``, or ``tls://host:port``.
        token: given by the owner of the run.
        mode: ``train``, ``act`` or ``evaluate``; empty: the gateway's default.
        name: Name of this client in the tables of the run.
        num_envs: environments of one session.
        fingerprint: SHA-256 of the certificate, in hex; empty: an authority vouches for it.
        patience_seconds: how long a lost gateway is waited for.
        report_latency: reports the round trip of requests as metrics.

    Raises:
        Refused: the gateway refuses this client.
        Unavailable: it cannot be reached.
        Finished: its run is over.
    """
    return Session(
        address,
        {"token": token, "mode": mode, "name": name, "num_envs": num_envs},
        fingerprint,
        patience_seconds,
        report_latency,
    )


class Session:
    """A session; made by :func:`connect`.

    Attributes:
        observation_spec, action_spec: what the gateway expects and gives.
        seed: Seed for the environment's next episode.
        version: Version of the parameters behind the newest action.
        latencies: seconds of the newest round trips.
    """

    def __init__(
        self,
        address: str,
        hello: dict[str, Any],
        fingerprint: str = "",
        patience_seconds: float = 60.0,
        report_latency: bool = True,
    ) -> None:
        tls = address.startswith("tls://")
        host, _, port = address.replace("tls://", "").rpartition(":")
        if not host or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
            raise InvalidAddress(
                f"the address is {address!r}, expected host:port or tls://host:port, and a port "
                "from 1 to 65535"
            )
        self._where = (host.strip("[]"), int(port))
        self._fingerprint = fingerprint
        self._context = ssl.create_default_context() if tls else None
        if self._context is not None and fingerprint:
            # The pinned certificate itself is compared.
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        self._hello = {"kind": "hello", "v": PROTOCOL, "client": CLIENT}
        self._hello.update({key: value for key, value in hello.items() if value})
        self._patience_seconds = patience_seconds
        self._reports = report_latency
        self._connection: _Connection | None = None
        self._resume = ""
        self._seq = 0
        self._steps = 0
        self._total, self._length = 0.0, 0
        self.observation_spec: Any = None
        self.action_spec: Any = None
        self.seed = self.version = 0
        self.latencies: list[float] = []
        self._open()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.close()
        # The end of the run is no error of the loop that it ends.
        return kind is not None and issubclass(kind, Finished)

    # -- what an environment calls

    def episodes(self) -> Iterator[Episode]:
        """Yields an episode after the other, with the seed that the gateway suggests.

        When the run is over, the next request raises :class:`Finished`, which ends the ``with``
        statement of the session without an error.
        """
        while True:
            yield Episode(self.seed)

    def reset(self, observation: Any) -> Any:
        """Begins an episode; returns the first action."""
        self._total, self._length = 0.0, 0
        return self._ask({"kind": "reset", "observation": observation})["action"]

    def step(
        self,
        reward: Any,
        observation: Any,
        *,
        action: Any = None,
        metrics: dict[str, float] | None = None,
        terminated: Any = None,
        truncated: Any = None,
    ) -> Any:
        """Reports the outcome of the last action; returns the next action.

        Args:
            reward: Reward of the last action.
            observation: what followed.
            action: what was done, if not what was advised.
            metrics: name -> number, reported with the episode.
            terminated, truncated: ends of the episode; lists of bool for several environments.
        """
        fields = {"kind": "step", "reward": _plain(reward), "observation": observation}
        if terminated is not None:
            fields["terminated"], fields["truncated"] = terminated, truncated
        return self._ask(_with(fields, action, metrics))["action"]

    def end(
        self,
        reward: float,
        observation: Any = None,
        *,
        truncated: bool = False,
        action: Any = None,
        metrics: dict[str, float] | None = None,
    ) -> Result:
        """Ends the episode with the outcome of the last action.

        Args:
            reward: Reward of the last action.
            observation: the last one; may be left out if the task itself has ended.
            truncated: True if a time limit has ended the episode.
            action, metrics: as of :meth:`step`.
        """
        fields = {"kind": "end", "reward": _plain(reward), "truncated": bool(truncated)}
        if observation is not None:
            fields["observation"] = observation
        answer = self._ask(_with(fields, action, metrics))
        self.seed = answer.get("seed", self.seed)
        return Result(answer["return"], answer["length"])

    def metrics(self, **values: float) -> None:
        """Reports numbers as curves of their own."""
        if self._connection is not None:
            self._connection.send({"kind": "metrics", "values": values})

    def close(self) -> None:
        """Says goodbye and closes the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.send({"kind": "bye"})
            try:
                while connection.receive(_CONNECT_SECONDS)["kind"] != "goodbye":
                    pass
            except (_Lost, Refused):
                pass
            connection.close()

    # -- requests

    def _ask(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Sends a request until it is answered, over as many connections as it takes."""
        self._count(fields)
        began = time.monotonic()
        alive = began
        fields["seq"] = self._seq + 1
        sent = False
        while True:
            try:
                if self._connection is None:
                    fields = self._reopen(fields, alive)
                    sent = False
                    if fields["kind"] == "local":
                        return fields
                assert self._connection is not None
                if not sent:
                    self._connection.send(fields)
                    sent = True
                answer = self._connection.receive(_SILENT_SECONDS)
            except _Lost as error:
                self._drop()
                if time.monotonic() - alive > self._patience_seconds:
                    raise Unavailable(str(error)) from None
                continue
            alive = time.monotonic()
            if self._is_answer(answer, fields):
                self._seq = fields["seq"]
                self.version = answer.get("version", self.version)
                self._measure(time.monotonic() - began)
                return answer

    def _is_answer(self, answer: dict[str, Any], fields: dict[str, Any]) -> bool:
        kind = answer["kind"]
        if kind in ("action", "episode"):
            return bool(answer.get("seq") == fields["seq"])
        if kind == "error":
            if answer.get("fatal"):
                self._drop()
            if answer.get("code") == "unavailable":
                raise Unavailable(str(answer.get("message")))
            raise Refused(str(answer.get("code")), str(answer.get("message")))
        if kind == "goodbye":
            self._drop()
            if not answer.get("reconnect"):
                raise Finished(str(answer.get("reason")))
        return False

    def _reopen(self, fields: dict[str, Any], alive: float) -> dict[str, Any]:
        """Connects again; returns the request for the session that there is now."""
        resumed = self._open(alive)
        if resumed:
            return fields
        if fields["kind"] == "end":
            # The episode was cut, and this was its end: there is nothing left to ask.
            return {
                "kind": "local",
                "return": self._total,
                "length": self._length,
                "seed": self.seed,
            }
        # The episode was cut, too: it goes on as a new one from the present observation.
        return {"kind": "reset", "observation": fields["observation"], "seq": 1}

    def _open(self, alive: float | None = None) -> bool:
        """Connects until it succeeds; returns True if the session was resumed."""
        address = f"{self._where[0]}:{self._where[1]}"
        deadline = (time.monotonic() if alive is None else alive) + self._patience_seconds
        delay = 0.0 if alive is None else random.uniform(0.0, _FIRST_DELAY)
        longest = _FIRST_DELAY
        while True:
            time.sleep(delay)
            try:
                connection = _Connection(*self._where, self._context, self._fingerprint)
                retry = self._greet(connection)
                if retry is None:
                    return self._resumed
                error = "the gateway is busy"
            except _Lost as lost:
                retry, error = 0.0, str(lost)
            if longest == _FIRST_DELAY:
                left = max(0.0, deadline - time.monotonic())
                _log.warning("%s: %s; trying again for %.0f s", address, error, left)
            longest = min(_LAST_DELAY, 1.5 * longest)
            delay = max(retry, random.uniform(0.0, longest))
            if time.monotonic() + delay > deadline:
                raise Unavailable(f"{address}: {error}")

    def _greet(self, connection: _Connection) -> float | None:
        """Sends hello; returns None, or the seconds after which to try again."""
        connection.send({**self._hello, "resume": self._resume} if self._resume else self._hello)
        try:
            answer = connection.receive(_CONNECT_SECONDS)
        except BaseException:
            connection.close()
            raise
        kind = answer["kind"]
        if kind == "welcome":
            self._connection = connection
            self._resumed = bool(answer.get("resumed"))
            self._resume = str(answer.get("resume", ""))
            if not self._resumed:
                self._seq = 0
            self.observation_spec, self.action_spec = answer["obs_spec"], answer["action_spec"]
            self.seed = answer.get("seed", 0)
            return None
        connection.close()
        if kind == "error":
            raise Refused(str(answer.get("code")), str(answer.get("message")))
        if kind == "goodbye" and not answer.get("reconnect"):
            raise Finished(str(answer.get("reason")))
        return float(answer.get("retry_after_seconds") or 0.0)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _count(self, fields: dict[str, Any]) -> None:
        reward = fields.get("reward")
        if isinstance(reward, (int, float)):
            self._total += reward
            self._length += 1

    def _measure(self, seconds: float) -> None:
        self._steps += 1
        self.latencies.append(seconds)
        del self.latencies[:-_REPORT_STEPS]
        if self._reports and self._steps % _REPORT_STEPS == 0:
            ordered = sorted(self.latencies)
            half, most = ordered[_REPORT_STEPS // 2], ordered[_REPORT_STEPS * 99 // 100]
            self.metrics(latency_p50_seconds=half, latency_p99_seconds=most)

    _resumed = False


def _with(fields: dict[str, Any], action: Any, metrics: dict[str, float] | None) -> dict[str, Any]:
    if action is not None:
        fields["action"] = action
    if metrics:
        fields["metrics"] = {name: float(value) for name, value in metrics.items()}
    return fields


def _plain(value: Any) -> Any:
    """Returns a reward as a plain number, or as it is if there are several."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def run(
    env: Any,
    address: str,
    *,
    episodes: int = 0,
    on_step: Callable[[], Any] | None = None,
    **options: Any,
) -> int:
    """Drives a Gymnasium environment until the run is over; returns the number of episodes.

    Args:
        env: Environment as of ``gymnasium.make``.
        address: Address of the gateway.
        episodes: Number of episodes to play; 0: until the run is over.
        on_step: Function called after each step.
        options: Options of :func:`connect`.
    """
    played = 0
    with connect(address, **options) as session:
        for episode in session.episodes():
            if episodes and played >= episodes:
                break
            observation, _ = env.reset(seed=episode.seed)
            action, over = session.reset(observation), False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
                if over:
                    session.end(reward, observation, truncated=truncated and not terminated)
                else:
                    action = session.step(reward, observation)
                if on_step is not None:
                    on_step()
            played += 1
    return played


# -- a client of the older kind

Failure = ClientError


class EpisodicClient:
    """A client with other words: `send` steps, `reset` ends a game.

    Args:
        url: `host:port` of the gateway.
        options: Options of :func:`connect`.
    """

    def __init__(self, url: str, **options: Any) -> None:
        self._url, self._options = url, options
        self._session: Session | None = None

    def init(self, state: Any) -> Any:
        """Connects and begins an episode; returns the first action."""
        if self._session is None:
            self._session = connect(self._url, **self._options)
        return self._session.reset(state)

    def send(self, reward: float | None, state: Any) -> Any:
        """Reports a step and returns the next action; a reward of None begins an episode."""
        return self.init(state) if reward is None else self._connect().step(reward, state)

    def reset(self, reward: float) -> float:
        """Ends the game, without a last state; returns its score."""
        return self._connect().end(reward).total

    def metrics(self) -> EpisodicClient:
        """Returns an object with :meth:`scalar`."""
        return self

    def scalar(self, name: str, y: float) -> None:
        """Reports a number as a curve of its own."""
        self._connect().metrics(**{name: y})

    def disconnect(self) -> None:
        """Says goodbye."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connect(self) -> Session:
        if self._session is None:
            raise Failure("not connected: call init(state), or send(None, state)")
        return self._session
