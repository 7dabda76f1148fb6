"""Random shifts of images: pixel by pixel the formula, in every layout, from one generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from session import nest
from session.errors import ConfigError
from surreal_like.addons.augment.shifts import shift_images
from surreal_like.algorithm.dqn import DQN
from surreal_like.algorithm.ppo import PPO
from surreal_like.data.batch import Batch
from tests.surreal_like.algorithm import unrolls
from tests.surreal_like.algorithm.unrolls import VECTOR

# Small images count as such by small convolutions.
MODEL = {"convolutions": [[4, 3, 1]], "hidden_sizes": [8], "image_features": 8}
PIXELS = 2
# Shape of an observation, axes of height and width.
LAYOUTS = {
    "channels last": ([6, 5, 3], (0, 1)),
    "channels first": ([3, 6, 5], (1, 2)),
    "no channels": ([6, 5], (0, 1)),
    "stack, channels last": ([4, 6, 5, 2], (1, 2)),
    "stack, channels first": ([4, 1, 6, 5], (2, 3)),
}
MOVES = {(down, right) for down in range(-2, 3) for right in range(-2, 3)}


def slow_shift(image: torch.Tensor, move: tuple[int, int], axes: tuple[int, int]) -> torch.Tensor:
    """Returns an image of any layout shifted pixel by pixel, with repeated edges."""
    x = image.movedim(axes, (0, 1))
    found, (height, width) = x.clone(), x.shape[:2]
    for row in range(height):
        for column in range(width):
            there = min(max(row + move[0], 0), height - 1)
            found[row, column] = x[there, min(max(column + move[1], 0), width - 1)]
    return found.movedim((0, 1), axes)


def moves_of(before: torch.Tensor, after: torch.Tensor, axes: tuple[int, int]) -> tuple[int, int]:
    """Returns the only move that makes one image of the other."""
    [move] = [each for each in MOVES if torch.equal(slow_shift(before, each, axes), after)]
    return move


def image(dim: list[int], kind: str = "uint8") -> dict[str, Any]:
    return {"type": kind, "dim": dim}


def make(algorithm: Any, obs_spec: Any, *, pixels: Any = PIXELS, **changed: Any) -> Any:
    torch.manual_seed(0)
    learner = {"model": MODEL, "parts": [{"part": "random_shifts", "args": {"pixels": pixels}}]}
    made = algorithm.learner(
        **unrolls.configs(algorithm, obs_spec=obs_spec, learner=learner, **changed)
    )
    made.flow.counts()
    return made


def look(spec: Any, *leading: int) -> Any:
    """Random observations of a spec."""
    if "type" not in spec:
        return {key: look(part, *leading) for key, part in spec.items()}
    if spec["type"] == "uint8":
        return torch.randint(0, 256, (*leading, *spec["dim"]), dtype=torch.uint8)
    return torch.randn(*leading, *spec["dim"])


def rows(spec: Any, size: int = 12) -> Batch:
    return Batch(
        obs=look(spec, size),
        obs_next=look(spec, size),
        actions=torch.randint(0, 3, (size,)),
        rewards=torch.randn(size),
        discounts=torch.full((size,), 0.9),
        weights=torch.ones(size),
        extras={},
    )


def test_a_shift_by_hand() -> None:
    pixels = torch.tensor([[[[1, 2], [3, 4]]]]).expand(3, 1, 2, 2)
    offsets = torch.tensor([[0, 1, -1], [0, 0, 1]])
    found = shift_images(pixels, offsets)
    assert found[:, 0].tolist() == [[[1, 2], [3, 4]], [[3, 4], [3, 4]], [[2, 2], [2, 2]]]


@pytest.mark.parametrize(
    ("layout", "kind"),
    [*((layout, "uint8") for layout in LAYOUTS), ("channels last", "float32")],
)
def test_each_row_moves_as_a_whole_and_by_itself(layout: str, kind: str) -> None:
    dim, axes = LAYOUTS[layout]
    spec = image(dim, kind)
    batch = rows(spec, 40)
    before = {name: batch[name].clone() for name in ("obs", "obs_next")}
    make(DQN, spec).learn(batch)
    found = {}
    for name, images in before.items():
        assert batch[name].dtype == images.dtype
        assert batch[name].shape == images.shape
        pairs = zip(images, batch[name], strict=True)
        found[name] = [moves_of(*pair, axes) for pair in pairs]
    assert found["obs"] != found["obs_next"]
    assert len(set(found["obs"])) > 10
    for each in zip(*found["obs"], strict=True):
        assert set(each) == set(range(-PIXELS, PIXELS + 1))


def test_other_parts_stay_as_they_are() -> None:
    spec = {
        "camera": image([6, 5, 3]),
        "other": image([6, 5, 3]),
        "vector": VECTOR,
        "action_mask": {"type": "int8", "dim": [3]},
    }
    batch = rows(spec)
    batch.obs["action_mask"] = batch.obs_next["action_mask"] = torch.ones(12, 3, dtype=torch.int8)
    before = nest.map(torch.clone, batch.obs)
    make(DQN, spec).learn(batch)
    assert set(batch.obs) == set(spec)
    for name in ("vector", "action_mask"):
        assert torch.equal(batch.obs[name], before[name])
    moves = [
        [moves_of(*pair, (0, 1)) for pair in zip(before[name], batch.obs[name], strict=True)]
        for name in ("camera", "other")
    ]
    assert moves[0] != moves[1]


def test_all_rows_of_a_stream_move_alike() -> None:
    spec = image([6, 5, 3])
    batch = unrolls.make_batch(unrolls.DISCRETE)
    rows_and_streams = batch.first.shape
    batch["obs"] = look(spec, *rows_and_streams)
    before = batch.obs.clone()
    make(PPO, spec).learn(batch)
    moves = []
    for stream in range(rows_and_streams[1]):
        pairs = zip(before[:, stream], batch.obs[:, stream], strict=True)
        [move] = {moves_of(*pair, (0, 1)) for pair in pairs}
        moves.append(move)
    assert len(set(moves)) > 1


def test_offsets_go_on_from_the_state_of_a_checkpoint() -> None:
    spec = image([6, 5, 3])
    one, other = make(DQN, spec), make(DQN, spec)
    one.learn(rows(spec))
    [generator] = {id(each): each for each in one.checkpointed_generators().values()}.values()
    other.generator.set_state(generator.get_state())
    torch.manual_seed(7)
    first = rows(spec)
    second = Batch({**first, "obs": first.obs.clone(), "obs_next": first.obs_next.clone()})
    before = first.obs.clone()
    for learner, batch in ((one, first), (other, second)):
        learner.learn(batch)
    assert torch.equal(first.obs, second.obs)
    assert not torch.equal(first.obs, before)


@pytest.mark.parametrize(
    ("spec", "pixels", "words"),
    [
        (VECTOR, 4, "shifts images, but env_config.obs_spec has none"),
        (image([6, 5], "float32"), 4, "shifts images, but env_config.obs_spec has none"),
        (image([6, 5, 3]), 0, "pixels of random_shifts is 0, expected a whole number of 1"),
        (image([6, 5, 3]), 1.5, r"pixels of random_shifts is 1\.5, expected a whole number"),
        (image([6, 5, 3]), True, "pixels of random_shifts is True, expected a whole number"),
    ],
)
def test_what_cannot_be_shifted_is_refused(spec: Any, pixels: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(DQN, spec, pixels=pixels)


def test_the_plan_shows_it() -> None:
    assert "replay -> random_shifts(2) -> " in make(DQN, image([6, 5, 3])).flow.describe()
