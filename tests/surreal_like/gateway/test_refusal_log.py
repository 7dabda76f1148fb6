"""Lines about refused clients: few, whatever comes."""

from __future__ import annotations

from surreal_like.gateway.refusal_log import RefusalLog


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def event(self, kind: str, detail: str = "") -> None:
        self.lines.append((kind, detail))

    def warning(self, msg: object, /) -> None:
        raise AssertionError(msg)


def test_A6_an_address_is_named_once_a_minute() -> None:
    lines, clock = Lines(), [0.0]
    log = RefusalLog(lines, lambda: clock[0])
    for _ in range(5):
        log.add("10.0.0.1", "malformed: no map")
    log.add("10.0.0.2", "bad_token: not valid")
    clock[0] = 60.0
    log.add("10.0.0.1", "oversize: too long")
    clock[0] = 61.0
    log.add("10.0.0.1", "oversize: too long")
    assert lines.lines == [
        ("client_refused", "10.0.0.1: malformed: no map"),
        ("client_refused", "10.0.0.2: bad_token: not valid"),
        ("client_refused", "10.0.0.1: oversize: too long (4 more since the last such line)"),
    ]


def test_A6_memory_is_bounded_whatever_number_of_addresses_comes() -> None:
    lines, clock = Lines(), [0.0]
    log = RefusalLog(lines, lambda: clock[0])
    for number in range(5000):
        log.add(str(number), "malformed")
    assert len(log._reported) == len(lines.lines) == 1025
    assert lines.lines[-1] == ("client_refused", "other addresses: malformed")
    clock[0] = 61.0
    log.add("new", "malformed")
    assert lines.lines[-1] == ("client_refused", "new: malformed")
