"""V-trace against known numbers, against its closed form, and over several episodes."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surreal_like.loss.returns import lambda_returns
from surreal_like.loss.vtrace import VTrace, vtrace
from tests.surreal_like.loss.unrolls import KINDS, Unroll, episodes, make_unroll

# T = 3, gamma = 0.9, rewards of 1: rho, value, bootstrap, options, targets, advantages.
GOLDEN: list[tuple[float, float, float, dict[str, Any], list[float], list[float]]] = [
    (1, 0, 0, {}, [2.71, 1.9, 1], [2.71, 1.9, 1]),
    (1, 0.5, 10, {}, [10, 10, 10], [9.5, 9.5, 9.5]),
    (0.5, 0, 0, {}, [0.82625, 0.725, 0.5], [0.82625, 0.725, 0.5]),
    (2, 0, 0, {}, [2.71, 1.9, 1], [2.71, 1.9, 1]),
    (2, 0, 0, {"clip_rho": None, "clip_pg_rho": None}, [5.42, 3.8, 2], [8.84, 5.6, 2]),
    (2, 0, 0, {"clip_rho": 1.5, "clip_pg_rho": None}, [4.065, 2.85, 1.5], [7.13, 4.7, 2]),
    (1, 0.5, 10, {"terminal": 1}, [1.9, 1, 10], [1.4, 0.5, 9.5]),
    (1, 0.5, 10, {"lambda_": 0.5}, [3.80125, 5.725, 10], [5.6525, 9.5, 9.5]),
]


def run(u: Unroll, **options: Any) -> VTrace:
    return vtrace(u.log_rhos, u.rewards, u.discounts, u.values, u.bootstrap, mask=u.mask, **options)


def full(value: float, *shape: int) -> torch.Tensor:
    return torch.full(shape, value, dtype=torch.float64)


@pytest.mark.parametrize(("rho", "value", "bootstrap", "options", "targets", "advantages"), GOLDEN)
def test_known_numbers(
    rho: float,
    value: float,
    bootstrap: float,
    options: dict[str, Any],
    targets: list[float],
    advantages: list[float],
) -> None:
    discounts = full(0.9, 3, 1)
    terminal = options.get("terminal")
    if terminal is not None:
        discounts[terminal] = 0.0
    found = vtrace(
        full(math.log(rho), 3, 1),
        full(1, 3, 1),
        discounts,
        full(value, 3, 1),
        full(bootstrap, 1),
        **{name: option for name, option in options.items() if name != "terminal"},
    )
    assert found.targets.flatten().tolist() == pytest.approx(targets, rel=1e-5)
    assert found.advantages.flatten().tolist() == pytest.approx(advantages, rel=1e-5)


def test_five_known_numbers_off_policy() -> None:
    steps = torch.arange(5, dtype=torch.float64).unsqueeze(1)
    found = vtrace(
        steps - 2.5, steps, full(0.9, 5, 1), steps, full(1, 1), clip_rho=3.7, clip_pg_rho=2.2
    )
    targets = [0.200182, 2.709682, 8.513628, 11.932397, 7.33]
    advantages = [0.200182, 1.709682, 6.513628, 10.876614, 1.98]
    assert found.targets.flatten().tolist() == pytest.approx(targets, rel=1e-5)
    assert found.advantages.flatten().tolist() == pytest.approx(advantages, rel=1e-5)


def slow_target(u: Unroll, t: int, b: int, lambda_: float, clip_rho: float | None) -> float:
    """The sum over all later errors, each with the product of the weights before it."""
    total = float(u.values[t, b])
    for k in range(t, len(u.rewards)):
        if not u.mask[k, b]:
            break
        product = 1.0
        for i in range(t, k):
            product *= float(u.discounts[i, b])
            product *= lambda_ * min(math.exp(u.log_rhos[i, b]), 1.0)
        rho = min(math.exp(u.log_rhos[k, b]), math.inf if clip_rho is None else clip_rho)
        after = u.values[k + 1, b] if k + 1 < len(u.rewards) else u.bootstrap[b]
        error = u.rewards[k, b] + u.discounts[k, b] * after - u.values[k, b]
        total += product * rho * float(error)
    return total


@given(KINDS, st.floats(0, 1), st.sampled_from([None, 0.7, 1.0, 2.0]), st.integers(0, 99))
def test_it_is_the_closed_form(
    kinds: list[str], lambda_: float, clip_rho: float | None, seed: int
) -> None:
    u = make_unroll(kinds, seed=seed)
    found = run(u, lambda_=lambda_, clip_rho=clip_rho, clip_pg_rho=clip_rho)
    steps = len(kinds[0])
    limit = math.inf if clip_rho is None else clip_rho
    for b in range(len(kinds)):
        slow = [slow_target(u, t, b, lambda_, clip_rho) for t in range(steps)]
        slow.append(float(u.bootstrap[b]))
        assert found.targets[:, b].tolist() == pytest.approx(slow[:-1], abs=1e-9)
        for t in range(steps):
            gain = float(u.rewards[t, b] + u.discounts[t, b] * slow[t + 1] - u.values[t, b])
            expected = float(u.mask[t, b]) * min(math.exp(u.log_rhos[t, b]), limit) * gain
            assert found.advantages[t, b].item() == pytest.approx(expected, abs=1e-9)


@given(KINDS, st.integers(0, 99))
def test_on_policy_it_is_the_lambda_return(kinds: list[str], seed: int) -> None:
    u = make_unroll(kinds, seed=seed)
    u.log_rhos = torch.zeros_like(u.log_rhos)
    expected = lambda_returns(
        u.rewards, u.discounts, u.values, u.bootstrap, lambda_=0.7, mask=u.mask
    )
    assert torch.allclose(run(u, lambda_=0.7).targets, expected)


@given(KINDS, st.integers(0, 99))
def test_a_packed_unroll_is_its_episodes_one_by_one(kinds: list[str], seed: int) -> None:
    u = make_unroll(kinds, seed=seed)
    packed = run(u)
    for stream, kind in enumerate(kinds):
        for begin, end in episodes(kind):
            if begin < end:
                alone = run(u.part(begin, end, stream))
                place = slice(begin, end), slice(stream, stream + 1)
                for mine, theirs in zip(packed, alone, strict=True):
                    assert torch.allclose(mine[place], theirs)


def test_a_time_limit_is_valued_by_its_own_last_observation() -> None:
    # Worth 1 up to the time limit, the next episode 100: the advantage at the cut is 0, not 99.
    values = torch.tensor([[1.0], [1.0], [100.0]])
    nothing = torch.zeros(3, 1)
    mask = torch.tensor([[1.0], [0.0], [1.0]])
    found = vtrace(nothing, nothing, nothing + 1, values, values[2], mask=mask)
    assert found.targets.flatten().tolist() == [1.0, 1.0, 100.0]
    assert found.advantages.flatten().tolist() == [0.0, 0.0, 0.0]


def test_streams_do_not_touch_each_other() -> None:
    u = make_unroll(["MMTMM", "MMMMM", "MUMMM"])
    before = run(u)
    u.rewards[:, 1] += 5.0
    u.values[:, 1] -= 3.0
    after = run(u)
    for mine, theirs in zip(before, after, strict=True):
        assert torch.equal(mine[:, ::2], theirs[:, ::2])
        assert not torch.equal(mine[:, 1], theirs[:, 1])


@pytest.mark.parametrize("shape", [(3, 2, 1), (3,), (2, 2)])
@pytest.mark.parametrize("name", ["log_rhos", "values", "mask", "discounts"])
def test_another_shape_is_refused_with_both(name: str, shape: tuple[int, ...]) -> None:
    u = make_unroll(["MMM", "MMM"])
    setattr(u, name, torch.zeros(shape))
    with pytest.raises(ValueError, match=r"\[3, 2\]|bootstrap \[2\]") as refused:
        run(u)
    assert str(list(shape)) in str(refused.value)


def test_no_gradient_flows() -> None:
    u = make_unroll(["MMU"])
    u.values.requires_grad_()
    assert not any(each.requires_grad for each in run(u))
