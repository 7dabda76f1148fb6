"""Observations of every shape become one flat tensor, in the order of the spec."""

import re
from typing import Any

import pytest
import torch

from session.errors import ConfigError
from surreal_like.errors import SpecError
from surreal_like.network.encoder import CNN, FlatEncoder, make_encoder
from surreal_like.network.torso import Torso

VECTOR = {"type": "float32", "dim": [4]}
IMAGE = {"type": "uint8", "dim": [36, 40, 3]}
DISCRETE = {"type": "int64", "dim": [], "num": 5}

CASES: list[tuple[dict[str, Any], Any, int]] = [
    (VECTOR, torch.randn(2, 4), 4),
    ({"type": "float32", "dim": []}, torch.randn(2), 1),
    ({"type": "float32", "dim": [2, 3]}, torch.randn(2, 2, 3), 6),
    ({"type": "bool", "dim": [3]}, torch.ones(2, 3, dtype=torch.bool), 3),
    (DISCRETE, torch.tensor([0, 4]), 5),
    ({"type": "int64", "dim": [2], "num": [3, 2]}, torch.tensor([[2, 0], [1, 1]]), 5),
    ({"type": "int8", "dim": [2, 2], "num": 2}, torch.zeros(2, 2, 2, dtype=torch.int8), 8),
    (IMAGE, torch.zeros(2, 36, 40, 3, dtype=torch.uint8), 32),
    ({"type": "uint8", "dim": [4, 36, 36]}, torch.zeros(2, 4, 36, 36, dtype=torch.uint8), 32),
    ({"type": "uint8", "dim": [40, 36]}, torch.zeros(2, 40, 36, dtype=torch.uint8), 32),
    ({"type": "float32", "dim": [40, 36]}, torch.zeros(2, 40, 36), 1440),
    ({"type": "uint8", "dim": [4, 36, 40, 3]}, torch.zeros(2, 4, 36, 40, 3).byte(), 32),
    ({"type": "uint8", "dim": [4, 3, 36, 40]}, torch.zeros(2, 4, 3, 36, 40).byte(), 32),
    ({"type": "uint8", "dim": [36, 36, 1]}, torch.zeros(2, 36, 36, 1).byte(), 32),
    ({"type": "float32", "dim": [4, 3]}, torch.zeros(2, 4, 3), 12),
    ({"type": "int64", "dim": [3], "num": 5}, torch.zeros(2, 3).long(), 15),
    ({"type": "uint8", "dim": [8, 8, 3]}, torch.zeros(2, 8, 8, 3, dtype=torch.uint8), 192),
    ({"0": VECTOR, "1": DISCRETE}, (torch.randn(2, 4), torch.tensor([1, 2])), 9),
    (
        {"goal": VECTOR, "cameras": {"left.eye": IMAGE}},
        {
            "cameras": {"left.eye": torch.zeros(2, 36, 40, 3, dtype=torch.uint8)},
            "goal": torch.randn(2, 4),
        },
        36,
    ),
]


@pytest.mark.parametrize(("spec", "obs", "size"), CASES)
def test_every_observation_becomes_a_row_of_floats(
    spec: dict[str, Any], obs: Any, size: int
) -> None:
    encoder = make_encoder(spec, image_features=32)
    features = encoder(obs)
    assert encoder.out_features == size
    assert features.shape == (2, size)
    assert features.dtype == torch.float32


def test_a_flat_observation_is_not_copied() -> None:
    obs = torch.randn(3, 4)
    assert make_encoder(VECTOR)(obs).data_ptr() == obs.data_ptr()


def test_parts_stand_in_the_order_of_the_spec_whatever_the_order_of_the_observation() -> None:
    encoder = make_encoder({"b": VECTOR, "a": DISCRETE})
    x = torch.randn(1, 4)
    joined = encoder({"a": torch.tensor([3]), "b": x})
    assert torch.equal(joined, torch.cat([x, torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]])], 1))


def test_each_choice_of_a_multi_discrete_one_has_its_own_columns() -> None:
    encoder = make_encoder({"type": "int64", "dim": [2], "num": [3, 2]})
    assert encoder(torch.tensor([[2, 0]])).tolist() == [[0.0, 0.0, 1.0, 1.0, 0.0]]


def test_bytes_are_scaled_and_nothing_else_is() -> None:
    byte = make_encoder({"type": "uint8", "dim": [2]})
    assert byte(torch.tensor([[0, 255]], dtype=torch.uint8)).tolist() == [[0.0, 1.0]]
    whole = make_encoder({"type": "int32", "dim": [2]})
    assert whole(torch.tensor([[0, 255]], dtype=torch.int32)).tolist() == [[0.0, 255.0]]


def test_channels_first_and_channels_last_are_the_same_image() -> None:
    last, first = CNN([40, 36, 3]), CNN([3, 40, 36])
    first.load_state_dict(last.state_dict())
    image = torch.randint(0, 256, (2, 40, 36, 3), dtype=torch.uint8)
    assert torch.allclose(last(image), first(image.permute(0, 3, 1, 2)), atol=1e-6)


