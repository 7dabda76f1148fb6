"""With `parameter_publish.encoding: half` weights are rounded, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zmq
from torch import nn

from session.process.clock import CountedClock
from session.wire import AddressBook, Identity, Wire
from surreal_like.data.parameters import Parameters
from surreal_like.learner.publisher import Publisher
from surreal_like.network.flat import load_flat, manifest_of, named_tensors, read_flat, weights_of
from surreal_like.transform.normalizer import Normalizer

ENDPOINT = "learner.parameters"
# No float16 has this value: it would become 1000.
NUMBER = 1000.1


class Tied(nn.Module):
    """Two names of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = self.first


class Table(nn.Module):
    """A buffer, and a parameter that nothing trains."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4))
        self.fixed = nn.Parameter(torch.zeros(4), requires_grad=False)
        self.trained = nn.Parameter(torch.zeros(()))


KINDS: list[tuple[nn.Module, set[str]]] = [
    (nn.Linear(3, 2), {"weight", "bias"}),
    (nn.Embedding(3, 2), {"weight"}),
    (nn.GRUCell(2, 3), {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}),
    (nn.BatchNorm1d(3), {"weight", "bias"}),
    (Normalizer({"type": "float32", "dim": [3]}), set()),
    (Table(), {"trained"}),
    (Tied(), {f"{part}.{name}" for part in ("first", "again") for name in ("weight", "bias")}),
]


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    context: zmq.Context[Any] = zmq.Context()
    wire = Wire(context, AddressBook.ipc([ENDPOINT], tmp_path), Identity("learner", 5))
    yield Publisher(wire.publisher(ENDPOINT), CountedClock(), incarnation=5, version=0, half=True)
    wire.close(0)
    context.destroy(0)


def received(modules: Mapping[str, nn.Module], parameters: Parameters | None) -> set[str]:
    """Names of the tensors that agents get rounded."""
    assert parameters is not None
    sent = Parameters.from_message(parameters.to_message()).decode_half()
    before = {name: each.clone() for name, each in named_tensors(modules).items()}
    load_flat(modules, sent.flat, sent.manifest)
    after = named_tensors(modules)
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(("module", "weights"), KINDS, ids=lambda each: type(each).__name__)
def test_only_weights_are_rounded(
    publisher: Publisher, module: nn.Module, weights: set[str]
) -> None:
    modules = {"policy": module}
    with torch.no_grad():
        for tensor in named_tensors(modules).values():
            tensor.fill_(NUMBER)
    wanted = {f"policy/{name}" for name in weights}
    assert weights_of(modules) == wanted
    assert weights_of(module) == weights
    flat, manifest = read_flat(modules), manifest_of(named_tensors(modules))
    publisher.publish(flat, manifest, iteration=1, env_steps=1, weights=weights_of(modules))
    assert received(modules, publisher.newest) == wanted


def test_normalised_observations_stay_apart() -> None:
    normalizer = Normalizer({"type": "float32", "dim": [1]})
    hot, cold = torch.tensor([[1000.3]]), torch.tensor([[1000.1]])
    normalizer.update(torch.cat([hot, cold] * 50))
    flat, manifest = read_flat(normalizer), manifest_of(named_tensors(normalizer))
    half = Parameters(flat, manifest, 1, 1, 1).encode_half(weights_of(normalizer))
    assert half.flat.tobytes() == flat.tobytes()
    np.testing.assert_allclose(normalizer(hot) - normalizer(cold), [[2.0]], rtol=1e-3)
