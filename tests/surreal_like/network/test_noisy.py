"""Noisy layers: the golden one, a twin with one weight matrix per row, sources of noise."""

import copy
import math
from collections.abc import Callable
from typing import cast

import pytest
import torch

from surreal_like.network.noisy import Noise, NoisyLinear, factor_quantiles, factors

X = torch.tensor([[1.0, -2.0]])


def golden() -> NoisyLinear:
    layer = NoisyLinear(2, 3)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, -0.5], [1.0, 0.0], [0.0, 0.25]]))
        layer.weight_sigma.fill_(0.1)
        layer.bias.copy_(torch.tensor([0.0, 0.1, -0.1]))
        layer.bias_sigma.fill_(0.2)
    return layer


def test_the_golden_layer_with_and_without_noise() -> None:
    layer = golden()
    noise = (factors(torch.tensor(e)) for e in ([4.0, -1.0], [1.0, -0.25, 0.09]))
    assert layer.with_noise(X, *noise)[0].tolist() == pytest.approx([2.1, 0.8, -0.42], rel=1e-5)
    assert layer(X)[0].tolist() == pytest.approx([1.5, 1.1, -0.6], rel=1e-5)


@pytest.mark.parametrize("leading", [(5,), (4, 5)])
def test_each_row_has_a_weight_matrix_of_its_own(leading: tuple[int, ...]) -> None:
    noise = Noise()
    noise.generator = torch.Generator().manual_seed(3)
    first, second = (NoisyLinear(*sizes, noise=noise) for sizes in ((4, 3), (3, 2)))
    noise.draw(leading)
    x = torch.randn(*leading, 4)
    expected = x
    for layer, place in ((first, 0), (second, 2)):
        f_in, f_out = noise.of(place)
        assert f_in.shape == (*leading, layer.in_features)
        assert f_out.shape == (*leading, layer.out_features)
        weights = layer.weight + layer.weight_sigma * f_out.unsqueeze(-1) * f_in.unsqueeze(-2)
        biases = layer.bias + layer.bias_sigma * f_out
        expected = (weights @ expected.unsqueeze(-1)).squeeze(-1) + biases
    torch.testing.assert_close(second(first(x)), expected, rtol=1e-5, atol=1e-5)


def test_initial_weights_and_deviations_depend_on_the_width() -> None:
    layer = NoisyLinear(100, 50, sigma=0.4)
    assert float(layer.weight_sigma.detach().min()) == pytest.approx(0.04)
    assert float(layer.bias_sigma.detach().max()) == pytest.approx(0.04)
    assert 0.099 < float(layer.weight.detach().abs().max()) <= 0.1
    assert float(layer.bias.detach().abs().max()) <= 0.1


def test_deviations_get_a_gradient_only_by_noise() -> None:
    layer = golden()
    layer(X).sum().backward()
    assert layer.weight_sigma.grad is None
    layer.with_noise(X, torch.ones(1, 2), torch.ones(1, 3)).sum().backward()  # type: ignore[no-untyped-call]
    assert layer.weight_sigma.grad is not None
    assert layer.weight_sigma.grad.tolist() == [[1.0, -2.0]] * 3


def rows_that_differ(draw: Callable[[], torch.Tensor]) -> list[bool]:
    return [not torch.equal(one, other) for one, other in zip(draw(), draw(), strict=True)]


def test_noise_is_drawn_anew_and_ends_with_its_generator() -> None:
    noise = Noise()
    layer = NoisyLinear(2, 3, noise=noise)

    def draw() -> torch.Tensor:
        noise.draw((4,))
        found: torch.Tensor = layer(X.expand(4, 2)).detach()
        return found

    assert rows_that_differ(draw) == [False] * 4
    noise.generator = torch.Generator()
    assert rows_that_differ(draw) == [True] * 4
    assert not torch.equal(draw()[0], draw()[1])
    noise.generator = None
    expected = torch.nn.functional.linear(X, layer.weight, layer.bias).expand(4, 3)
    torch.testing.assert_close(draw(), expected.detach())


def test_a_copy_shares_the_source_and_not_the_noise() -> None:
    noise = Noise()
    noise.generator = torch.Generator().manual_seed(0)
    layers = torch.nn.Sequential(NoisyLinear(2, 3, noise=noise), NoisyLinear(3, 3, noise=noise))
    noise.draw((1,))
    other = copy.deepcopy(layers)
    theirs, same = (cast(NoisyLinear, each)._noise for each in other)
    assert theirs is same
    assert theirs.generator is noise.generator
    found = layers(X)
    theirs.draw((1,))
    assert torch.equal(layers(X), found)
    assert not torch.equal(other(X), found)
    theirs.generator = None
    noise.draw((1,))
    assert not torch.equal(layers(X), found)


def drawn_factors(rows: int) -> torch.Tensor:
    noise = Noise()
    noise.generator = torch.Generator().manual_seed(0)
    NoisyLinear(4, 3, noise=noise)
    noise.draw((rows,))
    return torch.cat(noise.of(0), -1)


def test_factors_are_those_of_normal_numbers() -> None:
    drawn = drawn_factors(50_000)
    assert float(drawn.mean()) == pytest.approx(0.0, abs=0.005)
    assert float(drawn.square().mean()) == pytest.approx(math.sqrt(2 / math.pi), abs=0.005)
    for column in drawn.T:
        found = torch.special.ndtr(column * column.abs()).histc(20, 0.0, 1.0)
        expected = len(column) / 20
        # 0.999 quantile of chi-square with 19 degrees of freedom.
        assert float(((found - expected) ** 2 / expected).sum()) < 43.82
    table = factor_quantiles()
    assert torch.equal(table, -table.flip(0))
    assert set(drawn.reshape(-1).tolist()) <= set(table.tolist())


def test_factors_of_rows_and_places_are_independent() -> None:
    drawn = drawn_factors(50_000)
    # Odd places of the same 64 random bits, and rows that follow one another.
    for values in (drawn, torch.cat((drawn[1:], drawn[:-1]), -1)):
        together = torch.corrcoef(values.T) - torch.eye(values.shape[-1])
        assert float(together.abs().max()) < 0.03
