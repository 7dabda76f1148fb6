"""Random generators: all that decide what is learned are in checkpoints and in `get_state`.

`held` walks the objects of a learner, of its plan and of a replay: what it finds is compared with
what is saved, so that a generator that somebody adds later is found, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest
import torch

from surreal_like.addons.scripts.policy import Policy, make_policy
from surreal_like.addons.scripts.worker_set import RolloutWorker
from surreal_like.algorithm.builder import build_algorithm
from surreal_like.algorithm.catalog import describe_algorithms
from surreal_like.algorithm.dqn import DQN
from surreal_like.dataflow import (
    Flow,
    LocalReplay,
    Operator,
    concurrently,
    every,
    mix_in,
    replay,
    store,
    train_one_step,
)
from surreal_like.dataflow.items import copy_item
from surreal_like.learner.saver import OPTIMIZER, Content, write_content
from surreal_like.network.generators import Generator, generators_of, restore_states, states_of
from surreal_like.replay.kinds import FIFOReplay, PrioritizedReplay, UniformReplay
from surreal_like.replay.replay import Replay
from tests.add_ons import load_replays
from tests.surreal_like.replay.chunks import chunk_of
from tests.surreal_like.replay.configs import configs

SMALL = (
    "learner_config.model.hidden_sizes=[8]",
    "learner_config.device=cpu",
    "learner_config.replay.sequence={length: 6, burn_in: 2, period: 3}",
)


def mixed_plan(learner: Any) -> Flow:
    """A plan with every operator of the library that draws, and one of an author's."""
    local, jitter = LocalReplay(64, seed=3), np.random.default_rng(4)

    def shaken(batch: Any) -> Any:
        batch["rewards"] = batch.rewards + float(jitter.normal())
        return batch

    fresh = replay(learner).for_each(store(local)).combine(mix_in(4, 0.5, seed=2))
    fresh = fresh.for_each(
        every(1, Operator("shaken", shaken, generators=(jitter,)), learner=learner)
    )
    old = replay(local, batch_size=8)
    return concurrently([fresh, old]).for_each(train_one_step(learner))


def drawing_loss(learner: Any, batch: Any) -> torch.Tensor:
    """A loss that draws from all that an author may draw from."""
    drawn = learner.own.normal() + learner.another.random() + float(torch.rand(()))
    drawn += np.random.rand() + random.random()  # noqa: NPY002
    _, values = learner.network.unroll(batch.obs, None, batch.first)
    loss: torch.Tensor = (values[:-1] - batch.rewards - drawn).square().mean()
    return loss


def with_generators(learner: Any) -> None:
    learner.own, learner.another = np.random.default_rng(1), random.Random(1)


Mixed = build_algorithm("Mixed", base=DQN, execution_plan=mixed_plan)
Drawing = build_algorithm("Drawing", drawing_loss, after_init=with_generators)
NOISY = "learner_config.model.noisy=0.5"


def made(name: str, *words: str) -> Policy:
    own = {"mixed": Mixed, "drawing": Drawing}
    env = "toy:chain"
    if name in describe_algorithms() and "discrete" not in describe_algorithms()[name].actions:
        env = "toy:target"
    return make_policy(own.get(name, name), env=env, overrides=[*SMALL, *words])


CASES = [*((name, ()) for name in (*describe_algorithms(), "mixed", "drawing")), ("dqn", (NOISY,))]


def held(root: object) -> Iterator[Generator]:
    """Yields the generators that an object can reach through attributes, containers, closures."""
    seen: set[int] = set()
    left: list[Any] = [root]
    while left:
        each: Any = left.pop()
        if id(each) in seen or isinstance(each, type | np.ndarray | torch.Tensor | str | bytes):
            continue
        seen.add(id(each))
        if isinstance(each, Generator):
            yield each
        elif isinstance(each, Mapping):
            left += each.values()
        elif isinstance(each, list | tuple | set) or type(each).__name__ == "deque":
            left += each
        elif isinstance(each, MethodType):
            left += [each.__self__, each.__func__]
        elif isinstance(each, FunctionType):
            left += [cell.cell_contents for cell in each.__closure__ or ()]
        elif type(each).__module__.startswith(("surreal_like", "tests", "torch.nn", "functools")):
            left += vars(each).values() if hasattr(each, "__dict__") else ()
            names = getattr(type(each), "__slots__", ())
            left += [getattr(each, name) for name in names if hasattr(each, name)]


@pytest.mark.parametrize(("name", "words"), CASES)
def test_a_checkpoint_has_every_generator_that_a_learner_can_reach(
    name: str, words: tuple[str, ...]
) -> None:
    learner = made(name, *words).learner
    found = {id(each) for each in (*held(learner), *held(learner.flow))}
    saved = {id(each) for each in learner.checkpointed_generators().values()}
    assert id(learner.generator) in found
    assert found == saved
    assert len(saved) == {"mixed": 4, "drawing": 3}.get(name, 1)


@pytest.mark.parametrize("way", ["state", "checkpoint"])
@pytest.mark.parametrize(("name", "words"), [case for case in CASES if case[0] != "mixed"])
def test_a_restored_learner_learns_the_same_bit_for_bit(
    name: str, words: tuple[str, ...], way: str, tmp_path: Path
) -> None:
    one, two = made(name, *words), made(name, *words)
    with RolloutWorker(one, 3, 12) as worker:
        for _ in range(2):
            one.learn_on_batch(worker.sample())
        batch = worker.sample()
    state = one.get_state()
    write_content(one.learner, tmp_path)
    first = str([one.learn_on_batch(copy_item(batch)) for _ in range(2)])
    if way == "state":
        two.set_state(state)
    else:
        Content.read(two.learner, tmp_path).give(two.learner)
        two.learner.iteration, two.learner.env_steps = state["iteration"], state["env_steps"]
    assert str([two.learn_on_batch(copy_item(batch)) for _ in range(2)]) == first
    others = two.get_weights()
    assert all(np.array_equal(each, others[key]) for key, each in one.get_weights().items())


