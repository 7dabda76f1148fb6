"""Target networks follow when they should, by as much as they should."""

import pytest
import torch
from torch import nn

from session.errors import ConfigError
from surreal_like.learner.target import TargetNetwork
from surreal_like.network.flat import flatten_parameters
from surreal_like.network.module import Module


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def shift(module: Module, distance: float) -> None:
    with torch.no_grad():
        for each in module.parameters():
            each.add_(distance)
        module.get_buffer("count").add_(1)


def test_a_hard_target_is_equal_at_every_period_and_still_in_between() -> None:
    online = Net()
    flatten_parameters(online)
    target = TargetNetwork(online, mode="hard", period=3)
    equal = []
    for _ in range(7):
        shift(online, 1.0)
        target.update()
        equal.append(target.module.hash() == online.hash())
    assert equal == [False, False, True, False, False, True, False]
    assert int(target.module.get_buffer("count")) == 6


def test_a_soft_target_moves_by_its_share() -> None:
    online = Net()
    target = TargetNetwork(online, mode="soft", tau=0.25)
    # An optimiser that is made after the target gives the parameters other memory.
    flatten_parameters(online)
    start = target.module.layer.weight.clone()
    shift(online, 1.0)
    target.update()
    assert torch.allclose(target.module.layer.weight, start + 0.25)
    target.update()
    assert torch.allclose(target.module.layer.weight, start + 0.25 + 0.75 * 0.25)
    assert int(target.module.get_buffer("count")) == 1


def test_any_module_of_torch_has_a_target() -> None:
    online = torch.nn.Linear(2, 1)
    target = TargetNetwork(online, mode="soft", tau=0.5)
    with torch.no_grad():
        online.weight.add_(1.0)
    target.update()
    assert torch.allclose(target.module.weight, online.weight - 0.5)
    assert not target.module.training
    assert not any(each.requires_grad for each in target.module.parameters())
    assert online.training


def test_a_target_does_not_learn() -> None:
    online = Net()
    target = TargetNetwork(online)
    assert not any(each.requires_grad for each in target.module.parameters())
    assert all(each.requires_grad for each in online.parameters())


def test_a_restored_target_goes_on_in_the_middle_of_its_period() -> None:
    online = Net()
    target = TargetNetwork(online, mode="hard", period=3)
    shift(online, 1.0)
    target.update()
    target.update()
    state = target.state_dict()
    again = TargetNetwork(online, mode="hard", period=3)
    again.load_state_dict(state)
    assert again.module.hash() == target.module.hash() != online.hash()
    again.update()
    assert again.module.hash() == online.hash()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "medium"}, "'medium', expected hard or soft"),
        ({"period": 0}, "period >= 1"),
        ({"tau": 0.0}, "0 < tau <= 1"),
        ({"tau": 1.5}, "0 < tau <= 1"),
    ],
)
def test_what_is_no_target_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TargetNetwork(Net(), **options)  # type: ignore[arg-type]
