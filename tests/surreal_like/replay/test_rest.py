"""How long experience may gather, by a clock that is told."""

from __future__ import annotations

import pytest

from surreal_like.replay.rest import Rest


class Told:
    seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("taken", "milliseconds"),
    [
        ([1], [1]),
        # A few at a time are enough, and more than enough shorten it until there is none.
        ([1, 4, 4], [1, 1, 1]),
        ([1, 2, 2, 4], [1, 2, 4, 4]),
        ([1, 1, 1, 8, 8, 8], [1, 4, 16, 8, 4, 2]),
        ([1, 8, 8, 1], [1, 0, 0, 1]),
        # It is never long, however slowly they come.
        ([1, 1, 1, 1, 1], [1, 4, 16, 30, 30]),
        # Where they come together by themselves nothing is waited for.
        ([4, 8, 5], [0, 0, 0]),
    ],
)
def test_it_lasts_as_long_as_a_few_chunks_take(taken: list[int], milliseconds: list[int]) -> None:
    rest, left = Rest(Told()), []
    for chunks in taken:
        rest.begin(chunks)
        left.append(round(1000 * rest.left))
    assert left == milliseconds


def test_it_ends() -> None:
    now = Told()
    rest = Rest(now)
    assert rest.left <= 0.0
    rest.begin(1)
    now.seconds += 0.0005
    assert 0.0 < rest.left < 0.001
    now.seconds += 0.001
    assert rest.left < 0.0
