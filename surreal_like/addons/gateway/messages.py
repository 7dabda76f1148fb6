"""Messages of the protocol, version 1: checks those of clients, and sends those of the gateway.

What comes out of :meth:`Protocol.parse` fits the specs of the experiment.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgpack
import numpy as np
import numpy.typing as npt

from session import nest
from session.addons.gateway.connection import Connection
from session.addons.gateway.protocols import Encoding
from session.nest import Array, Nest
from surreal_like.addons.gateway.payloads import (
    ClientArray,
    Fields,
    Refusal,
    encode,
    make_field,
    refuse,
    shorten,
)
from surreal_like.data.bounds import ANSWERED, LARGEST, Bounds
from surreal_like.data.spec import ArraySpec, parse_action_spec, parse_obs_spec, plain
from surreal_like.env.environment import Info
from surreal_like.env.masks import make_guard
from surreal_like.errors import DataError

VERSION = 1
MODES = ("train", "evaluate", "act")
# Names of a client's numbers in one message, and in one session.
METRIC_NAMES = 64
_RETRY_SECONDS = 1.0
_NO_INFO: Info = {}


class Hello(NamedTuple):
    """The first message of a connection, see :meth:`Protocol.parse`."""

    version: int
    token: str
    mode: str
    name: str
    num_envs: int
    client: str
    resume: str


class Request(NamedTuple):
    """A message with a number, which is answered.

    Args:
        kind: Kind of the request: ``reset``, ``step`` or ``end``.
        seq: Number of the request.
        obs: Observations, nest of arrays ``[N, ...]``; None at an ``end`` without one.
        reward: Rewards of the last actions, float32 ``[N]``; 0 at a ``reset``.
        terminated, truncated: Ends of episodes, bool ``[N]``; False at a ``step`` of one stream.
        action: Actions that were done instead of the advised ones, ``[N, ...]``; None: as advised.
        info: Info as of an environment: ``metrics`` of one stream's episode, or nothing.
    """

    kind: str
    seq: int
    obs: Nest
    reward: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    action: Array | None = None
    info: Info = _NO_INFO


class Metrics(NamedTuple):
    """Numbers for curves of their own."""

    values: Mapping[str, float]


class Ping(NamedTuple):
    """A question that is answered at once."""

    token: Any


class Bye(NamedTuple):
    """The end of a session."""


Incoming = Hello | Request | Metrics | Ping | Bye


_PING_BYTES = 64
_SEQUENCES = 1 << 53
_FLOAT_MOST = sys.float_info.max
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_METRIC = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_METRIC_CHARACTERS = 200
_TOKEN_CHARACTERS = 256
_BASE_BYTES = 1 << 16
_JSON_ELEMENT_BYTES = 32
_NUMBERS = (float, int)
# Errors in all other fields of a request are `bad_observation`.
_FIELD = re.compile(r"\w+")
_CODES = {"reward": "bad_reward", "action": "bad_action"}
# Of a step without action and metrics.
_STEP_FIELDS = 4


class Protocol:
    """Checks the messages of clients against the specs of an experiment.

    Args:
        obs_spec: Observation spec of one frame.
        action_spec: Action spec of one stream.
        num_envs: Number of streams of a session, N.
        rewards: Lowest and highest reward. None: nothing is learned from the numbers, and they
            have the wide bounds of :data:`ANSWERED`.
    """

    def __init__(
        self,
        obs_spec: Mapping[str, Any],
        action_spec: Mapping[str, Any],
        num_envs: int = 1,
        rewards: Bounds | None = None,
    ) -> None:
        self.num_envs = num_envs
        largest = ANSWERED if rewards is None else LARGEST
        self._least_reward, self._most_reward = rewards or (-ANSWERED, ANSWERED)
        obs: Nest = parse_obs_spec(obs_spec)
        self._paths: dict[str, ArraySpec] = nest.flatten(obs, "observation")
        self._obs = make_field(obs, "observation", num_envs, largest=largest)
        self._masks = make_guard(obs_spec, action_spec)
        action = parse_action_spec(action_spec)
        self._action = ClientArray(action.array, "action", num_envs, largest=largest)
        low, high = (np.array(each, np.float32) for each in (self._least_reward, self._most_reward))
        self._rewards = ClientArray(ArraySpec("float32", (), low, high), "reward", num_envs)
        self._flags = {
            name: ClientArray(ArraySpec("bool", ()), name, num_envs)
            for name in ("terminated", "truncated")
        }
        self._no = np.zeros(num_envs, np.bool_)
        self._yes = np.ones(num_envs, np.bool_)
        self._no_reward = np.zeros(num_envs, np.float32)
        for constant in (self._no, self._yes, self._no_reward):
            constant.flags.writeable = False
        self._requests: dict[str, Callable[[Fields, int], Request]] = {
            "reset": self._reset,
            "step": self._step,
            "end": self._end,
        }
        self._others: dict[str, Callable[[Fields], Incoming]] = {
            "metrics": self._metrics_message,
            "ping": self._ping,
            "bye": lambda fields: Bye(),
            "hello": self._hello,
        }

    @property
    def max_message_bytes(self) -> int:
        """Largest payload of a client."""
        specs = self._paths.values()
        size = sum(spec.zeros().nbytes for spec in specs) * self.num_envs
        elements = sum(math.prod(spec.dim) for spec in specs) * self.num_envs
        return _BASE_BYTES + 2 * size + _JSON_ELEMENT_BYTES * elements

    def parse(self, fields: Fields) -> Incoming:
        """Returns the message of a decoded payload.

        Raises:
            Refusal: a field is missing or wrong.
        """
        kind = fields.get("kind")
        if type(kind) is not str or kind not in self._requests:
            return self._other(kind, fields)
        seq = fields.get("seq")
        if type(seq) is not int or not 0 < seq < _SEQUENCES:
            raise Refusal("bad_seq", f"seq is {shorten(seq)}, expected a whole number from 1")
        try:
            return self._requests[kind](fields, seq)
        except DataError as error:
            raise make_refusal(error, seq) from None

    def _other(self, kind: Any, fields: Fields) -> Incoming:
        if type(kind) is not str:
            refuse(f"kind is {shorten(kind)}, expected a text: each message has one")
        if kind in self._others:
            return self._others[kind](fields)
        kinds = ", ".join((*self._requests, *self._others))
        raise Refusal("unknown_kind", f"kind is {shorten(kind)}, expected one of {kinds}")

    # -- each kind

    def _hello(self, fields: Fields) -> Hello:
        version = fields.get("v")
        if type(version) is not int or version < 1:
            raise Refusal(
                "bad_version",
                f"v is {shorten(version)}, expected a whole number from 1; here it is {VERSION}",
            )
        token = _text(fields, "token", _TOKEN_CHARACTERS)
        mode = fields.get("mode", "")
        if type(mode) is not str or mode not in ("", *MODES):
            raise Refusal("bad_hello", f"mode is {shorten(mode)}, expected {', '.join(MODES)}")
        name = fields.get("name", "")
        if type(name) is not str or (name and not _NAME.fullmatch(name)):
            raise Refusal(
                "bad_hello",
                f"name is {shorten(name)}, expected at most 64 characters of A-Za-z0-9._-",
            )
        num_envs = fields.get("num_envs", 1)
        if type(num_envs) is not int or num_envs < 1:
            raise Refusal(
                "bad_hello", f"num_envs is {shorten(num_envs)}, expected a whole number from 1"
            )
        client = _text(fields, "client", _TOKEN_CHARACTERS)
        return Hello(
            version, token, mode, name, num_envs, client, _text(fields, "resume", _TOKEN_CHARACTERS)
        )

    def _reset(self, fields: Fields, seq: int) -> Request:
        obs = self._read(fields, self._no)
        return Request("reset", seq, obs, self._no_reward, self._no, self._no)

    def _step(self, fields: Fields, seq: int) -> Request:
        reward = self._reward(fields)
        terminated = truncated = self._no
        if self.num_envs > 1:
            terminated, truncated = (
                field.read(fields.get(name)) for name, field in self._flags.items()
            )
        obs = self._read(fields, terminated | truncated)
        if len(fields) == _STEP_FIELDS:
            return Request("step", seq, obs, reward, terminated, truncated)
        if self.num_envs == 1:
            _check_goes_on(fields, seq)
        further = self._optional(fields, seq)
        return Request("step", seq, obs, reward, terminated, truncated, *further)

    def _end(self, fields: Fields, seq: int) -> Request:
        if self.num_envs > 1:
            raise Refusal("wrong_state", "sessions of several environments have no end", seq)
        reward = self._reward(fields)
        truncated = fields.get("truncated", False)
        if type(truncated) is not bool:
            raise DataError(f"truncated is {shorten(truncated)}, expected true or false")
        obs = None
        if truncated or fields.get("observation") is not None:
            obs = self._obs.read(fields.get("observation"))
        flags = (self._no, self._yes) if truncated else (self._yes, self._no)
        return Request("end", seq, obs, reward, *flags, *self._optional(fields, seq))

    def _metrics_message(self, fields: Fields) -> Metrics:
        return Metrics(_metrics(fields.get("values"), "values", None))

    def _ping(self, fields: Fields) -> Ping:
        token = fields.get("t")
        if isinstance(token, np.ndarray) or len(msgpack.packb(token, default=str)) > _PING_BYTES:
            raise Refusal("malformed", f"t of a ping has more than {_PING_BYTES} bytes")
        try:
            # JSON reads 1e999 as infinity, and cannot write it.
            json.dumps(token, default=str, allow_nan=False)
        except ValueError:
            raise Refusal("malformed", "t of a ping is NaN or infinite") from None
        return Ping(token)

    # -- fields

    def _read(self, fields: Fields, ended: npt.NDArray[np.bool_]) -> Nest:
        """Returns the observation of a request; one that goes on has a legal action."""
        obs: Nest = self._obs.read(fields.get("observation"))
        if self._masks is not None:
            self._masks.observe(obs, ended)
        return obs

    def _reward(self, fields: Fields) -> npt.NDArray[np.float32]:
        value: Any = fields.get("reward")
        if self.num_envs > 1:
            return self._rewards.read(value)
        if type(value) in _NUMBERS and self._least_reward <= value <= self._most_reward:
            return np.array([value], np.float32)
        least, most = self._least_reward, self._most_reward
        raise DataError(f"reward is {shorten(value)}, expected a number from {least:g} to {most:g}")

    def _optional(self, fields: Fields, seq: int) -> tuple[Array | None, Info]:
        action, info = None, {}
        if fields.get("action") is not None:
            action = self._action.read(fields["action"])
        if fields.get("metrics") is not None:
            info = {"metrics": [_metrics(fields["metrics"], "metrics", seq)]}
        return action, info


def _check_goes_on(fields: Fields, seq: int) -> None:
    """Raises a Refusal for a step of one environment that says that its episode has ended."""
    for name in ("terminated", "truncated"):
        if fields.get(name) is not None and fields[name] is not False:
            raise Refusal(
                "wrong_state",
                f"{name} is {shorten(fields[name])} in a step: send end where the episode ends",
                seq,
            )


def make_refusal(error: DataError, seq: int) -> Refusal:
    """Returns the refusal of a request; the text of the error begins with the field."""
    field = _FIELD.match(str(error))
    code = _CODES.get(field[0], "bad_observation") if field else "bad_observation"
    return Refusal(code, str(error), seq)


def _text(fields: Fields, key: str, most: int) -> str:
    value = fields.get(key, "")
    if value is None:
        return ""
    if type(value) is not str or len(value) > most:
        raise Refusal("bad_hello", f"{key} is no text of at most {most} characters")
    return value


def _metrics(value: Any, where: str, seq: int | None) -> dict[str, float]:
    if type(value) is not dict or len(value) > METRIC_NAMES:
        raise Refusal(
            "bad_metric", f"{where}: expected at most {METRIC_NAMES} names and numbers", seq
        )
    for name, number in value.items():
        if len(name) > _METRIC_CHARACTERS or not _METRIC.fullmatch(name):
            raise Refusal(
                "bad_metric",
                f"{where}: {shorten(name)} is no name of letters, digits, '_', '-', '.' and '/'",
                seq,
            )
        # The comparison holds for NaN, and for whole numbers that no float can hold.
        if type(number) not in (int, float) or not -_FLOAT_MOST <= number <= _FLOAT_MOST:
            raise Refusal(
                "bad_metric", f"{where}: {name} is {shorten(number)}, expected a number", seq
            )
    return {name: float(number) for name, number in value.items()}


# -- to clients


def send(connection: Connection, fields: Fields) -> None:
    """Sends a message in the encoding of the connection."""
    connection.send(encode(fields, connection.encoding or Encoding.msgpack))


def send_refusal(connection: Connection, refusal: Refusal) -> None:
    """Sends an error, and closes the connection."""
    send(connection, {**refusal.to_message(), "fatal": True})
    connection.close()


def send_busy(connection: Connection, reason: str) -> None:
    """Sends a client away for a while, and closes the connection."""
    send(connection, {"kind": "busy", "reason": reason, "retry_after_seconds": _RETRY_SECONDS})
    connection.close()


def send_goodbye(connection: Connection, reason: str, *, reconnect: bool = False) -> None:
    """Sends the end of a session, and closes the connection.

    Args:
        connection: Newest connection of the client.
        reason: Reason of the end, see the protocol.
        reconnect: True if the client should come back.
    """
    fields = {
        "kind": "goodbye",
        "reason": reason,
        "reconnect": reconnect,
        "retry_after_seconds": _RETRY_SECONDS if reconnect else 0.0,
    }
    send(connection, fields)
    connection.close()


def encode_spec(spec: Mapping[str, Any]) -> Any:
    """Returns a spec as it is sent: infinite bounds are None."""
    return _finite(plain(spec))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
