"""GAE, lambda and n-step returns against loops, and several episodes in one unroll."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.loss.returns import gae, lambda_returns, n_step_returns
from tests.surreal_like.loss.unrolls import KINDS, Unroll, episodes, make_unroll

Function = Callable[[Unroll], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "gae": lambda u: gae(u.rewards, u.discounts, u.values, u.bootstrap, lambda_=0.8, mask=u.mask),
    "lambda": lambda u: lambda_returns(
        u.rewards, u.discounts, u.values, u.bootstrap, lambda_=0.8, mask=u.mask
    ),
    "n_step": lambda u: n_step_returns(
        u.rewards, u.discounts, u.values, u.bootstrap, n=3, mask=u.mask
    ),
}


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


def slow_gae(u: Unroll, lambda_: float, t: int, b: int) -> float:
    """The sum of all errors that follow, each with its weight, as the paper writes it."""
    if not u.mask[t, b]:
        return 0.0
    total, weight = 0.0, 1.0
    steps = len(u.rewards)
    for k in range(t, steps):
        if not u.mask[k, b]:
            break
        after = u.values[k + 1, b] if k + 1 < steps else u.bootstrap[b]
        total += weight * float(u.rewards[k, b] + u.discounts[k, b] * after - u.values[k, b])
        weight *= lambda_ * float(u.discounts[k, b])
    return total


def slow_n_step(u: Unroll, n: int, t: int, b: int) -> float:
    total, weight, k = 0.0, 1.0, t
    while k < len(u.rewards) and k < t + n and u.mask[k, b]:
        total += weight * float(u.rewards[k, b])
        weight *= float(u.discounts[k, b])
        k += 1
    after = u.values[k, b] if k < len(u.rewards) else u.bootstrap[b]
    return total + weight * float(after)


@given(KINDS, st.floats(0, 1), st.integers(0, 99))
def test_gae_is_the_sum_of_the_errors_that_follow(
    kinds: list[str], lambda_: float, seed: int
) -> None:
    u = make_unroll(kinds, seed=seed)
    arguments = (u.rewards, u.discounts, u.values, u.bootstrap)
    found = gae(*arguments, lambda_=lambda_, mask=u.mask)
    returns = lambda_returns(*arguments, lambda_=lambda_, mask=u.mask)
    for t in range(len(kinds[0])):
        for b in range(len(kinds)):
            expected = slow_gae(u, lambda_, t, b)
            assert found[t, b].item() == pytest.approx(expected, abs=1e-9)
            assert (returns - u.values)[t, b].item() == pytest.approx(expected, abs=1e-9)


@given(KINDS, st.integers(1, 10), st.integers(0, 99))
def test_n_step_returns_are_n_rewards_and_a_value(kinds: list[str], n: int, seed: int) -> None:
    u = make_unroll(kinds, seed=seed)
    found = n_step_returns(u.rewards, u.discounts, u.values, u.bootstrap, n=n, mask=u.mask)
    for t in range(len(kinds[0])):
        for b in range(len(kinds)):
            assert found[t, b].item() == pytest.approx(slow_n_step(u, n, t, b), abs=1e-9)


def test_three_steps_by_hand() -> None:
    # gamma 0.5, rewards 1, a termination after six steps.
    discounts = column(0.5, 0.5, 0.5, 0.5, 0.5, 0.0)
    returns = n_step_returns(
        torch.ones_like(discounts), discounts, 0 * discounts, 7 * discounts[0], n=3
    )
    assert returns.flatten().tolist() == [1.75, 1.75, 1.75, 1.75, 1.5, 1.0]


@pytest.mark.parametrize("bootstrap", [0.0, 10.0])
def test_lambda_1_is_the_whole_return_and_lambda_0_one_step(bootstrap: float) -> None:
    rewards, values = column(1, 1, 1), column(0.5, 0.5, 0.5)
    arguments = (rewards, 0.9 * rewards, values, torch.full((1,), bootstrap).double())
    whole = lambda_returns(*arguments, lambda_=1.0).flatten().tolist()
    assert whole == pytest.approx(
        [2.71 + 0.729 * bootstrap, 1.9 + 0.81 * bootstrap, 1 + 0.9 * bootstrap]
    )
    assert whole == pytest.approx(n_step_returns(*arguments, n=3).flatten().tolist())
    one = lambda_returns(*arguments, lambda_=0.0).flatten().tolist()
    assert one == pytest.approx([1.45, 1.45, 1 + 0.9 * bootstrap])
    assert one == pytest.approx(n_step_returns(*arguments, n=1).flatten().tolist())


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@given(KINDS, st.integers(0, 99))
def test_a_packed_unroll_is_its_episodes_one_by_one(
    function: Function, kinds: list[str], seed: int
) -> None:
    u = make_unroll(kinds, seed=seed)
    packed = function(u)
    for stream, kind in enumerate(kinds):
        for begin, end in episodes(kind):
            if begin < end:
                alone = function(u.part(begin, end, stream))
                assert torch.allclose(packed[begin:end, stream : stream + 1], alone)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_time_limit_is_valued_by_its_own_last_observation(function: Function) -> None:
    # Worth 1 up to the time limit, the next episode 100; no rewards, nothing discounted.
    values, nothing = column(1, 1, 100), column(0, 0, 0)
    mask = column(1, 0, 1)
    u = Unroll(nothing, nothing, nothing + 1, values, values[2], mask)
    expected = [0.0, 0.0, 0.0] if function is FUNCTIONS["gae"] else [1.0, 1.0, 100.0]
    assert function(u).flatten().tolist() == expected


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("values", (3, 2, 1), r"values is \[3, 2, 1\], but rewards is \[3, 2\]"),
        ("bootstrap", (1, 2), r"bootstrap is \[1, 2\], but rewards is \[3, 2\]"),
        ("mask", (3,), r"mask is \[3\], but rewards is \[3, 2\]"),
        ("rewards", (3,), r"rewards is \[3\] and bootstrap \[2\], expected \[T, B\] and \[B\]"),
    ],
)
def test_another_rank_is_refused_with_both_shapes(
    function: Function, name: str, shape: tuple[int, ...], words: str
) -> None:
    u = make_unroll(["MMM", "MMM"])
    setattr(u, name, torch.zeros(shape))
    with pytest.raises(ValueError, match=words):
        function(u)


def test_less_than_one_step_is_refused() -> None:
    u = make_unroll(["MM"])
    with pytest.raises(ValueError, match="n is 0"):
        n_step_returns(u.rewards, u.discounts, u.values, u.bootstrap, n=0)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_nothing_carries_a_gradient(function: Function) -> None:
    u = make_unroll(["MMU"])
    u.values.requires_grad_()
    assert not function(u).requires_grad
