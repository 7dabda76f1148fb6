"""Time for which something was held back, by a clock that is told."""

from __future__ import annotations

from surreal_like.replay.stopwatch import Stopwatch


class Told:
    seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


def test_only_the_time_between_holding_and_letting_go_counts() -> None:
    now = Told()
    waiting = Stopwatch(now)
    seen = []
    for seconds, held in [
        (11, False),
        (12, True),
        (13, True),
        (17, False),
        (30, False),
        (31, True),
    ]:
        now.seconds = float(seconds)
        waiting.hold(held)
        seen.append((waiting.seconds, waiting.held))
    assert seen == [(0, False), (0, True), (1, True), (5, False), (5, False), (5, True)]
    now.seconds = 33.0
    assert waiting.seconds == 7  # the present wait counts while it lasts
