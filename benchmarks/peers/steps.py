"""The data that every side is measured with; numpy only, for it runs in every environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

EPISODE_ROWS = 20
STACK = 4


def transitions(rows: int, seed: int = 0) -> dict[str, Array]:
    """CartPole's one-step transitions, as a replay of transitions takes them: ``[rows, ...]``."""
    generator = np.random.default_rng(seed)
    place = np.arange(rows) % (EPISODE_ROWS - 1)
    return {
        "obs": generator.standard_normal((rows, 4), dtype=np.float32),
        "action": generator.integers(0, 2, rows),
        "reward": np.ones(rows, np.float32),
        "discount": np.where(place == EPISODE_ROWS - 2, 0.0, 1.0).astype(np.float32),
        "obs_next": generator.standard_normal((rows, 4), dtype=np.float32),
    }


def load_unrolls(path: str) -> list[dict[str, Array]]:
    """The unrolls that all sides send in turn, ``[T + 1, N, ...]``, as the comparison wrote them.

    Args:
        path: of a file with all of them, ``[K, T + 1, N, ...]``.
    """
    with np.load(path) as columns:
        together = dict(columns)
    return [
        {name: column[place] for name, column in together.items()}
        for place in range(len(together["obs"]))
    ]


def check_order(marks: list[Array], made: list[dict[str, Array]]) -> None:
    """Checks that unrolls came out as they went in: in order, and each once.

    Args:
        marks: the first number of each unroll, batch by batch.
        made: the unrolls that were sent in turn.

    Raises:
        RuntimeError: one is missing, comes twice or in another place.
    """
    found = np.concatenate(marks)
    sent = np.array([unroll["obs"].flat[0] for unroll in made])[np.arange(len(found)) % len(made)]
    if not np.array_equal(found, sent):
        raise RuntimeError(f"unroll {np.argmax(found != sent)} is not the one that was sent")


def frames(count: int, seed: int = 0) -> Array:
    """Gray frames ``[count, 84, 84]`` uint8 that compress about as a game does.

    A still background of bands with texture, and twelve things that move from frame to frame.
    """
    generator = np.random.default_rng(seed)
    bands = np.repeat(generator.integers(0, 256, 14, dtype=np.uint8), 6)
    texture = generator.integers(0, 8, (84, 84), dtype=np.uint8)
    found = np.broadcast_to(bands[:, None] // 2 + texture, (count, 84, 84)).copy()
    corners = generator.integers(0, 76, (12, 2))
    speeds = generator.integers(-2, 3, (12, 2))
    for number in range(count):
        for (y, x), value in zip(
            (corners + speeds * number) % 76, range(100, 220, 10), strict=True
        ):
            found[number, y : y + 6, x : x + 6] = value
    return found