@pytest.mark.parametrize("channels_last", [True, False])
def test_the_frames_of_a_stack_are_channels(channels_last: bool) -> None:
    image = torch.randint(0, 256, (2, 4, 3, 40, 36), dtype=torch.uint8)
    flat = CNN([12, 40, 36])
    stack = image.movedim(2, -1) if channels_last else image
    stacked = CNN(stack.shape[1:])
    stacked.load_state_dict(flat.state_dict())
    assert torch.allclose(stacked(stack), flat(image.reshape(2, 12, 40, 36)), atol=1e-6)


def test_an_image_without_channels_has_one() -> None:
    one, none = CNN([1, 40, 36]), CNN([40, 36])
    none.load_state_dict(one.state_dict())
    image = torch.randint(0, 256, (2, 40, 36), dtype=torch.uint8)
    assert torch.allclose(none(image), one(image[:, None]), atol=1e-6)


def test_the_nature_cnn_sees_a_float_image_as_it_is_and_bytes_scaled() -> None:
    network = CNN([1, 36, 36], out_features=8)
    image = torch.randint(0, 256, (2, 1, 36, 36), dtype=torch.uint8)
    assert torch.allclose(network(image), network(image.float() / 255.0), atol=1e-5)


def test_the_nature_cnn_of_84_pixels_has_the_layers_of_the_paper() -> None:
    shapes = [list(each.shape) for each in CNN([4, 84, 84]).parameters() if each.dim() > 1]
    assert shapes == [[32, 4, 8, 8], [64, 32, 4, 4], [64, 64, 3, 3], [512, 3136]]


def test_an_image_that_the_nature_cnn_cannot_take_is_refused() -> None:
    with pytest.raises(SpecError, match=r"\[3, 20, 20\] is too small .*\[64, 3, 1\]\]"):
        CNN([3, 20, 20])


def test_convolutions_of_ones_own() -> None:
    small = make_encoder(
        {"type": "uint8", "dim": [4, 84, 84]},
        image_features=256,
        convolutions=[[16, 8, 4], [32, 4, 2]],
    )
    shapes = [list(each.shape) for each in small.parameters() if each.dim() > 1]
    assert shapes == [[16, 4, 8, 8], [32, 16, 4, 4], [256, 32 * 9 * 9]]


def test_an_image_is_what_the_convolutions_leave_a_pixel_of() -> None:
    small = {"type": "bool", "dim": [10, 10, 4]}
    assert isinstance(make_encoder(small), FlatEncoder)
    assert isinstance(make_encoder(small, convolutions=[]), FlatEncoder)
    seen = make_encoder(small, image_features=8, convolutions=[[16, 3, 1]])
    assert isinstance(seen, CNN)
    assert seen.channels == 4
    assert seen(torch.ones(2, 10, 10, 4, dtype=torch.bool)).shape == (2, 8)
    # 16 + 2 x 4 - 4 = 20 pixels are the least of these two.
    for side, kind in ((19, FlatEncoder), (20, CNN)):
        spec = {"type": "uint8", "dim": [side, side, 3]}
        assert isinstance(make_encoder(spec, convolutions=[[16, 8, 4], [32, 4, 2]]), kind)


def test_convolutions_are_normalized_over_channels_and_pixels() -> None:
    plain = CNN([1, 36, 36])
    normed = CNN([1, 36, 36], layer_norm=True)
    count = sum(parameter.numel() for parameter in plain.parameters())
    more = 2 * (32 + 64 + 64 + 512)
    assert sum(parameter.numel() for parameter in normed.parameters()) == count + more
    convolution, norm, *_ = normed.layers
    x = convolution(torch.rand(2, 1, 36, 36))
    flat = x.flatten(1)
    expected = (flat - flat.mean(1, keepdim=True)) / (
        flat.var(1, keepdim=True, correction=0) + 1e-5
    ).sqrt()
    torch.testing.assert_close(norm(x).flatten(1), expected)


@pytest.mark.parametrize("convolution", [4, [16, 8], [16, 0, 4], [16, 8, 4.0], [16, 8, 4, 1]])
def test_a_malformed_convolution_is_named(convolution: Any) -> None:
    message = re.escape(f"model.convolutions has {convolution}, expected three whole numbers")
    with pytest.raises(ConfigError, match=message):
        CNN([4, 84, 84], convolutions=[convolution])


def test_a_malformed_spec_is_refused() -> None:
    with pytest.raises(SpecError, match="obs_spec"):
        make_encoder({"type": "float32"})


def test_a_torso_without_hidden_layers_is_its_encoder() -> None:
    torso = Torso(VECTOR, hidden_sizes=())
    obs = torch.randn(2, 4)
    assert torso.out_features == 4
    assert torch.equal(torso(obs), obs)


def test_offsets_of_one_hot_parts_do_not_travel() -> None:
    assert list(make_encoder(DISCRETE).state_dict()) == []


def test_learning_and_acting_see_the_same_features() -> None:
    network, image = CNN((4, 84, 84)), torch.randint(0, 256, (3, 4, 84, 84)).byte()
    learned = network(image)
    with torch.no_grad():
        torch.testing.assert_close(network(image), learned)
    learned.square().mean().backward()
    slow = CNN((4, 84, 84))
    slow.load_state_dict(network.state_dict())
    slow.layers(image / 255.0).square().mean().backward()
    for mine, theirs in zip(network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_the_bytes_of_an_image_stay_as_they_are() -> None:
    image = torch.full((1, 36, 36), 255, dtype=torch.uint8)
    CNN((36, 36))(image)
    assert (image == 255).all()
