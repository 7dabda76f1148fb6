"""Lines about clients: few for each address, whatever comes."""

from __future__ import annotations

from surreal_like.gateway.refusal_log import ClientLog


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.warnings: list[str] = []

    def event(self, kind: str, detail: str = "") -> None:
        self.lines.append((kind, detail))

    def warning(self, msg: object, /) -> None:
        self.warnings.append(str(msg))


def test_A6_an_address_is_named_once_a_minute_for_each_reason() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])
    for number in range(5):
        log.refused("10.0.0.1", f"malformed: no map {number}")
    log.refused("10.0.0.2", "bad_token: not valid")
    # An operator has to see that this client is set up wrongly, whatever came before.
    log.refused("10.0.0.1", "the client came without TLS")
    clock[0] = 60.0
    log.refused("10.0.0.1", "malformed: again")
    assert lines.lines == [
        ("client_refused", "10.0.0.1: malformed: no map 0"),
        ("client_refused", "10.0.0.2: bad_token: not valid"),
        ("client_refused", "10.0.0.1: the client came without TLS"),
        ("client_refused", "10.0.0.1: malformed: again (4 more since the last such line)"),
    ]


def test_sessions_of_one_address_are_named_at_most_sixty_times_a_minute() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])
    for number in range(90):
        log.joined(f"robot-{number}", "10.0.0.1")
        log.left("10.0.0.1", f"robot-{number}: bye")
    log.joined("other", "10.0.0.2")
    kinds = [kind for kind, _ in lines.lines]
    assert (kinds.count("client_joined"), kinds.count("client_left")) == (61, 60)
    clock[0] = 60.0
    log.joined("robot-90", "10.0.0.1")
    assert lines.lines[-1] == (
        "client_joined",
        "robot-90 from 10.0.0.1 (30 more since the last such line)",
    )


def test_a_traceback_is_written_once_a_minute_for_each_place() -> None:
    lines, clock = Lines(), [0.0]
    log = ClientLog(lines, lambda: clock[0])

    def first() -> None:
        raise ValueError("one place")

    def second() -> None:
        raise KeyError("another")

    for fails in (first, second, first, first):
        try:
            fails()
        except (ValueError, KeyError) as error:
            log.defect(error)
    assert ["one place" in text for text in lines.warnings] == [True, False]
    assert all(text.startswith("Traceback") for text in lines.warnings)
