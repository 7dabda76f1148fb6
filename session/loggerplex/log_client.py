"""Log client of a component: filters and stamps records, and puts them on a bounded channel."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

from session.config.merge import scalar
from session.errors import ConfigError
from session.process.clock import Clock, WallClock, stamp_of
from session.wire.telemetry_buffer import Channel

_TEXT_LIMIT = 1 << 14
_RULE_WIDTH = 72
_DEPTH_LIMIT = 4
_INTEGER_LIMIT = 1 << 63

Show = Callable[[float, str, str], object]


_WARNINGS = (
    "bad_update",
    "begins_anew",
    "checkpoint_bad",
    "checkpoint_failed",
    "client_refused",
    "fenced",
    "large_values",
    "lost",
    "memory",
    "not_written",
    "recording_damaged",
    "recording_stopped",
    "refused",
    "rerouted",
    "rolled_back",
    "snapshot_bad",
    "snapshot_failed",
    "standstill",
    "too_old",
)
_EVENT_LEVELS = {**dict.fromkeys(_WARNINGS, logging.WARNING), "failed": logging.ERROR}


class Log(logging.LoggerAdapter[logging.Logger]):
    """A component's log: a ``logging`` logger with sections and events.

    Made by :func:`make_log`. Its ``handler`` may be added to other loggers.
    """

    def __init__(self, logger: logging.Logger, handler: ChannelHandler) -> None:
        super().__init__(logger, {})
        self.handler = handler

    def section(self, title: str) -> None:
        """Logs a ruled line with a title."""
        self.info("%s", f" {title} ".center(_RULE_WIDTH, "-"))

    def event(self, kind: str, detail: str = "", **fields: object) -> None:
        """Records an event of the run as a line of ``events.jsonl``, at every log level.

        In the logs it is of level info, warning (something was lost or skipped) or error (it ended
        a component).

        Args:
            kind: kind of event, such as ``start`` or ``checkpoint``.
            detail: description in words.
            fields: plain data; other values become text.
        """
        plain = {name: plain_data(value) for name, value in fields.items()}
        note = {"event": sendable(kind), "detail": sendable(detail), "fields": plain}
        level = _EVENT_LEVELS.get(kind, logging.INFO)
        if self.isEnabledFor(level):
            words = [f"{kind}:", detail, *(f"{name}={value}" for name, value in plain.items())]
            note["text"] = sendable(" ".join(word for word in words if word).rstrip(":"))
        self.handler.put(level, note)

    @property
    def buffered(self) -> int:
        """Number of records that wait to be sent."""
        return self.handler.buffered

    def join(self, log: Log) -> Log:
        """Moves the buffered records to the log of a running component, and returns that log.

        Later records are forwarded to it, too.
        """
        self.handler.join(log.handler, log.logger.level)
        return log

    def show(self, show: Show) -> None:
        """Also passes each later record to ``show``: time, level and text."""
        self.handler.show = show


class ChannelHandler(logging.Handler):
    """Turns log records into plain data; an exception becomes text here, at its source.

    Args:
        component: name of the sender.
        channel: receives the records.
        clock: stamps each record.
    """

    def __init__(self, component: str, channel: Channel, *, clock: Clock) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))
        self._component = component
        self._channel = channel
        self._clock = clock
        self.show: Show = lambda seconds, level, text: None

    @property
    def buffered(self) -> int:
        """Number of records that wait to be sent."""
        return len(self._channel)

    def join(self, other: ChannelHandler, least: int) -> None:
        """Forwards all records of at least this level to the channel of another handler."""
        numbers = logging.getLevelNamesMapping()

        def change(record: dict[str, Any]) -> dict[str, Any] | None:
            if "event" not in record and numbers.get(record["level"].upper(), least) < least:
                return None
            changed = record | {"component": other._component} | stamp_of(other._clock)
            if "text" in changed:
                other.show(changed["time"], changed["level"], changed["text"])
            return changed

        self._channel.hand_over(other._channel, change)

    def emit(self, record: logging.LogRecord) -> None:
        """Puts one record on the channel."""
        try:
            text = self.format(record)
        except (TypeError, ValueError, KeyError) as error:
            # Wrong percent arguments must not end the component.
            text = f"{record.msg!r} % {record.args!r} ({error})"
        self.put(record.levelno, {"text": sendable(text)})

    def put(self, level: int, record: dict[str, Any]) -> None:
        """Stamps a record and puts it on the channel."""
        stamp: dict[str, Any] = {
            "time": self._clock.time(),
            "level": logging.getLevelName(level).lower(),
            "component": self._component,
        }
        self._channel.put(stamp | record)
        if "text" in record:
            self.show(stamp["time"], stamp["level"], record["text"])


def make_log(name: str, channel: Channel, *, level: str, clock: Clock) -> Log:
    """Makes the log of one component; it is not registered, so it is freed with its last user.

    Args:
        name: component name.
        channel: receives the records.
        level: minimum level that is sent: ``debug`` ... ``critical``.
        clock: stamps each record at its source.

    Raises:
        ConfigError: the level is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ConfigError(
            f"session_config.loggerplex.level is {level!r}: expected debug, info, warning, error "
            "or critical"
        )
    logger = logging.Logger(name, number)
    handler = ChannelHandler(name, channel, clock=clock)
    logger.addHandler(handler)
    return Log(logger, handler)


def early_log(name: str) -> Log:
    """Makes a log without a connection: its records are buffered until :meth:`Log.join`."""
    return make_log(name, Channel(None, "loggerplex"), level="debug", clock=WallClock())


def plain_data(value: object, depth: int = 0) -> Any:
    """Converts a value for JSON: numpy numbers become Python numbers, unknown types text."""
    if isinstance(value, dict) and depth < _DEPTH_LIMIT:
        return {sendable(key): plain_data(each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple) and depth < _DEPTH_LIMIT:
        return [plain_data(each, depth + 1) for each in value]
    value = scalar(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < _INTEGER_LIMIT:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    return sendable(value)


def sendable(value: object, limit: int = _TEXT_LIMIT) -> str:
    """Converts to a text valid in UTF-8 (file names may not be), cut at ``limit`` characters."""
    text = str(value)
    if len(text) > limit:
        text = f"{text[:limit]}... ({len(text)} characters)"
    return text.encode("utf-8", "backslashreplace").decode()
