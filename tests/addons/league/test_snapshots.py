"""Snapshots of a learner, when they are made and when they are read again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from surreal_like.addons.league.snapshots import League
from surreal_like.learner.publisher import Publisher
from surreal_like.network.flat import named_tensors, weights_of
from tests.surreal_like.learner.test_half import NUMBER, received
from tests.surreal_like.learner.test_half import publisher as publisher


def test_only_weights_of_snapshots_are_rounded(publisher: Publisher, tmp_path: Path) -> None:
    modules = {"policy": nn.Linear(3, 3)}
    link = SimpleNamespace(publisher=publisher)
    learner: Any = SimpleNamespace(iteration=7, env_steps=9, link=link, module_dict=lambda: modules)
    for snapshot in (League.tick, League.restore):
        with torch.no_grad():
            for tensor in named_tensors(modules).values():
                tensor.fill_(NUMBER)
        publisher.snapshots.clear()
        snapshot(League(tmp_path, {"every": 1, "keep": 3}, print), learner)
        assert received(modules, publisher.snapshots[7]) == weights_of(modules)
    assert [path.name for path in (tmp_path / "league").iterdir()] == ["7"]