def test_operators_of_a_restored_plan_draw_on() -> None:
    one, two = made("mixed"), made("mixed")
    with RolloutWorker(one, 3, 12) as worker:
        for _ in range(3):
            one.learn_on_batch(worker.sample())
    before = str(states_of(two.learner.checkpointed_generators()))
    state = one.get_state()
    two.set_state(state)
    states = states_of(two.learner.checkpointed_generators())
    assert str(states) == str(state["rest"]["generators"]) != before
    assert states.keys() == {"generator", "mix_in(4, 0.5)", "shaken", "replay(8 of 64)"}


@pytest.mark.parametrize("name", [*describe_algorithms()])
def test_a_policy_with_the_state_of_another_acts_as_it_would(name: str) -> None:
    one, two = made(name), made(name)
    obs = np.zeros((50, *one.config.env_config.obs_spec.dim), np.float32)
    for _ in range(2):
        one.compute_actions(obs)
    two.set_state(one.get_state())
    expected = [one.compute_actions(obs)[0] for _ in range(2)]
    assert not np.array_equal(*expected)
    assert np.array_equal(expected, [two.compute_actions(obs)[0] for _ in range(2)])


def test_a_checkpoint_of_an_older_release_has_no_generators(tmp_path: Path) -> None:
    one, two = made("ppo"), made("ppo")
    write_content(one.learner, tmp_path)
    rest = torch.load(tmp_path / OPTIMIZER, weights_only=True)
    del rest["generators"], rest["global"]
    torch.save(rest, tmp_path / OPTIMIZER)
    before = two.learner.generator.get_state()
    Content.read(two.learner, tmp_path).give(two.learner)
    assert torch.equal(two.learner.generator.get_state(), before)
    state = one.get_state()
    del state["agents"], state["rest"]["generators"], state["rest"]["global"]
    two.set_state(state)
    assert torch.equal(two.learner.generator.get_state(), before)


KINDS: Mapping[str, Callable[[], Generator]] = {
    "torch": torch.Generator,
    "PCG64": np.random.default_rng,
    "MT19937": lambda: np.random.Generator(np.random.MT19937()),
    "Philox": lambda: np.random.Generator(np.random.Philox()),
    "random": random.Random,
}


def drawn(generator: Any) -> list[float]:
    if isinstance(generator, torch.Generator):
        return torch.rand(3, generator=generator).tolist()
    return [float(generator.random()) for _ in range(3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_each_kind_of_generator_goes_through_a_file(kind: str, tmp_path: Path) -> None:
    one, two = KINDS[kind](), KINDS[kind]()
    drawn(one)
    torch.save(states_of({"x": one}), tmp_path / "states.pt")
    restore_states({"x": two}, torch.load(tmp_path / "states.pt", weights_only=True))
    assert drawn(two) == drawn(one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_another_kind_is_left_out(kind: str) -> None:
    for other, make in KINDS.items():
        if other != kind:
            generator, twin = make(), make()
            states = states_of({"x": generator})
            restore_states({"x": twin}, states)
            restore_states({"x": twin}, states_of({"x": KINDS[kind]()}))
            assert drawn(twin) == drawn(generator)


SEQUENCE = {"sequence": {"length": 2, "period": 2}}
ITERATION = {"unroll_length": 20, "whole_replay_buffer_training": True}
REPLAYS: tuple[tuple[type[Replay], dict[str, Any]], ...] = (
    (UniformReplay, {}),
    (UniformReplay, {"age": {"max_versions": 5}}),
    (UniformReplay, {"iteration": ITERATION, "samples_per_insert": 0.0}),
    (PrioritizedReplay, {}),
    (FIFOReplay, {"replay_proportion": 0.5, "replay_capacity": 40, "batch_size": 4}),
    *((each, SEQUENCE) for each in load_replays() if each.gives() == "sequences"),
)


@pytest.mark.parametrize(("kind", "settings"), REPLAYS)
def test_a_restored_replay_draws_on(kind: type[Replay], settings: dict[str, Any]) -> None:
    options = {"capacity": 400, "min_size": 1, **settings}
    session = {"sender": {"flush_iteration": 5}}
    one, two = (kind(**configs(session=session, **options)) for _ in range(2))
    one.reseed(3)
    for number in range(1, 9):
        chunk = chunk_of(
            "FMMMMT"[: 5 + kind.overlap], "FMMMMM"[: 5 + kind.overlap], sequence=number
        )
        chunk.overlap = kind.overlap
        one.insert_chunk(chunk)
    if kind is FIFOReplay:
        for _ in range(2):
            one.sample_columns(4)
    one.sample_columns(4)
    two.reseed(5)
    two.restore(one.state())
    generators = [{str(n): g for n, g in enumerate(held(each))} for each in (one, two)]
    assert len(generators[0]) == (2 if "iteration" in settings else 1)
    assert str(states_of(generators[0])) == str(states_of(generators[1]))
    again = [each.sample_columns(4) for each in (one, two)]
    assert all(np.array_equal(column, again[1][name]) for name, column in again[0].items())


def test_generators_are_those_among_the_attributes() -> None:
    learner = made("drawing").learner
    assert learner.flow is not None
    assert generators_of(learner).keys() == {"generator", "own", "another"}
