"""Unrolls of several episodes for tests of returns, and the same episodes one by one."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

GAMMA = 0.9


@dataclass
class Unroll:
    """What the functions of `loss/` take; float64, `[T, B]` and `[B]`."""

    log_rhos: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor
    values: torch.Tensor
    bootstrap: torch.Tensor
    mask: torch.Tensor

    def part(self, begin: int, end: int, stream: int) -> "Unroll":
        """Rows of one stream up to before `end`, whose value is the bootstrap."""
        rows = slice(begin, end), slice(stream, stream + 1)
        after = torch.cat((self.values, self.bootstrap[None]))[end, stream : stream + 1]
        return Unroll(
            self.log_rhos[rows],
            self.rewards[rows],
            self.discounts[rows],
            self.values[rows],
            after,
            self.mask[rows],
        )


def make_unroll(kinds: list[str], *, seed: int = 0) -> Unroll:
    """Random numbers; `kinds` has a text per stream, a letter per row: M, T or U.

    T is a row at which an episode has terminated, U one at which it was truncated; M any other.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (len(kinds[0]), len(kinds))

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    ends = torch.tensor([[ord(c) for c in kind] for kind in kinds]).T
    ended = (ends == ord("T")) | (ends == ord("U"))
    # Row t has the discount of the row behind it; behind the last one nothing ends.
    after = torch.cat((ends[1:], torch.full_like(ends[:1], ord("M"))))
    return Unroll(
        log_rhos=normal(*shape),
        rewards=normal(*shape),
        discounts=GAMMA * (after != ord("T")).double(),
        values=10.0 * normal(*shape),
        bootstrap=10.0 * normal(shape[1]),
        mask=(~ended).double(),
    )


def episodes(kind: str) -> list[tuple[int, int]]:
    """Begin and end of the rows of each episode that an action was taken from."""
    found, begin = [], 0
    for t, letter in enumerate(kind):
        if letter != "M":
            found.append((begin, t))
            begin = t + 1
    return [*found, (begin, len(kind))]


KINDS = st.integers(1, 8).flatmap(
    lambda length: st.lists(
        st.text("MMMTU", min_size=length, max_size=length), min_size=1, max_size=3
    )
)
